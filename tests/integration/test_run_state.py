"""What a run leaves beside its result: state, checkpoints, the log, and what those who listen are told."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
import everstep.errors
from everstep import AsyncRunner, Event, Kind, Runner, Status, Trail, current, step, workflow
from everstep.errors import DivergenceError, HandlerWarning, StateError, UnstorableError
from tests.integration.running import Calls, crashed, names, rows, run

calls = Calls()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.__init__()  # type: ignore[misc] # as good as new


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


@step
def act(what: Any) -> Any:
    return calls(what)


@step
async def act_later(what: Any) -> Any:
    await asyncio.sleep(0)
    return calls(what)


# Outputs.


@step(output="plan")
def make_plan(topic: str) -> list[str]:
    return [f"read about {topic}", "write"]


@step(output=None)
def keep_out(what: str) -> str:
    return str(calls(what))


@step(output="messages", append=True)
def say(what: str) -> str:
    return str(calls(what))


@step(append=True)
def count(number: int) -> int:
    return number


class Tool:
    @staticmethod
    @step
    def look_up(word: str) -> str:
        return word.upper()


@workflow
def filling() -> dict[str, Any]:
    make_plan("fusion")
    keep_out("secret")
    say("hello")
    say("again")
    count(1)
    count(2)
    Tool.look_up("x")
    act("first")
    act("second")
    return dict(current().state)


FILLED = {
    "plan": ["read about fusion", "write"], "messages": ["hello", "again"], "count": [1, 2], "look_up": "X",
    "act": "second",
}  # fmt: skip


def test_the_state_has_the_newest_output_of_every_step_by_name(trail: Trail) -> None:
    assert run(trail, filling, id="r").value == FILLED
    assert trail.state("r") == FILLED


def test_without_a_trail_the_state_is_the_same() -> None:
    assert run(None, filling).value == FILLED


def test_the_state_can_be_asked_for_at_any_row(trail: Trail) -> None:
    run(trail, filling, id="r")
    seen = [trail.state("r", at=row.seq) for row in rows(trail, "r", Kind.STEP)]
    assert seen[0] == {"plan": FILLED["plan"]}
    assert seen[1] == seen[0]
    assert [state.get("messages") for state in seen[1:4]] == [None, ["hello"], ["hello", "again"]]
    assert seen[-1] == FILLED


@step(output="messages", append=True)
async def say_later(what: str) -> str:
    await asyncio.sleep(0)
    return str(calls(what))


@workflow
async def saying_in_parallel() -> list[str]:
    await asyncio.gather(*(say_later(f"message {number}") for number in range(5)))
    return sorted(current().state["messages"])


def test_parallel_lanes_append_to_one_list_and_none_is_lost(trail: Trail) -> None:
    assert run(trail, saying_in_parallel, id="r").value == [f"message {number}" for number in range(5)]
    assert sorted(trail.state("r")["messages"]) == [f"message {number}" for number in range(5)]


def test_appending_to_what_is_no_list_is_refused_and_nothing_is_recorded(trail: Trail) -> None:
    @workflow
    def mixing() -> None:
        current().state["messages"] = "no list"
        say("x")

    with pytest.raises(StateError, match="messages"):
        run(trail, mixing, id="r")
    assert trail.state("r") == {"messages": "no list"}


def test_a_failed_step_changes_no_state(trail: Trail) -> None:
    @step
    def failing() -> None:
        current().state["half"] = "done"
        raise ValueError("x")

    @workflow
    def trying() -> bool:
        with suppress(ValueError):
            failing()
        return "half" in current().state

    assert run(trail, trying, id="r").value is False
    assert trail.state("r") == {}


# Reading and writing.


@step
def in_a_step(number: int) -> list[Any]:
    state = current().state
    state["step"] = number
    state["seen"] = [*state.get("seen", []), number]
    return [state["step"], state["seen"], state.get("workflow")]


@step
def in_a_composite(number: int) -> list[Any]:
    state = current().state
    state["composite"] = number
    before = dict(state)
    inside = in_a_step(number)
    after = dict(state)
    state["composite after"] = number
    return [before.get("composite"), inside, after["step"], after["composite"]]


@workflow
def using_state() -> list[Any]:
    state = current().state
    state["workflow"] = 1
    found = [in_a_step(1), in_a_composite(2), state["step"], state["composite"]]
    state["workflow"] = state["workflow"] + 1
    found += [in_a_composite(3), sorted(state), len(state)]
    act("end")
    found.append(state["workflow"])
    return found


USED = [
    [1, [1], 1], [2, [2, [1, 2], 1], 2, 2], 2, 2, [3, [3, [1, 2, 3], 2], 3, 3],
    ["composite", "composite after", "in_a_composite", "in_a_step", "seen", "step", "workflow"], 7, 2,
]  # fmt: skip


def test_state_is_read_and_written_in_workflows_steps_and_composites(trail: Trail) -> None:
    assert run(trail, using_state, id="r").value == USED
    final = trail.state("r")
    assert (final["workflow"], final["seen"], final["composite after"]) == (2, [1, 2, 3], 3)


@workflow
async def using_state_later() -> list[Any]:
    found = []
    for number in range(3):
        await act_later(number)
        current().state["total"] = current().state.get("total", 0) + number
        found.append((current().state["total"], current().state["act_later"]))
    return found


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_what_was_just_done_is_seen_however_late_it_is_written(trail: Trail, durability: Any) -> None:
    assert Runner(trail, durability=durability).run(using_state, id="r").value == USED
    later = asyncio.run(AsyncRunner(trail, durability=durability).run(using_state_later, id="later"))
    assert later.value == [(0, 0), (1, 1), (3, 2)]
    assert trail.state("later") == {"total": 3, "act_later": 2}


def test_without_a_trail_state_is_read_and_written_the_same() -> None:
    assert run(None, using_state).value == USED


def test_reads_are_the_same_after_a_crash_and_writes_are_not_doubled(trail: Trail) -> None:
    calls.crash = {"end"}
    crashed(trail, using_state, id="r")
    head = trail.run("r").head
    assert run(trail, using_state, id="r").value == USED
    assert trail.run("r").head == head + 2  # the last step and the end
    assert trail.state("r")["seen"] == [1, 2, 3]
    assert len(rows(trail, "r", Kind.SAVE)) == 2


@workflow
def reading_an_older_state() -> list[Any]:
    found = []
    for number in range(6):
        found.append(dict(current().state))
        act(number)
        current().state[f"k{number % 2}"] = number
    found.append(dict(current().state))
    return found


@pytest.mark.parametrize("last", range(6))
def test_code_sees_the_state_as_it_was_then_wherever_it_crashed(trail: Trail, last: int) -> None:
    """The record is longer than what the code has gone through so far: it must not see what comes later."""
    whole = run(trail, reading_an_older_state, id="whole").value
    calls.crash = {last}
    crashed(trail, reading_an_older_state, id="r")
    assert run(trail, reading_an_older_state, id="r").value == whole


def test_a_step_inside_sees_and_overrides_what_the_step_around_it_set(trail: Trail) -> None:
    @step
    def inner() -> Any:
        before = current().state["k"]
        current().state["k"] = "inner"
        return before

    @step
    def outer() -> list[Any]:
        current().state["k"] = "outer"
        found = [inner(), current().state["k"]]
        act("end")
        return found

    @workflow
    def layered() -> list[Any]:
        return [*outer(), current().state["k"]]

    expected = ["outer", "inner", "inner"]
    assert run(None, layered).value == expected
    assert run(trail, layered, id="whole").value == expected
    calls.crash = {"end"}
    crashed(trail, layered, id="r")
    assert run(trail, layered, id="r").value == expected
    assert trail.state("r")["k"] == "inner"


def test_the_output_of_a_step_inside_overrides_what_was_set_before_it(trail: Trail) -> None:
    @step
    def outer() -> Any:
        current().state["act"] = "set"
        act("made")
        return current().state["act"]

    @workflow
    def layered() -> list[Any]:
        return [outer(), current().state["act"]]

    assert run(None, layered).value == ["made", "made"]
    assert run(trail, layered, id="r").value == ["made", "made"]


def test_what_is_set_in_parallel_lanes_is_seen_when_they_are_joined(trail: Trail) -> None:
    @workflow
    async def parallel() -> list[Any]:
        async def branch(name: str) -> Any:
            await act_later(name)
            current().state[name] = f"set by {name}"
            await act_later(f"{name} 2")
            return current().state[name]

        found = list(await asyncio.gather(branch("a"), branch("b")))
        found.append({name: current().state.get(name) for name in ("a", "b")})
        await act_later("end")
        return found

    expected = ["set by a", "set by b", {"a": "set by a", "b": "set by b"}]
    assert run(trail, parallel, id="whole").value == expected
    calls.crash = {"end"}
    crashed(trail, parallel, id="r")
    assert run(trail, parallel, id="r").value == expected
    assert trail.state("r")["a"] == "set by a"


def test_threads_read_their_own_point_of_the_state(trail: Trail) -> None:
    """Many lanes read at once; each sees at least what it wrote itself, and never a torn state."""

    @workflow
    def parallel() -> int:
        def branch(number: int) -> int:
            good = 0
            for turn in range(10):
                act(f"{number}.{turn}")
                current().state[f"lane {number}"] = turn
                good += current().state[f"lane {number}"] == turn
            return good

        with ThreadPoolExecutor(4) as pool:
            return sum(pool.map(branch, range(4)))

    assert run(trail, parallel, id="r").value == 40


def test_what_is_set_is_what_was_set_then(trail: Trail) -> None:
    """Promise 5: neither side holds on to the other's objects."""

    @workflow
    def aliasing() -> list[Any]:
        mine = [1]
        current().state["list"] = mine
        mine.append(2)
        current().state["list"].append(3)
        return [current().state["list"]]

    assert run(trail, aliasing, id="r").value == [[1]]
    assert run(None, aliasing).value == [[1]]


def test_state_has_its_types(trail: Trail) -> None:
    """Promise 7."""

    @workflow
    def typed() -> Any:
        current().state["value"] = {1: ({"a"}, b"x")}
        act("end")
        return current().state["value"]

    calls.crash = {"end"}
    crashed(trail, typed, id="r")
    assert run(trail, typed, id="r").value == {1: ({"a"}, b"x")}


def test_what_cannot_be_state_is_refused(trail: Trail) -> None:
    @workflow
    def refusing() -> None:
        with pytest.raises(UnstorableError):
            current().state["x"] = threading.Lock()
        with pytest.raises(TypeError, match="set it to None"):
            del current().state["x"]
        with pytest.raises(KeyError):
            current().state["nothing"]
        with pytest.raises(TypeError, match="5 is no name"):
            current().state[5] = 1  # type: ignore[index] # the point of it
        set_by_number()

    @step(output=None)
    def set_by_number() -> None:
        with pytest.raises(TypeError, match="5 is no name"):
            current().state[5] = 1  # type: ignore[index] # as above

    run(trail, refusing, id="r")
    assert trail.state("r") == {}


def test_a_changed_write_is_a_divergence(trail: Trail) -> None:
    written = ["one"]

    @workflow
    def writing() -> None:
        current().state["k"] = written[0]
        act("end")

    calls.crash = {"end"}
    crashed(trail, writing, id="r")
    written[0] = "two"
    with pytest.raises(DivergenceError):
        run(trail, writing, id="r")
    assert trail.state("r") == {"k": "one"}


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
