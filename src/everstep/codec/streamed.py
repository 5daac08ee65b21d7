"""Texts that hold other texts: JSON, and streams of events, each of which says a piece of what is said.

Of the events of a stream each text that goes on from event to event (the words of a choice, the arguments of a tool) is
a thread. Events are lines of JSON, those of an event stream with `data:` before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

DATA = "data:"
_BEGIN = ("{", "[", DATA, "event:", "id:", "retry:", ":")
_BOXES = (dict, list)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_NUMBERS = ("index", "output_index", "content_index", "item_id")
_TEXTS = frozenset(
    {"content", "text", "partial_json", "arguments", "delta", "refusal", "reasoning_content", "thinking"}
)


class Piece(NamedTuple):
    """A text in an event, and where it stands."""

    line: int
    path: tuple[Any, ...]
    text: str


def lines_of(text: str) -> list[str]:
    """Its lines with their ends, as streams of events have them: U+2028 and others are characters of an event."""
    return _LINE.findall(text)


def event(line: str) -> Any:
    """The object that a line of a stream says; None if it says none."""
    return _object(line.removeprefix(DATA)) if line.startswith((DATA, "{")) else None


def threads(events: Mapping[int, Any]) -> Iterator[list[Piece]]:
    """The texts that go on from event to event, each by its place in them and by what numbers it there."""
    found: dict[Any, list[Piece]] = {}
    for line, each in events.items():
        for path, text, number in _pieces(each):
            found.setdefault((path, number), []).append(Piece(line, path, text))
    yield from (pieces for pieces in found.values() if len(pieces) > 1)


def said_in(text: str) -> Any:
    """What a text of JSON or of events holds, as data: there each word of it is whole. None if it is neither."""
    if not text.lstrip().startswith(_BEGIN):
        return None
    if (found := _object(text, _BOXES)) is not None:
        return found
    events = {at: each for at, line in enumerate(lines_of(text)) if (each := event(line)) is not None}
    return ["".join(piece.text for piece in pieces) for pieces in threads(events)] + list(events.values()) or None


def _object(text: str, kinds: type | tuple[type, ...] = dict) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, kinds) else None


def _pieces(node: Any) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    """The texts in an event, in its order: the place of each, the text, and what numbers it."""
    waiting: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = [(node, (), ())]
    while waiting:
        item, path, number = waiting.pop()
        if isinstance(item, str):
            yield path, item, number
            continue
        if is_dict := isinstance(item, dict):
            number = (*number, *[item[name] for name in _NUMBERS if isinstance(item.get(name), int | str)])
        inner = list(item.items() if is_dict else enumerate(item))
        waiting += [
            (value, (*path, name), number)
            for name, value in reversed(inner)
            if isinstance(value, _BOXES) or (is_dict and name in _TEXTS and isinstance(value, str))
        ]
