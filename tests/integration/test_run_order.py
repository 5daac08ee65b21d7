"""Results that come in any order, lanes that cannot be told apart, and time that has passed."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Trail, current, step, workflow
from everstep.errors import ConcurrentStepsError, DivergenceError, UnknownLoopError
from everstep.testing import always_replay
from everstep.testing.others import moved_clock
from tests.integration.running import Crash, act, act_later, calls, crashed, names, rows, run, twice

# Any order.


order = ["slow", "middle", "fast"]
pace = {"slow": 0.06, "middle": 0.03, "fast": 0.0}


@step(ignore=["wait"])
def paced(name: str, wait: float) -> str:
    time.sleep(wait)
    return str(calls(name))


@workflow
def as_they_come() -> list[str]:
    with ThreadPoolExecutor(3) as pool:
        jobs: list[Future[str]] = [pool.submit(paced, name, pace[name]) for name in order]
        with everstep.unordered():
            found = [act(f"used {job.result()}") for job in as_completed(jobs)]
    act("end")
    return sorted(found)


def test_results_that_come_in_another_order_are_all_served(trail: Trail) -> None:
    """Promise 2."""
    pace.update(slow=0.06, middle=0.03, fast=0.0)
    calls.crash = {"used middle"}
    crashed(trail, as_they_come, id="r")
    assert calls.count("used fast") == 1
    pace.update(slow=0.0, middle=0.03, fast=0.06)
    calls.crash = {"end"}
    crashed(trail, as_they_come, id="r")
    calls.clear()
    assert run(trail, as_they_come, id="r").value == ["used fast", "used middle", "used slow"]
    assert calls == ["end"]


@workflow
def ahead_of_its_threads() -> list[str]:
    pool = ThreadPoolExecutor(3)
    jobs = [pool.submit(paced, name, pace[name]) for name in order]
    act("end")
    return [job.result() for job in jobs]


def test_what_threads_have_at_work_is_executed_once_though_the_code_is_gone_through_anew(trail: Trail) -> None:
    pace.update(slow=0.06, middle=0.03, fast=0.0)
    with always_replay():
        assert run(trail, ahead_of_its_threads, id="r").value == order
    assert sorted(calls) == sorted(["end", *order])


@step(ignore=["wait"])
async def paced_later(name: str, wait: float) -> str:
    calls(name)
    await asyncio.sleep(wait)
    return name


@workflow
async def in_a_task_group() -> list[str]:
    async def branch(name: str) -> str:
        return await paced_later(name, pace[name]) + await paced_later(f"{name} again", pace[name])

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch(name)) for name in order]
    return [task.result() for task in tasks]


def test_what_a_task_group_has_at_work_is_executed_once_though_the_code_is_gone_through_anew(trail: Trail) -> None:
    """A task that was refused a further step would have the group cancel those at work."""
    pace.update(slow=0.01, middle=0.005, fast=0.0)
    with always_replay():
        assert run(trail, in_a_task_group, id="r").value == [f"{name}{name} again" for name in order]
    assert sorted(calls) == sorted([*order, *(f"{name} again" for name in order)])


removed: set[str] = set()


@workflow
def unordered_with_gaps() -> list[str]:
    with everstep.unordered():
        found = [act(name) for name in ("a", "b", "c") if name not in removed]
    act("end")
    return found


def test_a_step_removed_from_an_unordered_lane_is_reported(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, unordered_with_gaps, id="r")
    removed.add("b")
    try:
        with pytest.raises(DivergenceError) as caught:
            run(trail, unordered_with_gaps, id="r")
    finally:
        removed.clear()
    assert (caught.value.cause, caught.value.recorded) == ("removed", "act")
    assert run(trail, unordered_with_gaps, id="r").value == ["a", "b", "c"]


def test_equal_calls_in_an_unordered_lane_are_each_taken_once(trail: Trail) -> None:
    count = [0]

    @step
    def numbered(name: str) -> int:
        count[0] += 1
        return count[0]

    @workflow
    def counting() -> list[int]:
        with everstep.unordered():
            found = [numbered("x"), numbered("x"), numbered("y"), numbered("x")]
        act("end")
        return found

    calls.crash = {"end"}
    crashed(trail, counting, id="r")
    assert sorted(run(trail, counting, id="r").value) == [1, 2, 3, 4]
    assert count == [4]


def test_every_step_has_a_key_of_its_own_that_outlives_a_crash(trail: Trail) -> None:
    @step
    def key(what: str) -> str:
        calls((what, current().idempotency_key))
        if calls.crash:
            calls.crash.clear()
            raise Crash
        return current().idempotency_key

    @step
    def outer(what: str) -> list[str]:
        return [key(what), key(what)]

    @workflow
    def asking() -> list[str]:
        found = [key("a"), key("a"), *outer("b"), *outer("b")]
        with ThreadPoolExecutor(1) as pool:
            found += [job.result() for job in [pool.submit(key, "c") for _ in range(2)]]
        with everstep.unordered():
            found += [key("d"), key("e"), key("d")]
        return found

    calls.crash = {"any"}
    crashed(trail, asking, id="r")
    keys = run(trail, asking, id="r").value
    assert len(set(keys)) == len(keys) == 11
    assert calls[0] == calls[1]


# Lanes that could not be told apart.


def test_two_steps_of_one_lane_at_once_are_an_error(trail: Trail) -> None:
    """Threads started behind everybody's back, here with the lane's own context."""
    import contextvars  # noqa: PLC0415 - only here
    from _thread import start_new_thread  # noqa: PLC0415 - the way that is not seen

    seen: list[BaseException] = []
    finished = threading.Event()

    @workflow
    def racing() -> None:
        context = contextvars.copy_context()

        def other() -> None:
            try:
                context.run(act, "other")
            except ConcurrentStepsError as error:
                seen.append(error)
            finally:
                finished.set()

        @step
        def slow() -> None:
            start_new_thread(other, ())
            finished.wait(10)

        slow()

    run(trail, racing, id="r")
    assert len(seen) == 1
    assert "everstep.submit" in str(seen[0])
    assert calls == []


def test_an_unknown_loop_is_refused_until_it_is_adopted(trail: Trail) -> None:
    async def inner() -> Any:
        return await asyncio.gather(act_later("a"), act_later("b"))

    async def adopted() -> Any:
        everstep.adopt_loop()
        return await inner()

    @workflow
    def looping() -> Any:
        with pytest.raises(UnknownLoopError, match="adopt_loop"):
            asyncio.run(inner())
        found = asyncio.run(adopted())
        act("end")
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the other branch of the refused gather
        assert sorted(twice(trail, looping)) == ["a", "b"]


# Time.


@workflow
def sleeping(seconds: float) -> str:
    act("before")
    everstep.sleep(seconds)
    return str(act("after"))


@workflow
async def sleeping_later(seconds: float) -> str:
    await act_later("before")
    await everstep.sleep(seconds)
    return str(await act_later("after"))


SLEEPERS = pytest.mark.parametrize("flow", [sleeping, sleeping_later], ids=lambda flow: flow.name)


@SLEEPERS
def test_a_resumed_run_sleeps_only_for_what_is_left(tmp_path: Path, flow: Any) -> None:
    program = f"""
import asyncio, sys, everstep
import tests.integration.test_run_order as module
trail = everstep.open(sys.argv[1])
print("ready", flush=True)
module.run(trail, module.{flow.name}, 1.5, id="r")
"""
    import signal  # noqa: PLC0415 - only here
    import subprocess  # noqa: PLC0415 - only here
    import sys  # noqa: PLC0415 - only here

    from tests.integration.support import ROOT, environment  # noqa: PLC0415 - only here

    sleeper = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "trail.db")],
        env=environment(), cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert sleeper.stdout is not None
    sleeper.stdout.readline()
    with everstep.open(tmp_path / "trail.db") as trail:
        while not trail.runs() or "sleep" not in names(rows(trail, "r")):
            assert sleeper.poll() is None
            time.sleep(0.005)
        began = rows(trail, "r")[-1].started_at
        sleeper.send_signal(signal.SIGKILL)
        sleeper.communicate()
        while (datetime.now(UTC) - began).total_seconds() < 1.4:
            time.sleep(0.01)
        assert run(trail, flow, id="r").value == "after"
        assert (datetime.now(UTC) - began).total_seconds() >= 1.5
        assert calls == ["after"]
        slept = [row.duration_ms for row in rows(trail, "r") if row.node_name == "sleep"]
        assert slept[-1] < 1500  # all of it would be more
        assert run(trail, flow, id="r").restored


def test_a_sleep_is_no_longer_when_the_clock_was_set_back_since_it_began(trail: Trail) -> None:
    """Promise 14: clocks are for people, and a run does not wait until theirs has caught up."""
    with moved_clock(3600):
        run(trail, sleeping_later, 0.01, id="r")
        began = next(row.seq for row in rows(trail, "r") if row.node_name == "sleep")
        trail.fork("r", began, id="cut off in its sleep").release()

    async def resumed() -> Any:
        async with asyncio.timeout(60):
            return await AsyncRunner(trail).run(sleeping_later, id="cut off in its sleep")

    assert asyncio.run(resumed()).value == "after"


@pytest.mark.parametrize("seconds", [-1, "1", None])
def test_there_is_no_other_sleep(seconds: Any) -> None:
    with pytest.raises(ValueError, match="cannot sleep"):
        everstep.sleep(seconds)


def test_a_sleep_that_was_cut_short_by_a_timeout_is_cut_short_again(trail: Trail) -> None:
    @workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(0.05):
                await everstep.sleep(0.15)
            found = "slept"
        except TimeoutError:
            found = "timed out"
        await act_later("went on")
        await act_later("end")
        return found

    calls.crash = {"end"}
    crashed(trail, impatient, id="r")
    time.sleep(0.2)  # by now the sleep would be over
    assert run(trail, impatient, id="r").value == "timed out"
