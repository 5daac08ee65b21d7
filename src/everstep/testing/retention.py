"""The contract of a store that can also let go of history: drop, prune, erase, reclaim."""

from __future__ import annotations

import pytest

from everstep.codec import record
from everstep.codec.chain import is_erased
from everstep.errors import DamagedError, PrunedError, RunNotFoundError, StepNotFoundError
from everstep.testing.contract import StoreContract, refused
from everstep.testing.dropping import Dropping
from everstep.testing.place import RetainingStore
from everstep.testing.pruning import Pruning
from everstep.testing.pruning import prune as pruned
from everstep.testing.rows import begin, history, keyframe, pieces, row, still


class RetentionContract(StoreContract, Dropping, Pruning):
    """`StoreContract`, and what a store promises that lets go of history."""

    def test_erased_rows_take_the_place_of_those_that_were_there(self, store: RetainingStore) -> None:
        writer = begin(store)
        rows = writer.write(5)
        before = store.run("run")
        gone = [record.erase(rows[at]) for at in (1, 3)]
        store.erase("run", gone)
        with self.second(store) as other:
            assert history(other) == [rows[0], gone[0], rows[2], gone[1], rows[4]]
        assert [is_erased(entry) for entry in history(store)] == [False, True, False, True, False]
        assert still(store.run("run")) == still(before)
        writer.write()

    def test_rows_are_erased_for_every_run_that_shares_them(self, store: RetainingStore) -> None:
        for whose in ("run", "fork", "deep"):
            rows = begin(store).write(4)
            own = begin(store, "fork", fork=("run", 2)).write(2)
            begin(store, "deep", fork=("fork", 3)).write()
            deep = history(store, "deep")
            gone = record.erase(rows[1])
            store.erase(whose, [gone])
            assert history(store) == [rows[0], gone, *rows[2:]]
            assert history(store, "fork") == [rows[0], gone, rows[2], *own]
            assert history(store, "deep") == [rows[0], gone, *deep[2:]]
            for run_id in ("run", "fork", "deep"):
                store.drop(run_id)

    def test_an_erased_row_leaves_those_of_other_runs_at_its_place(self, store: RetainingStore) -> None:
        rows = begin(store).write(4)
        own = begin(store, "fork", fork=("run", 1)).write(2)
        other = begin(store, "other").write(4)
        gone = record.erase(own[0])
        store.erase("fork", [gone])
        assert history(store, "fork") == [*rows[:2], gone, own[1]]
        assert history(store) == rows
        assert history(store, "other") == other

    def test_keyframes_that_could_tell_what_was_erased_are_gone(self, store: RetainingStore) -> None:
        for whose in ("run", "fork"):
            writer = begin(store)
            low = writer.mark()
            writer.write()
            writer.mark()
            fork = begin(store, "fork", fork=("run", 2))
            fork.mark()
            begin(store, "deep", fork=("fork", 3)).mark()
            writer.mark()
            other = begin(store, "other", fork=("run", 0))
            kept = other.mark(), other.mark()
            store.erase(whose, [record.erase(history(store)[1])])
            for run_id in ("run", "fork", "deep"):
                assert store.keyframe(run_id, 9) == low, run_id
            assert [store.keyframe("other", at) for at in range(3)] == [low, *kept]
            for run_id in ("run", "fork", "deep", "other"):
                store.drop(run_id)

    def test_a_keyframe_at_the_erased_row_goes_and_those_of_unrelated_rows_stay(self, store: RetainingStore) -> None:
        writer = begin(store)
        low, _, _ = writer.mark(), writer.mark(), writer.write()
        fork = begin(store, "fork", fork=("run", 2))
        high = writer.mark()
        fork.mark()
        store.erase("fork", [record.erase(history(store, "fork")[3])])
        assert store.keyframe("run", 9) == high
        assert store.keyframe("fork", 9) == store.keyframe("run", 2)
        store.erase("run", [record.erase(history(store)[1])])
        assert store.keyframe("run", 9) == store.keyframe("fork", 9) == low

    def test_a_pruned_run_keeps_its_base_when_rows_above_it_are_erased(self, store: RetainingStore) -> None:
        writer = begin(store, rows=4)
        writer.mark()
        pruned(store, "run", 1, "base")
        base = store.keyframe("run", 1)
        rows = history(store)
        gone = record.erase(rows[0])
        store.erase("run", [gone])
        assert history(store) == [gone, *rows[1:]]
        assert store.keyframe("run", 9) == base
        assert all(map(store.blob, pieces("base")))

    def test_a_fork_does_not_learn_what_was_erased_from_the_base_of_its_pruned_parent(
        self, store: RetainingStore
    ) -> None:
        for marked in (False, True):
            writer = begin(store, rows=2)
            if marked:
                writer.mark()
            writer.write(2 if marked else 3)
            begin(store, "fork", fork=("run", 3)).write()
            rows = history(store, "fork")
            pruned(store, "run", 2)
            gone = record.erase(rows[1])
            store.erase("fork", [gone])
            assert history(store, "fork") == [rows[0], gone, *rows[2:]]
            assert store.keyframe("fork", 9) is None
            assert len(history(store)) == 2
            for run_id in ("run", "fork"):
                store.drop(run_id)

    def test_rows_that_are_not_there_cannot_be_erased(self, store: RetainingStore) -> None:
        rows = begin(store).write(4)
        begin(store, "fork", fork=("run", 3))
        pruned(store, "run", 1)
        for seq, error in ((4, StepNotFoundError), (-1, StepNotFoundError), (1, PrunedError)):
            with pytest.raises(error):
                store.erase("run", [record.erase(rows[2]), record.erase(rows[1])._replace(seq=seq)])
        with pytest.raises(RunNotFoundError):
            store.erase("none", [record.erase(rows[2])])
        assert history(store, "fork") == rows

    def test_an_erased_row_can_be_erased_again(self, store: RetainingStore) -> None:
        rows = begin(store).write(3)
        gone = record.erase(rows[1])
        for _ in range(2):
            store.erase("run", [gone])
            assert history(store) == [rows[0], gone, rows[2]]

    def test_erasing_no_rows_changes_nothing(self, store: RetainingStore) -> None:
        begin(store, rows=2).mark()
        before, kept = store.run("run"), store.keyframe("run", 9)
        store.erase("run", [])
        assert (store.run("run"), store.keyframe("run", 9)) == (before, kept)

    def test_a_keyframe_from_before_an_erasure_is_turned_down(self, store: RetainingStore) -> None:
        writer = begin(store)
        rows = writer.write(3)
        store.erase("run", [record.erase(rows[1])])
        [new] = writer.rows()
        assert store.append(writer.draft([new], keyframe=keyframe(new))) is False
        assert store.keyframe("run", 9) is None
        assert store.prune("run", keyframe(rows[1]), writer.claim.generation) is None

    def test_reclaim_removes_the_pieces_of_erased_rows_alone(self, store: RetainingStore) -> None:
        for erased in (0, 1):
            writer, blobs = begin(store), [pieces("first"), pieces("second")]
            [first] = writer.rows(blobs=blobs[0])
            second = row(first.hash, 1, blobs=blobs[1])
            store.append(writer.draft([first, second], blobs={**blobs[0], **blobs[1]}))
            store.erase("run", [record.erase([first, second][erased])])
            assert store.reclaim().blobs == 1
            assert store.blob(*blobs[1 - erased])
            with pytest.raises(DamagedError):
                store.blob(*blobs[erased])
            store.drop("run")

    def test_reclaim_removes_nothing_that_is_referred_to(self, store: RetainingStore) -> None:
        writer, blobs = begin(store, rows=1), pieces("one", "two")
        store.append(writer.draft(writer.rows(2, blobs=blobs), blobs=blobs))
        kept = writer.mark("three")
        begin(store, "fork", fork=("run", 1)).write()
        rows, fork = history(store), history(store, "fork")
        before = store.run("run")
        assert not any(store.reclaim())
        assert (history(store), history(store, "fork"), store.run("run")) == (rows, fork, before)
        assert store.keyframe("run", 9) == kept._replace(blobs={})
        assert {name: store.blob(name) for name in blobs} == blobs

    def test_reclaim_has_nothing_left_to_do_after_itself(self, store: RetainingStore) -> None:
        writer, blobs = begin(store), pieces("one")
        [new] = writer.rows(blobs=blobs)
        store.append(writer.draft([new], blobs=blobs))
        writer.write()
        store.erase("run", [record.erase(new)])
        before = store.run("run").generation
        assert store.reclaim() == (0, 0, 0, 1)
        assert store.run("run").generation > before
        assert not any(store.reclaim())

    def test_a_closed_store_lets_go_of_nothing(self, store: RetainingStore) -> None:
        rows = begin(store).write(2)
        store.close()
        base = keyframe(rows[0])
        assert refused(lambda: store.drop("run"))
        assert refused(lambda: store.prune("run", base, 0))
        assert refused(lambda: store.erase("run", [record.erase(rows[0])]))
        assert refused(store.reclaim)
