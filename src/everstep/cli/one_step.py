"""One step with all it holds."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.cli import plain
from everstep.cli.flowing import values_taken
from everstep.cli.output import Cell, Output
from everstep.cli.session import Session
from everstep.cli.style import decision_text, status_cell
from everstep.cli.text import brief, duration, stamp
from everstep.cli.values import show_leaves, show_value
from everstep.codec.record import StepRecord
from everstep.errors import ErasedError
from everstep.journal.track import OUTPUT
from everstep.model import Kind
from everstep.trail.trail import Trail
from everstep.trail.why.where import of_the_program

_WIDE = 200  # characters that a value may take in a line


def show_step(here: Session, trail: Trail, row: StepRecord, *, everything: bool) -> None:
    """Print a step: its facts, what went in, what came out, what it changed, what it failed with."""
    output = here.output
    took = values_taken(trail, row)
    if output.as_json:
        sizes = {"input_sizes": {name: plain.size_of(value) for name, value in (took or {}).items()}}
        output.data(show={"step": plain.step(row) | sizes | ({} if took is None else {"inputs": plain.plain(took)})})
        return
    output.fields(_facts(row))
    is_cut = False
    try:
        for title, value in (
            ("inputs", row.inputs if took is None else took),
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


def _show_part(output: Output, title: str, value: object, *, everything: bool) -> bool:
    """Print what went in or came out; for a person short and with sizes. Whether something was cut."""
    if not output.person or everything:
        show_leaves(output, value, title)
        return False
    output.line(Cell(title, "dim"))
    return show_value(output, value, 1, with_sizes=isinstance(value, dict))


def _facts(row: StepRecord) -> Iterator[tuple[str, Cell | str]]:
    yield "step", Cell(f"{row.run_id}@{row.seq}", "bold")
    yield "name", row.name
    yield "kind", str(row.kind)
    yield "status", status_cell(str(row.status))
    yield "started", stamp(row.started_at)
    yield "took", duration(row.duration_ms)
    in_no_graph = row.superstep is None and row.kind is not Kind.CHECKPOINT
    about = {name: value for name, value in (row.metadata or {}).items() if name != OUTPUT}  # which its outcome shows
    facts = {"superstep": None if row.superstep is None else str(row.superstep),
             "call" if in_no_graph else "node": row.node_type, "chose": row.decision is not None and decision_text(row),
             "cached": row.cached and "yes", "took versions": row.input_versions and brief(row.input_versions, _WIDE),
             "inside": row.parent, "lane": row.lane, "attempt": row.attempt if row.attempt > 1 else None,
             "child run": row.child_run_id, "metadata": about and brief(about, _WIDE),
             "usage": row.usage and brief(row.usage, _WIDE), "external": row.external and "yes"}  # fmt: skip
    yield from ((name, str(value)) for name, value in facts.items() if value)
