"""How things look in a line: the colour of a status, the result of a step, tags."""

from __future__ import annotations

import json
import re
from typing import Any

from everstep.cli.output import Cell
from everstep.cli.plain import reason_of
from everstep.cli.text import brief, cut, path_text
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, ErasedError
from everstep.journal.track import RETRY
from everstep.model import END, Kind
from everstep.trail.providers import said
from everstep.trail.why import heard

STYLES = {
    "completed": "green",
    "failed": "red",
    "active": "cyan",
    "interrupted": "yellow",
    "half copied": "yellow",
    "paused": "yellow",
    "unknown": "yellow",
    "cancelled": "magenta",
    "stopped": "magenta",
}
_CHOOSE = frozenset({"route", "gate"})
_ANSWERED, _BAD = frozenset({"model", "http"}), 400  # calls of captured programs, and from where on a status is bad
_CALL, _JSON = re.compile(r"-> (\S+) "), json.JSONDecoder()  # how a tool that a model calls is told among its words
_CHANGES = 6  # that are told in a line
_LEAST = 12  # characters of a value that are shown, however many there are


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
        status = _status_of(row)
        return _given(row, width) if status is None else _answer(row.output, status, width)
    changes = _changes(row, width)
    return Cell(changes) if changes else Cell(_mark(row, width) or "-", "dim")


def refused_with(row: StepRecord) -> int | None:
    """The status that says that something is wrong, of a call that was answered so; None of any other row."""
    if row.node_type not in _ANSWERED:
        return None
    try:
        status = _status_of(row)
    except (ErasedError, DamagedError):  # told elsewhere
        return None
    return status if status is not None and status >= _BAD else None


def _status_of(row: StepRecord) -> int | None:
    """What a call of a captured program was answered with. A stranger's row may hold anything."""
    stored = row.output if row.node_type in _ANSWERED else None
    status = stored.get("status") if isinstance(stored, dict) else None
    return status if type(status) is int else None


def _answer(stored: dict[str, Any], status: int, width: int) -> Cell:
    """What another machine answered: the words of a model and the tools that it calls, else the body."""
    words = said(stored)
    shown = brief(stored.get("body"), width) if words is None else _spoken(words, width)
    bad = status >= _BAD
    return Cell(cut(f"{status} {shown}", width) if bad or words is None else shown, "red" if bad else "")


def _spoken(words: str, width: int) -> str:
    """What a model said, in quotes, and each tool that it calls as a call: `price(wood="oak"), price(wood="elm")`."""
    parts, at = list[str](), 0
    for call in _CALL.finditer(words):
        if call.start() < at:  # inside the arguments of the one before
            continue
        try:
            given, end = _JSON.raw_decode(words, call.end())
        except ValueError:  # it has none; or it was cut off, or is no call but an arrow in a text
            given, end = {}, call.end()
            if end < len(words) and not _CALL.match(words, end):
                continue
        if isinstance(given, dict):
            before = words[at : call.start()].strip()
            named = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
            parts += [*([brief(before, width)] if before else []), f"{call[1]}({named})"]
            at = end
    if not parts:
        return brief(words, width)
    after = words[at:].strip()
    return cut(", ".join([*parts, *([brief(after, width)] if after else [])]), width)


def _given(row: StepRecord, width: int) -> Cell:
    """What a process printed, with its exit status unless that is 0; what a tool answered; else the output itself."""
    told = heard.said(row)
    if row.node_type != "process" or told is row.output:
        return Cell(brief(told, width))
    stored: dict[str, Any] = row.output
    printed = [stored[name] for name in ("stdout", "stderr", "talk") if stored.get(name)]
    if stored["exit"] != 0:
        return Cell(
            cut(" ".join([f"exit {stored['exit']}", *(brief(each, width) for each in printed[::-1])]), width), "red"
        )
    return Cell(brief(printed[0] if printed else "", width))


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
    """What a step set, added and took away, each with a short form of the value; of a fork, the inputs too."""
    given = row.inputs if row.kind is Kind.FORK and isinstance(row.inputs, dict) else {}
    ops = [*([SET, ["inputs", name], value] for name, value in given.items()), *(op for op in row.ops if len(op) > 1)]
    room = max(_LEAST, width // max(1, min(len(ops), _CHANGES)))
    told = [_change(op, room) for op in ops[:_CHANGES]]
    return cut(", ".join(told) + (f", and {len(ops) - _CHANGES:,} more" if len(ops) > _CHANGES else ""), width)


def _change(op: list[Any], width: int) -> str:
    path = path_text(op[1])
    if op[0] == DELETE:
        return f"{path} removed"
    if op[0] == SPLICE:
        path = f"{path}[{op[2]}:{op[2] + op[3]}]"
    return f"{path} {'+' if op[0] == APPEND else '='} {brief(op[-1], max(_LEAST, width - len(path) - 4))}"


def _mark(row: StepRecord, width: int) -> str:
    """What a checkpoint was made for; of an answer without a value, what it allows."""
    if row.kind is Kind.ANSWER and row.metadata.get(RETRY):
        return "to be tried again"
    if row.kind is not Kind.CHECKPOINT:
        return ""
    return " ".join(filter(None, [row.node_type, brief(row.metadata, width) if row.metadata else ""]))
