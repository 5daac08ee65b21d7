"""A change as people read it: in one line, and of a long text only the words that differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from everstep.codec import delta
from everstep.codec.shown import cut
from everstep.model import Redacted
from everstep.trail.compare import MISSING, Change

_LONG = 40  # characters from which a text is compared word by word
_AROUND = 10  # words, spaces and signs that are shown before and after those that differ
_MOST = 800  # of them on each side that are compared with one another; what is beyond is told by its length
_LOOKED_AT = 20_000  # characters of them
_WIDE = 400  # characters of a stretch that differs
_LONGEST = 100  # characters of a word
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_PART_OF_WORD = re.compile(r"\w*")


IN_A_OR_B = ("only in a:", "only in b:")  # where two are compared: of these a lone sign would look like an empty value


def shown(change: Change, whole: str = "state", width: int | None = None, alone: tuple[str, str] = ("-", "+")) -> str:
    """A change in one line: where in the whole it is, and both sides; with `width`, each cut to so many characters.

    `alone` stands before what only the first of them has, and before what only the second has.
    """
    where = whole + delta.path_text(list(change.path)).removeprefix("state")
    if change.old is MISSING:
        return f"{where}: {alone[1]} {_value(change.new, width)}"
    if change.new is MISSING:
        return f"{where}: {alone[0]} {_value(change.old, width)}"
    if is_long(change.old) and is_long(change.new):
        return f"{where}: {inline(change.old, change.new)}"
    return f"{where}: {_value(change.old, width)} -> {_value(change.new, width)}"


def inline(old: str, new: str) -> str:
    """Two texts in one: `the [-old-]{+new+} words`. What cannot be seen is spelled out, equal stretches are cut."""
    first, last = _ends(old, new)
    before, after = old[max(0, first - _LOOKED_AT) : first], old[len(old) - last :][:_LOOKED_AT] if last else ""
    sides = old[first : len(old) - last], new[first : len(new) - last]
    left, right = (_WORD.findall(side[:_LOOKED_AT])[:_MOST] for side in sides)
    parts = [_cut(_WORD.findall(before), head=False)]
    for tag, begin, end, to, until in _stretches(left, right):
        if tag == "equal":
            parts.append(_middle(left[begin:end]))
        else:
            parts.append(_marked("[-", "".join(left[begin:end]), "-]") + _marked("{+", "".join(right[to:until]), "+}"))
    beyond = [len(side) - len("".join(words)) for side, words in zip(sides, (left, right), strict=True)]
    parts += [
        f"{opening}... {more:,} more characters{closing}"
        for more, opening, closing in zip(beyond, ("[-", "{+"), ("-]", "+}"), strict=True)
        if more
    ]
    return "'" + "".join([*parts, _cut(_WORD.findall(after), head=True)]) + "'"


def _stretches(left: list[str], right: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """What is equal and what is not; nothing is where most is not: words that happen to be in both only confuse."""
    found = SequenceMatcher(None, left, right).get_opcodes()
    same = sum(len(word) for tag, begin, end, *_ in found if tag == "equal" for word in left[begin:end])
    most = max(len("".join(side)) for side in (left, right))
    return found if same * 2 >= most else [("replace", 0, len(left), 0, len(right))]


def _ends(old: str, new: str) -> tuple[int, int]:
    """How many characters two texts begin and end with in common, without the words that only begin or end alike."""
    first = _same_until(old, new)
    first -= len(_PART_OF_WORD.match(old[max(0, first - _LONGEST) : first][::-1])[0])  # type: ignore[index] # it matches all
    last = _same_until(old[first:][::-1], new[first:][::-1])
    last -= len(_PART_OF_WORD.match(old[len(old) - last :][:_LONGEST])[0]) if last else 0  # type: ignore[index] # as above
    return first, last


def _same_until(old: str, new: str) -> int:
    """How many characters two texts begin with in common, found by halving."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _marked(opening: str, text: str, closing: str) -> str:
    return f"{opening}{_spelled(cut(text, _WIDE))}{closing}" if text else ""


def _middle(words: list[str]) -> str:
    if len(words) <= 2 * _AROUND:
        return _spelled("".join(words))
    return f"{_cut(words, head=True)} {_cut(words, head=False).removeprefix('...').lstrip()}"


def _cut(words: list[str], *, head: bool) -> str:
    """The words nearest to a difference."""
    text = "".join(words[:_AROUND] if head else words[-_AROUND:])
    if len(words) <= _AROUND and len(text) <= _WIDE:
        return _spelled(text)
    return f"{_spelled(text[:_WIDE])}..." if head else f"...{_spelled(text[-_WIDE:])}"


def _spelled(text: str) -> str:
    """The text with what cannot be seen spelled out."""
    return repr('"' + text)[2:-1].replace("\\'", "'")


def is_long(value: Any) -> bool:
    """Whether it is a text of which only the words that differ are shown."""
    return isinstance(value, str) and not isinstance(value, Redacted) and len(value) >= _LONG


def _value(value: Any, width: int | None) -> str:
    return repr(value) if width is None else cut(repr(value), width)
