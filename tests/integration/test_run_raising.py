"""What a step raises is what its code gets: the same object, with what Python notes of where it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import everstep
from everstep import AsyncRunner, Runner, Trail, pause, step, workflow
from everstep.errors import StoreError
from everstep.trail.scribe import Scribe


@step
def raises_amid_another() -> None:
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        raise ValueError("amid another")  # noqa: B904 - the context is what this is about


@step
def stops_a_generator() -> list[int]:
    nothing: Iterator[int] = iter(())
    return [*(next(nothing) for _ in range(1))]


@step
def fails() -> str:
    raise KeyError("k")


def contexts(error: BaseException | None) -> list[str]:
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__context__
    return found


@workflow
def looks_at_contexts() -> list[str]:
    try:
        raise LookupError
    except LookupError:
        try:
            raises_amid_another()
        except ValueError as error:
            return contexts(error)
    return []


@workflow
def looks_at_a_stop() -> str:
    try:
        stops_a_generator()
    except RuntimeError as error:
        return f"{error}, {type(error.__cause__).__name__}"
    return ""


@pytest.mark.parametrize("durability", ["sync", "async", "exit", None])
def test_an_exception_keeps_what_led_to_it(durability: Any) -> None:
    runner = Runner(everstep.open(":memory:") if durability else None, durability=durability or "sync")
    assert runner.run(looks_at_contexts).value == ["ValueError", "ZeroDivisionError", "LookupError"]
    assert runner.run(looks_at_a_stop).value == "generator raised StopIteration, StopIteration"


def test_a_failure_that_cannot_be_recorded_is_told_with_what_kept_it_from_that(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    def work() -> None:
        monkeypatch.setattr(trail.store, "post", Mock(side_effect=StoreError("the disk is full")))
        fails()

    with pytest.raises(StoreError) as told:
        Runner(trail).run(work, id="r")
    monkeypatch.undo()
    assert "KeyError" in contexts(told.value)


@workflow
def asks_when_a_step_fails() -> Any:
    try:
        return fails()
    except KeyError:
        return pause("What now?")


@workflow
async def asks_when_an_awaited_one_fails() -> Any:
    try:
        return await awaited_failure()
    except KeyError:
        return await pause("What now?")


@step
async def awaited_failure() -> str:
    raise KeyError("k")


def test_a_person_can_be_asked_when_a_step_has_failed(trail: Trail) -> None:
    """The run waits. It has not failed by what it is about when it asks."""
    waiting = Runner(trail).run(asks_when_a_step_fails, id="r")
    assert (waiting.status, [each.prompt for each in waiting.pauses]) == ("paused", ["What now?"])
    assert Runner(trail).run(asks_when_a_step_fails, id="r", answer="go on").value == "go on"
    awaiting = asyncio.run(AsyncRunner(trail).run(asks_when_an_awaited_one_fails, id="a"))
    assert awaiting.status == "paused"
    assert asyncio.run(AsyncRunner(trail).run(asks_when_an_awaited_one_fails, id="a", answer="so")).value == "so"


@step
def adds(number: int) -> int:
    return number


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("where", ["_draft", "outcome"])
def test_what_a_handler_of_a_signal_raises_while_a_row_is_drafted_costs_no_row(
    trail: Trail, monkeypatch: pytest.MonkeyPatch, where: str, durability: Any
) -> None:
    """Promise 9: a time limit by SIGALRM, say, whose error the code catches. The next row follows the last one."""
    real = getattr(Scribe, where)

    def cut_off(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        monkeypatch.undo()
        raise TimeoutError

    @workflow
    def work() -> list[Any]:
        found: list[Any] = [adds(0), adds(1)]
        monkeypatch.setattr(Scribe, where, cut_off)
        try:
            adds(2)
        except TimeoutError:
            found.append("cut off")
        return [*found, adds(3)]

    assert Runner(trail, durability=durability).run(work, id="r").value == [0, 1, "cut off", 3]
    assert trail.verify().ok
    assert [(row.name, row.status) for row in trail.steps("r")][1:] == [
        ("adds", "completed"), ("adds", "completed"), ("adds", "failed"), ("adds", "completed"), ("end", "completed")
    ]  # fmt: skip
    assert trail.state("r")["adds"] == 3
