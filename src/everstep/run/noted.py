"""What the run log is made of: steps that were noted as they ended, and those of a run that had ended before."""

from __future__ import annotations

from typing import Any

from everstep.codec import record
from everstep.codec.values import view
from everstep.model import KIND_NUMBER, Kind, Status, StepError
from everstep.run import faults
from everstep.run.restoring import failure_of
from everstep.store.base import RunRow
from everstep.trail.reading import Reader
from everstep.trail.trail import Trail

_DONE = {KIND_NUMBER[Kind.STEP], KIND_NUMBER[Kind.ANSWER]}
_ASKS = {KIND_NUMBER[Kind.PAUSE], KIND_NUMBER[Kind.INTENT]}


def log_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step that was noted, as the log wants it."""
    name, span, scope, duration, status, error = row
    kept = error if error is None or isinstance(error, StepError) else StepError(*_told(error))
    parent = None if scope.id is None else str(scope.id)
    return name, None, duration, status, str(span), kept, False, None, None, parent


def _told(error: BaseException) -> tuple[str, str]:
    return type(error).__qualname__, faults.str_of(error)


def log_rows(trail: Trail, known: RunRow) -> list[tuple[Any, ...]]:
    """The steps of a run that has completed."""
    found, asked = [], dict[int, str]()  # the steps that wait for a person
    for entry in Reader(trail.store).entries(known, 1, known.seq):
        if entry.kind in _ASKS:
            asked[entry.seq] = entry.name
        elif entry.kind in _DONE:
            meta = view(entry.meta)
            parent = meta[record.PARENT] if len(meta) > record.PARENT else None
            found.append((
                asked.get(meta[record.ID], entry.name), None, entry.duration / 1000, Status.RESTORED,
                str(meta[record.ID]), failure_of(entry), False, None, None, None if parent is None else str(parent),
            ))  # fmt: skip
    return found
