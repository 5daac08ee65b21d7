"""What goes on beside the step that fails a run: finished and kept, or asked for again; never lost, never twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Status, Trail, step, workflow
from everstep.errors import RunStoppedError
from everstep.run import heart, stopping
from everstep.run.life import Life
from everstep.testing import always_replay
from tests.integration.failing import WORLD, Wrapped, act, act_later, go, healed


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


def fails(trail: Trail, workflow: Any, kind: type[BaseException] = ValueError) -> BaseException:
    """Run a workflow that fails: what it raises."""
    with pytest.raises(kind) as raised:
        go(trail, workflow)
    assert trail.run("r").status is Status.FAILED
    return raised.value


async def _branch(name: str) -> str:
    return await act_later(name)


@workflow
async def code_of_a_lane_raises() -> str:
    async def branch() -> None:
        if await act_later("a") in WORLD.bad:
            raise Wrapped("a")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(branch())
            group.create_task(_branch("slow"))
    except* Wrapped:
        await act_later("log")
        raise
    return await act_later("log")


def test_a_sibling_that_the_failure_of_the_code_cancelled_is_asked_for_again(trail: Trail) -> None:
    WORLD.bad.add("a")
    WORLD.slow.update({"a": 0.02, "slow": 5})
    fails(trail, code_of_a_lane_raises, ExceptionGroup)
    assert healed(trail, code_of_a_lane_raises) == ["slow"]  # the log of the failure is taken for the last step


@workflow
async def many_fail() -> str:
    await asyncio.gather(*map(_branch, ("b", "x", "slow")))
    return await act_later("c")


def test_a_sibling_that_fails_after_the_run_did_fails_it_no_second_time(trail: Trail) -> None:
    """The first failure is told; what comes while the rest is waited for is kept only if it is good."""
    WORLD.fail.update(("b", "x"))
    WORLD.slow.update({"x": 0.05, "slow": 0.1})
    assert str(fails(trail, many_fail)) == "b"
    assert healed(trail, many_fail) == ["b", "x", "c"]


# Child runs, threads, and lanes without order.


@step(output=None)
def takes_its_time() -> str:
    SLOW.wait(0.2 if WORLD.fail else 0)
    return str(WORLD("slow"))


@workflow
def beside_a_thread() -> str:
    workers = ThreadPoolExecutor()
    slow, beside = workers.submit(takes_its_time), workers.submit(act, "b")
    return beside.result() + slow.result()


def test_a_step_in_a_thread_beside_a_failure_is_finished_and_kept(trail: Trail) -> None:
    """Promise 2."""
    SLOW.clear()
    WORLD.fail.add("b")
    fails(trail, beside_a_thread)
    assert healed(trail, beside_a_thread) == ["b"]


@workflow
async def child_later() -> str:
    await act_later("first")
    await act_later("slow")
    return await act_later("third")


@workflow
async def beside_a_child() -> list[str]:
    return list(await asyncio.gather(child_later(), act_later("b")))


@workflow
def child() -> str:
    act("first")
    BEGUN.set()
    SLOW.wait(5)
    act("slow")
    return act("third")


SLOW, BEGUN = threading.Event(), threading.Event()


def act_when_it_has_begun(what: str) -> str:
    BEGUN.wait(30)
    return act(what)


@workflow
def beside_a_child_in_a_thread() -> list[str]:
    workers = ThreadPoolExecutor()
    below, beside = workers.submit(child), workers.submit(act_when_it_has_begun, "b")
    try:
        return [beside.result(), below.result()]
    finally:
        SLOW.set()


def test_a_child_run_beside_a_failure_is_given_up_and_goes_on_with_it(trail: Trail) -> None:
    """Promise 2: it is not left behind at work, where it would stand in the way of the next run of its parent."""
    WORLD.fail.add("b")
    WORLD.slow = {"b": 0.02, "slow": 0.1}
    fails(trail, beside_a_child)
    assert WORLD.taken() == ["first", "b", "slow"]  # the step at work was finished, no further one was taken
    [below] = trail.runs(parent="r")
    assert (below.status, below.owner) == (Status.ACTIVE, None)
    assert sorted(healed(trail, beside_a_child)) == ["b", "third"]


def test_a_child_run_in_a_thread_beside_a_failure_goes_on_with_it(trail: Trail) -> None:
    """Promise 2."""
    SLOW.clear()
    BEGUN.clear()
    WORLD.fail.add("b")
    fails(trail, beside_a_child_in_a_thread)
    done = WORLD.taken()
    [below] = trail.runs(parent="r")
    assert below.owner is None
    again = healed(trail, beside_a_child_in_a_thread)
    assert sorted(done + again) == ["b", "b", "first", "slow", "third"]


@workflow
def one_after_another_in_any_order() -> list[str]:
    failures, found = [], []
    with everstep.unordered():
        for name in "abcd":
            try:
                found.append(act(name))
            except ValueError as error:
                failures.append(error)
    if failures:
        raise ExceptionGroup("some", failures)
    return found


def test_in_a_lane_without_order_only_what_failed_is_asked_for_again(trail: Trail) -> None:
    """Promise 2: what stands behind it in the record did not come after it."""
    WORLD.fail.add("b")
    fails(trail, one_after_another_in_any_order, ExceptionGroup)
    assert healed(trail, one_after_another_in_any_order) == ["b"]


# What is left over when the run ends.


def test_no_row_comes_after_the_end(tmp_path: Path) -> None:
    """Promise 5: else what a task that is left over did would be taken for the run's result."""
    refused: list[BaseException] = []

    @step(output=None)
    async def left_over() -> str:
        await asyncio.sleep(0.02)
        return "of the task"

    async def background() -> None:
        try:
            await left_over()
        except RunStoppedError as error:
            refused.append(error)

    @workflow
    async def leaves() -> str:
        BACKGROUND.append(asyncio.ensure_future(background()))
        await asyncio.sleep(0)
        assert store._group.rest(5)  # nobody commits: the end is on its way for as long as we like
        asyncio.get_running_loop().call_later(0.1, store._group.wake)
        return "of the run"

    async def run() -> None:
        assert (await AsyncRunner(trail).run(leaves, id="r")).value == "of the run"
        await asyncio.wait(BACKGROUND)

    with everstep.open(tmp_path / "trail.db") as trail:
        store: Any = trail.store
        asyncio.run(run())
        assert [row.kind for row in trail.steps("r")] == [Kind.START, Kind.END]
        assert go(trail, leaves).value == "of the run"
    assert [type(error) for error in refused] == [RunStoppedError]


BACKGROUND: list[asyncio.Future[None]] = []


# Runs that nobody waits for any more while they begin.


@workflow
async def begins() -> str:
    return await act_later("a")


@workflow
async def child_begins() -> str:
    if WORLD.bad:
        STORES[0].rest(5)  # nobody commits: the child takes its time to begin
        async with asyncio.timeout(0.05):
            return await begins()
    return await begins()


STORES: list[Any] = []


@pytest.mark.parametrize("workflow", [begins, child_begins], ids=repr)
def test_a_run_that_is_dropped_while_it_begins_is_nobodys(tmp_path: Path, workflow: Any) -> None:
    """Promise 4: it is given up once it has begun, and does not stand in the way of the next."""
    WORLD.heal()
    WORLD.clear()
    with everstep.open(tmp_path / "trail.db") as trail:
        store: Any = trail.store
        STORES[:] = [store._group]

        async def drop() -> None:
            asyncio.get_running_loop().call_later(0.2, store._group.wake)
            if workflow is begins:
                store._group.rest(5)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(AsyncRunner(trail).run(workflow, id="r"), 0.05)
            else:
                WORLD.bad.add("rest")
                with pytest.raises(TimeoutError):
                    await AsyncRunner(trail).run(workflow, id="r")

        asyncio.run(drop())
        assert [run.owner for run in trail.runs()] == [None] * len(trail.runs())
        WORLD.heal()
        assert go(trail, workflow).value == "a"


def test_a_run_that_is_dropped_while_it_is_gone_through_anew_is_nobodys(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 4."""
    again, live = Life.again, heart.live_runs()

    async def drop() -> None:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(AsyncRunner(trail).run(begins, id="r"))

        def dropped(life: Life) -> bool:
            loop.call_soon_threadsafe(work.cancel)
            time.sleep(0.05)  # whoever does not wait for this has closed the run by then
            return again(life)

        monkeypatch.setattr(Life, "again", dropped)
        with pytest.raises(asyncio.CancelledError):
            await work

    with always_replay():
        asyncio.run(drop())
    assert trail.run("r").owner is None
    assert heart.live_runs() == live


begun = asyncio.Event()


@step
async def waits(name: str) -> str:
    begun.set()
    await asyncio.sleep(0 if WORLD.crash else 3600)
    return name


@workflow
async def is_dropped() -> str:
    return await waits("a") + await waits("b")


def test_a_loop_that_ends_cancels_every_task_and_that_was_not_the_code(trail: Trail) -> None:
    """Promise 2: taken for the code's doing, a step that has its outcome would be waited for without end."""

    async def drop() -> None:
        work = asyncio.ensure_future(AsyncRunner(trail).run(is_dropped, id="r"))
        await begun.wait()
        for task in (
            *(asyncio.all_tasks() - {work, asyncio.current_task()}),
            work,
        ):  # as `asyncio.run` does, in any order: here those of the run first
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(drop())
    assert [row.kind for row in trail.steps("r")] == [Kind.START]
    assert trail.run("r").owner is None
    WORLD.crash.add("nothing")  # and nobody waits any more
    assert asyncio.run(AsyncRunner(trail).run(is_dropped, id="r")).value == "ab"


# Steps without an end.


@workflow
async def listens() -> str:
    await asyncio.gather(act_later("forever"), act_later("b"))
    return await act_later("c")


@workflow
def listens_in_a_thread() -> str:
    workers = ThreadPoolExecutor()
    forever, beside = workers.submit(forever_in_a_thread), workers.submit(act, "b")
    return beside.result() + forever.result()


@step(output=None)
def forever_in_a_thread() -> str:
    SLOW.wait(60 if WORLD.fail else 0)
    return act("forever")


@pytest.mark.parametrize("workflow", [listens, listens_in_a_thread], ids=repr)
def test_a_step_without_an_end_does_not_keep_a_run_from_failing(
    trail: Trail, workflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for, as others are, but not for ever; then it has no outcome, and is asked for again."""
    monkeypatch.setattr(stopping, "PATIENCE", 0.1)
    SLOW.clear()
    WORLD.fail.add("b")
    WORLD.slow = {"forever": 60, "b": 0.02}
    fails(trail, workflow)
    SLOW.set()
    assert "forever" in healed(trail, workflow)
