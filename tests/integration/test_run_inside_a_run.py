"""Runners used inside of a run: what they run is no part of it, which a replay refuses and a run warns of."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Runner, Trail, current, step, workflow
from everstep.errors import EscapedStepWarning, JournalError
from everstep.trail.rebuilding import ReplayMode
from tests.integration.running import Calls, run

calls = Calls()
trails: list[Trail] = []


@step
def ask(question: str) -> Any:
    return calls(question)


@workflow
def inner(question: str = "what is up?") -> Any:
    return ask(question)


@workflow
def outer() -> Any:
    return Runner(trails[0]).run(inner).value


@workflow
async def outer_later() -> Any:
    return (await AsyncRunner(trails[0]).run(inner)).value


@workflow
def outer_of_many() -> int:
    return len(Runner(trails[0]).map(inner, {"question": ["a", "b"]}, map_over="question", progress=False))


@workflow
def outer_that_forgives() -> str:
    with suppress(Exception):
        Runner(trails[0]).run(inner)
    return "fine"


@workflow
def around() -> Any:
    try:
        return outer()
    except Exception:  # noqa: BLE001 - it forgives, too
        return "what is up?"


@step
def alone() -> Any:
    return Runner(trails[0]).run(inner).value


@step
def with_steps_inside() -> Any:
    ask("inside")
    return Runner(trails[0]).run(inner).value


@workflow
def with_steps() -> list[Any]:
    return [alone(), with_steps_inside()]


@workflow
def with_a_step() -> Any:
    return alone()


@workflow
def child() -> Any:
    return inner()


@pytest.fixture(autouse=True)
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        trails[:] = [opened]
        yield opened


@pytest.mark.parametrize("flow", [outer, outer_later, outer_of_many, outer_that_forgives, around])
def test_a_replay_begins_no_run_whatever_the_code_makes_of_that(trail: Trail, flow: Any) -> None:
    """Promise 6: it was live in the replay, written as a new run, and the replay was called identical."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EscapedStepWarning)
        run(trail, flow, id="o")
    calls.forget()
    runs = len(list(trail.runs()))
    modes: tuple[ReplayMode, ...] = ("verify", "lenient")
    for mode in modes:
        with pytest.raises(
            JournalError, match=r"no part of it, and a replay executes nothing\. Call the workflow itself"
        ):
            trail.replay("o", flow, mode=mode)
    assert (calls.taken(), len(list(trail.runs()))) == ([], runs)


def test_a_run_warns_once_where_another_is_begun_in_its_code(trail: Trail) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            Runner(trail).run(other)
            asyncio.run(AsyncRunner(trail).run(other))
    assert [(each.category, each.filename) for each in caught] == [(EscapedStepWarning, __file__)]
    assert "Runner.run of 'inner' in the code of run" in str(caught[0].message)
    assert "Call the workflow itself, as in inner(...): it is a child run then" in str(caught[0].message)


@workflow
def other() -> Any:
    assert current().run_id
    return Runner(trails[0]).run(inner).value


def test_inside_a_step_it_is_the_steps_own_business(trail: Trail) -> None:
    Runner(trail).run(with_a_step, id="o")
    calls.forget()
    assert trail.replay("o", with_a_step).identical
    assert calls.taken() == []
    assert trail.replay("o", with_a_step, rerun=["alone"]).identical
    assert calls.taken() == ["what is up?"]


def test_a_step_whose_inside_is_replayed_begins_no_run_either(trail: Trail) -> None:
    Runner(trail).run(with_steps, id="o")
    calls.forget()
    with pytest.raises(JournalError, match="a replay executes nothing"):
        trail.replay("o", with_steps)
    assert calls.taken() == []


def test_a_run_that_nobody_keeps_may_begin_others_and_a_child_is_none_of_these(trail: Trail) -> None:
    Runner().run(other)
    Runner(trail).run(child, id="o")
    assert trail.replay("o", child).identical
