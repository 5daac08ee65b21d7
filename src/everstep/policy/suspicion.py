"""Whether encoded bytes may hold a secret: the short way, which nearly everything that passes the gate goes.

Searched are encoded bytes, where every string lies in one piece. What is found is a suspicion: the gate takes the value
apart then, string by string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from everstep.policy.patterns import Pattern
from everstep.policy.rules import HINTS, NEAR, RUN, Rule

# Bytes to two letters: x for what tokens are made of, a space for the rest.
_TOKEN_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_SHAPE = bytes(ord("x") if byte in _TOKEN_BYTES else ord(" ") for byte in range(256))
_LONG_RUN = b"x" * RUN

# A name and the opening quote of its value, as in JSON or a printed dict that is itself text; backslashes where such
# text was quoted again. A name in the query of a URL or in a form, of a part of a form, of an option of a command. One
# pattern for each beginning: a search jumps to one, and crawls to one of several. With each, a character that is there
# if it matches.
NAME = "([A-Za-z][A-Za-z0-9_.-]{1,63})"
OPTION = f"(--{NAME[1:-1]})"
_NAMED = [
    (ord(sign), Pattern(pattern.encode()))
    for sign, pattern in [
        ('"', rf"\"(?={NAME}\\*[\"']\s*:\s*b?\\*[\"'])"),
        ("'", rf"'(?={NAME}\\*[\"']\s*:\s*b?\\*[\"'])"),
        ("=", rf"\?(?={NAME}=)"),
        ("=", f"&(?:amp;)?(?={NAME}=)"),
        ("=", rf"form-data; name=\"(?={NAME}\")"),
        ("-", OPTION),
    ]
]
# What a name is set to, as in code or in the printed form of an object: `Login(user='me', password='...')`. The search
# jumps from one equals sign to the next and looks back for the name.
_EQUALS = ord("=")
SET_TO = r"=b?(\\*)([\"'])"
_ASSIGNED = Pattern(SET_TO.encode())
BACKWARDS = "[A-Za-z0-9_.-]{2,64}"
_BACKWARDS = Pattern(BACKWARDS.encode())
LONGEST_NAME = 64
# The encoding of a list or tuple of _TWO whose first item is a str or bytes that may be the name of a secret.
_TWO = b"\x92"
_TEXTS = frozenset(bytes((sign,)) for sign in (*range(0xA1, 0xC0), 0xC4, 0xD9))  # what such an item begins with
_PAIR = Pattern(
    rb"\x92(?:[\xa1-\xbf]|[\xd9\xc4].)[A-Za-z0-9_.-]{0,60}?(?i:%s)" % HINTS.encode(),
    re.DOTALL,
)
# The dtype of an array of text: four bytes a character, so the searches would not see it.
_U = ord("U")
_WIDE_TEXT = Pattern(rb"U(?<=[<>]U)[1-9]")

_TRIES = 16
# Letters from common to rare: a literal is looked for only where its rarest character is, which is quicker to see.
_COMMON = b" etaoinsrhldcumfpgwybvkxjqz_-/:.,ETAOINSRHLDCUMFPGWYBVKXJQZ"


class Suspicion:
    """Tells whether encoded bytes may hold what the rules match, or what stands under the name of a secret."""

    def __init__(self, rules: Sequence[Rule], names: Mapping[str, bool]) -> None:
        self._names = names
        in_run = [rule for rule in rules if rule.in_run]
        self._prefix = _any_of(literal for rule in in_run for literal in rule.literals)
        self._in_run = Pattern("|".join(f"(?:{_ungrouped(rule.loose)})" for rule in in_run).encode())
        # What tells of secrets anywhere: by a byte, what is looked for only where that byte is.
        self._signs: dict[int, list[Callable[[bytes], object]]] = {
            _TWO[0]: [_holds_pair],
            _U: [lambda data: _WIDE_TEXT.search(data)],  # noqa: PLW0108 - compiled when it is first asked
            _EQUALS: [self._holds_assignment],
        }
        for byte, pattern in _NAMED:
            self._signs.setdefault(byte, []).append(partial(self._holds_name, pattern))
        for rule in rules:
            for literal in () if rule.in_run else map(str.encode, rule.literals):
                rarest = min(literal, key=_commonness)
                check = partial(_holds_literal, rarest, literal, _pattern_of(rule))
                self._signs.setdefault(rule.sign[0] if rule.sign else rarest, []).append(check)
        self._meaningless = bytes(byte for byte in range(256) if byte not in self._signs)
        self._always = any(not rule.literals for rule in rules)

    def is_suspicious(self, data: bytes) -> bool:
        """Whether encoded bytes may hold a secret. Never False when they do.

        This runs for every step that is recorded. To leave out all bytes but a few takes as long as to look for one.
        """
        if self._always:
            return True
        shape = data.translate(_SHAPE)
        start = shape.find(_LONG_RUN)
        if start >= 0 and self._token_in_runs(data, shape, start):
            return True
        signs = data.translate(None, self._meaningless)
        while signs:
            for found in self._signs[signs[0]]:
                if found(data):
                    return True
            signs = signs.replace(signs[:1], b"")
        return False

    def _holds_name(self, pattern: Pattern, data: bytes) -> bool:
        return self._secret_among(pattern.findall(data))

    def _holds_assignment(self, data: bytes) -> bool:
        return self._secret_among(_set_names(data))

    def _token_in_runs(self, data: bytes, shape: bytes, start: int) -> bool:
        """Whether one of the long runs is a token. Most are ids, so only the runs are looked at, not all of `data`."""
        find, prefix = shape.find, self._prefix.search
        while start >= 0:
            end = find(b" ", start + RUN)
            if end < 0:
                end = len(data)
            found = prefix(data, start - NEAR if start > NEAR else 0, end)
            tries = 0
            while found:
                # A run full of beginnings is looked at closely instead: trying each of them could take forever.
                if self._in_run.match(data, found.start()) or tries == _TRIES:
                    return True
                tries += 1
                found = prefix(data, found.start() + 1, end)
            start = find(_LONG_RUN, end)
        return False

    def _secret_among(self, found: list[bytes]) -> bool:
        return bool(found) and any(self._names[name.decode()] for name in set(found))


def _pattern_of(rule: Rule) -> Pattern | None:
    return Pattern(rule.loose.encode()) if rule.loose else None


def _holds_literal(rarest: int, literal: bytes, loose: Pattern | None, data: bytes) -> object:
    # A byte is seen at once. The sign that led here may be one of a number.
    return rarest in data and literal in data and (loose is None or loose.search(data))


def _holds_pair(data: bytes) -> bool:
    at = data.find(_TWO)
    # A search would crawl from one to the next, and most are two numbers, or a byte of one.
    while at >= 0 and not (data[at + 1 : at + 2] in _TEXTS and _PAIR.match(data, at)):
        at = data.find(_TWO, at + 1)
    return at >= 0


def _set_names(data: bytes) -> list[bytes]:
    """The names that something in quotes is set to."""
    before = (data[max(0, match.start() - LONGEST_NAME) : match.start()] for match in _ASSIGNED.finditer(data))
    # Matched from behind: the name ends where the equals sign is.
    found = (_BACKWARDS.match(chunk[::-1]) for chunk in before)
    return [match[0][::-1] for match in found if match]


def _commonness(byte: int) -> int:
    return -_COMMON.find(byte) if byte in _COMMON else -len(_COMMON)


def _any_of(literals: Iterable[str]) -> Pattern:
    """A pattern for all literals, sorted by first letter: the search tries one group instead of every literal."""
    groups: dict[str, list[str]] = {}
    for literal in literals:
        groups.setdefault(literal[0], []).append(re.escape(literal[1:]))
    return Pattern("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in groups.items()).encode())


def _ungrouped(loose: str | None) -> str:
    # A group name may be used once in a pattern, and here it is not needed.
    return (loose or "").replace("(?P<secret>", "(?:")
