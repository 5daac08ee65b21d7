"""Broken ways to erase and reclaim."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from everstep.codec.chain import Entry
from everstep.errors import EverstepError
from everstep.store.base import Counts, Keyframe
from everstep.store.memory import MemoryStore
from tests.contract.mutants.registry import caught_by


@caught_by("erased_rows_take_the_place_of_those_that_were_there", "an_erased_row_can_be_erased_again")
class ErasesNothing(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._find(run_id)


@caught_by("erased_rows_take_the_place_of_those_that_were_there", "an_erased_row_can_be_erased_again")
class RemovesErasedRows(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        for run in self._runs.values():
            run.history = [entry for entry in run.history if entry not in entries]


@caught_by("rows_are_erased_for_every_run_that_shares_them", "keyframes_that_could_tell_what_was_erased_are_gone")
class ErasesForOneRun(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        before = {run.key: (list(run.history), dict(run.keyframes)) for run in self._runs.values()}
        super().erase(run_id, entries)
        for run in self._runs.values():
            if run.new.id != run_id:
                run.history, run.keyframes = before[run.key]


@caught_by("an_erased_row_leaves_those_of_other_runs_at_its_place")
class ErasesByPlace(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        by_seq = {entry.seq: entry for entry in entries}
        for run in self._runs.values():
            run.history = [by_seq.get(entry.seq, entry) for entry in run.history]


@caught_by("keyframes_that_could_tell_what_was_erased_are_gone", "a_keyframe_from_before_an_erasure_is_turned_down")
class KeepsKeyframesOfErasedRows(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        before = {run.key: dict(run.keyframes) for run in self._runs.values()}
        super().erase(run_id, entries)
        self._generation -= 1
        for run in self._runs.values():
            run.keyframes = before[run.key]


@caught_by("a_keyframe_at_the_erased_row_goes_and_those_of_unrelated_rows_stay")
class KeepsTheKeyframeAtAnErasedRow(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        before = {run.key: dict(run.keyframes) for run in self._runs.values()}
        super().erase(run_id, entries)
        for run in self._runs.values():
            at = {entry.seq: before[run.key][entry.seq] for entry in entries if entry.seq in before[run.key]}
            run.keyframes.update(at)


@caught_by("a_keyframe_at_the_erased_row_goes_and_those_of_unrelated_rows_stay")
class ForgetsKeyframesOfUnrelatedRows(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        first = min((entry.seq for entry in entries), default=0)
        for run in self._runs.values():
            run.keyframes = {seq: kept for seq, kept in run.keyframes.items() if seq < max(first, run.base)}


@caught_by("a_pruned_run_keeps_its_base_when_rows_above_it_are_erased")
class ForgetsTheBaseWhenItErases(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        self._runs[run_id].keyframes.clear()


@caught_by("a_fork_does_not_learn_what_was_erased_from_the_base_of_its_pruned_parent")
class LooksAtTheBaseOfThePrunedParent(MemoryStore):
    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        found, source = super().keyframe(run_id, at), self._find(run_id).new.fork
        if found is None and source is not None and source[0] in self._runs:
            return super().keyframe(source[0], min(at, source[1]))
        return found


@caught_by("rows_that_are_not_there_cannot_be_erased")
class ErasesWhatIsThereOnly(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        with contextlib.suppress(EverstepError):
            super().erase(run_id, entries)


@caught_by("rows_that_are_not_there_cannot_be_erased")
class ErasesUpToWhatIsNotThere(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            super().erase(run_id, [entry])


@caught_by("erasing_no_rows_changes_nothing")
class CountsAGenerationForNothing(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        self._generation += 1


@caught_by("reclaim_removes_the_pieces_of_erased_rows_alone", "reclaim_has_nothing_left_to_do_after_itself")
class ReclaimsNothing(MemoryStore):
    def reclaim(self) -> Counts:
        return Counts(0, 0, 0, 0)


@caught_by("reclaim_removes_the_pieces_of_erased_rows_alone")
class ReclaimsPiecesOfOtherRowsToo(MemoryStore):
    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        super().erase(run_id, entries)
        self._blobs.clear()


@caught_by("reclaim_has_nothing_left_to_do_after_itself", "reclaim_removes_nothing_that_is_referred_to")
class CountsWhatItReclaimedBefore(MemoryStore):
    def reclaim(self) -> Counts:
        super().reclaim()
        return Counts(0, 0, 0, 1)


@caught_by("reclaim_removes_nothing_that_is_referred_to")
class RaisesTheGenerationAlways(MemoryStore):
    def reclaim(self) -> Counts:
        self._generation += 1
        return super().reclaim()
