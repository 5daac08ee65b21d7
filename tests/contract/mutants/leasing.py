"""Broken ways to share runs among processes: in memory, where threads stand for them, and in a file, with real ones."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial

import apsw

from everstep.errors import OwnedError
from everstep.store import writing
from everstep.store.base import LEASE_SECONDS, Append, Claim, Store
from everstep.store.memory import MemoryStore
from everstep.store.sqlite import SqliteStore
from tests.contract.mutants.registry import caught_by
from tests.contract.test_sqlite import TestSqliteStore as OnFile

KILLED = "a_run_is_free_when_the_lease_of_its_killed_owner_has_ended_and_not_before"
SLEPT = "an_owner_that_slept_past_its_lease_can_neither_write_nor_renew"
GIVEN_UP = "one_of_many_processes_gets_a_run_that_was_given_up"
ENDED = "one_of_many_processes_takes_a_run_over_when_its_lease_has_ended"
RENEWED = "a_lease_that_is_renewed_in_time_outlives_its_length"
FREE = "a_run_that_another_process_gave_up_is_free_at_once"
AHEAD, BEHIND = (f"a_clock_that_is_an_hour_{where}_leaves_a_run_one_writer" for where in ("ahead", "behind"))


@caught_by(GIVEN_UP, ENDED)
class LetsTwoInAtOnce(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        run, now = self._find(run_id), time.time()
        if run.owner not in {None, owner} and run.lease > now:
            raise OwnedError(run_id, str(run.owner), run.lease - now)
        time.sleep(0.02)
        run.lease = 0.0
        return super().claim(run_id, owner, lease)


@caught_by(KILLED)
class EndsLeasesEarly(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        with contextlib.suppress(KeyError):
            self._runs[run_id].lease -= 0.1
        return super().claim(run_id, owner, lease)


@caught_by(KILLED)
class LosesTheLastRowToWhoTakesOver(MemoryStore):
    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        claim = super().claim(run_id, owner, lease)
        del self._runs[run_id].history[-1:]
        return self._claim_of(self._runs[run_id], owner, lease) if claim.epoch > 1 else claim


@caught_by(BEHIND)
class NeverShortensALease(MemoryStore):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        before = self._find(claim.run_id).lease
        super().renew(claim, lease)
        self._runs[claim.run_id].lease = max(self._runs[claim.run_id].lease, before)


class Mutant(SqliteStore):
    """What can be broken only where there are processes."""

    lives_by_its_own_clock = False


class TrustsZombiesElsewhere(Mutant):
    def append(self, append: Append) -> bool:
        append.claim = append.claim._replace(epoch=self.run(append.claim.run_id).epoch)
        return super().append(append)


class RenewsForZombiesElsewhere(Mutant):
    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        super().renew(claim._replace(epoch=self.run(claim.run_id).epoch), lease)


class LooksBeforeItTakes(Mutant):
    """Reads who owns the run in one transaction, and takes it in another."""

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        run, now = self.run(run_id), time.time()
        if run.owner not in {None, owner} and run.lease > now:
            raise OwnedError(run_id, str(run.owner), run.lease - now)
        time.sleep(0.05)

        def take(connection: apsw.Connection) -> Claim:
            connection.execute("update run set lease = 0 where id = ?", (run_id,))
            return writing.claim_run(connection, run_id, owner, lease)

        return self._write(take)


class RemembersItsOwnRuns(Mutant):
    """Keeps the leases in the process: what it did not give up itself, nobody did."""

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        seen = self.__dict__.setdefault("seen", {})
        run = self.run(run_id)
        if seen.setdefault(run_id, run.owner) not in {None, owner} and run.epoch == 1:
            raise OwnedError(run_id, str(seen[run_id]), 1.0)
        return super().claim(run_id, owner, lease)


class GoesByTheClocksOfItsClients(Mutant):
    """A file that many machines open, each with a clock of its own: one that says it has a clock has none."""

    lives_by_its_own_clock = True


AMONG_PROCESSES: dict[type[Mutant], tuple[str, ...]] = {
    TrustsZombiesElsewhere: (SLEPT, FREE, AHEAD),
    RenewsForZombiesElsewhere: (SLEPT, AHEAD),
    LooksBeforeItTakes: (GIVEN_UP, ENDED),
    RemembersItsOwnRuns: (FREE,),
    GoesByTheClocksOfItsClients: (AHEAD, BEHIND),
}


class ContractOnFile(OnFile):
    """The contract, for whichever store it is given."""

    def __init__(self, mutant: type[Mutant]) -> None:
        self.mutant, self.own_clock = mutant, mutant.lives_by_its_own_clock

    def another(self, store: Store) -> Store:
        return self.mutant(store.where)

    def elsewhere(self, store: Store) -> Callable[[], Store]:
        return partial(self.mutant, store.where)
