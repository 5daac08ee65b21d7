"""What a value is like: its kinds by path, its numbers and texts, and the pieces by which it is known elsewhere.

Nothing here looks at more of a value than a person would: long lists by their ends, long texts by theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from everstep.codec.encoding import Generic
from everstep.codec.shown import label

_LEAVES = 160  # of one value that are looked at
_ENDS = 12  # items at each end of a long list
_WORDS = 12  # at each end of a long text
_TEXT = 4_000  # characters at each end of a text in which words are looked for
_WORD = re.compile(r"\w[\w@./:#+-]{2,}")
_LAST = re.compile(r"(\.[^.\[\]]+|\[[^\]]*\])$")
_KINDS = {
    type(None): "none", bool: "bool", int: "number", float: "number", Decimal: "number", str: "text", list: "list",
    tuple: "list", set: "list", frozenset: "list", dict: "dict",
}  # fmt: skip
_STAMPED = (datetime, date, time, UUID)


@dataclass(slots=True)
class Profile:
    """One value, looked at. A path names the place of a part; all items of a list share one, `[*]`."""

    value: Any
    # Text and tuples rather than sets and lists: a hundred thousand of those keep the garbage collector busy.
    kinds: dict[str, str] = field(default_factory=dict)  # several at one path with a bar between them
    numbers: dict[str, tuple[float, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # the first at each path
    sizes: dict[str, int] = field(default_factory=dict)  # of lists
    words: set[str] = field(default_factory=set)  # distinctive pieces, to find it again
    whole: set[str] = field(default_factory=set)  # texts that are all of a part, and not too long

    @property
    def kind(self) -> str:
        """What the value is as a whole."""
        return self.kinds[""]

    def kinds_at(self, path: str) -> list[str]:
        """The kinds at a path, none if it is not there."""
        return self.kinds[path].split("|") if path in self.kinds else []

    @property
    def empty(self) -> bool:
        """Whether nothing is in it, or it is None."""
        return self.value is None or (isinstance(self.value, str | list | tuple | dict | set) and not self.value)


def lists_of(one: Profile) -> list[list[Any]]:
    """The lists that a value is, or has as a part."""
    if not one.sizes:
        return []
    parts = one.value.values() if isinstance(one.value, dict) else [one.value]
    return [part for part in parts if isinstance(part, list)]


def profile(value: Any) -> Profile:
    """Look at a value."""
    found = Profile(value)
    kinds = found.kinds
    waiting: list[tuple[str, Any]] = [("", value)]
    left = _LEAVES
    while waiting and left:
        left -= 1
        path, part = waiting.pop()
        kind = kind_of(part)
        known = kinds.get(path)
        kinds[path] = kind if known is None or known == kind else _both(known, kind)
        if kind == "text":
            _see_text(found, path, part)
        elif kind == "number":
            found.numbers[path] = (*found.numbers.get(path, ()), float(part))
            if abs(part) >= 10 or part != int(part):
                found.words.add(number_text(part))
        elif kind == "list":
            waiting += _see_list(found, path, list(part))
        elif isinstance(part, dict | Generic):
            parts = part if isinstance(part, dict) else part.fields
            waiting += [(below(path, key), parts[key]) for key in list(parts)[_LEAVES::-1]]
        elif isinstance(part, _STAMPED):
            found.words.add(str(part))
    return found


def _see_text(found: Profile, path: str, text: str) -> None:
    found.texts.setdefault(path, text)
    found.words |= words_of(text)
    if 4 <= len(text) <= 80:
        found.whole.add(text)


def _see_list(found: Profile, path: str, items: list[Any]) -> list[tuple[str, Any]]:
    found.sizes.setdefault(path, len(items))
    ends = items if len(items) <= 2 * _ENDS else [*items[:_ENDS], *items[-_ENDS:]]
    inner = f"{path}[*]"
    return [(inner, item) for item in reversed(ends)]


@lru_cache(maxsize=4_096)
def below(path: str, key: Any) -> str:
    """The path of a part. Steps of one name give values of one form: it is asked for again and again."""
    return path + label(key)


def _both(known: str, kind: str) -> str:
    return known if kind in known.split("|") else f"{known}|{kind}"


def kind_of(value: Any) -> str:
    """What a value is, in a word that people use: whole and broken numbers are one kind."""
    word = _KINDS.get(type(value))
    if word is None:
        word = next((word for kind, word in _KINDS.items() if isinstance(value, kind)), None)
    if word == "number" and not is_finite(value):
        return "number beyond all bounds"
    if word is None and isinstance(value, Generic):
        return value.name.rpartition(":")[2].rpartition(".")[2]
    return word or type(value).__name__


def is_finite(number: float | Decimal) -> bool:
    """Whether a number can be compared and divided."""
    if isinstance(number, Decimal) and not number.is_finite():
        return False  # one that is no number cannot even be compared
    return -1e300 < number < 1e300


def number_text(number: float | Decimal) -> str:
    """A number as it stands in a text: 1500 and 1500.0 are the same."""
    return str(int(number)) if number == int(number) else str(number)


@lru_cache(maxsize=4_096)
def words_of(text: str) -> frozenset[str]:
    """The pieces of a text by which it is known elsewhere: the whole of a short one, and its longer words."""
    seen = text if len(text) <= 2 * _TEXT else f"{text[:_TEXT]} {text[-_TEXT:]}"
    words = [word.rstrip("./:-+") for word in _WORD.findall(seen)]
    ends = words if len(words) <= 2 * _WORDS else [*words[:_WORDS], *words[-_WORDS:]]
    found = {word for word in ends if len(word) >= 5 or any(map(str.isdigit, word))}
    return frozenset(found | {text} if 3 <= len(text) <= 80 else found)


def key_of(value: Any) -> str:
    """What two equal values have in common and no two others."""
    return repr(value)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and of one type."""
    try:
        return type(one) is type(other) and bool(one == other)
    except (TypeError, ValueError, RecursionError):  # arrays, and whatever else has an idea of its own of being equal
        return False


def lacking(one: Profile, path: str) -> bool:
    """Whether a value has the place above a path, and not the path itself."""
    above = _LAST.sub("", path)
    return path not in one.kinds and above in one.kinds and one.kinds[above] != "none"


def holder(one: Profile, path: str) -> Any:
    """The part of a value that lacks what should be at a path; the whole where that is not found."""
    return first_at(one, _LAST.sub("", path), lambda parts, _: path not in parts)


def first_at(one: Profile, path: str, fits: Callable[[dict[str, Any], Any], bool]) -> Any:
    """The first part at a path that fits, asked with what is in it, by path, and itself; else the whole value."""
    waiting: list[tuple[str, Any]] = [("", one.value)]
    for _ in range(_LEAVES):
        if not waiting:
            break
        place, part = waiting.pop()
        inner = _inner(place, part)
        if place == path and fits(dict(inner), part):
            return part
        waiting += [each for each in reversed(inner) if path.startswith(each[0])]
    return one.value


def _inner(place: str, part: Any) -> list[tuple[str, Any]]:
    if isinstance(part, list | tuple):
        return [(f"{place}[*]", item) for item in part[:_ENDS]]
    fields = part.fields if isinstance(part, Generic) else part if isinstance(part, dict) else {}
    return [(below(place, key), fields[key]) for key in fields]
