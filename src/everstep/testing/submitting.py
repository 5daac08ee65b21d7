"""Appends and new runs of callers that must not block: futures that are done when the rows are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from everstep.errors import ConflictError, RunExistsError, StaleWriterError
from everstep.store.base import Append, Store
from everstep.testing.place import Place
from everstep.testing.rows import Writer, begin, history, keyframe, new_run, take_over, together


class Submitting(Place):
    """What `append` promises, awaited."""

    def test_a_submitted_append_is_there_when_its_future_is_done(self, store: Store) -> None:
        """Promise 1."""
        writer = begin(store)
        with self.second(store) as other:

            async def work() -> None:
                for count in (1, 3):
                    new = writer.rows(count)
                    assert await _submitted(store, writer.draft(new)) is True
                    assert history(other)[-count:] == new

            _run(work())

    def test_many_submitted_at_once_are_kept_in_order(self, store: Store) -> None:
        """Promise 14."""
        writer = begin(store)
        appends = [writer.draft(writer.rows(1 + n % 3)) for n in range(60)]
        assert _run(_all(store, appends)) == [True] * 60
        assert history(store) == [entry for append in appends for entry in append.entries]

    def test_many_runs_are_submitted_to_at_once(self, store: Store) -> None:
        writers = [begin(store, f"run {n}") for n in range(10)]
        appends = [writer.draft(writer.rows()) for _ in range(5) for writer in writers]
        assert _run(_all(store, appends)) == [True] * 50
        assert [len(history(store, writer.claim.run_id)) for writer in writers] == [5] * 10

    def test_event_loops_and_threads_share_a_store(self, store: Store) -> None:
        writers = [begin(store, f"run {n}") for n in range(4)]
        drafts = [[writer.draft(writer.rows()) for _ in range(20)] for writer in writers[:2]]

        def plain(writer: Writer) -> list[Any]:
            return [bool(writer.write()) for _ in range(20)]

        got = together(
            [
                *[lambda some=some: _run(_all(store, some)) for some in drafts],
                *[lambda one=one: plain(one) for one in writers[2:]],
            ]
        )
        assert got == [[True] * 20] * 4
        assert [len(history(store, writer.claim.run_id)) for writer in writers] == [20] * 4

    def test_a_submitted_append_that_is_refused_fails_alone(self, store: Store) -> None:
        """Promise 4."""
        good, late, zombie = begin(store, "good"), begin(store, "late"), begin(store, "zombie")
        take_over(zombie)
        behind = Writer(store, late.claim)
        late.write()
        writers = [good, zombie, good, behind, good]
        got = _run(_all(store, [writer.draft(writer.rows(2)) for writer in writers]))
        assert [one if one is True else type(one) for one in got] == [True, StaleWriterError, True, ConflictError, True]
        assert [len(history(store, run)) for run in ("good", "late", "zombie")] == [6, 1, 0]
        good.write()

    def test_what_was_drafted_behind_a_refused_append_is_refused_too(self, store: Store) -> None:
        writer = begin(store, rows=1)
        behind = Writer(store, writer.claim)
        writer.write()
        got = _run(_all(store, [behind.draft(behind.rows()) for _ in range(3)]))
        assert [type(one) for one in got] == [ConflictError] * 3
        assert len(history(store)) == 2

    def test_the_same_append_submitted_again_changes_nothing(self, store: Store) -> None:
        writer = begin(store)
        appends = [writer.draft(writer.rows()) for _ in range(3)]
        assert _run(_all(store, [*appends, *appends])) == [True] * 6
        assert len(history(store)) == 3

    def test_a_submitted_keyframe_of_a_passed_generation_is_said_to_be_left_out(self, store: Store) -> None:
        writer = begin(store)
        writer.claim = writer.claim._replace(generation=writer.claim.generation - 1)
        [new] = writer.rows()
        assert _run(_submitted(store, writer.draft([new], keyframe=keyframe(new)))) is False
        assert history(store) == [new]
        assert store.keyframe("run", 0) is None

    def test_a_cancelled_waiter_takes_nothing_back(self, store: Store) -> None:
        """Promise 1: what is on its way to the disk gets there, and the run goes on behind it."""
        writer = begin(store)
        first, second = writer.draft(writer.rows()), writer.draft(writer.rows())

        async def work() -> None:
            future = store.submit(first, asyncio.get_running_loop())
            future.cancel()
            assert await _submitted(store, second)

        _run(work())
        assert history(store) == [*first.entries, *second.entries]

    def test_how_a_submitted_append_went_is_told_also_when_nobody_waits(self, store: Store) -> None:
        writer = begin(store)
        good, wrong = writer.draft(writer.rows()), writer.draft(writer.rows())
        wrong.claim = wrong.claim._replace(hash=b"elsewhere")
        told: list[tuple[object, bool]] = []

        async def work() -> None:
            loop = asyncio.get_running_loop()
            store.submit(good, loop, lambda error, kept: told.append((error, kept))).cancel()
            with pytest.raises(ConflictError):
                await store.submit(wrong, loop, lambda error, kept: told.append((type(error), kept)))

        _run(work())
        assert told[0] == (None, True)
        assert told[1][0] is ConflictError

    def test_the_error_of_a_refused_append_names_the_run(self, store: Store) -> None:
        writer = begin(store, rows=1)
        behind = Writer(store, writer.claim)
        writer.write(2)
        with pytest.raises(ConflictError) as refusal:
            _run(_submitted(store, behind.draft(behind.rows())))
        assert (refusal.value.run_id, refusal.value.seq, refusal.value.head) == ("run", 1, 2)

    def test_runs_are_created_by_event_loops_too(self, store: Store) -> None:
        """Promise 1; promise 4: who comes second gets nothing."""
        begin(store, "there")

        async def work() -> list[Any]:
            loop = asyncio.get_running_loop()
            new = [new_run(name, owner="other") for name in ("one", "there", "two")]
            return await asyncio.gather(*[store.submit_create(run, loop) for run in new], return_exceptions=True)

        first, second, third = _run(work())
        assert isinstance(second, RunExistsError)
        with self.second(store) as other:
            for claim in (first, third):
                Writer(other, claim).write(2)
        assert [len(history(store, name)) for name in ("one", "there", "two")] == [2, 0, 2]


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def _submitted(store: Store, append: Append) -> bool:
    return await store.submit(append, asyncio.get_running_loop())


async def _all(store: Store, appends: Sequence[Append]) -> list[Any]:
    """What came of each, all submitted in one turn of the loop."""
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*[store.submit(append, loop) for append in appends], return_exceptions=True)
