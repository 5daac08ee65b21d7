"""What a run tells: checkpoints, its log, and events for those who listen."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from typing import Any

import pytest

import everstep
import everstep.errors
from everstep import AsyncRunner, Event, Kind, Runner, Status, Trail, current, step, workflow
from everstep.errors import HandlerWarning
from tests.integration.running import act, act_later, calls, crashed, names, rows, run

# Checkpoints.


@workflow
def marking() -> None:
    act("a")
    current().checkpoint("first", metadata={"why": "tested"})
    act("b")
    current().checkpoint("second", "pre_operation")
    act("end")


def test_checkpoints_name_points_and_are_not_made_again(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, marking, id="r")
    run(trail, marking, id="r")
    second, first = trail.checkpoints("r")
    assert (first.name, first.kind, first.metadata) == ("first", "manual", {"why": "tested"})
    assert (second.name, second.kind) == ("second", "pre_operation")
    assert trail.state("r", at=first.seq) == {"act": "a"}
    assert trail.state("r", at=second.seq) == {"act": "b"}
    assert calls == ["a", "b", "end", "end"]


def test_a_checkpoint_in_async_code_and_in_a_step(trail: Trail) -> None:
    @step
    async def marked() -> None:
        current().checkpoint("inside")
        await act_later("x")

    @workflow
    async def outer() -> None:
        await marked()
        current().checkpoint("outside")
        await act_later("end")

    calls.crash = {"end"}
    crashed(trail, outer, id="r")
    run(trail, outer, id="r")
    assert [each.name for each in trail.checkpoints("r")] == ["outside", "inside"]
    with pytest.raises(ValueError, match="no such"):
        CHECKED.run(no_such_kind)


@workflow
def no_such_kind() -> None:
    current().checkpoint("x", "no such")


CHECKED = Runner()


# The log.


@step
def pair(name: str) -> str:
    return f"{act(f'{name} 1')}{act(f'{name} 2')}"


@workflow
def logged() -> None:
    pair("a")
    with suppress(ValueError):
        act("bad")
    pair("b")
    act("end")


def shape(log: everstep.RunLog) -> list[tuple[str, str, str | None]]:
    """Name, status and the name of the step around, for every step of a log."""
    by_span = {node.span_id: node.node_name for node in log.steps}
    return [
        (node.node_name, str(node.status), by_span.get(node.parent_span_id) if node.parent_span_id else None)
        for node in log.steps
    ]


def test_the_log_of_a_resumed_run_covers_the_whole_run_and_marks_what_was_restored(trail: Trail) -> None:
    calls.fail, calls.crash = {"bad"}, {"b 2"}
    crashed(trail, logged, id="r")
    log = run(trail, logged, id="r").log
    assert shape(log) == [
        ("act", "restored", "pair"), ("act", "restored", "pair"), ("pair", "restored", None),
        ("act", "restored", None), ("act", "restored", "pair"), ("act", "completed", "pair"),
        ("pair", "completed", None), ("act", "completed", None),
    ]  # fmt: skip
    assert log.restored_count == 5
    bad = log.steps[3]
    assert "ValueError: bad" in str(bad.error)
    assert "5 restored" in log.summary()
    assert set(log.timing) == {"act", "pair"}
    assert log.node_stats["act"].count == 2


def test_the_log_of_a_completed_run_is_there_again(trail: Trail) -> None:
    calls.fail = {"bad"}
    first = run(trail, logged, id="r").log
    again = run(trail, logged, id="r").log
    assert [(name, around) for name, _, around in shape(again)] == [(name, around) for name, _, around in shape(first)]
    assert again.restored_count == len(again.steps) == 8
    assert [str(node.error) for node in again.steps if node.error] == ["ValueError: bad"]
    assert [str(node.error) for node in first.errors] == ["ValueError: bad"]


def test_the_log_without_a_trail_has_the_same_shape(trail: Trail) -> None:
    calls.fail = {"bad"}
    assert shape(run(None, logged).log) == shape(run(trail, logged, id="r").log)


def test_the_log_counts_a_failed_run_too(trail: Trail) -> None:
    calls.fail = {"end", "bad"}
    result = run(trail, logged, id="r", error_handling="continue")
    assert result.failed
    assert [node.node_name for node in result.log.errors] == ["act", "act"]
    assert result.log.workflow == "logged"
    assert result.to_dict()["status"] == "failed"


# Who listens.


@workflow
def told() -> str:
    act("a")
    current().checkpoint("here")
    with suppress(ValueError):
        act("bad")
    pair("b")
    return str(act("end"))


@workflow
async def told_later() -> str:
    await act_later("a")
    current().checkpoint("here")
    with suppress(ValueError):
        await act_later("bad")
    pair("b")
    return str(await act_later("end"))


TOLD = pytest.mark.parametrize("flow", [told, told_later], ids=lambda flow: flow.name)
FIRST = [
    "run_started", "step_completed", "checkpoint", "step_failed", "step_completed", "step_completed", "step_completed"
]  # fmt: skip


@TOLD
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_listeners_are_told_what_happens_in_order(trail: Trail, flow: Any, durability: Any) -> None:
    heard: list[Event] = []
    trail.on(handler=heard.append)
    calls.fail = {"bad"}
    if flow.is_async:
        asyncio.run(AsyncRunner(trail, durability=durability).run(flow, id="r"))
    else:
        Runner(trail, durability=durability).run(flow, id="r")
    assert [event.name for event in heard] == [*FIRST, "step_completed", "run_completed"]
    steps = [event.step for event in heard if event.step is not None]
    assert [step.output for step in steps if step.kind is Kind.STEP] == ["a", None, "b 1", "b 2", "b 1b 2", "end"]
    assert {event.run_id for event in heard} == {"r"}
    assert {event.workflow for event in heard} == {flow.name}
    [failure] = [event for event in heard if event.name == "step_failed"]
    assert failure.error is not None
    assert "bad" in failure.error
    assert trail.steps("r", steps[0].seq, steps[0].seq) == [steps[0]]


@TOLD
def test_listeners_are_told_of_what_is_restored(trail: Trail, flow: Any) -> None:
    calls.fail, calls.crash = {"bad"}, {"end"}
    crashed(trail, flow, id="r")
    heard: list[Event] = []
    trail.on(handler=heard.append)
    run(trail, flow, id="r")
    assert [event.name for event in heard] == [
        "run_resumed", "step_restored", "step_restored", "step_restored", "step_completed", "run_completed"
    ]  # fmt: skip
    assert [event.step.name for event in heard if event.step is not None] == [
        "act" if flow is told else "act_later", "act" if flow is told else "act_later", "pair",
        "act" if flow is told else "act_later",
    ]  # fmt: skip


def test_listeners_are_told_how_a_run_ends(trail: Trail) -> None:
    heard: list[Event] = []
    trail.on("run_failed", "run_paused", "run_completed", handler=heard.append)

    @workflow
    def ending() -> Any:
        act("x")
        return everstep.pause("go on?")

    calls.fail = {"x"}
    with pytest.raises(ValueError, match="x"):
        run(trail, ending, id="r")
    calls.fail = set()
    run(trail, ending, id="r")
    run(trail, ending, id="r", answer="yes")
    assert [event.name for event in heard] == ["run_failed", "run_paused", "run_completed"]
    assert heard[0].error == "x"


@TOLD
def test_async_listeners_are_awaited_before_the_run_is_over_or_drained(trail: Trail, flow: Any) -> None:
    heard: list[str] = []

    @trail.on("step_completed", "run_completed")
    async def listen(event: Event) -> None:
        await asyncio.sleep(0.01)
        heard.append(event.name)

    run(trail, flow, id="r")
    assert trail.events.drain(10)
    assert sorted(heard) == ["run_completed", *["step_completed"] * 6]


@TOLD
def test_a_listener_that_fails_harms_nothing(trail: Trail, flow: Any) -> None:
    heard: list[str] = []

    @trail.on()
    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    @trail.on("step_completed")
    async def broken_later(event: Event) -> None:
        raise RuntimeError("listener")

    trail.on(handler=lambda event: heard.append(event.name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert run(trail, flow, id="r").value == "end"
        assert trail.events.drain(10)
    assert {warning.category for warning in caught} == {HandlerWarning}
    assert len(heard) == 9
    assert trail.events.failures == 9 + 6
    assert trail.verify().ok


@TOLD
def test_what_a_listener_calls_is_no_step_of_the_run(trail: Trail, flow: Any) -> None:
    seen: list[Any] = []

    @trail.on("step_completed")
    def listen(event: Event) -> None:
        seen.append(act(f"by a listener of {event.name}"))
        with pytest.raises(everstep.errors.JournalError):
            current()

    @trail.on("step_completed")
    async def listen_later(event: Event) -> None:
        seen.append(await act_later("by an async listener"))

    calls.crash = {"end"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crashed(trail, flow, id="r")
        assert run(trail, flow, id="r").value == "end"
        assert trail.events.drain(10)
    assert trail.events.failures == 0
    assert len(seen) == 2 * 6
    assert len(rows(trail, "r", Kind.STEP)) == 6
    assert not any("listener" in str(row.output) for row in rows(trail, "r", Kind.STEP))


def test_a_listener_may_ask_the_trail_about_the_step_it_was_told_of(trail: Trail) -> None:
    """What it is told of in the durable mode is durable."""
    heard: list[bool] = []

    @trail.on("step_completed", "step_failed", "step_restored")
    def listen(event: Event) -> None:
        assert event.step is not None
        heard.append(trail.step("r", event.step.seq) == event.step)

    calls.fail, calls.crash = {"bad"}, {"end"}
    crashed(trail, told, id="r")
    run(trail, told, id="r")
    assert heard == [True] * 9
    assert trail.events.failures == 0


def test_the_rows_of_a_run_are_what_was_done(trail: Trail) -> None:
    run(trail, told, id="r")
    assert names(rows(trail, "r")) == [
        "told", "act", "here", "act", "pair", "act", "act", "pair", "act", "end"
    ]  # fmt: skip
    assert trail.run("r").status is Status.COMPLETED
