"""How things look in a line: the colour of a status, the result of a step, tags."""

from __future__ import annotations

from typing import Any

from everstep.cli.output import Cell
from everstep.cli.plain import reason_of
from everstep.cli.text import brief, cut, label
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, ErasedError
from everstep.model import END, Kind

STYLES = {
    "completed": "green",
    "failed": "red",
    "active": "cyan",
    "interrupted": "yellow",
    "paused": "yellow",
    "unknown": "yellow",
    "cancelled": "magenta",
    "stopped": "magenta",
}
_SIGNS = {SET: "=", DELETE: "-", APPEND: "+", SPLICE: "~"}
_CHOOSE = frozenset({"route", "gate"})
_CHANGES = 6  # that are named in a line


def status_cell(status: str) -> Cell:
    """A status in its colour."""
    return Cell(status, STYLES.get(status, ""))


def tags_text(tags: dict[str, str]) -> str:
    """Tags in one line."""
    return " ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def result_of(row: StepRecord, width: int) -> Cell:
    """What came of a step, in one line: its error, its output, or how it changed the state."""
    try:
        return _result(row, width)
    except ErasedError:
        return Cell("(erased)", "dim")
    except DamagedError as error:  # the row is what was written; what it refers to is gone
        return Cell(f"(damaged: {error.what})", "red")


def _result(row: StepRecord, width: int) -> Cell:
    if row.error is not None:
        return Cell(cut(str(row.error), width), "red")
    if row.kind is Kind.PAUSE:
        return Cell(brief(prompt_of(row), width), "yellow")
    if row.kind is Kind.START and row.inputs is not None:
        return Cell(brief(row.inputs, width), "dim")
    if row.node_type in _CHOOSE and reason_of(row) is not None:
        return Cell(cut(decision_text(row), width))
    if row.output is not None:
        return Cell(brief(row.output, width))
    return Cell(_changes(row, width) or _mark(row, width) or "-", "dim")


def decision_text(row: StepRecord) -> str:
    """What a route or gate chose, and why."""
    chosen = row.decision if isinstance(row.decision, list) else [row.decision]
    named = ", ".join("END" if each == END else str(each) for each in chosen if each is not None) or "none"
    return f"-> {named} ({reason_of(row)})"


def prompt_of(row: StepRecord) -> Any:
    """What a pause asks."""
    pause = row.pause
    return pause.get("prompt", pause) if isinstance(pause, dict) else pause


def _changes(row: StepRecord, width: int) -> str:
    ops = row.ops
    named = [f"{_path(op[1])}{_SIGNS.get(op[0], '?')}" for op in ops[:_CHANGES] if len(op) > 1]
    return cut("state " + " ".join(named) + (" ..." if len(ops) > _CHANGES else ""), width) if named else ""


def _path(path: Any) -> str:
    return "".join(label(part) for part in (path if type(path) is list else [path])).removeprefix(".")


def _mark(row: StepRecord, width: int) -> str:
    """What a checkpoint was made for."""
    if row.kind is not Kind.CHECKPOINT:
        return ""
    return " ".join(filter(None, [row.node_type, brief(row.metadata, width) if row.metadata else ""]))
