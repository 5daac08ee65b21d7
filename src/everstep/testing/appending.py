"""Adding rows: in order, all or none of an append, once, and durable for every handle."""

from __future__ import annotations

import pytest

from everstep.errors import ConflictError, DamagedError, StaleWriterError
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store.base import Append, Claim, Store
from everstep.testing.place import Place
from everstep.testing.rows import (
    Writer,
    begin,
    history,
    keyframe,
    new_run,
    piece,
    pieces,
    row,
    still,
    take_over,
    together,
)


class Appending(Place):
    """A run moves only from the head and epoch that a writer names."""

    def test_rows_come_back_as_they_were_given(self, store: Store) -> None:
        writer = begin(store)
        written = [*writer.write(), *writer.write(3), *writer.write(2, name="näme ☃", status=Status.FAILED)]
        assert history(store) == written
        assert (store.run("run").seq, store.run("run").hash) == (5, written[-1].hash)

    def test_an_append_is_there_for_every_handle_when_it_returns(self, store: Store) -> None:
        """Promise 1."""
        writer = begin(store)
        with self.second(store) as other:
            written = []
            for _ in range(3):
                written += writer.write(2)
                assert history(other) == written

    def test_an_append_that_does_not_follow_the_head_is_refused(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        late = Writer(store, writer.claim)
        written = writer.write(2)
        for count in (1, 2, 3):
            with pytest.raises(ConflictError) as refusal:
                Writer(store, late.claim).write(count, name="late")
            assert (refusal.value.run_id, refusal.value.seq, refusal.value.head) == ("run", 1, 2)
        assert history(store)[1:] == written

    def test_an_append_to_a_run_that_never_was_is_refused(self, store: Store) -> None:
        claim = begin(store, "real", rows=1).claim
        with pytest.raises(ConflictError):
            Writer(store, Claim("none", "maker", 1, claim.seq, claim.hash, claim.key + 1, claim.generation)).write()
        assert len(history(store, "real")) == 1

    def test_nothing_of_a_refused_append_stays(self, store: Store) -> None:
        writer = begin(store, rows=1)
        zombie = Writer(store, writer.claim)
        behind = Writer(store, writer.claim._replace(epoch=2))
        take_over(writer).write()
        before, rows = store.run("run"), history(store)
        for late, error in ((zombie, StaleWriterError), (behind, ConflictError)):
            new = late.rows(2, name="late")
            append = late.draft(new, blobs=pieces("lost"), keyframe=keyframe(new[1], "kept"), status=1)
            with pytest.raises(error):
                store.append(append)
        assert still(store.run("run")) == still(before)
        assert history(store) == rows
        assert store.keyframe("run", 9) is None
        for blob_id in pieces("lost", "kept"):
            with pytest.raises(DamagedError):
                store.blob(blob_id)

    def test_the_same_append_again_changes_nothing(self, store: Store) -> None:
        writer = begin(store, rows=1)
        for count in (1, 3):
            append = writer.draft(writer.rows(count))
            assert store.append(append)
            before, rows = store.run("run"), history(store)
            assert store.append(append)
            assert still(store.run("run")) == still(before)
            assert history(store) == rows

    def test_the_same_append_again_is_found_below_the_head(self, store: Store) -> None:
        writer = begin(store)
        appends = [writer.draft(writer.rows(count)) for count in (1, 2, 1, 3)]
        for append in appends:
            assert store.append(append)
        rows = history(store)
        for append in appends:
            assert store.append(append)
        assert history(store) == rows

    def test_the_same_append_again_is_found_after_another_took_over(self, store: Store) -> None:
        writer = begin(store)
        append = writer.draft(writer.rows(2))
        assert store.append(append)
        take_over(writer).write()
        rows = history(store)
        assert store.append(append)
        assert history(store) == rows

    def test_the_same_append_again_tells_whether_its_keyframe_is_kept(self, store: Store) -> None:
        writer = begin(store, rows=1)
        for passed in (0, 1):
            writer.claim = writer.claim._replace(generation=writer.claim.generation - passed)
            [new] = writer.rows()
            append = writer.draft([new], keyframe=keyframe(new))
            assert [store.append(append), store.append(append)] == [not passed] * 2

    def test_an_append_of_known_and_new_rows_is_refused_as_a_whole(self, store: Store) -> None:
        writer = begin(store, rows=1)
        start = writer.claim
        known, new = writer.rows(2)
        assert store.append(Append(start, [known]))
        with pytest.raises(ConflictError):
            store.append(Append(start, [known, new]))
        assert history(store)[1:] == [known]

    def test_a_run_has_no_rows_of_another(self, store: Store) -> None:
        one, two = begin(store, "one"), begin(store, "two")
        written = [(one.write(), two.write(2)) for _ in range(3)]
        assert history(store, "one") == [entry for rows, _ in written for entry in rows]
        assert history(store, "two") == [entry for _, rows in written for entry in rows]

    def test_pieces_are_kept_with_the_rows_that_refer_to_them(self, store: Store) -> None:
        first, data = piece("with the first row")
        later = pieces("a", "b", "with the first row")
        writer = begin(store)
        store.append(writer.draft(writer.rows(blobs=[first]), blobs={first: data}))
        store.append(writer.draft(writer.rows(2, blobs=later), blobs=later))
        other, framed = piece("at creation")
        claim = store.create(new_run("other"))
        store.create(new_run("third", entries=[row(claim.hash, 0, blobs=[other])], blobs={other: framed}))
        with self.second(store) as handle:
            assert handle.blob(first) == data
            assert {name: handle.blob(name) for name in later} == later
            assert handle.blob(other) == framed

    def test_a_piece_that_is_not_there_is_damage(self, store: Store) -> None:
        """Promise 9."""
        with pytest.raises(DamagedError):
            store.blob(bytes(16))

    def test_a_keyframe_is_kept_with_its_rows_and_pieces(self, store: Store) -> None:
        writer = begin(store, rows=2)
        new = writer.rows(2)
        kept = keyframe(new[1], "large")
        assert store.append(writer.draft(new, keyframe=kept)) is True
        with self.second(store) as other:
            assert other.keyframe("run", 3) == kept._replace(blobs={})
            assert {name: other.blob(name) for name in kept.blobs} == kept.blobs
        assert history(store)[2:] == new

    def test_a_keyframe_of_a_passed_generation_is_left_out_and_said_to_be(self, store: Store) -> None:
        writer = begin(store, rows=1)
        writer.claim = writer.claim._replace(generation=writer.claim.generation - 1)
        [new] = writer.rows()
        assert store.append(writer.draft([new], keyframe=keyframe(new))) is False
        assert history(store)[1:] == [new]
        assert store.keyframe("run", 9) is None

    def test_an_append_can_change_how_the_run_stands(self, store: Store) -> None:
        writer = begin(store, rows=1)
        for number, status in enumerate(STATUSES):
            new = writer.rows(2, started=5)
            assert store.append(writer.draft(new, status=number))
            run = store.run("run")
            assert (run.status, run.ended) == (number, 12 if status in FINISHED else None)
            writer.write()
            assert (
                store.run("run")[:10]
                == run._replace(lease=store.run("run").lease, seq=run.seq + 1, hash=writer.claim.hash)[:10]
            )
            assert store.run("run").ended == run.ended

    def test_failed_rows_are_counted(self, store: Store) -> None:
        writer = begin(store, rows=2)
        writer.write(3, status=Status.FAILED)
        begin(store, "other", rows=1).write(1, status=Status.FAILED)
        writer.write()
        writer.write(1, kind=Kind.END, status=Status.FAILED)  # says of the run what a step said before
        assert (store.run("run").errors, store.run("other").errors) == (3, 1)

    def test_one_of_many_at_the_same_head_gets_in(self, store: Store) -> None:
        """Promise 4."""
        writer = begin(store, rows=1)
        rivals = [Writer(store, writer.claim) for _ in range(8)]
        got = together([lambda one=one, n=n: one.write(1 + n % 3, name=f"rival {n}") for n, one in enumerate(rivals)])  # type: ignore[misc] # bound early
        assert sorted(type(one).__name__ for one in got) == [*["ConflictError"] * 7, "list"]
        assert history(store)[1:] == next(one for one in got if isinstance(one, list))

    def test_many_write_to_many_runs_at_once_and_a_stale_one_fails_alone(self, store: Store) -> None:
        writers = [begin(store, f"run {n}") for n in range(8)]
        zombie = writers[3]
        take_over(zombie)

        def work(writer: Writer) -> int:
            return sum(len(writer.write(1 + n % 3)) for n in range(12))

        got = together([lambda one=one: work(one) for one in writers])  # type: ignore[misc] # bound early
        assert [type(one) for one in got] == [StaleWriterError if one is zombie else int for one in writers]
        for writer in writers:
            assert len(history(store, writer.claim.run_id)) == (0 if writer is zombie else 24)

    def test_statuses_are_stored_as_their_numbers(self, store: Store) -> None:
        writer = begin(store)
        store.append(writer.draft(writer.rows(), status=STATUS_NUMBER[Status.PAUSED]))
        assert STATUSES[store.run("run").status] is Status.PAUSED
