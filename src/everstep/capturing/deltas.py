"""Secrets that a streamed answer says piece by piece: no event holds one whole, so the pieces are cleaned joined.

Of the events of a stream each text that goes on from event to event (the words of a choice, the arguments of a tool) is
put together, cleaned, and laid back into the events it came from; a placeholder stands where its secret began. Events
are lines of JSON, those of an event stream with `data:` before them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from everstep.capturing.sizes import by_placeholders
from everstep.codec.streamed import DATA, Piece, event, lines_of, threads

_SEVERAL = re.compile(rb"[\r\n](?:data:|\{)")  # in every body that has more than one event


def may_hold(body: bytes) -> bool:
    """Whether a body may be a stream of events, whatever its headers say."""
    return _SEVERAL.search(body) is not None


def cleaned(body: str, clean: Callable[[str], str]) -> str:
    """The body of a stream of events without the secrets that run through several of them."""
    lines = lines_of(body)
    after = cleaned_lines(lines, clean)
    return body if after is lines else "".join(after)


def cleaned_lines(lines: list[str], clean: Callable[[str], str]) -> list[str]:
    """The lines of a stream without such secrets; the same list if it has none."""
    events = {at: each for at, line in enumerate(lines) if (each := event(line)) is not None}
    changed: set[int] = set()
    for pieces in threads(events):
        whole = "".join(piece.text for piece in pieces)
        after = str(clean(whole))
        if after != whole:
            sizes = by_placeholders(_bytes(whole), _bytes(after), [len(_bytes(piece.text)) for piece in pieces])
            _lay(events, pieces, after, sizes)
            changed.update(piece.line for piece in pieces)
    return [_said(line, events[at]) if at in changed else line for at, line in enumerate(lines)] if changed else lines


def _said(line: str, says: Any) -> str:
    """A line that says another event."""
    end = line[len(line.rstrip("\r\n")) :]
    before = f"{DATA} " if line.startswith(DATA) else ""
    told = json.dumps(says, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace").decode()
    return f"{before}{told}{end}"


def _bytes(text: str) -> bytes:
    """A text of an event: it may end, or begin, amid a character that JSON spells as two."""
    return text.encode(errors="surrogatepass")


def _lay(events: dict[int, Any], pieces: Sequence[Piece], text: str, sizes: Sequence[int]) -> None:
    """Put a text back into the events it came from, in parts of these sizes."""
    data, done = _bytes(text), 0
    for piece, size in zip(pieces, sizes, strict=True):
        node = events[piece.line]
        for part in piece.path[:-1]:
            node = node[part]
        node[piece.path[-1]] = data[done : done + size].decode(errors="surrogatepass")
        done += size
