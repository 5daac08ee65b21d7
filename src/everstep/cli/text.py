"""Values, times and lengths as people read them at a command line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from everstep.codec.shown import brief, count, cut, duration, label, parts_of, safe, whole

_DEEP = 12  # levels that are indented


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every value that holds no others, with the path to it: one line each, for grep and its like."""
    return ((place, whole(item)) for place, item in innermost(value, path))


def innermost(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The same values as they are."""
    waiting: list[tuple[str, Any]] = [(path, value)]
    while waiting:
        place, item = waiting.pop()
        parts = parts_of(item)
        if parts:
            waiting += [(place + label(key), part) for key, part in reversed(parts)]
        else:
            yield place, item


def path_text(path: Any) -> str:
    """Where a change was made, as people write it: `notes.first`, `pages[3]`."""
    return "".join(label(part) for part in (path if type(path) is list else [path])).removeprefix(".")


def indent(depth: int) -> str:
    """What stands before a line of a tree: so many levels, of which the deep ones are told as a number."""
    return "  " * depth if depth <= _DEEP else "  " * _DEEP + f"({depth}) "


def money(cost: float) -> str:
    """What something cost, in the figures that count: a call may cost a thousandth of a cent."""
    return f"{Decimal(f'{cost:.6g}'):,f}"


def ago(moment: datetime) -> str:
    """How long ago a moment is: `3 min ago`."""
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < -60:
        return "in the future"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{max(0, int(seconds))} s ago"


def stamp(moment: datetime) -> str:
    """A moment, in UTC: `2026-11-15T14:36:02Z`."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def size(count: int) -> str:
    """A number of bytes: `812 B`, `4.2 kB`, `1.3 GB`."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


__all__ = [
    "ago", "brief", "count", "cut", "duration", "indent", "innermost", "label", "leaves", "money", "parts_of",
    "path_text", "safe", "size", "stamp", "whole",
]  # fmt: skip
