"""Letting go of whole runs."""

from __future__ import annotations

import pytest

from everstep.errors import ConflictError, DamagedError, RunNotFoundError, StaleWriterError
from everstep.model import KIND_NUMBER, Kind, Status
from everstep.testing.place import Place, RetainingStore
from everstep.testing.rows import Writer, begin, history, listed, pieces, take_over


class Dropping(Place):
    """A dropped run is gone at once; what its forks share stays theirs."""

    def test_a_dropped_run_is_gone(self, store: RetainingStore) -> None:
        begin(store, rows=3, tags={"a": "1"})
        begin(store, "other", rows=2, tags={"a": "1"})
        counts = store.drop("run")
        assert (counts.runs, counts.steps) == (1, 3)
        assert listed(store) == listed(store, tags={"a": "1"}) == ["other"]
        with self.second(store) as other:
            with pytest.raises(RunNotFoundError):
                other.run("run")
            with pytest.raises(RunNotFoundError):
                other.entries("run", 0, 2)
            with pytest.raises(RunNotFoundError):
                other.claim("run", "maker")
        assert len(history(store, "other")) == 2

    def test_only_a_run_that_is_there_can_be_dropped(self, store: RetainingStore) -> None:
        begin(store, rows=1)
        with pytest.raises(RunNotFoundError):
            store.drop("none")
        store.drop("run")
        with pytest.raises(RunNotFoundError):
            store.drop("run")

    def test_the_id_of_a_dropped_run_is_free(self, store: RetainingStore) -> None:
        first = begin(store, rows=3, workflow="first")
        store.drop("run")
        rows = begin(store, owner="other", workflow="second").write(2)
        assert history(store) == rows
        assert (store.run("run").workflow, store.run("run").epoch) == ("second", 1)
        assert store.run("run").key > first.claim.key

    def test_forks_of_a_dropped_run_keep_what_they_share(self, store: RetainingStore) -> None:
        """Promise 5."""
        writer = begin(store)
        rows = writer.write(2)
        kept = writer.mark("large")
        writer.write(2)
        fork = begin(store, "fork", fork=("run", 3))
        deep = begin(store, "deep", fork=("fork", 1))
        rows = history(store)
        store.drop("run")
        store.reclaim()
        own = fork.write(2)
        assert history(store, "fork") == [*rows[:4], *own]
        assert history(store, "deep") == rows[:2]
        assert store.keyframe("fork", 5) == kept._replace(blobs={})
        assert all(map(store.blob, kept.blobs))
        store.drop("fork")
        assert history(store, "deep") == [*rows[:2]]
        deep.write()
        begin(store, "new", fork=("deep", 1)).write()
        assert history(store, "new")[:2] == rows[:2]

    def test_all_rows_are_let_go_of_once_when_the_forks_go_too(self, store: RetainingStore) -> None:
        begin(store, rows=5)
        begin(store, "fork", fork=("run", 2)).write(2)
        begin(store, "deep", fork=("fork", 3)).write(1)
        dropped = [store.drop(run_id) for run_id in ("run", "fork", "deep")]
        assert [counts.steps for counts in dropped] == [2, 1, 5]
        assert sum(counts.runs for counts in dropped) == 3
        assert listed(store) == []
        assert not any(store.reclaim())

    def test_dropping_a_fork_leaves_its_parent(self, store: RetainingStore) -> None:
        """Promise 5."""
        writer = begin(store)
        rows = writer.write(3)
        begin(store, "fork", fork=("run", 1)).write(4)
        assert store.drop("fork").steps == 4
        assert history(store) == rows
        writer.write()

    def test_the_writer_of_a_dropped_run_is_refused(self, store: RetainingStore) -> None:
        """Promise 4: also while a fork shares its rows, and when its id was taken anew."""
        for number, (shared, anew) in enumerate([(False, False), (True, False), (False, True), (True, True)]):
            run_id = f"run {number}"
            writer = begin(store, run_id, rows=2)
            known = Writer(store, writer.claim)
            again = known.draft(known.rows())
            store.append(again)
            if shared:
                begin(store, f"fork of {run_id}", fork=(run_id, 1))
            store.drop(run_id)
            if anew:
                begin(store, run_id, rows=3)
            for late in (again, known.draft(known.rows())):
                with pytest.raises(ConflictError):
                    store.append(late)
            with pytest.raises(StaleWriterError if anew else RunNotFoundError):
                store.renew(writer.claim)
            if anew:
                assert len(history(store, run_id)) == 3
            if shared:
                assert len(history(store, f"fork of {run_id}")) == 2

    def test_new_rows_are_never_mistaken_for_dropped_ones(self, store: RetainingStore) -> None:
        """Promise 5."""
        old = begin(store, "old", rows=2)
        for _ in range(3):
            begin(store, rows=3)
            fork = begin(store, "fork", fork=("run", 1))
            fork.mark()
            begin(store, "deep", fork=("fork", 2)).write()
            rows, deep = history(store, "fork"), history(store, "deep")
            store.drop("run")
            begin(store, "new").write(4)
            assert history(store, "fork") == rows
            store.drop("new")
            old.write()
            store.drop("fork")
            assert history(store, "deep") == deep
            store.drop("deep")
        assert len(history(store, "old")) == 5
        assert listed(store) == ["old"]

    def test_marked_rows_and_counts_of_a_dropped_run_are_gone(self, store: RetainingStore) -> None:
        kind = KIND_NUMBER[Kind.CHECKPOINT]
        begin(store, "other").write(kind=Kind.CHECKPOINT, status=Status.FAILED)
        begin(store).write(3, kind=Kind.CHECKPOINT, status=Status.FAILED)
        begin(store, "fork", fork=("run", 1))
        store.drop("run")
        assert [run_id for run_id, _ in store.marked(None, kind, 9)] == ["other"]
        assert [entry.seq for _, entry in store.marked("fork", kind, 9)] == [1, 0]
        assert (store.run("fork").errors, store.run("other").errors) == (0, 1)

    def test_a_dropped_run_takes_its_pieces_along(self, store: RetainingStore) -> None:
        own, shared = pieces("own"), pieces("shared")
        writer, other = begin(store), begin(store, "other")
        store.append(writer.draft(writer.rows(blobs=own), blobs=own))
        store.append(writer.draft(writer.rows(blobs=shared), blobs=shared))
        store.append(other.draft(other.rows(blobs=shared), blobs=shared))
        kept = writer.mark("in a keyframe")
        assert store.drop("run").blobs == 2
        assert {name: store.blob(name) for name in shared} == shared
        for name in (*own, *kept.blobs):
            with pytest.raises(DamagedError):
                store.blob(name)

    def test_a_run_that_was_taken_over_can_be_dropped_and_neither_writes_again(self, store: RetainingStore) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        owner = take_over(writer)
        store.drop("run")
        for late in (writer, owner):
            with pytest.raises(ConflictError):
                late.write()
        assert listed(store) == []
