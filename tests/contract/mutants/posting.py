"""Broken ways to post, and to leave a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from everstep.errors import EverstepError, RunNotFoundError
from everstep.store.base import LEASE_SECONDS, Append, Claim, Keyframe, Settled
from everstep.store.memory import MemoryStore, _Run
from tests.contract.mutants.registry import caught_by


@caught_by(
    "posted_rows_keep_their_order_whoever_waits_first",
    "rows_that_are_appended_behind_posted_ones_find_them_there",
    "posted_rows_with_somebody_to_tell_are_written_though_nobody_waits",
)
class WritesWhenWaitedFor(MemoryStore):
    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        post = super().post

        def wait() -> bool:
            return post(append, settled)()

        return wait


@caught_by("posted_rows_that_are_refused_say_so_to_whoever_waits")
class SwallowsErrorsOfPosts(MemoryStore):
    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        wait = super().post(append, settled)

        def quiet() -> bool:
            try:
                return wait()
            except EverstepError:
                return False

        return quiet


@caught_by("posted_rows_with_somebody_to_tell_are_written_though_nobody_waits")
class TellsNobody(MemoryStore):
    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        return super().post(append)


@caught_by("posted_rows_are_there_for_every_handle_when_they_were_waited_for")
class LosesWhatIsPosted(MemoryStore):
    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        return lambda: True


@caught_by("waiting_twice_for_posted_rows_tells_the_same")
class WaitsOnce(MemoryStore):
    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        answers = [super().post(append, settled)()]
        return lambda: answers.pop() if answers else False


@caught_by("a_keyframe_in_the_middle_of_several_rows_is_found_and_leads_to_its_row")
class PutsKeyframesAtTheEnd(MemoryStore):
    def _keep(self, run: _Run, kept: Keyframe) -> None:
        super()._keep(run, kept._replace(seq=run.seq))


@caught_by("a_word_is_left_for_the_owner_of_a_run_and_changes_nothing_else")
class ForgetsWords(MemoryStore):
    def _append(self, append: Append) -> bool:
        kept = super()._append(append)
        self._runs[append.claim.run_id].request = None
        return kept


@caught_by("the_words_for_many_runs_are_asked_for_at_once")
class TellsAllWords(MemoryStore):
    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        return super().requests(list(self._runs) if run_ids else [])


@caught_by("a_word_is_gone_when_somebody_else_claims_the_run")
class KeepsWordsForTheNextOwner(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        word = self._find(run_id).request
        claim = super().claim(run_id, owner, lease)
        self._find(run_id).request = word
        return claim


@caught_by("a_word_is_gone_when_the_run_has_ended")
class KeepsWordsOfTheDead(MemoryStore):
    def _append(self, append: Append) -> bool:
        run = self._runs.get(append.claim.run_id)
        word = None if run is None else run.request
        kept = super()._append(append)
        self._runs[append.claim.run_id].request = word
        return kept


@caught_by("a_word_for_a_run_that_is_not_there_is_refused")
class TakesWordsForNobody(MemoryStore):
    def request(self, run_id: str, word: str) -> None:
        with suppress(RunNotFoundError):
            super().request(run_id, word)
