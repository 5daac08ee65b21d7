"""The tables: as text on the screen, and in Markdown between the two marks of the page in docs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.capture.cost import Timed
from benchmarks.capture.fidelity import Cell

BEGIN, END = "<!-- begin: made by `make bench-capture` -->", "<!-- end: made by `make bench-capture` -->"
PAGE = Path("docs/explanation/capture-compared.md")
_NAMES = {
    "bare": "bare", "memory": "bare, answered from memory", "committed": "bare, with a commit after each call",
    "record": "", "replay": "",
}  # fmt: skip
_WIDE = 62  # characters of a row's name on the screen


def grid(cells: Sequence[Cell], tools: Sequence[str], missing: dict[str, str]) -> list[list[str]]:
    """The rows of the table of what is the same in a replay, its head first."""
    rows: dict[str, dict[str, str]] = {}
    for each in cells:
        rows.setdefault(each.row, {})[each.tool] = each.text
    return [
        ["case", *tools],
        *([row, *(found.get(tool, missing.get(tool, "")) for tool in tools)] for row, found in rows.items()),
    ]


def costs(found: Sequence[Timed], missing: dict[str, str]) -> list[list[str]]:
    """The rows of the table of what it costs, its head first; each figure the least and the median of all rounds."""
    head = ["ms", "call, min", "call, median", "stream, min", "stream, median", "whole program", "start", "kB a call"]
    names = list(dict.fromkeys((each.what, each.tool) for each in found if each.what in _NAMES))
    rows = []
    for what, tool in sorted(names, key=lambda name: list(_NAMES).index(name[0])):
        group = [each for each in found if (each.what, each.tool) == (what, tool)]
        calls = [value for each in group for value in each.calls]
        streams = [value for each in group for value in each.streams]
        rows.append([
            _NAMES[what] or f"{what}, {tool}",
            *_least_and_median(calls), *_least_and_median(streams),
            f"{statistics.median(each.whole for each in group):,.0f}",
            "" if what not in {"bare", "record"} else f"{statistics.median(each.start for each in group):,.0f}",
            "" if what != "record" else f"{statistics.median(each.bytes for each in group) / 1e3:.2f}",
        ])  # fmt: skip
    return [head, *rows, *([f"{tool}: {why}", *[""] * (len(head) - 1)] for tool, why in missing.items())]


def _least_and_median(values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return "", ""
    return f"{min(values):,.2f}", f"{statistics.median(values):,.2f}"


def text(rows: Sequence[Sequence[str]]) -> str:
    """A table for a screen."""
    widths = [min(_WIDE, max(len(row[at]) for row in rows)) + 2 for at in range(len(rows[0]))]
    return "\n".join("".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)) for row in rows)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table for a page."""
    lines = [f"| {' | '.join(value or ' ' for value in row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]])


def rewritten(page: str, made: str, first: str = BEGIN, last: str = END) -> str:
    """The page, with this between its marks. Raises ValueError if the marks are not there once each, in order."""
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end or first in after or last in before + after:
        raise ValueError(f"the page needs one line {first!r} and below it one line {last!r}")
    return f"{before}{first}\n\n{made.strip()}\n\n{last}{after}"
