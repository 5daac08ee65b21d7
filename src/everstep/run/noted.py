"""What the run log is made of: steps that were noted as they ended, and those of a run that had ended before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everstep.codec import record
from everstep.errors import RunNotFoundError
from everstep.model import KIND_NUMBER, Kind, Status, StepError
from everstep.run import faults
from everstep.run.execution import Execution
from everstep.run.log import RunLog
from everstep.run.restoring import failure_of
from everstep.store.base import RunRow
from everstep.trail.reading import Reader
from everstep.trail.trail import Trail

_DONE = {KIND_NUMBER[Kind.STEP], KIND_NUMBER[Kind.ANSWER]}
_ASKS = {KIND_NUMBER[Kind.PAUSE], KIND_NUMBER[Kind.INTENT]}


def log_row(row: tuple[Any, ...], logs: Mapping[str, RunLog]) -> tuple[Any, ...]:
    """A step that was noted, as the log wants it; `logs` are those of child runs."""
    name, span, scope, duration, status, error, about, child = row
    kept = error if error is None or isinstance(error, StepError) else faults.told(error)
    parent = None if scope.id is None else str(scope.id)
    superstep, cached, decision = about or (None, False, None)
    inner = None if child is None else logs.get(child)
    return name, superstep, duration, status, str(span), kept, cached, decision, inner, parent


def paused_rows(run: Execution) -> list[tuple[Any, ...]]:
    """The steps of a run that wait for an answer, as they are noted: those at the top, with what waits inside them."""
    found: dict[int, tuple[Any, ...]] = {}
    for lane in run.suspended:
        scope = lane.scope
        while scope.place is not None and scope.place.scope.place is not None:
            scope = scope.place.scope
        if scope.place is not None:
            about = None if scope.ask.call is None else scope.ask.call.logged()
            # No time is spent on a step that waits: no process does.
            found[id(scope)] = scope.name, scope.id or 0, run.root.scope, 0.0, Status.PAUSED, None, about, scope.child
    return list(found.values())


def log_rows(trail: Trail, known: RunRow) -> list[tuple[Any, ...]]:
    """The steps of a run that has completed."""
    found, asked = [], dict[int, str]()  # the steps that wait for a person
    for entry in Reader(trail.store).entries(known, 1, known.seq):
        if entry.kind in _ASKS:
            asked[entry.seq] = entry.name
        elif entry.kind in _DONE:
            meta = record.read_meta(entry)
            parent, cached = meta[record.PARENT], bool((meta[record.FLAGS] or 0) & record.CACHED)
            inner = log_of(trail, meta[record.CHILD])
            found.append((
                asked.get(meta[record.ID], entry.name), meta[record.SUPERSTEP], entry.duration / 1000, Status.RESTORED,
                str(meta[record.ID]), failure_of(entry), cached, meta[record.DECISION], inner,
                None if parent is None else str(parent),
            ))  # fmt: skip
    return found


def log_of(trail: Trail, child: str | None) -> RunLog | None:
    """The log of a child run that had ended before, as far as its rows are left."""
    try:
        row = None if child is None else trail.store.run(child)
    except RunNotFoundError:
        return None
    return None if row is None or row.base else RunLog.of(row.workflow, row.id, 0.0, log_rows(trail, row))
