"""Attempts, time limits, and the keys that stay the same through all of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep import Kind, Retry, Status, Trail, current, step, workflow
from everstep.errors import RunStoppedError, StepTimeoutError
from everstep.run.execution import Execution
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.running import crashed, rows


@pytest.fixture
def trail() -> Iterator[Trail]:
    WORLD.heal()
    WORLD.clear()
    with everstep.open(":memory:") as opened:
        yield opened


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that runs would have slept."""
    found: list[float] = []
    monkeypatch.setattr(Execution, "sleep", lambda _, seconds: found.append(seconds))
    return found


# Attempts.


def flaky(good: int, **policy: Any) -> Any:
    """A workflow whose step succeeds at the given attempt."""

    @step(retry=Retry(**policy))
    def tries() -> int:
        attempt = current().attempt
        WORLD(attempt)
        if attempt < good:
            raise OSError(attempt)
        return attempt

    @workflow
    def retries() -> int:
        return tries()

    return retries


def test_every_failed_attempt_is_a_row(trail: Trail, waits: list[float]) -> None:
    """Promise 5."""
    assert go(trail, flaky(3, attempts=3, backoff=2.0)).value == 3
    assert [(row.kind, row.attempt, row.status) for row in trail.steps("r")][1:-1] == [
        (Kind.ATTEMPT, 1, Status.FAILED), (Kind.ATTEMPT, 2, Status.FAILED), (Kind.STEP, 3, Status.COMPLETED),
    ]  # fmt: skip
    assert [row.error.message for row in rows(trail, "r", Kind.ATTEMPT) if row.error] == ["1", "2"]
    assert waits == [2.0, 4.0]


def test_the_pause_between_attempts_grows_up_to_a_bound(trail: Trail, waits: list[float]) -> None:
    go(trail, flaky(6, attempts=6, backoff=1.0, factor=3.0, longest=10.0))
    assert waits == [1.0, 3.0, 9.0, 10.0, 10.0]


def test_a_policy_that_is_exhausted_gives_the_last_failure(trail: Trail, waits: list[float]) -> None:
    with pytest.raises(OSError, match="2"):
        go(trail, flaky(9, attempts=2))
    assert [(row.kind, row.attempt) for row in trail.steps("r")][1:-1] == [(Kind.ATTEMPT, 1), (Kind.STEP, 2)]
    assert len(waits) == 1


def test_only_the_named_exceptions_are_worth_another_attempt(trail: Trail, waits: list[float]) -> None:
    with pytest.raises(OSError, match="1"):
        go(trail, flaky(2, attempts=5, on=(ValueError, KeyError)))
    assert WORLD.taken() == [1]
    assert waits == []


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_a_crash_between_attempts_does_not_restart_the_count(trail: Trail, waits: list[float], crash: int) -> None:
    retries = flaky(3, attempts=3)
    WORLD.crash = {crash}
    crashed(trail, retries, id="r")
    assert go(trail, retries).value == 3
    assert WORLD.taken() == [*range(1, crash + 1), *range(crash, 4)]


def test_a_crash_while_it_waits_for_the_next_attempt_keeps_the_first(trail: Trail, monkeypatch: Any) -> None:
    retries = flaky(2, attempts=2)
    with monkeypatch.context() as patched:
        patched.setattr(Execution, "sleep", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            go(trail, retries)
    assert go(trail, retries).value == 2
    assert WORLD.taken() == [1, 2]


def test_an_attempt_at_a_step_with_steps_inside_begins_with_none_of_them(trail: Trail, waits: list[float]) -> None:
    @step(retry=Retry(attempts=3))
    def around() -> str:
        act("a")
        if current().attempt < 3:
            raise OSError
        return act("b")

    @workflow
    def retries() -> str:
        return around()

    WORLD.crash = {"b"}
    crashed(trail, retries, id="r")
    assert WORLD.taken() == ["a", "a", "a", "b"]
    assert go(trail, retries).value == "b"
    assert WORLD.taken() == ["b"]  # of the attempt at work, what was done is kept


def test_a_task_that_is_cancelled_while_it_waits_for_the_next_attempt_stays_cancelled(trail: Trail) -> None:
    """Promise 2: the code went on without it, so a resumed run does too."""

    @step(retry=Retry(attempts=3, backoff=5))
    async def tries() -> None:
        WORLD("tries")
        raise OSError

    @workflow
    async def gives_up() -> str:
        try:
            async with asyncio.timeout(0.05):
                await tries()
        except TimeoutError:
            await act_later("instead")
        return await act_later("last")

    WORLD.crash = {"last"}
    crashed(trail, gives_up, id="r")
    WORLD.taken()
    assert go(trail, gives_up).value == "last"
    assert WORLD.taken() == ["last"]


def impatient() -> Any:
    """A workflow that cancels a step when its outcome is on record and not yet delivered."""
    done: set[str] = set()

    @step(output=None)
    async def late() -> str:
        WORLD("late")
        done.add("late")
        return "late"

    @workflow
    async def gives_up() -> str:
        waiting = asyncio.ensure_future(late())
        await asyncio.sleep(0)
        while not done:  # noqa: ASYNC110 - what is waited for is the very moment
            await asyncio.sleep(0)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            await act_later("without")
        await act_later("then")
        return await act_later("last")

    return gives_up


def test_an_outcome_that_came_too_late_for_its_code_stays_too_late(trail: Trail) -> None:
    """Promise 2: it is recorded, and the code that went on without it goes on without it again."""
    gives_up = impatient()
    WORLD.crash = {"last"}
    crashed(trail, gives_up, id="r")
    assert WORLD.taken() == ["late", "without", "then", "last"]
    assert [row.kind for row in trail.steps("r") if row.name == "late"] == [Kind.STEP, Kind.CANCELLED]
    assert go(trail, gives_up).value == "last"
    assert WORLD.taken() == ["last"]


def test_an_outcome_that_came_too_late_because_of_a_failure_is_kept(trail: Trail) -> None:
    """Promise 2: a failed sibling cancelled it; when the run goes on it is served, not executed again."""

    @workflow
    async def group() -> str:
        async def fails() -> None:
            while "late" not in WORLD:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
            raise OSError("right now")

        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(act_later("late"))
            if healthy:
                return await late
            await fails()
        return "never"

    healthy: list[bool] = []
    with pytest.raises(ExceptionGroup):
        go(trail, group)
    assert [row.kind for row in trail.steps("r") if row.name == "act_later"] == [Kind.STEP, Kind.CANCELLED]
    healthy.append(True)
    WORLD.taken()
    assert go(trail, group).value == "late"
    assert WORLD.taken() == []


# Time limits.


def test_a_step_that_takes_too_long_fails(trail: Trail) -> None:
    done = threading.Event()

    @step(timeout=0.02)
    def slow() -> None:
        done.wait(5)

    @step(timeout=0.02)
    async def slow_later() -> None:
        await asyncio.sleep(5)

    @workflow
    def waits_for_it() -> None:
        slow()

    @workflow(name="waits_for_it")
    async def awaits_it() -> None:
        await slow_later()

    for workflow_ in (waits_for_it, awaits_it):
        with everstep.open(":memory:") as other, pytest.raises(StepTimeoutError, match=r"0\.02") as raised:
            began = time.monotonic()
            go(other, workflow_)
        assert isinstance(raised.value, TimeoutError)
        assert time.monotonic() - began < 2
    done.set()


@pytest.mark.parametrize("awaited", [False, True])
def test_a_step_in_time_gives_what_it_gives(trail: Trail, awaited: bool) -> None:  # noqa: FBT001 - a parameter of the test
    @step(timeout=5)
    def quick() -> str:
        return act("inside")

    @step(timeout=5)
    async def quick_later() -> str:
        return await act_later("inside")

    @step(timeout=5)
    def fails() -> None:
        raise OSError("by itself")

    @workflow
    def plain() -> str:
        with pytest.raises(OSError, match="by itself"):
            fails()
        return quick()

    @workflow
    async def later() -> str:
        return await quick_later()

    assert go(trail, later if awaited else plain).value == "inside"
    assert rows(trail, "r", Kind.STEP)[-2].parent is not None


def test_what_a_late_thread_still_does_is_not_recorded(trail: Trail) -> None:
    """The step failed in time. Its thread cannot be ended, but none of its steps, at any depth, is taken any more."""
    go_on, ended, refused = threading.Event(), threading.Event(), list[BaseException]()

    @step
    def deep() -> None:
        act("begun")
        go_on.wait(5)
        try:
            act("too late")
        except RunStoppedError as error:
            refused.append(error)
            ended.set()
            raise

    @step
    def middle() -> None:
        deep()

    @step(timeout=0.05)
    def slow() -> None:
        middle()

    @workflow
    def times_out() -> str:
        try:
            slow()
        except TimeoutError:
            go_on.set()
            assert ended.wait(5)
        return act("after")

    assert go(trail, times_out).value == "after"
    assert WORLD.taken() == ["begun", "after"]
    assert "took too long" in str(refused[0])
    assert [(row.name, row.status) for row in rows(trail, "r", Kind.STEP)] == [
        ("act", Status.COMPLETED), ("slow", Status.FAILED), ("act", Status.COMPLETED),
    ]  # fmt: skip
    assert go(trail, times_out).restored


def test_a_leaf_that_a_late_thread_finishes_leaves_no_row(trail: Trail) -> None:
    """Else a second beginning of the step that timed out would stand in its lane, and the next resume diverge."""
    go_on = threading.Event()

    @step
    def leaf() -> None:
        go_on.wait(5)

    @step(timeout=0.05)
    def slow() -> None:
        leaf()

    @workflow
    def times_out() -> str:
        try:
            slow()
        except TimeoutError:
            go_on.set()
            time.sleep(0.1)
        return act("after")

    WORLD.crash = {"after"}
    crashed(trail, times_out, id="r")
    assert go(trail, times_out).value == "after"
    assert [row.name for row in trail.steps("r")] == ["times_out", "slow", "act", "end"]


def test_a_step_that_timed_out_may_be_tried_again(trail: Trail) -> None:
    @step(timeout=0.05, retry=Retry(attempts=2, backoff=0))
    async def slow() -> str:
        if current().attempt == 1:
            await act_later("slow")
        return await act_later("quick")

    @workflow
    async def retries() -> str:
        return await slow()

    WORLD.slow["slow"] = 5
    assert go(trail, retries).value == "quick"
    assert WORLD.taken() == ["quick"]


def test_a_run_that_failed_because_it_took_too_long_goes_on_where_it_was(trail: Trail) -> None:
    @step(timeout=0.1)
    async def slow() -> str:
        await act_later("first")
        return await act_later("slow")

    @workflow
    async def waits_for_it() -> str:
        return await slow()

    WORLD.slow["slow"] = 5
    with pytest.raises(StepTimeoutError):
        go(trail, waits_for_it)
    WORLD.heal()
    assert go(trail, waits_for_it).value == "slow"
    assert WORLD.taken() == ["first", "slow"]


# Keys.


@step(output=None)
def key(number: int = 0) -> str:
    WORLD(number)
    return current().idempotency_key


@step(output=None)
def two_keys() -> list[str]:
    return [key(), key(1)]


@step(name="two_keys#0/key", output=None)
def impostor() -> str:
    return current().idempotency_key


@workflow
def keys() -> list[str]:
    found = [key(), key(), *two_keys(), *two_keys(), impostor()]
    with everstep.unordered():
        found += [key(1), key(2), key(1)]
    return [*found, *child_keys()]


@workflow
def child_keys() -> list[str]:
    return [key(), key()]


def test_every_place_has_a_key_of_its_own_that_is_the_same_in_every_run_of_the_code(trail: Trail) -> None:
    WORLD.crash = {2}
    crashed(trail, keys, id="r")
    found = go(trail, keys).value
    assert len(set(found)) == len(found) == 12
    with everstep.open(":memory:") as another:
        assert go(another, keys).value == found
        assert everstep.Runner(another).run(keys, id="other").value != found


def test_a_key_survives_retries_failures_and_crashes(trail: Trail, waits: list[float]) -> None:
    seen: list[str] = []

    @step(retry=Retry(attempts=2))
    def tries() -> None:
        seen.append(current().idempotency_key)
        WORLD("tries")

    @step(retry=Retry(attempts=2))
    def around() -> None:
        tries()

    @workflow
    def retries() -> None:
        around()

    WORLD.fail.add("tries")
    for _ in range(2):
        with pytest.raises(ValueError, match="tries"):
            go(trail, retries)
    WORLD.heal()
    WORLD.crash = {"tries"}
    crashed(trail, retries, id="r")
    go(trail, retries)
    assert len(seen) == 4 + 4 + 1 + 1
    assert set(seen) == {"r/around#0/tries#0"}
