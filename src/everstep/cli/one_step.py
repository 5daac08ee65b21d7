"""One step with all it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from everstep.cli import plain
from everstep.cli.flowing import values_taken
from everstep.cli.output import Cell, Output
from everstep.cli.session import Session
from everstep.cli.style import decision_text, status_cell
from everstep.cli.text import brief, cut, duration, stamp
from everstep.cli.values import show_leaves, show_value
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, ErasedError, PrunedError, StepNotFoundError
from everstep.journal.track import OUTPUT, STEERS
from everstep.model import Kind
from everstep.trail.providers import said
from everstep.trail.trail import Trail
from everstep.trail.why.where import of_the_program

_WIDE = 200  # characters that a value may take in a line
_LONG = 2_000  # and what a model said
_BEGIN = frozenset({Kind.INTENT, Kind.COMPOSITE_START})


def show_step(here: Session, trail: Trail, row: StepRecord, *, everything: bool) -> None:
    """Print a step: its facts, what went in, what came out, what it changed, what it failed with."""
    output = here.output
    took = values_taken(trail, row)
    asked = _asked(trail, row) if took is None else took
    if output.as_json:
        sizes = {"input_sizes": {name: plain.size_of(value) for name, value in (took or {}).items()}}
        output.data(show={"step": plain.step(row) | sizes | ({} if asked is None else {"inputs": plain.plain(asked)})})
        return
    output.fields(_facts(row, everything=everything))
    is_cut = False
    try:
        is_cut |= _show_words(output, row, everything=everything)
        for title, value in (
            ("inputs", row.inputs if asked is None else asked),
            ("output", row.output),
            ("pause", row.pause),
        ):
            if value is not None:
                output.line()
                is_cut |= _show_part(output, title, value, everything=everything)
        if row.ops:
            output.line()
            output.line(Cell("changes", "dim"))
            for op in row.ops:
                change = plain.operation(op)
                output.line(
                    f"  {change['op']}", "".join(f"[{part!r}]" for part in change["path"]), brief(op[2:], _WIDE)
                )
        if row.error is not None:
            output.line()
            output.line(Cell(str(row.error), "red", whole=True))
            trace = row.error.traceback or ""
            for text in trace.splitlines() if everything else of_the_program(trace):
                output.line(Cell(f"  {text}", whole=True))
    except ErasedError:
        output.talk("its payload was erased; name, status and times remain.")
    if is_cut:
        output.talk(f"next: {here.command('show', f'{row.run_id}@{row.seq}', '--all')}")
    output.talk(f"next: {here.command('state', f'{row.run_id}@{row.seq}')}")


def _asked(trail: Trail, row: StepRecord) -> Any:
    """What a step was given, where only the row of its beginning says so, as of an external one; else None."""
    if row.id is None or row.id == row.seq:
        return None
    with suppress(ErasedError, DamagedError, PrunedError, StepNotFoundError):  # told elsewhere
        begun = trail.step(row.run_id, row.id, view=True)
        return begun.inputs if begun.kind in _BEGIN else None
    return None


def _show_words(output: Output, row: StepRecord, *, everything: bool) -> bool:
    """Print what a model said, line by line: its answer may hold that in a hundred pieces. Whether it was cut."""
    words = said(row.output) if row.node_type == "model" else None
    if not words:
        return False
    shown = words if everything or not output.person else cut(words, _LONG)
    output.line()
    output.line(Cell("said", "dim"))
    for text in shown.strip("\n").splitlines():
        output.line(Cell(f"  {text}", whole=True))
    return shown is not words


def _show_part(output: Output, title: str, value: object, *, everything: bool) -> bool:
    """Print what went in or came out; for a person short and with sizes. Whether something was cut."""
    if not output.person or everything:
        show_leaves(output, value, title)
        return False
    output.line(Cell(title, "dim"))
    return show_value(output, value, 1, with_sizes=isinstance(value, dict))


def _facts(row: StepRecord, *, everything: bool) -> Iterator[tuple[str, Cell | str]]:
    yield "step", Cell(f"{row.run_id}@{row.seq}", "bold")
    yield "name", row.name
    yield "kind", str(row.kind)
    yield "status", status_cell(str(row.status))
    yield "started", stamp(row.started_at)
    yield "took", duration(row.duration_ms)
    in_no_graph = row.superstep is None and row.kind is not Kind.CHECKPOINT
    hidden = {OUTPUT} if everything else {OUTPUT} | STEERS  # the former its outcome shows
    about = {name: value for name, value in (row.metadata or {}).items() if name not in hidden}
    facts = {"superstep": None if row.superstep is None else str(row.superstep),
             "call" if in_no_graph else "node": row.node_type, "chose": row.decision is not None and decision_text(row),
             "cached": row.cached and "yes", "took versions": row.input_versions and brief(row.input_versions, _WIDE),
             "inside": row.parent, "lane": row.lane, "attempt": row.attempt if row.attempt > 1 else None,
             "child run": row.child_run_id, "metadata": about and brief(about, _WIDE),
             "usage": row.usage and brief(row.usage, _WIDE), "external": row.external and "yes"}  # fmt: skip
    yield from ((name, str(value)) for name, value in facts.items() if value)
