"""What a fork will do again: effects on the world that the run it was made of had after that point."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from everstep.capturing.command import CAPTURED
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, PrunedError, RunNotFoundError
from everstep.model import Kind, Status
from everstep.trail.outline import Node, address_of, outline
from everstep.trail.trail import Trail

_NAMED = 3  # of them
_BEGIN = frozenset({Kind.INTENT, Kind.COMPOSITE_START})


@dataclass(frozen=True, slots=True)
class Again:
    """An external step that completed, and that a fork comes to once more."""

    run_id: str
    seq: int
    name: str
    seat: int  # the step of the forked run that it is, or is inside of
    is_reusable: bool  # a fork with reuse takes its outcome over, where the same is asked for

    def data(self) -> dict[str, Any]:
        """It for programs."""
        return {"run": self.run_id, "seq": self.seq, "name": self.name}


def done_again(trail: Trail, run_id: str, after: int, *, reuse: bool) -> list[Again]:
    """The external steps of a run after a point, and those of the runs inside it, which a fork there does again."""
    return [each for each in _after(trail, run_id, after) if not (reuse and each.is_reusable)]


def _after(trail: Trail, run_id: str, after: int) -> Iterator[Again]:
    waiting: list[tuple[str, int, Again | None]] = [(run_id, after, None)]
    for each, point, around in waiting:
        # A child that was dropped; rows that are damaged or gone: a fork below them is the way out, and tells no more.
        with suppress(RunNotFoundError, DamagedError, PrunedError):
            rows = trail.steps(each, view=True)
            tree = outline(rows)
            is_program = tree.start is not None and CAPTURED in tree.start.metadata
            for _, node in tree.walk():
                if node.superseded or node.status is not Status.COMPLETED or node.seq <= point:
                    continue
                if node.begun.seq <= point and _is_open([row for row in rows if row.seq <= point], node):
                    continue
                is_new = node.begun.seq > point and not is_program
                seat, fits = (around.seat, around.is_reusable) if around else (node.seq, is_new and _fits(node))
                found = Again(each, node.seq, node.name, seat, fits)
                if node.begun.external or node.record.external:
                    yield found
                elif node.record.child_run_id is not None:
                    waiting.append((node.record.child_run_id, -1, found))


def _is_open(rows: Sequence[StepRecord], node: Node) -> bool:
    """Whether all that these rows tell of a step is that it began: then a fork after them asks what became of it.

    An attempt that failed, or the leave to try it again, has the id of what it is about.
    """
    begun = [row.id for row in rows if row.kind in _BEGIN and address_of(row) == address_of(node.begun)]
    return bool(begun) and sum(row.id == begun[-1] for row in rows) == 1


def _fits(node: Node) -> bool:
    """Whether a fork with reuse takes its outcome over: that of a leaf which no person told, and no node of a graph."""
    row: StepRecord = node.record
    return row.kind is Kind.STEP and not node.children and row.input_versions is None and bool(row.input_digest)


def warning(parent: str, made: str, again: list[Again], *, reuse: bool) -> str:
    """What is said of them to a person."""
    one = len(again) == 1
    names = [f"{each.name} (step {each.seq}{'' if each.run_id == parent else f' of {each.run_id}'})" for each in again]
    more = f" and {len(again) - _NAMED:,} more" if len(again) > _NAMED else ""
    if not reuse and all(each.is_reusable for each in again):
        way = (
            f"With --reuse {'its outcome is' if one else 'their outcomes are'} taken over where the same is asked for."
        )
    else:
        way = f"To keep what {'it' if one else 'they'} gave, fork at step {max(each.seat for each in again)} or later."
    return (
        f"warning: {parent} did {'this' if one else 'these'} after that, and {made} will do "
        f"{'it' if one else 'them'} again: {', '.join(names[:_NAMED])}{more}. {way}"
    )
