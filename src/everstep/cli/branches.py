"""The lines of a run's tree: how each step stands, and what came of it."""

from __future__ import annotations

from everstep.cli.output import Cell, Output
from everstep.cli.plain import sizes
from everstep.cli.questions import prompt_text
from everstep.cli.style import STYLES, refused_with, result_of
from everstep.cli.text import count, duration, indent, size
from everstep.cli.tree import Fold, Line
from everstep.codec.record import StepRecord
from everstep.model import Kind, Status
from everstep.trail.answers import name_of
from everstep.trail.forking import is_replaced
from everstep.trail.outline import Node

_WIDE = 200  # characters that a result may take
_TOLD = frozenset({"http", "process"})  # calls that are named by what was asked, too
_NAMED = 4  # values that went in
_MARKS = {
    "completed": "✓", "failed": "✗", "active": "●", "interrupted": "◌", "paused": "‖", "unknown": "?",
    "cancelled": "∅", "checkpoint": "⚑", "save": "▪", "fork": "⑂", "end": "■",
}  # fmt: skip


def row(output: Output, line: Line | Fold, took: dict[str, int] | None = None, *, at_work: bool) -> list[Cell | str]:
    """The cells of one line: seq, how it stands, superstep, name, how long it took, what went in, what came out.

    `took` has the sizes of what a node of a graph took; None for what is no node.
    """
    before = indent(line.depth)
    if isinstance(line, Fold):
        return [
            "",
            "",
            "",
            Cell(f"{before}...", "dim"),
            Cell(duration(line.duration_ms), "dim"),
            "",
            "",
            Cell(_folded(line), "dim"),
        ]
    node = line.node
    word = _word(node, at_work=at_work)
    refused = refused_with(node.record) if word == str(Status.COMPLETED) else None
    if refused is not None:
        mark, style = "!" if output.person else f"answered {refused}", STYLES["failed"]
    else:
        mark, style = _MARKS.get(word, word) if output.person and output.unicode else word, STYLES.get(word, "cyan")
    return [
        Cell(str(node.seq), "dim"),
        Cell(mark, style),
        "" if node.record.superstep is None else str(node.record.superstep),
        Cell(
            before + (f"run {node.status}" if node.kind is Kind.END else _name(node)),
            "dim" if node.superseded else "bold" if node.kind is Kind.STEP else "cyan",
        ),
        Cell(duration(node.duration_ms or None), "dim"),
        Cell("" if took is None else _sizes(took), "dim"),
        Cell("" if took is None or node.open else _size(node.record), "dim"),
        _result(line, at_work=at_work),
    ]


def _name(node: Node) -> str:
    """The name of a step; what it was given is read only where that tells more."""
    return name_of(node.begun) if node.record.node_type in _TOLD else node.name


def _sizes(took: dict[str, int]) -> str:
    """What went into a node: each value by its name, with its size."""
    named = ", ".join(f"{name} {size(bytes_)}" for name, bytes_ in list(took.items())[:_NAMED])
    return named + (f", and {len(took) - _NAMED} more" if len(took) > _NAMED else "")


def _size(row: StepRecord) -> str:
    """How large what came out of it is."""
    found = sizes(row)
    return size(sum(found.values())) if found else ""


def _word(node: Node, *, at_work: bool) -> str:
    """How a step stands, or what it is if that says more."""
    if node.kind in {Kind.CHECKPOINT, Kind.SAVE, Kind.FORK, Kind.END}:
        return str(node.kind)
    if node.status in {Status.ACTIVE, Status.UNKNOWN} and at_work:
        return str(Status.ACTIVE)
    if node.status is Status.ACTIVE:
        return "paused" if _waits(node) else "interrupted"
    return str(node.status)


def _waits(node: Node) -> bool:
    """Whether something inside a step that is open waits for an answer."""
    inside = [node]
    for each in inside:
        inside += [child for child in each.children if child.open]
    return any(each.status is Status.PAUSED for each in inside)


def _folded(fold: Fold) -> str:
    names = fold.names
    named = ", ".join(name if number == 1 else f"{name} x{number:,}" for name, number in names[:3])
    named += ", ..." if len(names) > 3 else ""
    inside = f", with {count(fold.inside, 'step')} inside" if fold.inside else ""
    return f"{len(fold.nodes):,} more" + (f" ({named})" if len(names) > 1 else "") + f", all completed{inside}"


def _result(line: Line, *, at_work: bool) -> Cell:
    node = line.node
    found = Cell("") if at_work and node.status is Status.UNKNOWN else _outcome(node)
    notes = [
        "superseded" if node.superseded else "",
        "replaced" if is_replaced(node.record) else "",
        f"{node.attempts} attempts" if node.attempts > 1 else "",
        "partial" if node.record.partial else "",
        "cached" if node.record.cached else "",
        f"{count(line.inside, 'step')} inside" if line.inside else "",
        f"-> {node.record.child_run_id}" if node.record.child_run_id else "",
    ]
    text = "; ".join(filter(None, notes))
    return Cell(f"({text}) {found.text}" if text else found.text, "dim" if node.superseded else found.style)


def _outcome(node: Node) -> Cell:
    if node.kind is Kind.PAUSE:
        answer = result_of(node.record, _WIDE).text if not node.open else ""
        return Cell(f"{prompt_text(node.begun)}{' -> ' + answer if answer else ''}", "" if answer else "yellow")
    if node.status is Status.UNKNOWN:
        return Cell("it was begun, and how it ended is not known", STYLES["unknown"])
    if node.status is Status.ACTIVE:
        error = node.error
        return Cell(f"last: {error}" if error is not None else "", "red")
    return result_of(node.record, _WIDE)
