"""Appends that are taken in first and waited for later, or by nobody; and words left for the owner of a run."""

from __future__ import annotations

import threading

import pytest

from everstep.errors import ConflictError, RunNotFoundError, StaleWriterError
from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import Store
from everstep.testing.place import Place
from everstep.testing.rows import LONG, Writer, begin, history, keyframe, take_over

_SOON = 10.0  # seconds: far more than any store needs


class Posting(Place):
    """What `append` promises, in two halves; and `request`."""

    def test_posted_rows_are_there_for_every_handle_when_they_were_waited_for(self, store: Store) -> None:
        """Promise 1."""
        writer = begin(store)
        new = writer.rows(2)
        wait = store.post(writer.draft(new))
        assert wait() is True
        with self.second(store) as other:
            assert history(other) == new

    def test_posted_rows_keep_their_order_whoever_waits_first(self, store: Store) -> None:
        """Promise 14."""
        writer = begin(store)
        waits = [store.post(writer.draft(writer.rows())) for _ in range(20)]
        for wait in reversed(waits):
            assert wait() is True
        assert len(history(store)) == 20

    def test_rows_that_are_appended_behind_posted_ones_find_them_there(self, store: Store) -> None:
        writer = begin(store)
        posted = writer.draft(writer.rows())
        store.post(posted)
        appended = writer.write()
        assert history(store) == [*posted.entries, *appended]

    def test_waiting_twice_for_posted_rows_tells_the_same(self, store: Store) -> None:
        writer = begin(store)
        wait = store.post(writer.draft(writer.rows()))
        assert (wait(), wait()) == (True, True)
        assert len(history(store)) == 1

    def test_posted_rows_that_are_refused_say_so_to_whoever_waits(self, store: Store) -> None:
        """Promise 4."""
        writer, behind = begin(store, rows=1), begin(store, "behind", rows=1)
        late = Writer(store, behind.claim)
        behind.write()
        take_over(writer)
        zombie, wrong = store.post(writer.draft(writer.rows())), store.post(late.draft(late.rows()))
        with pytest.raises(StaleWriterError):
            zombie()
        with pytest.raises(ConflictError):
            wrong()
        assert (len(history(store)), len(history(store, "behind"))) == (1, 2)

    def test_posted_rows_with_somebody_to_tell_are_written_though_nobody_waits(self, store: Store) -> None:
        writer = begin(store)
        told: list[tuple[object, bool]] = []
        done = threading.Event()

        def settled(error: Exception | None, kept: bool) -> None:  # noqa: FBT001 - as stores tell it
            told.append((None if error is None else type(error), kept))
            if len(told) == 2:
                done.set()

        good, wrong = writer.draft(writer.rows()), writer.draft(writer.rows())
        wrong.claim = wrong.claim._replace(hash=b"elsewhere")
        store.post(good, settled)
        store.post(wrong, settled)
        assert done.wait(_SOON)
        assert told[0] == (None, True)
        assert told[1][0] is ConflictError
        assert history(store) == list(good.entries)

    def test_a_keyframe_in_the_middle_of_several_rows_is_found_and_leads_to_its_row(self, store: Store) -> None:
        writer = begin(store, rows=1)
        new = writer.rows(5)
        kept = keyframe(new[2], "large")
        assert store.append(writer.draft(new, keyframe=kept))
        writer.write(3)
        found = store.keyframe("run", 8)
        assert found is not None
        assert (found.seq, found.hash) == (3, new[2].hash)
        for seq in range(4):
            assert [entry.seq for entry in store.entries("run", seq, seq)] == [seq]

    def test_a_word_is_left_for_the_owner_of_a_run_and_changes_nothing_else(self, store: Store) -> None:
        writer = begin(store, rows=1)
        before = store.run("run")
        assert before.request is None
        store.request("run", "cancel")
        assert store.run("run").request == "cancel"
        assert store.run("run")._replace(request=None, lease=0) == before._replace(lease=0)
        writer.write()
        assert store.run("run").request == "cancel"

    def test_the_words_for_many_runs_are_asked_for_at_once(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            begin(store, name, rows=1)
        assert store.requests(["a", "b", "nobody"]) == {}
        store.request("b", "cancel")
        store.request("c", "stop")
        assert store.requests(["c", "a", "nobody", "b", "nobody\0either"]) == {"b": "cancel", "c": "stop"}
        assert store.requests(["a", "b"]) == {"b": "cancel"}
        assert store.requests([]) == {}

    def test_a_word_is_gone_when_somebody_else_claims_the_run(self, store: Store) -> None:
        writer = begin(store, rows=1)
        store.request("run", "cancel")
        take_over(writer)
        assert store.run("run").request is None

    def test_a_word_is_gone_when_the_run_has_ended(self, store: Store) -> None:
        writer = begin(store)
        store.request("run", "cancel")
        store.append(writer.draft(writer.rows(), status=STATUS_NUMBER[Status.CANCELLED]))
        assert store.run("run").request is None

    def test_a_word_for_a_run_that_is_not_there_is_refused(self, store: Store) -> None:
        begin(store, "another", lease=LONG)
        with pytest.raises(RunNotFoundError):
            store.request("run", "cancel")
        assert store.run("another").request is None
