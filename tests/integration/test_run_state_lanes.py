"""The state in lanes that run beside one another: none is lost, and all is read the same in the next life."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep import Trail, current, step, workflow
from tests.integration.running import act, act_later, calls, crashed, run


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


@pytest.mark.parametrize("first", ["ended before", "ended after"])
def test_whether_a_thread_had_ended_is_read_the_same_in_the_next_life(trail: Trail, first: str) -> None:
    """When a thread ends is chance. What the code saw of it is not, once it has seen it."""
    early, lives = first == "ended before", list[bool]()

    @workflow
    def reading() -> list[Any]:
        lives.append(early is (len(lives) == 0))  # in the second life it is the other way round
        go_on = threading.Event()

        def write() -> None:
            act("thread")
            current().state["set"] = "in a thread"
            go_on.wait(10)

        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(write)
            if lives[-1]:
                go_on.set()
                job.result()
            seen = [current().state.get("set"), current().state.get("set")]
            go_on.set()
        act("joined")
        seen.append(current().state.get("set"))
        act("end")
        return seen

    calls.crash = {"end"}
    crashed(trail, reading, id="r")
    before = "in a thread" if early else None
    assert run(trail, reading, id="r").value == [before, before, "in a thread"]
    assert len(lives) == 2
    assert calls == ["thread", "joined", "end", "end"]
