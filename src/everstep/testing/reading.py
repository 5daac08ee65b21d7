"""Reading back: one run, lists of runs, ranges of rows, marked rows. Everything handed out is a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from everstep.codec.chain import genesis
from everstep.errors import RunNotFoundError, StepNotFoundError
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import RunQuery, Store
from everstep.testing.place import Place
from everstep.testing.rows import NOON, begin, history, keyframe, listed, new_run, pieces, row

CHECKPOINT = KIND_NUMBER[Kind.CHECKPOINT]


class Reading(Place):
    """Rows by their place, and nothing that a reader could change."""

    def test_every_range_of_rows_can_be_read(self, store: Store) -> None:
        rows = begin(store).write(6)
        for first in range(6):
            for last in range(first, 6):
                assert store.entries("run", first, last) == rows[first : last + 1]

    def test_an_empty_range_has_no_rows(self, store: Store) -> None:
        begin(store, rows=3)
        begin(store, "empty")
        for first, last in ((1, 0), (3, 2), (0, -1), (9, 5)):
            assert store.entries("run", first, last) == []
        assert store.entries("empty", 0, -1) == []

    def test_rows_beyond_the_history_are_not_found(self, store: Store) -> None:
        begin(store, rows=3)
        begin(store, "empty")
        for run_id, first, last, seq in (("run", 0, 3, 3), ("run", 3, 3, 3), ("run", -1, 1, -1), ("empty", 0, 0, 0)):
            with pytest.raises(StepNotFoundError) as refusal:
                store.entries(run_id, first, last)
            assert (refusal.value.run_id, refusal.value.seq) == (run_id, seq)

    def test_an_unknown_run_is_not_found(self, store: Store) -> None:
        begin(store, "known", rows=1)
        calls: list[Callable[[], Any]] = [
            lambda: store.run("run"),
            lambda: store.entries("run", 0, 0),
            lambda: store.entries("run", 1, 0),
            lambda: store.keyframe("run", 0),
            lambda: store.marked("run", CHECKPOINT, 1),
        ]
        for call in calls:
            with pytest.raises(RunNotFoundError) as refusal:
                call()
            assert refusal.value.run_id == "run"

    def test_order_is_by_sequence_whatever_the_clocks_say(self, store: Store) -> None:
        """Promise 14."""
        writer = begin(store, created=NOON)
        rows = [writer.write(started=when, kind=Kind.CHECKPOINT)[0] for when in (NOON, 5, NOON, NOON, -3, 0)]
        assert history(store) == rows
        assert [entry for _, entry in store.marked("run", CHECKPOINT, 9)] == rows[::-1]
        assert [entry for _, entry in store.marked(None, CHECKPOINT, 9)] == rows[::-1]

    def test_the_newest_keyframe_at_or_below_a_step_is_found(self, store: Store) -> None:
        writer = begin(store, rows=2)
        low = writer.mark()
        writer.write(2)
        high = writer.mark("large")
        writer.write()
        expected = [None, None, low, low, low, high, high, high]
        for at, kept in enumerate(expected):
            assert store.keyframe("run", at) == (kept and kept._replace(blobs={}))
        assert store.keyframe("run", -1) is None

    def test_nothing_handed_out_is_an_alias_of_what_is_stored(self, store: Store) -> None:
        """Promise 5."""
        writer = begin(store, tags={"user": "ann"})
        writer.write(2, kind=Kind.CHECKPOINT)
        writer.mark()

        def reads() -> list[Any]:
            run, kept = store.run("run"), store.keyframe("run", 9)
            assert kept is not None
            runs, marked = store.runs(RunQuery()), store.marked(None, CHECKPOINT, 9)
            return [store.entries("run", 0, 2), run.tags, runs, runs[0].tags, kept.blobs, marked]

        before = repr(reads())
        for handed in reads():
            handed.clear()
            if isinstance(handed, dict):
                handed["user"] = "eve"
        assert repr(reads()) == before

    def test_nothing_handed_in_stays_an_alias_of_what_is_stored(self, store: Store) -> None:
        """Promise 5."""
        tags, blobs = {"user": "ann"}, pieces("one")
        first = [row(genesis("run"), 0, blobs=blobs)]
        claim = store.create(new_run(tags=tags, entries=first, blobs=blobs))
        writer = begin(store, "other")
        rows = writer.rows(2)
        kept = keyframe(rows[1], "two")
        store.append(writer.draft(rows, keyframe=kept))
        given, names = [list(first), list(rows)], [*blobs, *kept.blobs]
        for handed in (tags, blobs, first, rows, kept.blobs):
            handed.clear()
        assert store.run("run").tags == {"user": "ann"}
        assert listed(store, tags={"user": "ann"}) == ["run"]
        assert [history(store), history(store, "other")] == given
        assert all(map(store.blob, names))
        assert claim.seq == 0

    def test_marked_rows_of_a_run_come_newest_first(self, store: Store) -> None:
        writer, other = begin(store, rows=1), begin(store, "other")
        marks = []
        for _ in range(3):
            marks += writer.write(kind=Kind.CHECKPOINT)
            other.write(kind=Kind.CHECKPOINT)
            writer.write(kind=Kind.SAVE)
        expected = [("run", entry) for entry in reversed(marks)]
        assert store.marked("run", CHECKPOINT, 9) == expected
        assert store.marked("run", CHECKPOINT, 2) == expected[:2]

    def test_marked_rows_of_all_runs_come_newest_first_each_once(self, store: Store) -> None:
        """Promise 14: the newest is what was written last, whichever run is older."""
        writers = [begin(store, "a"), begin(store, "b")]
        marks = [(one.claim.run_id, one.write(kind=Kind.CHECKPOINT)[0]) for _ in range(2) for one in writers]
        writers[0].write()
        begin(store, "fork", fork=("a", 1))
        marks.append(("a", writers[0].write(kind=Kind.CHECKPOINT)[0]))
        assert store.marked(None, CHECKPOINT, 9) == marks[::-1]
        assert store.marked(None, CHECKPOINT, 3) == marks[:1:-1]


class Listing(Place):
    """Runs by what is known of them, newest first."""

    def test_runs_are_listed_newest_first_whatever_the_clocks_say(self, store: Store) -> None:
        """Promise 14."""
        for name, created in (("a", 9), ("b", 3), ("c", 9), ("d", -1)):
            begin(store, name, created=created)
        begin(store, "e", fork=None).write()
        assert listed(store) == ["e", "d", "c", "b", "a"]
        keys = [run.key for run in store.runs(RunQuery())]
        assert keys == sorted(set(keys), reverse=True)

    def test_a_listed_run_is_told_as_a_run_asked_for(self, store: Store) -> None:
        begin(store, rows=2, workflow="flow", tags={"a": "1"}).write(status=Status.FAILED)
        begin(store, "fork", fork=("run", 1), parent="run")
        assert store.runs(RunQuery()) == [store.run("fork"), store.run("run")]

    def test_runs_are_found_by_status(self, store: Store) -> None:
        for name, status in (("a", Status.ACTIVE), ("b", Status.FAILED), ("c", Status.ACTIVE), ("d", Status.FAILED)):
            writer = begin(store, name)
            store.append(writer.draft(writer.rows(), status=STATUS_NUMBER[status]))
        assert listed(store, status=STATUS_NUMBER[Status.FAILED]) == ["d", "b"]
        assert listed(store, status=STATUS_NUMBER[Status.ACTIVE]) == ["c", "a"]
        assert listed(store, status=STATUS_NUMBER[Status.PAUSED]) == []

    def test_runs_are_found_by_workflow(self, store: Store) -> None:
        for name, workflow in (("a", "x"), ("b", "y"), ("c", "x"), ("d", "")):
            begin(store, name, workflow=workflow)
        assert listed(store, workflow="x") == ["c", "a"]
        assert listed(store, workflow="") == ["d"]
        assert listed(store, workflow="z") == []

    def test_runs_are_found_by_all_of_several_tags(self, store: Store) -> None:
        for name, tags in (("a", {"u": "1"}), ("b", {"u": "1", "v": "2"}), ("c", {"v": "1"}), ("d", {})):
            begin(store, name, tags=tags)
        assert listed(store, tags={"u": "1"}) == ["b", "a"]
        assert listed(store, tags={"u": "1", "v": "2"}) == ["b"]
        assert listed(store, tags={"u": "2"}) == []

    def test_runs_are_found_by_when_they_were_created(self, store: Store) -> None:
        for name, created in (("a", 5), ("b", 3), ("c", 4)):
            begin(store, name, created=created)
        assert listed(store, since=4) == ["c", "a"]
        assert listed(store, since=0) == ["c", "b", "a"]

    def test_runs_are_found_by_parent_and_by_having_none(self, store: Store) -> None:
        for name, parent in (("a", None), ("b", "a"), ("c", "a"), ("d", None)):
            begin(store, name, parent=parent)
        assert listed(store, parent="a") == ["c", "b"]
        assert listed(store, parent=None) == ["d", "a"]
        assert listed(store) == ["d", "c", "b", "a"]

    def test_runs_are_found_by_what_they_were_forked_from(self, store: Store) -> None:
        begin(store, "a", rows=3)
        for name, source in (("b", "a"), ("c", "b"), ("d", "a")):
            begin(store, name, fork=(source, 1))
        assert listed(store, forked_from="a") == ["d", "b"]
        assert listed(store, forked_from="d") == []

    def test_filters_come_before_the_limit_and_narrow_one_another(self, store: Store) -> None:
        for n in range(12):
            begin(store, f"{n}", workflow="xy"[n % 2], tags={"third": str(n % 3)}, created=n)
        assert listed(store, workflow="x", limit=2) == ["10", "8"]
        assert listed(store, workflow="x", tags={"third": "1"}, limit=5) == ["10", "4"]
        assert listed(store, workflow="y", since=5, limit=2) == ["11", "9"]
        assert len(listed(store, limit=12)) == 12
        assert listed(store, limit=0) == []

    def test_a_list_goes_on_where_the_last_page_ended(self, store: Store) -> None:
        for n in range(7):
            begin(store, f"{n}", workflow="xy"[n % 2])
        pages, before = [], None
        for number in range(3):
            page = store.runs(RunQuery(workflow="x", limit=3, before=before))
            pages.append([run.id for run in page])
            before = page[-1].key if page else before
            begin(store, f"new {number}", workflow="x")
        assert pages == [["6", "4", "2"], ["0"], []]
