"""Forks: new runs that share the history of another up to a step."""

from __future__ import annotations

import pytest

from everstep.codec.chain import Entry, genesis
from everstep.errors import RunExistsError, RunNotFoundError, StepNotFoundError
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import Keyframe, Store
from everstep.testing.place import Place
from everstep.testing.rows import Writer, begin, history, listed, new_run, row, still


class Forks(Place):
    """A fork reads its parent's rows and touches none of them."""

    def test_a_fork_at_any_step_shares_the_rows_up_to_it(self, store: Store) -> None:
        rows = begin(store).write(5)
        for at in range(5):
            claim = store.create(new_run(f"fork {at}", fork=("run", at)))
            assert (claim.epoch, claim.seq, claim.hash) == (1, at, rows[at].hash)
            assert history(store, f"fork {at}") == rows[: at + 1]

    def test_a_fork_goes_on_by_itself(self, store: Store) -> None:
        """Promise 5: forks never touch their parent, nor it them."""
        writer = begin(store)
        rows = writer.write(4)
        fork = begin(store, "fork", fork=("run", 1))
        before = store.run("run")
        own = fork.write(3)
        assert history(store, "fork") == [*rows[:2], *own]
        assert store.run("run") == before
        assert history(store) == rows
        more = writer.write(2)
        assert history(store) == [*rows, *more]
        assert history(store, "fork") == [*rows[:2], *own]

    def test_every_range_of_a_fork_can_be_read(self, store: Store) -> None:
        rows = begin(store).write(4)
        rows[2:] = begin(store, "fork", fork=("run", 1)).write(2)
        whole = [*rows, *begin(store, "deep", fork=("fork", 3)).write(2)]
        for first in range(6):
            for last in range(first, 6):
                assert store.entries("deep", first, last) == whole[first : last + 1]
        with pytest.raises(StepNotFoundError):
            store.entries("deep", 0, 6)

    def test_a_fork_tells_where_it_came_from(self, store: Store) -> None:
        begin(store, rows=2).write(2, status=Status.FAILED)
        writer = begin(store, "fork", fork=("run", 2), workflow="flow", tags={"a": "b"})
        begin(store, "deep", fork=("fork", 1))
        run, deep = store.run("fork"), store.run("deep")
        assert (run.root, run.forked_from, run.fork_seq, run.seq) == ("run", "run", 2, 2)
        assert (run.workflow, run.tags, run.status, run.base) == ("flow", {"a": "b"}, STATUS_NUMBER[Status.ACTIVE], 0)
        assert (deep.root, deep.forked_from, deep.fork_seq, deep.seq) == ("run", "fork", 1, 1)
        assert run.errors == 0
        writer.write(status=Status.FAILED)
        assert (store.run("fork").errors, store.run("run").errors) == (1, 2)

    def test_a_run_can_have_come_from_one_that_it_shares_nothing_with(self, store: Store) -> None:
        rows = [row(genesis("gone"), 0, status=Status.FAILED)]
        rows += [row(rows[0].hash, 1, status=Status.FAILED)]
        store.create(new_run("fork", entries=rows, root="gone", came_from=("gone", 0)))
        run = store.run("fork")
        assert (run.root, run.forked_from, run.fork_seq, run.seq, run.base) == ("gone", "gone", 0, 1, 0)
        assert run.errors == 1
        assert history(store, "fork") == rows
        assert listed(store, forked_from="gone") == ["fork"]

    def test_a_fork_of_a_fork_can_begin_at_any_step(self, store: Store) -> None:
        rows = begin(store).write(4)
        whole = [*rows[:3], *begin(store, "fork", fork=("run", 2)).write(3)]
        for at in range(6):
            deep = begin(store, f"deep {at}", fork=("fork", at))
            own = deep.write(2)
            deepest = begin(store, f"deepest {at}", fork=(f"deep {at}", at))
            assert history(store, f"deep {at}") == [*whole[: at + 1], *own]
            assert history(store, f"deepest {at}") == whole[: at + 1]
            assert history(store, f"deepest {at}") + deepest.write() == history(store, f"deepest {at}")
        assert history(store, "fork") == whole

    def test_a_fork_can_have_its_first_rows_at_once(self, store: Store) -> None:
        rows = begin(store).write(3)
        first = row(rows[1].hash, 2, name="fork")
        claim = store.create(new_run("fork", fork=("run", 1), entries=[first]))
        assert (claim.seq, claim.hash) == (2, first.hash)
        assert history(store, "fork") == [*rows[:2], first]
        Writer(store, claim).write()

    def test_a_finished_run_can_be_forked(self, store: Store) -> None:
        writer = begin(store, rows=1)
        store.append(writer.draft(writer.rows(), status=STATUS_NUMBER[Status.COMPLETED]))
        begin(store, "fork", fork=("run", 1)).write()
        assert (store.run("fork").status, store.run("fork").ended) == (STATUS_NUMBER[Status.ACTIVE], None)
        assert store.run("run").status == STATUS_NUMBER[Status.COMPLETED]

    def test_a_fork_of_what_is_not_there_is_refused_and_leaves_nothing(self, store: Store) -> None:
        begin(store, rows=2)
        for at in (-1, 2, 99):
            with pytest.raises(StepNotFoundError) as refusal:
                store.create(new_run("fork", fork=("run", at)))
            assert (refusal.value.run_id, refusal.value.seq, refusal.value.head) == ("run", at, 1)
        with pytest.raises(RunNotFoundError):
            store.create(new_run("fork", fork=("none", 0)))
        assert listed(store) == ["run"]
        begin(store, "fork", fork=("run", 0))

    def test_a_fork_takes_its_id_once_and_is_found_by_its_owner(self, store: Store) -> None:
        begin(store, rows=2)
        new = new_run("fork", fork=("run", 0))
        assert store.create(new) == store.create(new)
        with pytest.raises(RunExistsError):
            store.create(new_run("fork", owner="other", fork=("run", 1)))
        with pytest.raises(RunExistsError):
            store.create(new_run("run", owner="other", fork=("fork", 0)))

    def test_keyframes_are_found_along_the_history_of_a_fork(self, store: Store) -> None:
        writer = begin(store)
        found = {0: writer.mark(), 2: None, 3: None}
        writer.write(2)
        found[3] = writer.mark()
        writer.write()
        writer.mark()
        fork = begin(store, "fork", fork=("run", 4))
        _expect(store, "fork", [found[0], found[0], found[0], found[3], found[3], found[3], found[3]])
        fork.write()
        own = fork.mark()
        _expect(store, "fork", [found[0], found[0], found[0], found[3], found[3], found[3], own])
        begin(store, "deep", fork=("fork", 2)).write(4)
        _expect(store, "deep", [found[0]] * 6)
        begin(store, "deeper", fork=("fork", 6))
        _expect(store, "deeper", [found[0], found[0], found[0], found[3], found[3], found[3], own])

    def test_marked_rows_of_a_fork_are_those_of_its_history(self, store: Store) -> None:
        writer = begin(store)
        rows = [entry for _ in range(3) for entry in writer.write(kind=Kind.CHECKPOINT)]
        fork = begin(store, "fork", fork=("run", 1))
        own: list[Entry] = fork.write(kind=Kind.CHECKPOINT)
        kind = KIND_NUMBER[Kind.CHECKPOINT]
        expected = [("fork", entry) for entry in (own[0], rows[1], rows[0])]
        assert store.marked("fork", kind, 9) == expected
        assert store.marked("fork", kind, 2) == expected[:2]
        assert [entry for _, entry in store.marked("run", kind, 9)] == rows[::-1]

    def test_a_fork_has_an_owner_and_a_lease_of_its_own(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=2)
        begin(store, "fork", owner="forker", fork=("run", 1), lease=0.0)
        before = store.run("run")
        assert store.claim("fork", "other").epoch == 2
        assert still(store.run("run")) == still(before)
        writer.write()


def _expect(store: Store, run_id: str, expected: list[Keyframe | None]) -> None:
    found = [store.keyframe(run_id, at) for at in range(len(expected))]
    assert found == [kept and kept._replace(blobs={}) for kept in expected]
