"""The rounds of a graph's run, found in its rows: what ran in each, and the values after it.

A superstep has no row of its own. The rows of the steps at the top of a run say which one they belong to, and it never
goes backwards, so one is found by halving. Where it ends is a checkpoint that needs not be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.codec.chain import Entry
from everstep.codec.record import StepRecord
from everstep.errors import PrunedError, StepNotFoundError
from everstep.journal.track import RETRY
from everstep.model import STATUSES, Checkpoint, CheckpointKind, Kind, Status
from everstep.store.base import RunRow, Store
from everstep.trail.reading import Reader

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_STEPS = frozenset({Kind.STEP, Kind.ATTEMPT, Kind.CANCELLED, Kind.ANSWER})  # rows that tell how something ended
_BETWEEN = frozenset({Status.COMPLETED, Status.PARTIAL, Status.STOPPED})  # ended when a superstep had
_FIRST_LOOK, _LONGEST_LOOK = 16, 4_096  # rows that are read at once, going back


@dataclass(frozen=True, slots=True)
class CheckpointContent:
    """What a checkpoint stands for: the values at the end of a superstep, and the steps that led there."""

    values: dict[str, Any]
    steps: tuple[StepRecord, ...]
    source_run_id: str
    source_superstep: int | None  # None for the newest values of a run that counts none
    retry_of: str | None = None
    retry_index: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: the names of values and steps, and no contents."""
        return {
            "source_run_id": self.source_run_id, "source_superstep": self.source_superstep,
            "values": list(self.values), "retry_of": self.retry_of, "retry_index": self.retry_index,
            "steps": [[step.superstep, step.name, str(step.status), step.seq] for step in self.steps],
        }  # fmt: skip


class Mark(NamedTuple):
    """A row that belongs to a superstep."""

    superstep: int
    seq: int
    entry: Entry


class Supersteps:
    """The supersteps of one run, as far as they are left.

    The oldest one that a pruned run has rows of may have lost others: it counts as pruned too.
    """

    def __init__(self, store: Store, run_id: str, *, as_view: bool = False) -> None:
        self.run: RunRow = store.run(run_id)
        self._reader = Reader(store, as_view=as_view)

    def state(self, superstep: int | None) -> dict[str, Any]:
        """The values after a superstep, the newest by default."""
        return self._reader.state(self.run.id, self.run.seq if superstep is None else self.end_of(superstep))

    def steps(self, superstep: int | None = None, last: int | None = None) -> list[StepRecord]:
        """How the steps at the top of the run ended, each time they did: of one superstep, or up to a row."""
        run, first = self.run, self.run.base
        if superstep is not None:
            last, before = self.end_of(superstep), self._at(superstep - 1)
            first = run.base if before is None else before.seq + 1
        rows = self._reader.entries(run, first, run.seq if last is None else last)
        steps = [step for step in map(self._record, rows) if _is_outcome(step, superstep)]
        oldest = self._oldest
        return [step for step in steps if oldest is None or step.superstep is None or step.superstep >= oldest]

    def content(self, superstep: int | None) -> CheckpointContent:
        """Values and steps: one without the other cannot tell where a loop stands."""
        run, newest = self.run, self.newest()
        last = run.seq if superstep is None else self.end_of(superstep)
        number = newest.superstep if superstep is None and newest is not None else superstep
        return CheckpointContent(
            self._reader.state(run.id, last), tuple(self.steps(last=last)), run.id, number, run.retry_of,
            run.retry_index,
        )  # fmt: skip

    def boundaries(self) -> Iterator[Checkpoint]:
        """Where each finished superstep ended, newest first. They are found, not written."""
        before: int | None = None
        for mark in self.back(self.run.seq):
            if self._oldest is not None and mark.superstep < self._oldest:
                return
            is_newest, is_same = before is None, mark.superstep == before
            before = mark.superstep
            if is_same or (is_newest and STATUSES[self.run.status] not in _BETWEEN):
                continue
            yield Checkpoint(
                self.run.id, mark.seq, f"superstep {mark.superstep}", CheckpointKind.BOUNDARY,
                self._record(mark.entry).completed_at, {"superstep": mark.superstep},
            )  # fmt: skip

    def newest(self) -> Mark | None:
        """The newest row of a superstep; None for a run that counts none."""
        return next(self.back(self.run.seq), None)

    def end_of(self, superstep: int) -> int:
        """The seq of the last row of a superstep. Raises StepNotFoundError or PrunedError."""
        if type(superstep) is not int:
            raise TypeError(f"{superstep!r:.40} is no whole number; supersteps are counted from 0")
        run, newest, oldest = self.run, self.newest(), self._oldest
        if newest is None and run.base == 0:
            there = "it counts none, as only runs of graphs do"
            raise StepNotFoundError(run.id, superstep, -1, what="superstep", there=there)
        if newest is None or (oldest is not None and newest.superstep < oldest):
            raise PrunedError(run.id, 0, run.base, way_out="No superstep is left of it; its newest state is.")
        if oldest is not None and 0 <= superstep < oldest:
            raise PrunedError(run.id, superstep, oldest, what="superstep")
        found = self._at(superstep)
        if found is None or found.superstep != superstep:
            there = f"its newest is {newest.superstep}"
            raise StepNotFoundError(run.id, superstep, newest.superstep, what="superstep", there=there)
        return found.seq

    @cached_property
    def _oldest(self) -> int | None:
        """The oldest superstep of a pruned run that is surely whole: some of an older one are left. None of others."""
        if self.run.base == 0:
            return None
        before: int | None = None
        for mark in self._marks(entry for rows in self._reader.history(self.run, _FIRST_LOOK) for entry in rows):
            if before is not None and mark.superstep > before:
                return mark.superstep
            before = mark.superstep
        return None if before is None else before + 1

    def _at(self, superstep: int) -> Mark | None:
        """The last row of a superstep, or of the one before it that is there; None if none is left."""
        low, high = self.run.base, self.run.seq  # rows below `low` are not later than asked for, those above `high` are
        found: Mark | None = None
        while low <= high:
            middle = (low + high) // 2
            mark = next(self.back(middle, low), None)
            if mark is None or mark.superstep <= superstep:
                found, low = mark or found, middle + 1
            else:
                high = mark.seq - 1
        return found

    def back(self, last: int, first: int | None = None) -> Iterator[Mark]:
        """The rows that belong to a superstep, going back from `last` to `first`, else to the oldest that is left."""
        oldest, size = self.run.base if first is None else first, _FIRST_LOOK
        while last >= oldest:
            begin = max(oldest, last - size + 1)
            yield from self._marks(reversed(self._reader.entries(self.run, begin, last)))
            last, size = begin - 1, min(2 * size, _LONGEST_LOOK)

    def _marks(self, rows: Iterable[Entry]) -> Iterator[Mark]:
        for entry in rows:
            step = self._record(entry)
            if type(step.superstep) is int and step.parent is None:
                yield Mark(step.superstep, entry.seq, entry)

    def cut_before(self, window: int) -> int | None:
        """The row up to which a run can go so that its newest supersteps stay; None if it has no more of them.

        The last row of the one before stays too, by which the rest is known to be whole. In a run that counts no
        supersteps, each step at its top is one.
        """
        if self.newest() is not None:
            before, left = None, window + 1
            for mark in self.back(self.run.seq):
                left -= mark.superstep != before
                before = mark.superstep
                if not left:
                    return mark.seq - 1
            return None
        steps = self.steps()
        return steps[-window - 1].seq if len(steps) > window else None

    def _record(self, entry: Entry) -> StepRecord:
        return StepRecord(self.run.id, entry, self._reader.fetch, self._reader.decode)


def _is_outcome(step: StepRecord, superstep: int | None) -> bool:
    if step.kind not in _STEPS or step.parent is not None or step.metadata.get(RETRY):
        return False
    return superstep is None or step.superstep == superstep


def merged(written: list[Checkpoint], boundaries: Iterator[Checkpoint], limit: int) -> list[Checkpoint]:
    """Checkpoints of one run, newest first: those that were written, and those that follow from its rows."""
    found = [*written, *islice(boundaries, limit)]
    return sorted(found, key=lambda point: point.seq, reverse=True)[:limit]


def at_address(trail: Trail, address: str, *, view: bool) -> StepRecord:
    """The newest step at `<run>:<superstep>:<node>`. A run's id may hold colons itself."""
    run_id, superstep, name = _split_address(address)
    steps = trail.get_steps(run_id, superstep, view=view)
    for step in reversed(steps):
        if step.name == name:
            return step
    names = ", ".join(dict.fromkeys(step.name for step in steps)) or "nothing yet"
    raise StepNotFoundError(
        run_id, superstep, superstep, what=f"step {name!r:.60} in superstep", there=f"what ended in it is {names}"
    )


def _split_address(address: str) -> tuple[str, int, str]:
    """The run, the superstep and the node of an address."""
    parts = address.rsplit(":", 2)
    if len(parts) != 3 or not parts[1].isdecimal() or len(parts[1]) > 18:
        raise ValueError(f"{address!r:.80} is no address of a step; it is `run:superstep:node`")
    return parts[0], int(parts[1]), parts[2]
