"""A graph as lines of text: a line for each node, in the order in which they can run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from everstep.graph.picture import TIMES, Box, Picture, Wire, shown, signature, width

COLUMNS = 100
_NAME = 32  # letters
_LANES = 6  # lines at the left that lead back; more would hide what they show
_LEAST = 24  # columns for what a node takes and gives
_JOINED = {"╭": "┬", "╰": "┴", "│": "┼", "┊": "┼"}  # what a line becomes that another one crosses
_KINDS = {"route": "route", "gate": "gate", "interrupt": "asks", "graph": "graph"}


def to_text(picture: Picture) -> str:
    """The picture as text. No line is longer than 100 columns."""
    given = [shown(box.name, _NAME) + "?" * box.optional for box in picture.boxes if box.kind == "input"]
    made = dict.fromkeys(value for box in picture.boxes if box.node is not None for value in box.node.outputs)
    head = [shown(picture.name, COLUMNS)]
    head += [shown(picture.summary, COLUMNS)] * bool(picture.summary)
    for word, names in (("takes", given), ("bound", picture.bound), ("gives", made)):
        if names:
            first, *rest = wrapped(", ".join(shown(name, _NAME) for name in names), COLUMNS - 7)
            head += [f"{word:<5}  {first}", *(" " * 7 + line for line in rest)]
    return "\n".join([*head, "", *_lines(picture, COLUMNS)])


class _Loop(NamedTuple):
    """From a row back to one above it."""

    top: int
    bottom: int
    chosen: bool


def _lines(picture: Picture, columns: int) -> Iterator[str]:
    rows = sorted(
        (place for place, box in enumerate(picture.boxes) if box.node is not None),
        key=lambda place: (picture.layers[place], place),
    )
    boxes = [picture.boxes[place] for place in rows]
    gutter = _gutter(_loops(picture, rows), len(rows))
    numbers = {layer: number for number, layer in enumerate(sorted({picture.layers[place] for place in rows}), 1)}
    wide = [
        max(width(text) for text in column)
        for column in zip(*((_name(box), _KINDS.get(box.kind, ""), _run(box)) for box in boxes), strict=True)
    ]
    before = None
    for row, (place, box) in enumerate(zip(rows, boxes, strict=True)):
        layer = picture.layers[place]
        number = "" if layer == before else str(numbers[layer])
        before = layer
        cells = (_name(box), _KINDS.get(box.kind, ""), _run(box))
        padded = [cell + " " * (size - width(cell)) for cell, size in zip(cells, wide, strict=True) if size]
        start = "  ".join([f"{number:>3}", *padded])
        room = max(_LEAST, columns - width(gutter[row][0]) - width(start) - 2)
        first, *rest = wrapped(_words(picture, place), room)
        yield f"{gutter[row][0]}{start}  {first}".rstrip()
        for line in rest:
            yield f"{gutter[row][1]}{' ' * width(start)}  {line}".rstrip()
        if box.inside is not None:
            side = f"{gutter[row][1]}     │ "
            for line in _lines(box.inside, columns - width(side)):
                yield side + line


def _name(box: Box) -> str:
    return shown(box.name, _NAME)


def _run(box: Box) -> str:
    return "" if box.visits is None else str(box.visits)


def _words(picture: Picture, place: int) -> str:
    """What a node takes, what it gives, whom it chooses."""
    box = picture.boxes[place]
    over = ", ".join(getattr(box.node, "map_over", ()))
    chosen = [_chosen(picture, wire) for wire in picture.wires if wire.source == place and wire.kind == "choice"]
    return " ".join(
        filter(None, [signature(box), f"for each {over}" if over else "", f"⇢ {', '.join(chosen)}" if chosen else ""])
    )


def _chosen(picture: Picture, wire: Wire) -> str:
    target = shown(picture.boxes[wire.targets[0]].name, _NAME)
    return f"{wire.label}: " * bool(wire.label) + target + (f" {TIMES}{wire.taken}" if wire.taken else "")


def wrapped(text: str, room: int) -> list[str]:
    """A text as lines that fit."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and width(lines[-1]) + 1 + width(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


# The lines at the left.


def _loops(picture: Picture, rows: list[int]) -> list[_Loop]:
    at = {place: row for row, place in enumerate(rows)}
    found: dict[tuple[int, int], bool] = {}
    for wire in picture.wires:
        for target in wire.targets:
            if wire.source in at and target in at and at[target] <= at[wire.source]:
                ends = at[target], at[wire.source]
                found[ends] = found.get(ends, True) and wire.kind == "choice"
    loops = [_Loop(top, bottom, chosen) for (top, bottom), chosen in found.items()]
    return sorted(loops, key=lambda loop: (loop.bottom - loop.top, loop))


def _gutter(loops: Iterable[_Loop], rows: int) -> list[tuple[str, str]]:
    """For each row what stands left of it, and left of the lines that belong to it."""
    lanes: list[list[_Loop]] = []
    for loop in loops:  # the short ones lie nearest to the nodes
        free = next((lane for lane in lanes if all(_apart(loop, other) for other in lane)), None)
        if free is not None:
            free.append(loop)
        elif len(lanes) < _LANES:
            lanes.append([loop])
    wide = 2 * len(lanes) + 1 if lanes else 0
    first = [[" "] * wide for _ in range(rows)]
    below = [[" "] * wide for _ in range(rows)]
    for number, lane in enumerate(lanes):
        column = 2 * (len(lanes) - 1 - number)
        for loop in lane:
            _draw(first, below, loop, column)
    return [("".join(line), "".join(more)) for line, more in zip(first, below, strict=True)]


def _apart(one: _Loop, other: _Loop) -> bool:
    return one.bottom < other.top or other.bottom < one.top


def _draw(first: list[list[str]], below: list[list[str]], loop: _Loop, column: int) -> None:
    down, along = ("┊", "┄") if loop.chosen else ("│", "─")
    for row in range(loop.top, loop.bottom):
        below[row][column] = down
        if row > loop.top:
            first[row][column] = "┼" if first[row][column] in "─┄" else down
    for row, corner in ((loop.bottom, "╰"), (loop.top, "╭")):
        line = first[row]
        line[column] = corner
        for place in range(column + 1, len(line)):
            line[place] = _JOINED.get(line[place], along if line[place] == " " else line[place])
    first[loop.top][-1] = "▶"
    if loop.top == loop.bottom:
        first[loop.top][column] = "↻"
