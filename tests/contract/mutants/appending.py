"""Broken ways to append and to submit."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from everstep.codec.chain import Entry, genesis
from everstep.errors import ConflictError, DamagedError, EverstepError, StaleWriterError
from everstep.store.base import Append, Claim, NewRun, Settled
from everstep.store.memory import MemoryStore
from tests.contract.mutants.registry import Forgetful, caught_by


@caught_by(
    "a_writer_that_lost_its_run_is_refused",
    "many_write_to_many_runs_at_once_and_a_stale_one_fails_alone",
    "a_submitted_append_that_is_refused_fails_alone",
    "an_owner_that_slept_past_its_lease_can_neither_write_nor_renew",
    "a_run_that_another_process_gave_up_is_free_at_once",
    "a_clock_that_is_an_hour_ahead_leaves_a_run_one_writer",
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


@caught_by("the_same_append_again_tells_whether_its_keyframe_is_kept")
class TakesKeyframesForKept(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        before = None if run is None else run.seq
        return super()._append(append) or (run is not None and run.seq == before)


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
    "rows_come_back_as_they_were_given",
    "an_append_is_there_for_every_handle_when_it_returns",
    "every_range_of_rows_can_be_read",
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


@caught_by(
    "an_append_can_change_how_the_run_stands", "runs_are_found_by_status", "statuses_are_stored_as_their_numbers"
)
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
    forgets: ClassVar = {"errors": 0}


@caught_by(
    "many_write_to_many_runs_at_once_and_a_stale_one_fails_alone", "a_submitted_append_that_is_refused_fails_alone"
)
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
    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        future = loop.create_future()
        future.set_result(True)
        return future


@caught_by("runs_are_created_by_event_loops_too")
class CreatesNothingForLoops(MemoryStore):
    def submit_create(self, new: NewRun, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Claim]:
        future = loop.create_future()
        future.set_result(Claim(new.id, new.owner, 1, -1, genesis(new.id), 0, 0))
        return future


@caught_by("many_submitted_at_once_are_kept_in_order", "a_cancelled_waiter_takes_nothing_back")
class SubmitsLastFirst(MemoryStore):
    waiting: list[tuple[Append, Any]]

    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
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
    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        future = super().submit(append, loop, settled)
        if future.exception() is not None:
            future = loop.create_future()
            future.set_result(False)
        return future


@caught_by("how_a_submitted_append_went_is_told_also_when_nobody_waits")
class TellsOnlyThoseWhoWait(MemoryStore):
    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        return super().submit(append, loop)
