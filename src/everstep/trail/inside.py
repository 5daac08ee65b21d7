"""The runs inside a run: the items of a map, how each of them stands, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.codec.record import StepRecord
from everstep.codec.shown import brief
from everstep.errors import DamagedError, ErasedError, RunNotFoundError
from everstep.model import FINISHED, Run, Status, StepError
from everstep.store.base import ALL
from everstep.trail.outline import Outline, error_of, outline
from everstep.trail.versions import MAP, NODES

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

MAP_OVER = "map_over"  # in the inputs of a map
_WELL = frozenset({Status.COMPLETED, Status.STOPPED, Status.CANCELLED})
_FIRST = (Status.FAILED, Status.PARTIAL, Status.CANCELLED, Status.STOPPED, Status.PAUSED, Status.ACTIVE)
_WIDE = 60  # characters of what an item is known by


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a map: its run, what it was given of what was mapped over, and what came of it."""

    run: Run
    inputs: dict[str, Any]
    error: StepError | None
    output: Any

    @property
    def label(self) -> str:
        """What it is known by, in a few words: `x=3`."""
        return ", ".join(f"{name}={brief(value, _WIDE)}" for name, value in self.inputs.items()) or self.run.id


def is_map(start: StepRecord | None) -> bool:
    """Whether a run, by its first row, is one over many items."""
    return start is not None and bool(start.metadata.get(MAP))


def outermost(trail: Trail, run_id: str) -> str:
    """The run that is gone on with for this one to go on: the one at the top, or below it the item of a map."""
    run = trail.run(run_id)
    while run.parent_run_id is not None:
        try:
            above = trail.run(run.parent_run_id)
        except RunNotFoundError:  # it was dropped
            break
        if not above.oldest and above.head >= 0 and is_map(trail.step(above.id, 0, view=True)):
            break
        run = above
    return run.id


def items_of(trail: Trail, run_id: str) -> list[Run]:
    """The runs of a map's items: what failed first, then what waits or is at work, each in the order of the items."""
    found = [run for run in trail.runs(parent=run_id, limit=ALL) if run.forked_from is None]
    ranks = {status: rank for rank, status in enumerate(_FIRST)}
    found.reverse()  # the oldest first
    return sorted(found, key=lambda run: ranks.get(run.status, len(ranks)))


def item(trail: Trail, start: StepRecord, run: Run) -> Item:
    """One item, read. What was pruned or erased of it is left out."""
    rows = trail.steps(run.id, max(run.oldest, run.head - 1), view=True) if run.head >= 0 else []
    inputs = None if run.oldest or run.head < 0 else _read(lambda: trail.step(run.id, 0, view=True).inputs)
    over = _read(lambda: start.inputs[MAP_OVER]) or []
    output = _read(lambda: rows[-1].output) if run.ended_at is not None else None
    if output is None and run.status is Status.COMPLETED and any(row.superstep is not None for row in rows):
        output = _read(lambda: trail.state(run.id, view=True))  # a graph gives its values
    return Item(
        run,
        {name: inputs[name] for name in over if name in inputs} if isinstance(inputs, dict) else {},
        _read(lambda: rows[-1].error) if rows else None,
        output,
    )


def _read(get: Callable[[], Any]) -> Any:
    try:
        return get()
    except (ErasedError, DamagedError, LookupError, TypeError):  # the latter where a row is not what we write
        return None


@dataclass(frozen=True, slots=True)
class Failed:
    """A failure in a run that has not ended: a node beside others that wait or are at work, or a run inside."""

    run_id: str
    seq: int
    name: str
    error: StepError | None


def failed_so_far(trail: Trail, run: Run, tree: Outline) -> list[Failed]:
    """What has failed of a graph or a map that has not ended, and in the runs inside it.

    In other code a failure may have been caught: there it says nothing of how the run will end.
    """
    found, waiting = list[Failed](), [(run, tree)]
    for each, steps in waiting:
        if each.status in FINISHED:
            found += [Failed(each.id, steps.end.seq, each.workflow, error_of(steps.end))] if steps.end else []
            continue
        if steps.start is None or not {MAP, NODES} & steps.start.metadata.keys():
            continue
        found += [
            Failed(each.id, node.seq, node.name, node.error)
            for node in steps.steps
            if node.status is Status.FAILED and not node.superseded
        ]
        inside = [child for child in items_of(trail, each.id) if child.status not in _WELL]
        waiting += [(child, outline(trail.steps(child.id, view=True))) for child in inside]
    return found
