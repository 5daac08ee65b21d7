"""Secrets that a streamed answer says piece by piece: no event holds one whole, so the pieces are cleaned joined.

Of the events of a stream each text that goes on from event to event (the words of a choice, the arguments of a tool) is
put together, cleaned, and laid back into the events it came from; a placeholder stands where its secret began.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from everstep.capturing.sizes import by_placeholders

_DATA = "data:"
_BOXES = (dict, list)
_NUMBERS = ("index", "output_index", "content_index", "item_id")
_TEXTS = frozenset(
    {"content", "text", "partial_json", "arguments", "delta", "refusal", "reasoning_content", "thinking"}
)


class _Piece(NamedTuple):
    """A text in an event, and where it stands."""

    line: int
    path: tuple[Any, ...]
    text: str


def cleaned(body: str, clean: Callable[[str], str]) -> str:
    """The body of a stream of events without the secrets that run through several of them."""
    lines = body.splitlines(keepends=True)
    events = {at: event for at, line in enumerate(lines) if (event := _event(line)) is not None}
    changed: set[int] = set()
    for pieces in _threads(events):
        whole = "".join(piece.text for piece in pieces)
        after = str(clean(whole))
        if after != whole:
            sizes = by_placeholders(whole.encode(), after.encode(), [len(piece.text.encode()) for piece in pieces])
            _lay(events, pieces, after, sizes)
            changed.update(piece.line for piece in pieces)
    for at in changed:
        end = lines[at][len(lines[at].rstrip("\r\n")) :]
        lines[at] = f"{_DATA} {json.dumps(events[at], ensure_ascii=False, separators=(',', ':'))}{end}"
    return "".join(lines) if changed else body


def _event(line: str) -> Any:
    if not line.startswith(_DATA):
        return None
    try:
        found = json.loads(line[len(_DATA) :])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _threads(events: dict[int, Any]) -> Iterator[list[_Piece]]:
    """The texts that go on from event to event, each by its place in them and by what numbers it there."""
    threads: dict[Any, list[_Piece]] = {}
    for line, event in events.items():
        for path, text, number in _pieces(event, (), ()):
            threads.setdefault((path, number), []).append(_Piece(line, path, text))
    yield from (pieces for pieces in threads.values() if len(pieces) > 1)


def _pieces(node: Any, path: tuple[Any, ...], number: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str, Any]]:
    if is_dict := isinstance(node, dict):
        number = (*number, *[node[name] for name in _NUMBERS if name in node])
    for name, value in node.items() if is_dict else enumerate(node):
        if isinstance(value, str):
            if is_dict and name in _TEXTS:
                yield (*path, name), value, number
        elif isinstance(value, _BOXES):  # all else, which is most of an event, holds no text
            yield from _pieces(value, (*path, name), number)


def _lay(events: dict[int, Any], pieces: Sequence[_Piece], text: str, sizes: Sequence[int]) -> None:
    """Put a text back into the events it came from, in parts of these sizes."""
    data, done = text.encode(), 0
    for piece, size in zip(pieces, sizes, strict=True):
        node = events[piece.line]
        for part in piece.path[:-1]:
            node = node[part]
        node[piece.path[-1]] = data[done : done + size].decode("utf-8", "ignore")
        done += size
