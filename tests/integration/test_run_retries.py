"""Attempts: each failed one is kept, none is made twice, and a step that the code gave up stays given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import everstep
from everstep import Kind, Retry, Status, Trail, current, step, workflow
from everstep.errors import MutatedArgumentError
from everstep.run.execution import Execution
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.running import crashed, rows


@pytest.fixture
def trail() -> Iterator[Trail]:
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


def test_a_step_that_changed_an_argument_before_it_failed_is_not_tried_again(trail: Trail, waits: list[float]) -> None:
    """The next attempt would be given other arguments than after a crash."""

    @step(retry=Retry(attempts=3))
    def tries(book: list[str]) -> None:
        WORLD("tries")
        book.append("page")
        raise OSError("no")

    @workflow
    def writes() -> None:
        tries([])

    with pytest.raises(MutatedArgumentError, match="'tries' changed its argument 'book'") as caught:
        go(trail, writes)
    assert isinstance(caught.value.__cause__, OSError)
    assert WORLD.taken() == ["tries"]
    assert [(row.name, row.kind, row.status) for row in trail.steps("r")][1:-1] == [("tries", Kind.STEP, Status.FAILED)]


def test_a_step_that_changed_an_argument_and_then_failed_fails_with_that(trail: Trail) -> None:
    """The code would go on with what it changed, and after a crash without."""

    @step
    def finds(book: list[str]) -> None:
        book.append("page")
        raise OSError("no")

    @workflow
    def writes() -> list[str]:
        book: list[str] = []
        with suppress(OSError):
            finds(book)
        return book

    with pytest.raises(MutatedArgumentError, match="'finds' changed its argument 'book'") as caught:
        go(trail, writes)
    assert isinstance(caught.value.__cause__, OSError)


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
