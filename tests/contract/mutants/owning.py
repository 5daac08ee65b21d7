"""Broken ways to own a run."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import ClassVar

from everstep.errors import OwnedError, RunExistsError, RunFinishedError, RunNotFoundError
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Status
from everstep.store.base import LEASE_SECONDS, Append, Claim, NewRun, RunRow
from everstep.store.memory import MemoryStore, _Run
from tests.contract.mutants.registry import Forgetful, caught_by


@caught_by("a_new_run_is_its_makers_and_stands_before_its_first_row")
class ForgetsWhoMadeIt(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        claim = super().create(new)
        self._runs[new.id].owner = None
        return claim


@caught_by("an_id_is_taken_once", "one_of_many_creates_a_run", "a_fork_takes_its_id_once_and_is_found_by_its_owner")
class TakesAnIdAgain(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        if new.id in self._runs and self._runs[new.id].owner != new.owner:
            del self._runs[new.id]
        return super().create(new)


@caught_by("creating_again_by_the_same_owner_finds_the_run", "a_fork_takes_its_id_once_and_is_found_by_its_owner")
class DoesNotKnowItsMaker(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        if new.id in self._runs:
            raise RunExistsError(new.id)
        return super().create(new)


@caught_by("a_run_that_was_given_up_or_taken_over_is_not_created_again_by_its_first_owner")
class KnowsItsMakerForEver(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        known = self._runs.get(new.id)
        if known is not None and known.new.owner == new.owner:
            return self._claim_of(known, new.owner, new.lease)
        return super().create(new)


@caught_by("a_new_run_can_have_its_first_rows_at_once", "a_fork_can_have_its_first_rows_at_once")
class LosesFirstRows(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        claim = super().create(new)
        run = self._runs[new.id]
        del run.history[len(run.history) - len(new.entries) :]
        return claim


@caught_by("a_new_run_can_have_the_rows_of_another_trail_and_have_ended_there")
class BeginsEveryRunItself(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        return super().create(replace(new, root=None))


@caught_by("a_new_run_can_have_the_rows_of_another_trail_and_have_ended_there")
class TakesEveryRunForNew(MemoryStore):
    def create(self, new: NewRun) -> Claim:
        return super().create(replace(new, status=None))


@caught_by("a_new_run_keeps_what_is_said_of_it", "runs_are_found_by_workflow")
class ForgetsTheWorkflow(Forgetful):
    forgets: ClassVar = {"workflow": ""}


@caught_by("a_new_run_keeps_what_is_said_of_it")
class ForgetsTheRetry(Forgetful):
    forgets: ClassVar = {"retry_of": None}


@caught_by("a_listed_run_is_told_as_a_run_asked_for")
class ListsOtherwiseThanItTells(MemoryStore):
    def run(self, run_id: str) -> RunRow:
        return super().run(run_id)._replace(errors=0)


@caught_by(
    "a_living_lease_keeps_others_out",
    "a_renewed_lease_lives_longer",
    "one_of_many_gets_a_run_that_nobody_owns",
    "the_owner_is_the_same_for_every_handle",
    "a_clock_that_is_an_hour_behind_leaves_a_run_one_writer",
    "a_lease_that_is_renewed_in_time_outlives_its_length",
    "a_run_is_free_when_the_lease_of_its_killed_owner_has_ended_and_not_before",
)
class LetsAnybodyIn(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        with contextlib.suppress(KeyError):
            self._runs[run_id].lease = 0.0
        return super().claim(run_id, owner, lease)


@caught_by(
    "a_run_that_has_completed_is_claimed_by_nobody_and_stays_as_it_is",
    "nobody_gets_a_run_that_completes_while_many_want_it",
)
class TakesUpWhatHasCompleted(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        known = self._runs.get(run_id)
        if known is not None and known.status == STATUS_NUMBER[Status.COMPLETED]:
            known.status = STATUS_NUMBER[Status.ACTIVE]
        return super().claim(run_id, owner, lease)


@caught_by("a_run_that_has_completed_is_claimed_by_nobody_and_stays_as_it_is")
class RaisesTheEpochOfWhatItRefuses(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        try:
            return super().claim(run_id, owner, lease)
        except RunFinishedError:
            self._runs[run_id].epoch += 1
            raise


@caught_by("a_run_that_ended_otherwise_or_waits_can_be_claimed")
class TakesEveryEndForFinal(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        if (status := STATUSES[self._find(run_id).status]) in FINISHED:
            raise RunFinishedError(run_id, status)
        return super().claim(run_id, owner, lease)


@caught_by("an_ended_lease_lets_another_take_over_at_the_head", "a_fork_has_an_owner_and_a_lease_of_its_own")
class HoldsARunForEver(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        known = self._runs.get(run_id)
        if known is not None and known.owner not in {None, owner}:
            raise OwnedError(run_id, str(known.owner), 0.0)
        return super().claim(run_id, owner, lease)


@caught_by(
    "the_epoch_rises_with_every_new_owner",
    "a_writer_that_lost_its_run_is_refused",
    "an_owner_that_slept_past_its_lease_can_neither_write_nor_renew",
    "a_clock_that_is_an_hour_ahead_leaves_a_run_one_writer",
)
class KeepsTheEpoch(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        epoch = self._find(run_id).epoch
        claim = super().claim(run_id, owner, lease)
        self._runs[run_id].epoch = epoch
        return claim._replace(epoch=epoch)


@caught_by("the_same_owner_keeps_its_epoch_and_gets_a_new_lease")
class RaisesTheEpochAlways(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        claim = super().claim(run_id, owner, lease)
        self._runs[run_id].epoch += claim.epoch == 1
        return claim._replace(epoch=self._runs[run_id].epoch)


@caught_by(
    "a_run_that_was_given_up_can_be_claimed_at_once",
    "whoever_gave_a_run_up_claims_it_with_a_new_epoch",
    "a_run_that_another_process_gave_up_is_free_at_once",
)
class GivesNothingUp(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim, lease)
        self._runs[claim.run_id].owner = claim.owner


@caught_by(
    "a_renewed_lease_lives_longer",
    "an_append_renews_the_lease_and_never_shortens_it",
    "a_lease_that_is_renewed_in_time_outlives_its_length",
)
class RenewsNothing(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim, 0.0 if lease == 0 else 0.001)


@caught_by(
    "a_stale_owner_can_neither_renew_nor_give_up",
    "an_owner_that_slept_past_its_lease_can_neither_write_nor_renew",
)
class RenewsForTheStale(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim._replace(epoch=self._find(claim.run_id).epoch), lease)


@caught_by("an_append_renews_the_lease_and_never_shortens_it")
class RenewsNoLeaseByAppending(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        lease = run.lease if run is not None else 0.0
        kept = super()._append(append)
        self._runs[append.claim.run_id].lease = lease
        return kept


@caught_by(
    "an_unknown_run_can_be_neither_claimed_nor_renewed",
    "an_unknown_run_is_not_found",
    "a_dropped_run_is_gone",
    "only_a_run_that_is_there_can_be_dropped",
    "only_a_run_that_is_there_can_be_pruned",
)
class HasNoErrorForUnknownRuns(MemoryStore):
    def _find(self, run_id: str) -> _Run:
        try:
            return super()._find(run_id)
        except RunNotFoundError as error:
            raise KeyError(run_id) from error
