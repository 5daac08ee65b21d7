"""The state of a run: what its steps gave and its code set, read the same in every life of the run."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from everstep import AsyncRunner, Kind, Runner, Trail, current, step, workflow
from everstep.errors import DivergenceError, StateError, UnstorableError
from tests.integration.running import act, act_later, calls, crashed, rows, run

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


def test_the_state_can_be_read_at_once_after_a_step_was_cancelled(trail: Trail) -> None:
    @step
    async def quick(number: int) -> int:
        return number

    @step
    async def slow() -> None:
        await asyncio.sleep(60)

    @workflow
    async def reading() -> list[int]:
        found = []
        for number in range(10):
            await quick(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(0.002):
                    await slow()
            found.append(current().state["quick"])  # what was cancelled is on its way to the disk
        return found

    assert asyncio.run(AsyncRunner(trail).run(reading, id="r")).value == [*range(10)]
