"""Time limits, and the keys that steps give to the outside world."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import everstep
from everstep import Kind, Retry, Status, Trail, current, step, workflow
from everstep.errors import RunStoppedError, StepTimeoutError
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.running import crashed, rows


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


# Time limits.


def test_a_step_that_takes_too_long_fails(trail: Trail) -> None:
    done = threading.Event()

    @step(timeout=0.02)
    def slow() -> None:
        done.wait(60)

    @step(timeout=0.02)
    async def slow_later() -> None:
        await asyncio.sleep(60)

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
        assert time.monotonic() - began < 30
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


def test_a_key_survives_retries_failures_and_crashes(trail: Trail) -> None:
    seen: list[str] = []

    @step(retry=Retry(attempts=2, backoff=0))
    def tries() -> None:
        seen.append(current().idempotency_key)
        WORLD("tries")

    @step(retry=Retry(attempts=2, backoff=0))
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
