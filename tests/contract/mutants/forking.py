"""Broken ways to fork."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from everstep.errors import EverstepError
from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import Claim, NewRun, RunRow
from everstep.store.memory import MemoryStore, _Run
from tests.contract.mutants.registry import Forgetful, caught_by


@caught_by("a_fork_at_any_step_shares_the_rows_up_to_it", "a_fork_of_a_fork_can_begin_at_any_step")
class ForksAtTheHead(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        run.history = list(self._runs[source_id].history)


@caught_by("a_fork_goes_on_by_itself", "dropping_a_fork_leaves_its_parent")
class WritesIntoTheParent(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        source = self._runs[source_id]
        del source.history[seq - source.base + 1 :]
        run.history = source.history


@caught_by("a_fork_tells_where_it_came_from")
class ForgetsTheRoot(MemoryStore):
    def _row(self, run: _Run) -> RunRow:
        return super()._row(run)._replace(root=run.new.id)


@caught_by("a_fork_tells_where_it_came_from", "runs_are_found_by_what_they_were_forked_from")
class ForgetsTheSource(Forgetful):
    forgets: ClassVar = {"forked_from": None}


@caught_by("a_run_can_have_come_from_one_that_it_shares_nothing_with")
class ForgetsASourceThatIsNotThere(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        return super().create(replace(new, came_from=None))


@caught_by("a_fork_tells_where_it_came_from", "marked_rows_and_counts_of_a_dropped_run_are_gone")
class CountsTheFailuresOfTheParent(MemoryStore):
    def _row(self, run: _Run) -> RunRow:
        failed = STATUS_NUMBER[Status.FAILED]
        return super()._row(run)._replace(errors=sum(entry.status == failed for entry in run.history))


@caught_by("a_finished_run_can_be_forked")
class ForksTheStatusToo(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        run.status, run.ended = self._runs[source_id].status, self._runs[source_id].ended


@caught_by("a_fork_of_what_is_not_there_is_refused_and_leaves_nothing")
class LeavesARunOfARefusedFork(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        try:
            return super().create(new)
        except EverstepError:
            if new.fork is not None and new.id not in self._runs:
                self._runs[new.id] = _Run(99, new, [], new.id, b"", owner="nobody")
            raise


@caught_by("a_fork_of_what_is_not_there_is_refused_and_leaves_nothing")
class ForksAtTheNearestStep(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, min(max(seq, 0), self._find(source_id).seq))


@caught_by("keyframes_are_found_along_the_history_of_a_fork", "forks_of_a_dropped_run_keep_what_they_share")
class ForksWithoutKeyframes(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        run.keyframes = {at: kept for at, kept in run.keyframes.items() if at < run.base}


@caught_by("keyframes_are_found_along_the_history_of_a_fork")
class ForksWithAllKeyframes(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        run.keyframes = dict(self._runs[source_id].keyframes)


@caught_by("a_fork_has_an_owner_and_a_lease_of_its_own")
class ForksTheOwnerToo(MemoryStore):
    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        super()._share(run, source_id, seq)
        run.owner, run.lease = self._runs[source_id].owner, self._runs[source_id].lease
