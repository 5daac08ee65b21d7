"""Acts on runs that fail or are cut off half-way: nobody waits for a lease, and the same act is done again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Runner, Status, Trail, pause, workflow
from everstep.errors import ClosedError, StoreError
from everstep.run import heart
from everstep.testing.faults import FaultyDisk
from tests.integration.running import act, act_later, calls, crashed


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.forget()


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as faulty:
        yield faulty


@workflow
def inner() -> str:
    return str(act("inside"))


@workflow
def outer() -> list[str]:
    return [act("before"), inner()]


@workflow
def asking() -> object:
    return pause("go on?")


def fails_after(disk: FaultyDisk, writes: int, work: Callable[[], object]) -> bool:
    """Whether the work fails when the disk does after so many writes. It works again then."""
    disk.writes = writes
    try:
        work()
    except StoreError:
        return True
    finally:
        disk.heal()
    return False


def test_an_answer_that_could_not_be_written_can_be_given_again_at_once(tmp_path: Path, disk: FaultyDisk) -> None:
    """Promises 1 and 13: wherever the disk failed, the run is nobody's, and what was taken is no failure."""
    with everstep.open(tmp_path / "trail.db") as trail:
        for writes in range(100):
            run_id = f"r{writes}"
            Runner(trail).run(asking, id=run_id)
            if not fails_after(disk, writes, partial(trail.answer, run_id, "yes")):
                break
            trail.answer(run_id, "no")
            assert Runner(trail).run(asking, id=run_id).value == "no"
        assert writes > 5
        assert Runner(trail).run(asking, id=run_id).value == "yes"


def test_a_cancellation_that_was_cut_off_is_finished_by_the_next_one(tmp_path: Path, disk: FaultyDisk) -> None:
    """Promise 13: what is inside a run ends with it, and the run can be resumed, nothing in it done again."""
    with everstep.open(tmp_path / "trail.db") as trail:
        for writes in range(100):
            run_id = f"r{writes}"
            calls.crash = {"inside"}
            crashed(trail, outer, id=run_id)
            failed = fails_after(disk, writes, partial(trail.cancel, run_id))
            if failed:
                trail.cancel(run_id)
            found = [trail.run(run_id), *trail.runs(parent=run_id)]
            assert [(each.status, each.owner) for each in found] == [(Status.CANCELLED, None)] * 2
            calls.clear()
            assert Runner(trail).run(outer, id=run_id).value == ["before", "inside"]
            assert calls == ["inside"]
            if not failed:
                break
        assert writes > 10


def test_a_run_can_be_resumed_when_its_cancellation_was_cut_off(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        calls.crash = {"inside"}
        crashed(trail, outer, id="r")
        trail.cancel(trail.runs(parent="r")[0].id)
        assert Runner(trail).run(outer, id="r").value == ["before", "inside"]
        assert calls == ["before", "inside", "inside"]


def test_a_trail_that_is_closed_by_a_run_of_it_leaves_the_run_to_the_next_one(tmp_path: Path) -> None:
    """Promise 13: the code can go no further, and who opens the trail again does not wait until the lease ends."""
    opened: list[Trail] = []

    @workflow
    def closing() -> object:
        act("kept")
        if opened:
            opened.pop().close()
        return act("then")

    @workflow
    async def closing_later() -> object:
        await act_later("kept")
        if opened:
            opened.pop().close()
        return await act_later("then")

    for flow in (closing, closing_later):
        opened[:] = [everstep.open(tmp_path / "trail.db")]
        with pytest.raises(ClosedError):
            asyncio.run(AsyncRunner(opened[0]).run(flow, id=flow.name))
        calls.clear()
        with everstep.open(tmp_path / "trail.db") as again:
            assert asyncio.run(AsyncRunner(again).run(flow, id=flow.name)).value == "then"
        assert calls == ["then"]


def forked_off(how: str, trail: Trail) -> None:
    """What a process does that is forked off in the middle of a run, to leave it."""
    if how == "closes the trail":
        trail.close()
        os._exit(0)
    if how == "looks after the run":
        os._exit(len(heart._runs))
    if how == "exits":
        sys.exit()
    raise ValueError(how)


@pytest.mark.parametrize("how", ["closes the trail", "looks after the run", "exits", "fails"])
def test_a_process_that_is_forked_off_in_a_run_does_not_give_the_run_up(tmp_path: Path, how: str) -> None:
    """Promise 4: the run is at work in the parent, and nobody may take it there."""
    trail, parent = everstep.open(tmp_path / "trail.db"), os.getpid()

    @workflow
    def forking() -> tuple[int, bool]:
        act("before")
        child = os.fork()
        if child == 0:
            forked_off(how, trail)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, trail.run("r").owner is None

    try:
        result = Runner(trail).run(forking, id="r")
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert result.value == (0, False)
    trail.close()


@pytest.mark.parametrize("place", [":memory:", "trail.db"])
def test_runs_that_nobody_works_on_are_listed_page_by_page(tmp_path: Path, place: str) -> None:
    with everstep.open(place if place == ":memory:" else tmp_path / place) as trail:
        held = [trail.record(f"at work {number}") for number in range(250)]
        for number in range(5):
            trail.record(f"left {number}").release()
        trail.record("ended").finish()
        first = trail.runs(status="interrupted", limit=3)
        rest = trail.runs(status="interrupted", limit=3, cursor=first.cursor)
        held[0].release()
        last = trail.runs(status="interrupted", limit=1, cursor=str(trail.store.run("left 0").key))
        with pytest.raises(ValueError, match="unheard"):
            trail.runs(status="unheard of")
    assert [run.id for run in (*first, *rest, *last)] == [
        *(f"left {number}" for number in range(4, -1, -1)),
        "at work 0",
    ]
    assert (rest.cursor, last.cursor) == (None, None)


def test_a_trail_whose_disk_fails_is_closed_without_trying_every_run(tmp_path: Path, disk: FaultyDisk) -> None:
    """A server that is away would be waited for as often."""
    trail, count = everstep.open(tmp_path / "trail.db"), 20

    @workflow
    async def waiting(number: int) -> None:
        await act_later(number)
        if len(calls) == count:
            disk.writes = 0
            with suppress(StoreError):
                trail.close()
        await act_later("never")

    async def all_of_them() -> Any:
        runs = (AsyncRunner(trail).run(waiting, number) for number in range(count))
        return await asyncio.gather(*runs, return_exceptions=True)

    assert {type(error) for error in asyncio.run(all_of_them())} <= {ClosedError, StoreError}
    assert 0 < disk.failed < count
