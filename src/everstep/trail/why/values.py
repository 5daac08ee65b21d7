"""What a value is like: its kinds by path, its numbers and texts, and the pieces by which it is known elsewhere.

Nothing here looks at more of a value than a person would: long lists by their ends, long texts by theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
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
    kinds: dict[str, frozenset[str]] = field(default_factory=dict)
    numbers: dict[str, list[float]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  # the first at each path
    sizes: dict[str, int] = field(default_factory=dict)  # of lists
    words: set[str] = field(default_factory=set)  # distinctive pieces, to find it again
    lists: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What the value is as a whole."""
        [kind] = self.kinds[""]
        return kind

    @property
    def empty(self) -> bool:
        """Whether nothing is in it, or it is None."""
        return self.value is None or (isinstance(self.value, str | list | tuple | dict | set) and not self.value)


def profile(value: Any) -> Profile:
    """Look at a value."""
    found = Profile(value)
    waiting: list[tuple[str, Any]] = [("", value)]
    left = _LEAVES
    while waiting and left:
        left -= 1
        path, part = waiting.pop()
        kind = kind_of(part)
        known = found.kinds.get(path)
        if known is None:
            found.kinds[path] = _alone(kind)
        elif kind not in known:
            found.kinds[path] = known | {kind}
        if kind == "text":
            found.texts.setdefault(path, part)
            found.words.update(words_of(part))
        elif kind == "number":
            found.numbers.setdefault(path, []).append(float(part))
            if abs(part) >= 10 or part != int(part):
                found.words.add(number_text(part))
        elif kind == "list":
            found.sizes.setdefault(path, len(part))
            found.lists.setdefault(path, list(part))
            ends = part if len(part) <= 2 * _ENDS else [*list(part)[:_ENDS], *list(part)[-_ENDS:]]
            waiting += [(f"{path}[*]", item) for item in reversed(list(ends))]
        elif isinstance(part, dict | Generic):
            parts = part.items() if isinstance(part, dict) else part.fields.items()
            waiting += [(path + label(key), item) for key, item in reversed(list(parts)[:_LEAVES])]
        elif isinstance(part, _STAMPED):
            found.words.add(str(part))
    return found


@cache
def _alone(kind: str) -> frozenset[str]:
    """One object for all: a set for each part of each value would be a million of them."""
    return frozenset({kind})


def kind_of(value: Any) -> str:
    """What a value is, in a word that people use: whole and broken numbers are one kind."""
    word = _KINDS.get(type(value))
    if word is None:
        word = next((word for kind, word in _KINDS.items() if isinstance(value, kind)), None)
    if word == "number" and not is_finite(value):
        return "nan or inf"
    if word is None and isinstance(value, Generic):
        return value.name.rpartition(":")[2].rpartition(".")[2]
    return word or type(value).__name__


def is_finite(number: float | Decimal) -> bool:
    """Whether a number can be compared and divided."""
    return -1e300 < number < 1e300


def number_text(number: float | Decimal) -> str:
    """A number as it stands in a text: 1500 and 1500.0 are the same."""
    return str(int(number)) if number == int(number) else str(number)


def words_of(text: str) -> Iterator[str]:
    """The pieces of a text by which it is known elsewhere: the whole of a short one, and its longer words."""
    if 3 <= len(text) <= 80:
        yield text
    seen = text if len(text) <= 2 * _TEXT else f"{text[:_TEXT]} {text[-_TEXT:]}"
    words = [word.rstrip("./:-+") for word in _WORD.findall(seen)]
    ends = words if len(words) <= 2 * _WORDS else [*words[:_WORDS], *words[-_WORDS:]]
    yield from (word for word in ends if len(word) >= 5 or any(sign.isdigit() for sign in word))


def key_of(value: Any) -> str:
    """What two equal values have in common and no two others."""
    return repr(value)


def lacking(one: Profile, path: str) -> bool:
    """Whether a value has the place above a path, and not the path itself."""
    above = _LAST.sub("", path)
    return path not in one.kinds and above in one.kinds and one.kinds[above] != _alone("none")
