"""Leases among processes: whoever is killed, stopped or off by an hour, a run has one writer, and soon has one again.

No test asks whether something was quick. A claim that came too early is told by a clock that nobody moves; one that
comes late is waited for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from everstep.errors import EverstepError, OwnedError, StaleWriterError
from everstep.store.base import Claim, Store
from everstep.testing.others import PATIENCE, Process, Somebody, Thread, moved_clock
from everstep.testing.place import Place
from everstep.testing.rows import LONG, Writer, begin, history, new_run

LEASE = 0.2  # seconds: a lease that a test outlives
HOUR = 3600.0
RIVALS = 4


class Leases(Place):
    """What holds between handles holds between processes, and by the store's clock."""

    @contextlib.contextmanager
    def somebody(self, store: Store) -> Iterator[Somebody]:
        """Somebody else at the store: a process, or a thread where no process can be."""
        opener = self.elsewhere(store)
        with Process(opener) if opener is not None else Thread(self.another(store)) as who:
            yield who

    @contextlib.contextmanager
    def off(self, other: Somebody, seconds: float) -> Iterator[None]:
        """An hour of difference: the other's clock alone, or, where all have the machine's, that of all."""
        other.move_clock(seconds)
        with contextlib.nullcontext() if self.own_clock else moved_clock(seconds):
            yield

    def test_a_run_is_free_when_the_lease_of_its_killed_owner_has_ended_and_not_before(self, store: Store) -> None:
        """Promises 1 and 4: what it wrote is there, and what it was about to write is there as a whole or not."""
        with self.somebody(store) as owner:
            writer = begin(owner.store, lease=LEASE)
            written, since = writer.write(2), time.monotonic()
            written += writer.write()
            late = writer.rows(2, name="late")
            owner.send("append", writer.draft(late))
            owner.kill()
            heir = Writer(store, taken_over(store, since))
            assert heir.claim.epoch == 2
            last = heir.write()
            assert history(store) in ([*written, *last], [*written, *late, *last])

    def test_an_owner_that_slept_past_its_lease_can_neither_write_nor_renew(self, store: Store) -> None:
        """Promise 4: it was stopped when another claimed the run, and is told by its next call, whatever that is."""
        with self.somebody(store) as zombie:
            since = time.monotonic()
            writer = begin(zombie.store, lease=LEASE)
            written = writer.write(2)
            zombie.stop()
            heir = Writer(store, taken_over(store, since))
            before = store.run("run")
            late = [zombie.send("append", Writer(store, writer.claim).draft(writer.rows(2, name="late")))]
            late += [zombie.send("renew", writer.claim, lease) for lease in (LONG * 2, 0.0)]
            zombie.wake()
            for answer in late:
                with pytest.raises(StaleWriterError) as refusal:
                    answer()
                assert (refusal.value.epoch, refusal.value.current) == (1, 2)
            assert store.run("run") == before
            written += heir.write()
            behind = Writer(zombie.store, heir.claim._replace(owner="maker", epoch=1))
            with pytest.raises(StaleWriterError):
                behind.write(name="later")
            written += heir.write()
            assert history(store) == written

    def test_one_of_many_processes_gets_a_run_that_was_given_up(self, store: Store) -> None:
        """Promise 4: over and over; the epoch rises by one each time, and who was refused learns by whom."""
        writer = begin(store)
        with self.rivals(store) as rivals:
            for epoch in range(2, 7):
                store.renew(writer.claim, 0)
                writer = Writer(store, self._one_wins(rivals, epoch))
                writer.write()
        assert len(history(store)) == 5

    def test_one_of_many_processes_takes_a_run_over_when_its_lease_has_ended(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store)
        with self.rivals(store) as rivals:
            for epoch in range(2, 7):
                store.renew(writer.claim, 0.001)
                time.sleep(0.01)
                writer = Writer(store, self._one_wins(rivals, epoch))
                writer.write()
        assert len(history(store)) == 5

    @contextlib.contextmanager
    def rivals(self, store: Store) -> Iterator[list[Somebody]]:
        """Several at the store, all of them awake."""
        with ExitStack() as stack:
            rivals = [stack.enter_context(self.somebody(store)) for _ in range(RIVALS)]
            for answer in [rival.send("run", "run") for rival in rivals]:
                answer()
            yield rivals

    def _one_wins(self, rivals: list[Somebody], epoch: int) -> Claim:
        answers = [rival.send("claim", "run", f"rival {n} {epoch}", LONG) for n, rival in enumerate(rivals)]
        got = [outcome(answer) for answer in answers]
        [claim] = [one for one in got if isinstance(one, Claim)]
        assert claim.epoch == epoch
        refused = [one for one in got if one is not claim]
        assert [(type(one), one.owner) for one in refused] == [(OwnedError, claim.owner)] * (len(rivals) - 1)
        return claim

    def test_a_lease_that_is_renewed_in_time_outlives_its_length(self, store: Store) -> None:
        """Promise 4."""
        with self.somebody(store) as owner:
            end, tries = time.monotonic() + PATIENCE, 0
            while not _is_kept(store, owner, f"run {tries}"):
                tries += 1
                assert time.monotonic() < end

    def test_a_run_that_another_process_gave_up_is_free_at_once(self, store: Store) -> None:
        with self.somebody(store) as owner:
            writer = begin(owner.store, rows=1)
            with pytest.raises(OwnedError):
                store.claim("run", "other")
            owner.store.renew(writer.claim, 0)
            assert store.run("run").owner is None
            assert store.claim("run", "other", LONG).epoch == 2
            with pytest.raises(StaleWriterError):
                writer.write()
            assert len(history(store)) == 1

    def test_a_clock_that_is_an_hour_ahead_leaves_a_run_one_writer(self, store: Store) -> None:
        """Promise 4: by a clock of the store's own nothing is taken; by the machine's it is, and its owner is told."""
        owner = begin(store, rows=1)
        with self.somebody(store) as other, self.off(other, HOUR):
            got = outcome(lambda: other.store.claim("run", "other", LONG))
            if self.own_clock:
                assert isinstance(got, OwnedError)
                assert 0 < got.seconds_left <= LONG
                owner.write()
            else:
                Writer(other.store, got).write()
                for late in (owner.write, lambda: store.renew(owner.claim, LONG)):
                    with pytest.raises(StaleWriterError):
                        late()
            assert len(history(store)) == 2
            _ends_in_time(store, other)

    def test_a_clock_that_is_an_hour_behind_leaves_a_run_one_writer(self, store: Store) -> None:
        """Promise 4: and nobody is locked out by a store with a clock of its own, nor when the owner says a word."""
        owner, ended = begin(store, rows=1), store.create(new_run("ended", lease=0.0))
        with self.somebody(store) as other, self.off(other, -HOUR):
            with pytest.raises(OwnedError):
                other.store.claim("run", "other", LONG)
            owner.write()
            got = outcome(lambda: other.store.claim("ended", "other", LONG))
            if self.own_clock:
                assert isinstance(got, Claim)
            else:
                assert isinstance(got, OwnedError)
                assert got.seconds_left <= HOUR
                store.renew(ended, 0)
                assert other.store.claim("ended", "other", LONG).epoch == 2
            since = time.monotonic()
            store.renew(owner.claim, LEASE)
            assert taken_over(other.store, since).epoch == 2
            _ends_in_time(store, other)


def taken_over(store: Store, since: float, run_id: str = "run") -> Claim:
    """The run, claimed as soon as its owner's lease lets go of it, which it must not do before its time.

    `since` is a moment before the lease was asked for.
    """
    end = time.monotonic() + PATIENCE
    while isinstance(got := outcome(lambda: store.claim(run_id, "heir", LONG)), OwnedError):
        assert 0 < got.seconds_left <= LEASE * 1.05, "the lease is not as long as was asked for"
        assert time.monotonic() < end, "the lease does not end"
        time.sleep(LEASE / 20)
    assert isinstance(got, Claim)
    assert _has_ended(since, LEASE), "the lease had not ended"
    return got


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gave, or the error that it raised."""
    try:
        return call()
    except EverstepError as error:
        return error


def _has_ended(since: float, lease: float) -> bool:
    """Whether a lease that was asked for after that moment can have ended. Clocks do not all run alike."""
    return time.monotonic() - since > lease * 0.95


def _is_kept(store: Store, owner: Somebody, run_id: str) -> bool:
    """Whether a lease was kept for three times its length. It need not be when the machine slept for all of one."""
    start = since = time.monotonic()
    writer = begin(owner.store, run_id, lease=LEASE)
    renewals = 0
    while since < start + 3 * LEASE:
        time.sleep(LEASE / 10)
        if not isinstance(outcome(lambda: store.claim(run_id, "other", LONG)), OwnedError):
            assert _has_ended(since, LEASE), "the lease had not ended"
            return False
        since, renewals = time.monotonic(), renewals + 1
        if renewals % 2:
            owner.store.renew(writer.claim, LEASE)
        else:
            writer.write()
    return True


def _ends_in_time(store: Store, other: Somebody) -> None:
    """A lease that somebody took whose clock is off ends in its time for others, and not before."""
    since = time.monotonic()
    begin(other.store, "off", lease=LEASE, rows=1)
    assert taken_over(store, since, "off").epoch == 2
