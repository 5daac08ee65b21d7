"""Who may write to a run: creating, claiming, renewing."""

from __future__ import annotations

import time
from functools import partial

import pytest

from everstep.codec.chain import genesis
from everstep.errors import OwnedError, RunExistsError, RunFinishedError, RunNotFoundError, StaleWriterError
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store.base import Append, Claim, Store
from everstep.testing.leases import LEASE, taken_over
from everstep.testing.others import PATIENCE
from everstep.testing.place import Place
from everstep.testing.rows import LONG, NOON, Writer, begin, history, new_run, row, still, take_over, together


class Ownership(Place):
    """One owner at a time, with a lease that ends and an epoch that rises."""

    def test_a_new_run_is_its_makers_and_stands_before_its_first_row(self, store: Store) -> None:
        claim = store.create(new_run())
        assert claim[:5] == ("run", "maker", 1, -1, genesis("run"))
        run = store.run("run")
        assert (run.owner, run.epoch, run.seq, run.hash, run.key) == ("maker", 1, -1, genesis("run"), claim.key)
        assert history(store) == []

    def test_a_new_run_can_have_its_first_rows_at_once(self, store: Store) -> None:
        first = row(genesis("run"), 0)
        second = row(first.hash, 1)
        claim = store.create(new_run(entries=(first, second)))
        assert (claim.seq, claim.hash) == (1, second.hash)
        assert history(store) == [first, second]

    def test_a_new_run_can_have_the_rows_of_another_trail_and_have_ended_there(self, store: Store) -> None:
        first = row(genesis("elsewhere"), 0)
        last = row(first.hash, 1)
        for status, owner in ((Status.FAILED, None), (Status.PAUSED, "maker")):
            new = new_run(str(status), entries=(first, last), root="elsewhere", status=STATUS_NUMBER[status])
            store.create(new)
            assert history(store, str(status)) == [first, last]
            run = store.run(str(status))
            assert (run.root, run.status, run.owner) == ("elsewhere", STATUS_NUMBER[status], owner)
            assert run.ended == (None if owner else last.started + last.duration)

    def test_a_new_run_keeps_what_is_said_of_it(self, store: Store) -> None:
        store.create(
            new_run(
                workflow="flow", tags={"user": "ann"}, parent="above", retry_of="before", retry_index=2, created=NOON
            )
        )
        run = store.run("run")
        assert (run.id, run.root, run.workflow, run.tags, run.parent) == (
            "run",
            "run",
            "flow",
            {"user": "ann"},
            "above",
        )
        assert (run.retry_of, run.retry_index, run.created) == ("before", 2, NOON)
        assert (run.status, run.ended, run.errors, run.base) == (STATUS_NUMBER[Status.ACTIVE], None, 0, 0)
        assert (run.forked_from, run.fork_seq) == (None, None)

    def test_an_id_is_taken_once(self, store: Store) -> None:
        written = begin(store, workflow="first").write(2)
        with pytest.raises(RunExistsError):
            store.create(new_run(owner="other", workflow="second", entries=[row(genesis("run"), 0)]))
        assert history(store) == written
        assert (store.run("run").workflow, store.run("run").owner) == ("first", "maker")

    def test_creating_again_by_the_same_owner_finds_the_run(self, store: Store) -> None:
        new = new_run(entries=[row(genesis("run"), 0)])
        assert store.create(new) == store.create(new)
        assert history(store) == list(new.entries)

    def test_a_run_that_was_given_up_or_taken_over_is_not_created_again_by_its_first_owner(self, store: Store) -> None:
        writer = begin(store)
        store.renew(writer.claim, 0)
        with pytest.raises(RunExistsError):
            store.create(new_run())
        taken = store.claim("run", "other")
        store.renew(taken, 0)
        store.claim("run", "maker")
        with pytest.raises(RunExistsError):
            store.create(new_run())

    def test_a_living_lease_keeps_others_out(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        with pytest.raises(OwnedError) as refusal:
            store.claim("run", "other")
        assert refusal.value.owner == "maker"
        assert 0 < refusal.value.seconds_left <= LONG
        assert (store.run("run").owner, store.run("run").epoch) == ("maker", 1)
        writer.write()

    def test_an_ended_lease_lets_another_take_over_at_the_head(self, store: Store) -> None:
        writer, since = begin(store, rows=3), time.monotonic()
        store.renew(writer.claim, LEASE)
        assert taken_over(store, since) == writer.claim._replace(owner="heir", epoch=2)
        assert (store.run("run").owner, store.run("run").epoch) == ("heir", 2)
        with pytest.raises(OwnedError):
            store.claim("run", "maker")

    def test_the_epoch_rises_with_every_new_owner(self, store: Store) -> None:
        store.create(new_run(lease=0.0))
        epochs = [store.claim("run", owner, 0.0).epoch for owner in ("a", "b", "a")]
        assert epochs == [2, 3, 4]

    def test_the_same_owner_keeps_its_epoch_and_gets_a_new_lease(self, store: Store) -> None:
        writer = begin(store, rows=1, lease=0.0)
        store.renew(writer.claim, 0.001)
        time.sleep(0.002)
        assert store.claim("run", "maker", LONG) == writer.claim._replace(lease=LONG)
        with pytest.raises(OwnedError):
            store.claim("run", "other")
        writer.write()

    def test_a_run_that_was_given_up_can_be_claimed_at_once(self, store: Store) -> None:
        writer = begin(store, rows=1)
        store.renew(writer.claim, 0)
        assert store.run("run").owner is None
        assert store.claim("run", "other").epoch == 2

    def test_whoever_gave_a_run_up_claims_it_with_a_new_epoch(self, store: Store) -> None:
        writer = begin(store)
        store.renew(writer.claim, 0)
        assert store.claim("run", "maker").epoch == 2

    def test_a_renewed_lease_lives_longer(self, store: Store) -> None:
        writer = begin(store, lease=0.0)
        store.renew(writer.claim, LONG)
        with pytest.raises(OwnedError):
            store.claim("run", "other")
        assert store.run("run").lease > time.time() + LONG / 2

    def test_a_stale_owner_can_neither_renew_nor_give_up(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        take_over(writer)
        before = store.run("run")
        for lease in (LONG * 2, 0.0):
            with pytest.raises(StaleWriterError) as refusal:
                store.renew(writer.claim, lease)
            assert (refusal.value.epoch, refusal.value.current) == (1, 2)
        assert store.run("run") == before

    def test_an_append_renews_the_lease_and_never_shortens_it(self, store: Store) -> None:
        writer = begin(store, lease=50.0)
        store.renew(writer.claim, 0.001)
        writer.write()
        with pytest.raises(OwnedError):
            store.claim("run", "other")
        assert time.time() + 25 < store.run("run").lease <= time.time() + 50
        store.renew(writer.claim, LONG)
        writer.write()
        assert store.run("run").lease > time.time() + LONG / 2

    def test_a_run_that_has_completed_is_claimed_by_nobody_and_stays_as_it_is(self, store: Store) -> None:
        """Promises 4 and 5: whoever looked before it ended must not go on with it."""
        writer = begin(store, rows=1)
        store.append(writer.draft(writer.rows(kind=Kind.END), status=STATUS_NUMBER[Status.COMPLETED]))
        before = store.run("run")
        for owner in ("maker", "other"):
            with pytest.raises(RunFinishedError) as refusal:
                store.claim("run", owner)
            assert (refusal.value.run_id, refusal.value.status) == ("run", Status.COMPLETED)
        assert store.run("run") == before

    def test_a_run_that_ended_otherwise_or_waits_can_be_claimed(self, store: Store) -> None:
        for status in (FINISHED | {Status.PAUSED}) - {Status.COMPLETED}:
            writer = begin(store, str(status))
            store.append(writer.draft(writer.rows(), status=STATUS_NUMBER[status]))
            taken = take_over(writer)
            assert (taken.claim.epoch, taken.claim.seq) == (2, 0)
            taken.write()

    def test_nobody_gets_a_run_that_completes_while_many_want_it(self, store: Store) -> None:
        """Promise 4."""
        for number in range(10):
            writer = begin(store, run_id := f"run {number}", rows=1)
            end = writer.draft(writer.rows(kind=Kind.END), status=STATUS_NUMBER[Status.COMPLETED])
            wanted = [partial(_wanted, store, run_id, f"owner {n}") for n in range(3)]
            assert together([partial(_ended, store, end), *wanted]) == [Status.COMPLETED] * 4
            assert (store.run(run_id).owner, store.run(run_id).epoch) == (None, 1)

    def test_an_unknown_run_can_be_neither_claimed_nor_renewed(self, store: Store) -> None:
        with pytest.raises(RunNotFoundError):
            store.claim("run", "maker")
        with pytest.raises(RunNotFoundError):
            store.renew(Claim("run", "maker", 1, -1, genesis("run"), 1, 0))

    def test_a_writer_that_lost_its_run_is_refused(self, store: Store) -> None:
        """Promise 4: a zombie's writes are refused, whether or not the new owner has written yet."""
        zombie = begin(store, rows=2)
        owner = take_over(zombie)
        before = store.run("run")
        with pytest.raises(StaleWriterError) as refusal:
            zombie.write()
        assert (refusal.value.epoch, refusal.value.current) == (1, 2)
        assert still(store.run("run")) == still(before)
        owner.write()
        late = Writer(store, zombie.claim._replace(seq=owner.claim.seq, hash=owner.claim.hash))
        with pytest.raises(StaleWriterError):
            late.write(2)
        owner.write()
        assert [entry.seq for entry in history(store)] == [0, 1, 2, 3]

    def test_one_of_many_gets_a_run_that_nobody_owns(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        store.renew(writer.claim, 0)
        got = together([lambda name=f"owner {n}": store.claim("run", name) for n in range(8)])  # type: ignore[misc] # bound early
        assert sorted(type(one).__name__ for one in got) == ["Claim", *["OwnedError"] * 7]

    def test_one_of_many_creates_a_run(self, store: Store) -> None:
        got = together([lambda name=f"owner {n}": store.create(new_run(owner=name)) for n in range(8)])  # type: ignore[misc] # bound early
        assert sorted(type(one).__name__ for one in got) == ["Claim", *["RunExistsError"] * 7]

    def test_the_owner_is_the_same_for_every_handle(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        with self.second(store) as other:
            with pytest.raises(OwnedError):
                other.claim("run", "other")
            store.renew(writer.claim, 0)
            taken = Writer(other, other.claim("run", "other"))
            with pytest.raises(StaleWriterError):
                writer.write()
            taken.write()
            assert [entry.seq for entry in history(store)] == [0, 1]


def _ended(store: Store, end: Append) -> Claim | str:
    """The run has ended, as it says."""
    store.append(end)
    return STATUSES[store.run(end.claim.run_id).status]


def _wanted(store: Store, run_id: str, owner: str) -> Claim | str:
    """The run, asked for until its maker lets go of it; or how it ended, or who got it."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return store.claim(run_id, owner)
        except OwnedError as error:
            if error.owner != "maker":
                return error.owner
            assert time.monotonic() < end, "the run does not end"
        except RunFinishedError as error:
            return error.status
