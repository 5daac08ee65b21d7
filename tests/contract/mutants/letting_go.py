"""Broken ways to drop and prune."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar

from everstep.codec.chain import Entry
from everstep.errors import PrunedError, StepNotFoundError
from everstep.store.base import Append, Claim, Counts, Keyframe, NewRun, RunRow
from everstep.store.memory import MemoryStore, _Run
from tests.contract.mutants.registry import Forgetful, caught_by

NOTHING = Counts(0, 0, 0, 0)


@caught_by("a_dropped_run_is_gone", "the_id_of_a_dropped_run_is_free", "only_a_run_that_is_there_can_be_dropped")
class DropsNothing(MemoryStore):
    def drop(self, run_id: str) -> Counts:
        self._find(run_id)
        return NOTHING


@caught_by("a_dropped_run_is_gone", "all_rows_are_let_go_of_once_when_the_forks_go_too")
class CountsSharedRowsAsDropped(MemoryStore):
    def drop(self, run_id: str) -> Counts:
        rows = len(self._find(run_id).history)
        return super().drop(run_id)._replace(steps=rows, runs=0)


@caught_by("forks_of_a_dropped_run_keep_what_they_share", "new_rows_are_never_mistaken_for_dropped_ones")
class DropsSharedRows(MemoryStore):
    def drop(self, run_id: str) -> Counts:
        gone = self._find(run_id).history[:1]
        for run in self._runs.values():
            run.history = [entry for entry in run.history if entry not in gone]
        return super().drop(run_id)


@caught_by("a_new_run_can_begin_where_another_trail_pruned_it")
class BeginsEveryRunWithItsFirstRow(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        return super().create(replace(new, base=None))


@caught_by("dropping_a_fork_leaves_its_parent")
class DropsTheParentToo(MemoryStore):
    def drop(self, run_id: str) -> Counts:
        source = self._find(run_id).new.fork
        counts = super().drop(run_id)
        if source is not None:
            self._runs.pop(source[0], None)
        return counts


@caught_by(
    "the_writer_of_a_dropped_run_is_refused",
    "a_run_that_was_taken_over_can_be_dropped_and_neither_writes_again",
)
class TakesRowsForDroppedRuns(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        return run is None or run.key != append.claim.key or super()._append(append)


@caught_by("the_writer_of_a_dropped_run_is_refused")
class RenewsByIdAlone(MemoryStore):
    def renew(self, claim: Claim, lease: float = 1.0) -> None:
        super().renew(claim._replace(key=self._find(claim.run_id).key), lease)


@caught_by("the_id_of_a_dropped_run_is_free", "the_writer_of_a_dropped_run_is_refused")
class UsesKeysAgain(MemoryStore):
    def drop(self, run_id: str) -> Counts:
        counts = super().drop(run_id)
        self._keys = max((run.key for run in self._runs.values()), default=0)
        return counts


@caught_by("new_rows_are_never_mistaken_for_dropped_ones", "rows_are_erased_for_every_run_that_shares_them")
class RemembersTheFirstRunOfAName(MemoryStore):
    first: ClassVar[dict[int, dict[str, list[Entry]]]] = {}

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        rows = super().entries(run_id, first, last)
        known = self.first.setdefault(id(self), {}).setdefault(run_id, rows)
        return known if rows and known and known[0].seq == first and len(known) == len(rows) else rows


@caught_by("marked_rows_and_counts_of_a_dropped_run_are_gone")
class RemembersMarksOfDroppedRuns(MemoryStore):
    dropped: list[tuple[str, Entry]]

    def drop(self, run_id: str) -> Counts:
        self.dropped = [(run_id, entry) for entry in self._find(run_id).history]
        return super().drop(run_id)

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        return [*super().marked(run_id, kind, limit), *getattr(self, "dropped", [])]


@caught_by(
    "a_dropped_run_takes_its_pieces_along",
    "reclaim_has_nothing_left_to_do_after_itself",
    "the_state_that_a_pruned_run_began_with_goes_with_it_though_forks_share_its_rows",
)
class KeepsAllPieces(MemoryStore):
    def _sweep(self) -> int:
        return 0


@caught_by("pieces_go_with_the_last_row_that_refers_to_them", "reclaim_removes_nothing_that_is_referred_to")
class RemovesAllPieces(MemoryStore):
    def _sweep(self) -> int:
        gone = len(self._blobs)
        self._blobs.clear()
        return gone


@caught_by("pruned_rows_are_gone_and_the_rest_stays", "every_row_but_the_newest_can_be_pruned")
class PrunesOneRowTooFew(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        history = list(self._find(run_id).history)
        counts = super().prune(run_id, base, generation)
        run = self._runs[run_id]
        if counts is not None:
            run.history, run.base = history[-len(run.history) - 1 :], run.base - 1
        return counts


@caught_by("pruned_rows_are_gone_and_the_rest_stays")
class HasNoErrorForPrunedRows(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        try:
            return super().entries(run_id, first, last)
        except PrunedError as error:
            raise StepNotFoundError(run_id, first, last) from error


@caught_by("pruned_rows_are_gone_and_the_rest_stays")
class GivesWhatIsLeftOfAPrunedRange(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return super().entries(run_id, max(first, self._find(run_id).base), last)


@caught_by("the_newest_row_always_stays")
class PrunesTheNewestRow(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        try:
            return super().prune(run_id, base, generation)
        except StepNotFoundError:
            return NOTHING


@caught_by("the_kept_state_stands_just_below_the_oldest_row", "a_fork_of_a_pruned_run_begins_where_that_begins")
class LosesTheBase(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        counts = super().prune(run_id, base, generation)
        self._runs[run_id].keyframes.pop(base.seq, None)
        self._sweep()
        return counts


@caught_by("the_kept_state_stands_just_below_the_oldest_row")
class KeepsKeyframesOfPrunedRows(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        older = dict(self._find(run_id).keyframes)
        counts = super().prune(run_id, base, generation)
        self._runs[run_id].keyframes = {**older, **self._runs[run_id].keyframes}
        return counts


@caught_by("a_keyframe_that_a_pruned_run_now_begins_with_is_still_its_forks_too")
class TakesTheBaseFromTheForks(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        counts = super().prune(run_id, base, generation)
        for run in self._runs.values():
            if run.new.id != run_id:
                run.keyframes.pop(base.seq, None)
        return counts


@caught_by("a_run_can_be_pruned_again_and_never_back")
class PrunesBack(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        if base.seq < self._find(run_id).base:
            return NOTHING
        return super().prune(run_id, base, generation)


@caught_by("a_base_from_before_pieces_were_removed_is_turned_down", "a_keyframe_from_before_an_erasure_is_turned_down")
class PrunesWithAnyBase(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        return super().prune(run_id, base, self._generation)


@caught_by(
    "a_base_from_before_pieces_were_removed_is_turned_down",
    "a_writer_goes_on_after_a_prune_and_its_next_keyframe_is_turned_down",
)
class CountsNoGenerations(Forgetful):
    forgets: ClassVar = {"generation": 0}

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, 0 if name == "_generation" else value)


@caught_by("an_append_whose_rows_were_pruned_is_refused_and_adds_nothing")
class KnowsPrunedRowsByTheirSeq(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        return (run is not None and append.entries[-1].seq < run.base) or super()._append(append)


@caught_by("forks_keep_what_they_share_with_a_pruned_run", "a_fork_can_be_pruned_without_its_parent")
class PrunesAllThatShare(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        counts = super().prune(run_id, base, generation)
        for run in self._runs.values():
            if any(entry.hash == base.hash for entry in run.history):
                gone = base.seq + 1 - run.base
                run.history, run.base, run.start = run.history[gone:], base.seq + 1, base.hash
                self._keep(run, base)
        return counts


@caught_by("a_fork_of_a_pruned_run_begins_where_that_begins")
class ForksPrunedRowsToo(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, max(seq, self._find(source_id).base))


@caught_by("what_a_pruned_run_had_marked_or_failed_is_forgotten")
class CountsPrunedFailures(MemoryStore):
    def _row(self, run: _Run) -> RunRow:
        row = super()._row(run)
        return row._replace(errors=row.errors + row.base)


@caught_by("rows_are_pruned_from_a_run_that_is_written_to")
class PrunesWithoutTheLock(MemoryStore):
    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        counts = super().prune(run_id, base, generation)
        run = self._runs[run_id]
        history = list(run.history)
        time.sleep(0.005)
        run.history = history
        return counts
