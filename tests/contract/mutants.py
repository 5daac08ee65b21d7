"""Stores that are broken on purpose, each in one way, with the tests of the contract that must see it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from everstep.codec.chain import Entry
from everstep.errors import (
    ConflictError,
    DamagedError,
    EverstepError,
    OwnedError,
    RunExistsError,
    RunNotFoundError,
    StaleWriterError,
    StepNotFoundError,
)
from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import LEASE_SECONDS, Append, Claim, NewRun, RunRow
from everstep.store.memory import MemoryStore, _Run

Mutant = type[MemoryStore]
M = TypeVar("M", bound=Mutant)
CAUGHT: dict[Mutant, tuple[str, ...]] = {}  # by which tests


def caught_by(*tests: str) -> Callable[[M], M]:
    def register(mutant: M) -> M:
        CAUGHT[mutant] = tests
        return mutant

    return register


# Owning


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


class Forgetful(MemoryStore):
    forgets: dict[str, Any] = {}

    def _row(self, run: _Run) -> RunRow:
        return super()._row(run)._replace(**self.forgets)


@caught_by("a_new_run_keeps_what_is_said_of_it", "runs_are_found_by_workflow")
class ForgetsTheWorkflow(Forgetful):
    forgets = {"workflow": ""}


@caught_by("a_new_run_keeps_what_is_said_of_it")
class ForgetsTheRetry(Forgetful):
    forgets = {"retry_of": None}


@caught_by("a_listed_run_is_told_as_a_run_asked_for")
class ListsOtherwiseThanItTells(MemoryStore):
    def run(self, run_id: str) -> RunRow:
        return super().run(run_id)._replace(errors=0)


@caught_by(
    "a_living_lease_keeps_others_out",
    "a_renewed_lease_lives_longer",
    "one_of_many_gets_a_run_that_nobody_owns",
    "the_owner_is_the_same_for_every_handle",
)
class LetsAnybodyIn(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        with contextlib.suppress(KeyError):
            self._runs[run_id].lease = 0.0
        return super().claim(run_id, owner, lease)


@caught_by("an_ended_lease_lets_another_take_over_at_the_head", "a_fork_has_an_owner_and_a_lease_of_its_own")
class HoldsARunForEver(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        known = self._runs.get(run_id)
        if known is not None and known.owner not in {None, owner}:
            raise OwnedError(run_id, str(known.owner), 0.0)
        return super().claim(run_id, owner, lease)


@caught_by("the_epoch_rises_with_every_new_owner", "a_writer_that_lost_its_run_is_refused")
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


@caught_by("a_run_that_was_given_up_can_be_claimed_at_once", "whoever_gave_a_run_up_claims_it_with_a_new_epoch")
class GivesNothingUp(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim, lease)
        self._runs[claim.run_id].owner = claim.owner


@caught_by("a_renewed_lease_lives_longer", "an_append_renews_the_lease_and_never_shortens_it")
class RenewsNothing(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim, 0.0 if lease == 0 else 0.001)


@caught_by("a_stale_owner_can_neither_renew_nor_give_up")
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


# Appending


@caught_by(
    "a_writer_that_lost_its_run_is_refused",
    "many_write_to_many_runs_at_once_and_a_stale_one_fails_alone",
    "a_submitted_append_that_is_refused_fails_alone",
)
class TrustsZombies(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        epoch = append.claim.epoch if run is None else run.epoch
        append.claim = append.claim._replace(epoch=epoch)
        return super()._append(append)


@caught_by(
    "an_append_that_does_not_follow_the_head_is_refused",
    "one_of_many_at_the_same_head_gets_in",
    "the_error_of_a_refused_append_names_the_run",
    "what_was_drafted_behind_a_refused_append_is_refused_too",
)
class AppendsAnywhere(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None:
            append.claim = append.claim._replace(hash=run.hash)
        return super()._append(append)


@caught_by("an_append_that_does_not_follow_the_head_is_refused", "the_error_of_a_refused_append_names_the_run")
class NamesTheWrongHead(MemoryStore):
    def _append(self, append: Append) -> bool:
        try:
            return super()._append(append)
        except ConflictError as error:
            raise ConflictError(error.run_id, error.seq, error.seq) from error


@caught_by("an_append_to_a_run_that_never_was_is_refused", "the_writer_of_a_dropped_run_is_refused")
class LosesAppendsToUnknownRuns(MemoryStore):
    def _append(self, append: Append) -> bool:
        return append.claim.run_id not in self._runs or super()._append(append)


@caught_by(
    "rows_come_back_as_they_were_given", "an_append_is_there_for_every_handle_when_it_returns", "every_range_of_rows_can_be_read"
)
class KeepsOneRowOfAnAppend(MemoryStore):
    def _append(self, append: Append) -> bool:
        append.entries = append.entries[:1]
        return super()._append(append)


@caught_by("rows_come_back_as_they_were_given")
class ForgetsFailures(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return [entry._replace(status=1) for entry in super().entries(run_id, first, last)]


@caught_by("nothing_of_a_refused_append_stays")
class KeepsPiecesOfRefusedAppends(MemoryStore):
    def _append(self, append: Append) -> bool:
        self._blobs.update(append.blobs or {})
        return super()._append(append)


@caught_by("nothing_of_a_refused_append_stays")
class KeepsTheStatusOfRefusedAppends(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None and append.status is not None:
            run.status = append.status
        return super()._append(append)


@caught_by(
    "the_same_append_again_changes_nothing",
    "the_same_append_submitted_again_changes_nothing",
    "the_same_append_again_is_found_below_the_head",
)
class KnowsNoAppendAgain(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None and run.epoch == append.claim.epoch and run.hash != append.claim.hash:
            raise ConflictError(append.claim.run_id, append.entries[0].seq, run.seq)
        return super()._append(append)


@caught_by("the_same_append_again_is_found_below_the_head")
class KnowsAppendsAtTheHeadOnly(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None and append.entries[-1].seq < run.seq and run.hash != append.claim.hash:
            raise ConflictError(append.claim.run_id, append.entries[0].seq, run.seq)
        return super()._append(append)


@caught_by("the_same_append_again_is_found_after_another_took_over")
class KnowsAppendsOfTheOwnerOnly(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None and run.epoch != append.claim.epoch:
            raise StaleWriterError(append.claim.run_id, append.claim.epoch, run.epoch)
        return super()._append(append)


@caught_by("an_append_of_known_and_new_rows_is_refused_as_a_whole")
class AddsWhatIsNewOfAnAppend(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        if run is not None and run.hash in [entry.hash for entry in append.entries[:-1]]:
            new = [entry for entry in append.entries if entry.seq > run.seq]
            return super()._append(Append(append.claim._replace(hash=run.hash), new))
        return super()._append(append)


@caught_by("a_run_has_no_rows_of_another", "many_runs_are_submitted_to_at_once")
class MixesRunsUp(MemoryStore):
    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return super().entries(next(iter(self._runs)), first, last)


@caught_by("pieces_are_kept_with_the_rows_that_refer_to_them", "nothing_handed_in_stays_an_alias_of_what_is_stored")
class LosesPieces(MemoryStore):
    def _append(self, append: Append) -> bool:
        append.blobs = None
        return super()._append(append)


@caught_by("a_piece_that_is_not_there_is_damage", "a_dropped_run_takes_its_pieces_along")
class MakesPiecesUp(MemoryStore):
    def blob(self, blob_id: bytes) -> bytes:
        try:
            return super().blob(blob_id)
        except DamagedError:
            return b""


@caught_by("a_keyframe_is_kept_with_its_rows_and_pieces", "the_newest_keyframe_at_or_below_a_step_is_found")
class LosesKeyframes(MemoryStore):
    def _append(self, append: Append) -> bool:
        append.keyframe = None
        return super()._append(append)


@caught_by(
    "a_keyframe_of_a_passed_generation_is_left_out_and_said_to_be",
    "a_submitted_keyframe_of_a_passed_generation_is_said_to_be_left_out",
    "a_keyframe_from_before_an_erasure_is_turned_down",
    "a_writer_goes_on_after_a_prune_and_its_next_keyframe_is_turned_down",
)
class KeepsKeyframesOfAnyGeneration(MemoryStore):
    def _append(self, append: Append) -> bool:
        append.claim = append.claim._replace(generation=self._generation)
        return super()._append(append)


@caught_by("a_keyframe_of_a_passed_generation_is_left_out_and_said_to_be")
class DoesNotSayThatAKeyframeWasLeftOut(MemoryStore):
    def _append(self, append: Append) -> bool:
        return super()._append(append) or True


@caught_by("an_append_can_change_how_the_run_stands", "runs_are_found_by_status", "statuses_are_stored_as_their_numbers")
class NeverChangesTheStatus(MemoryStore):
    def _append(self, append: Append) -> bool:
        append.status = None
        return super()._append(append)


@caught_by("an_append_can_change_how_the_run_stands")
class EndsForEver(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        ended = run.ended if run is not None else None
        kept = super()._append(append)
        if run is not None:
            run.ended = run.ended or ended
        return kept


@caught_by("failed_rows_are_counted")
class CountsNoFailures(Forgetful):
    forgets = {"errors": 0}


@caught_by("many_write_to_many_runs_at_once_and_a_stale_one_fails_alone", "a_submitted_append_that_is_refused_fails_alone")
class FailsTheNextOneToo(MemoryStore):
    failed = False

    def _append(self, append: Append) -> bool:
        if self.failed:
            self.failed = False
            raise ConflictError(append.claim.run_id, append.entries[0].seq, -1)
        try:
            return super()._append(append)
        except EverstepError:
            self.failed = True
            raise


# Submitting


@caught_by("a_submitted_append_is_there_when_its_future_is_done", "event_loops_and_threads_share_a_store")
class SubmitsToNowhere(MemoryStore):
    def submit(self, append: Append, loop: asyncio.AbstractEventLoop) -> asyncio.Future[bool]:
        future = loop.create_future()
        future.set_result(True)
        return future


@caught_by("many_submitted_at_once_are_kept_in_order", "a_cancelled_waiter_takes_nothing_back")
class SubmitsLastFirst(MemoryStore):
    waiting: list[tuple[Append, Any]]

    def submit(self, append: Append, loop: asyncio.AbstractEventLoop) -> asyncio.Future[bool]:
        self.waiting = [*getattr(self, "waiting", []), (append, loop.create_future())]
        loop.call_soon(self._settle, loop)
        return self.waiting[-1][1]  # type: ignore[no-any-return] # made above

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self.waiting = self.waiting, []
        for append, future in reversed(waiting):
            done = super().submit(append, loop)
            if not future.cancelled() and done.exception() is not None:
                future.set_exception(done.exception())
            elif not future.cancelled():
                future.set_result(done.result())


@caught_by("a_cancelled_waiter_takes_nothing_back")
class ForgetsWhatWasCancelled(SubmitsLastFirst):
    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiting = [pair for pair in self.waiting[::-1] if not pair[1].cancelled()]
        super()._settle(loop)


@caught_by("the_error_of_a_refused_append_names_the_run", "what_was_drafted_behind_a_refused_append_is_refused_too")
class SwallowsErrorsOfSubmits(MemoryStore):
    def submit(self, append: Append, loop: asyncio.AbstractEventLoop) -> asyncio.Future[bool]:
        future = super().submit(append, loop)
        if future.exception() is not None:
            future = loop.create_future()
            future.set_result(False)
        return future


def unused() -> Iterator[object]:
    yield from (time, Sequence, STATUS_NUMBER, Status, StepNotFoundError)
