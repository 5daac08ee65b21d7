"""Letting go of the older part of a run."""

from __future__ import annotations

import threading
import time

import pytest

from everstep.codec.chain import genesis
from everstep.errors import ConflictError, DamagedError, PrunedError, RunNotFoundError, StepNotFoundError
from everstep.model import KIND_NUMBER, Kind, Status
from everstep.store.base import Counts
from everstep.testing.place import Place, RetainingStore
from everstep.testing.rows import Writer, begin, history, keyframe, new_run, pieces, row, still, together


class Pruning(Place):
    """A pruned run begins with the state that was kept of what is gone."""

    def test_pruned_rows_are_gone_and_the_rest_stays(self, store: RetainingStore) -> None:
        writer = begin(store)
        rows = writer.write(6)
        begin(store, "other", rows=2)
        assert prune(store, "run", 2, "large").steps == 3
        with self.second(store) as other:
            assert history(other) == rows[3:]
            assert (other.run("run").base, other.run("run").seq) == (3, 5)
            for first in range(3):
                with pytest.raises(PrunedError) as refusal:
                    other.entries("run", first, 4)
                assert (refusal.value.seq, refusal.value.oldest) == (first, 3)
        assert len(history(store, "other")) == 2
        assert history(store) + writer.write(2) == history(store)

    def test_every_row_but_the_newest_can_be_pruned(self, store: RetainingStore) -> None:
        for length in range(2, 6):
            for at in range(length - 1):
                run_id = f"{length} rows, up to {at}"
                writer = begin(store, run_id)
                rows = writer.write(length)
                assert prune(store, run_id, at).steps == at + 1
                assert history(store, run_id) == rows[at + 1 :]
                writer.write()

    def test_the_newest_row_always_stays(self, store: RetainingStore) -> None:
        rows = begin(store).write(3)
        before = store.run("run")
        for last in (rows[2], rows[2]._replace(seq=3)):
            with pytest.raises(StepNotFoundError):
                store.prune("run", keyframe(last), before.generation)
        assert store.run("run") == before
        assert history(store) == rows

    def test_the_state_that_a_pruned_run_began_with_goes_with_it_though_forks_share_its_rows(
        self, store: RetainingStore
    ) -> None:
        writer = begin(store)
        rows = writer.write(4)
        store.create(new_run("fork", fork=("run", 2)))
        prune(store, "run", 1, "large")
        assert store.drop("run").blobs == 1
        with pytest.raises(DamagedError):
            store.blob(*pieces("large"))
        assert history(store, "fork") == rows[:3]

    def test_only_a_run_that_is_there_can_be_pruned(self, store: RetainingStore) -> None:
        with pytest.raises(RunNotFoundError):
            store.prune("run", keyframe(begin(store, "other").write(2)[0]), 0)

    def test_the_kept_state_stands_just_below_the_oldest_row(self, store: RetainingStore) -> None:
        writer = begin(store, rows=1)
        writer.mark("older")
        writer.write(3)
        newer = writer.mark()
        base = keyframe(history(store)[3], "base")
        counts = store.prune("run", base, store.run("run").generation)
        assert counts is not None
        assert (counts.keyframes, counts.blobs) == (1, 1)
        expected = [None, None, None, base, base, newer, newer]
        for at, kept in enumerate(expected):
            assert store.keyframe("run", at) == (kept and kept._replace(blobs={}))
        assert {name: store.blob(name) for name in base.blobs} == base.blobs

    def test_a_run_can_be_pruned_again_and_never_back(self, store: RetainingStore) -> None:
        rows = begin(store).write(8)
        assert [prune(store, "run", at).steps for at in (1, 2, 5)] == [2, 1, 3]
        assert history(store) == rows[6:]
        before = store.run("run")
        with pytest.raises(PrunedError):
            store.prune("run", keyframe(rows[4]), before.generation)
        assert still(store.run("run")) == still(before)
        assert history(store) == rows[6:]
        assert store.keyframe("run", 5) == keyframe(rows[5])._replace(blobs={})

    def test_a_new_run_can_begin_where_another_trail_pruned_it(self, store: RetainingStore) -> None:
        gone = row(genesis("elsewhere"), 4)
        base, first = keyframe(gone, "large"), row(gone.hash, 5)
        writer = Writer(store, store.create(new_run(entries=[first], root="elsewhere", base=base)))
        rows = [first, *writer.write(3)]
        begin(store, "fork", fork=("run", 6))
        begin(store, "other", rows=3)
        prune(store, "other", 0)
        with self.second(store) as other:
            assert (other.run("run").base, other.run("run").seq, other.run("run").root) == (5, 8, "elsewhere")
            assert (history(other), history(other, "fork")) == (rows, rows[:2])
            for run_id in ("run", "fork"):
                assert other.keyframe(run_id, 5) == base._replace(blobs={})
            assert {name: other.blob(name) for name in base.blobs} == base.blobs
            with pytest.raises(PrunedError):
                other.entries("run", 4, 6)
        prune(store, "run", 6)
        store.drop("fork")
        assert history(store) == rows[2:]

    def test_a_base_from_before_pieces_were_removed_is_turned_down(self, store: RetainingStore) -> None:
        rows = begin(store).write(4)
        begin(store, "other", rows=3)
        old = store.run("run").generation
        prune(store, "other", 0)
        before = store.run("run")
        assert before.generation > old
        assert store.prune("run", keyframe(rows[1], "large"), old) is None
        assert store.run("run") == before
        assert history(store) == rows
        assert store.keyframe("run", 3) is None

    def test_a_writer_goes_on_after_a_prune_and_its_next_keyframe_is_turned_down(self, store: RetainingStore) -> None:
        writer = begin(store, rows=4)
        prune(store, "run", 1)
        [new] = writer.rows()
        assert store.append(writer.draft([new], keyframe=keyframe(new))) is False
        assert [entry.seq for entry in history(store)] == [2, 3, 4]
        writer.claim = store.claim("run", "maker")
        kept = writer.mark()
        assert store.keyframe("run", 9) == kept._replace(blobs={})

    def test_an_append_whose_rows_were_pruned_is_refused_and_adds_nothing(self, store: RetainingStore) -> None:
        writer = begin(store, rows=1)
        append = writer.draft(writer.rows(2))
        store.append(append)
        rows = writer.write(3)
        fork = begin(store, "fork", fork=("run", 2))
        prune(store, "run", 3)
        with pytest.raises(ConflictError):
            store.append(append)
        assert history(store) == rows[1:]
        fork.write()

    def test_forks_keep_what_they_share_with_a_pruned_run(self, store: RetainingStore) -> None:
        """Promise 5."""
        writer = begin(store, rows=1)
        kept = writer.mark("older")
        writer.write(3)
        rows = history(store)
        fork, deep = begin(store, "fork", fork=("run", 3)), begin(store, "deep", fork=("run", 0))
        prune(store, "run", 3)
        assert history(store) == rows[4:]
        own = fork.write()
        deep.write()
        assert history(store, "fork") == [*rows[:4], *own]
        assert history(store, "deep")[:1] == rows[:1]
        assert store.keyframe("fork", 2) == kept._replace(blobs={})
        assert all(map(store.blob, kept.blobs))

    def test_a_keyframe_that_a_pruned_run_now_begins_with_is_still_its_forks_too(self, store: RetainingStore) -> None:
        writer = begin(store, rows=2)
        kept = writer.mark("large")
        writer.write(2)
        begin(store, "fork", fork=("run", 3)).write()
        store.prune("run", kept, store.run("run").generation)
        for run_id in ("run", "fork"):
            assert store.keyframe(run_id, 9) == kept._replace(blobs={})
        assert len(history(store, "fork")) == 5
        store.drop("run")
        assert store.keyframe("fork", 9) == kept._replace(blobs={})
        assert all(map(store.blob, kept.blobs))

    def test_a_fork_can_be_pruned_without_its_parent(self, store: RetainingStore) -> None:
        """Promise 5."""
        writer = begin(store)
        kept = writer.mark("older")
        writer.write(2)
        newer = writer.mark()
        rows = history(store)
        fork = begin(store, "fork", fork=("run", 3))
        prune(store, "fork", 1)
        fork.write()
        assert history(store, "fork")[:2] == rows[2:]
        assert history(store) == rows
        assert store.keyframe("run", 2) == kept._replace(blobs={})
        assert store.keyframe("fork", 9) == newer._replace(blobs={})
        assert store.keyframe("fork", 2) == keyframe(rows[1])._replace(blobs={})
        assert store.keyframe("fork", 0) is None
        prune(store, "fork", 3)
        assert [entry.seq for entry in history(store, "fork")] == [4]
        assert history(store) == rows

    def test_a_fork_of_a_pruned_run_begins_where_that_begins(self, store: RetainingStore) -> None:
        rows = begin(store).write(6)
        prune(store, "run", 2, "base")
        for at in range(3):
            with pytest.raises(PrunedError):
                store.create(new_run("fork", fork=("run", at)))
        fork = begin(store, "fork", fork=("run", 3))
        deep = begin(store, "deep", fork=("fork", 3))
        store.drop("run")
        own = fork.write()
        assert history(store, "fork") == [rows[3], *own]
        assert (store.run("fork").base, store.run("deep").base) == (3, 3)
        assert all(map(store.blob, pieces("base")))
        prune(store, "deep", deep.write(2)[0].seq)
        assert history(store, "fork") == [rows[3], *own]

    def test_what_a_pruned_run_had_marked_or_failed_is_forgotten(self, store: RetainingStore) -> None:
        writer, kind = begin(store), KIND_NUMBER[Kind.CHECKPOINT]
        writer.write(4, kind=Kind.CHECKPOINT, status=Status.FAILED)
        for shared in (False, True):
            if shared:
                begin(store, "fork", fork=("run", 2))
            prune(store, "run", 1 if shared else 0)
            left = [3, 2] if shared else [3, 2, 1]
            assert store.run("run").errors == len(left)
            assert [entry.seq for _, entry in store.marked("run", kind, 9)] == left
            assert [entry.seq for _, entry in store.marked(None, kind, 9)] == left

    def test_rows_are_pruned_from_a_run_that_is_written_to(self, store: RetainingStore) -> None:
        writer, done = begin(store, rows=2), threading.Event()

        def write() -> int:
            written = 0
            while not done.is_set():
                written += len(writer.write(2))
            return written

        def let_go() -> int:
            removed = 0
            try:
                for _ in range(10):
                    run = store.run("run")
                    if run.seq > run.base:
                        removed += prune(store, "run", run.seq - 1).steps
                    time.sleep(0.001)
            finally:
                done.set()
            return removed

        written, removed = (one for one in together([write, let_go]) if isinstance(one, int))
        run = store.run("run")
        assert (run.seq, run.base) == (1 + written, removed)
        assert len(history(store)) == 2 + written - removed

    def test_pieces_go_with_the_last_row_that_refers_to_them(self, store: RetainingStore) -> None:
        writer, shared, lone = begin(store), pieces("shared"), pieces("lone")
        blobs = {**shared, **lone}
        store.append(writer.draft([*writer.rows(blobs=blobs)], blobs=blobs))
        store.append(writer.draft([*writer.rows(blobs=shared)], blobs=shared))
        writer.write()
        assert prune(store, "run", 0).blobs == 1
        assert {name: store.blob(name) for name in shared} == shared
        with pytest.raises(DamagedError):
            store.blob(*lone)
        assert prune(store, "run", 1).blobs == 1


def prune(store: RetainingStore, run_id: str, at: int, *texts: str) -> Counts:
    """Prune a run up to a row, with a base made from that."""
    run = store.run(run_id)
    [entry] = store.entries(run_id, at, at)
    counts = store.prune(run_id, keyframe(entry, *texts), run.generation)
    assert counts is not None
    return counts
