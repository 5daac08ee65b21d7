"""What an error says about the value it was about: a key that was not there, a type, a text, a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from everstep.model import StepError
from everstep.trail.why.values import words_of

_QUOTED = re.compile(r"'([^'\n]{1,200})'|\"([^\"\n]{1,200})\"|`([^`\n]{1,200})`")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_TYPES = {
    "NoneType": "none", "str": "text", "int": "number", "float": "number", "Decimal": "number", "list": "list",
    "tuple": "list", "set": "list", "dict": "dict", "bool": "bool",
}  # fmt: skip
# What the words of an error are about, by the topic that an oddity can have.
_TOPICS = {
    "text": r"json|pars|decod|unterminated|delimiter|truncat|malformed|incomplete|syntax|xml|yaml|unexpected end",
    "twice": r"duplicat|already|twice|unique|once|exists|conflict|double",
    "stale": r"stale|version|etag|mismatch|outdated|conflict|expired|changed|does not match|old\b|revision",
    "late": r"time[d ]?.?out|deadline|expired|too late|too long|slow|late\b",
    "lost": r"missing|never|lost|not found|incomplete|expected \d+|unknown|left over|unmatched|gap\b|no such",
    "scale": r"exceed|budget|limit|too (?:large|big|small|high|low|many|much)|more than|above|below|overflow|negative",
    "empty": r"empty|out of range|NoneType|no items|nothing|at least one|null|StopIteration|zero",
    "error": r"error|fail|unavailable|refused|status",
    "route": r"route|unexpected|not allowed|cannot|unsupported|no handler|wrong|invalid|state",
}
_OF_CODE = frozenset({
    "NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError",
    "NotImplementedError",
})  # fmt: skip
_OF_WISHES = frozenset({"ValueError", "IndexError"})  # the types that they name are what the value was to become, or is
_PATTERNS = {topic: re.compile(pattern, re.IGNORECASE) for topic, pattern in _TOPICS.items()}


@dataclass(slots=True)
class Clues:
    """What is known of the value that an error was about."""

    keys: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)  # of the kinds, those that it surely has
    unfit: set[str] = field(default_factory=set)  # and those that it may have
    wanted: set[str] = field(default_factory=set)  # and those that should be in its place
    words: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    is_about_code: bool = False  # and not about a value
    is_about_a_key: bool = False  # that was not there


def clues_of(error: StepError | None) -> Clues:
    """Read an error. Nothing, where it says nothing."""
    found = Clues()
    if error is None:
        return found
    message = error.message[:4_000]
    quoted = {next(filter(None, each)) for each in _QUOTED.findall(message)}
    short = error.type.rpartition(".")[2]
    found.kinds = {
        _TYPES[word] for word in re.findall(r"\w+", message) if word in _TYPES and word in quoted | _bare(message)
    }
    is_reckoning = message.startswith("unsupported operand type(s) for")
    if "none" in found.kinds:
        found.wanted = found.kinds - {"none"} if is_reckoning else set()
        found.kinds = found.wrong = {"none"}  # whatever else it names was there
    elif is_reckoning and "number" in found.kinds:
        found.wanted, found.wrong = {"number"}, found.kinds - {"number"}  # nobody reckons with the others
    found.unfit = found.wrong or (found.kinds if short not in _OF_WISHES else set())
    found.keys = {word for word in quoted if word not in _TYPES}
    found.words = {*words_of(message), *(word for text in quoted for word in words_of(text)), *_NUMBER.findall(message)}
    found.words |= {text for text in quoted if len(text) >= 3}
    named = re.sub("(Error|Exception)$", "", short)  # every error says that it is one
    parted = re.sub("([a-z])([A-Z])", r"\1 \2", named)  # the words of a name like StaleRecordError
    said = f"{parted} {message}"
    found.topics = {topic for topic, pattern in _PATTERNS.items() if pattern.search(said)}
    found.is_about_code = short in _OF_CODE
    if short in {"IndexError", "ZeroDivisionError"}:
        found.topics.add("empty")
    found.is_about_a_key = short == "KeyError"
    if short in {"KeyError", "AttributeError"}:
        found.topics -= {"text", "error"}
    return found


def _bare(message: str) -> set[str]:
    """Names of types that stand in a message without quotes: `can only concatenate str`, `must be str, not int`."""
    return set(re.findall(r"\b(NoneType|str|int|float|list|dict|tuple)\b", message))
