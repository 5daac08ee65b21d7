"""Runs worth replaying: each function records one, with leaves that note when they are called, and says which it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from everstep import Retry, Trail, pause, sleep, step, workflow
from tests.integration.running import Agent, act, act_later, calls, crashed, run

Recorded = tuple[Any, str]  # the workflow, and the run
SCENARIOS: dict[str, Callable[[Trail], Recorded]] = {}


def scenario(function: Callable[[Trail], Recorded]) -> Callable[[Trail], Recorded]:
    """Have a recorded run among those that are replayed."""
    SCENARIOS[function.__name__] = function
    return function


@step
def both(first: str, second: str) -> str:
    return f"{act(first)} and {act(second)}"


@step
async def both_later(first: str, second: str) -> str:
    return " and ".join(await asyncio.gather(act_later(first), act_later(second)))


# Functions.


@workflow
def plain_flow(topic: str, times: int = 2) -> list[str]:
    found = [act(f"{topic} {number}") for number in range(times)]
    return [*found, both("left", "right")]


@scenario
def plain_steps(trail: Trail) -> Recorded:
    run(trail, plain_flow, "tea", id="r")
    return plain_flow, "r"


@workflow
async def awaited_flow(topic: str) -> list[str]:
    found = [await act_later(f"{topic} {number}") for number in range(2)]
    return [*found, await both_later("left", "right")]


@scenario
def awaited_steps(trail: Trail) -> Recorded:
    run(trail, awaited_flow, "tea", id="r")
    return awaited_flow, "r"


@workflow
def method_flow() -> list[Any]:
    agent = Agent("ada")
    return [agent.ask("why?"), agent.describe("it"), Agent.free("bird")]


@scenario
def methods(trail: Trail) -> Recorded:
    run(trail, method_flow, id="r")
    return method_flow, "r"


@step
def tokens(count: int) -> Iterator[str]:
    for number in range(count):
        yield calls(f"token {number}")


@step
async def tokens_later(count: int) -> AsyncIterator[str]:
    for number in range(count):
        yield calls(f"token {number}")


@step
def tokens_of_steps(count: int) -> Iterator[str]:
    for number in range(count):
        yield act(f"part {number}")


@workflow
def stream_flow() -> list[Any]:
    whole = list(tokens(3))
    for chunk in tokens(5):
        if chunk == "token 1":
            break
    between = [act(f"saw {chunk}") for chunk in tokens_of_steps(2)]
    return [*whole, *between]


@scenario
def streams(trail: Trail) -> Recorded:
    run(trail, stream_flow, id="r")
    return stream_flow, "r"


@workflow
async def stream_later_flow() -> list[Any]:
    found = [chunk async for chunk in tokens_later(3)]
    return [*found, await act_later("end")]


@scenario
def awaited_streams(trail: Trail) -> Recorded:
    run(trail, stream_later_flow, id="r")
    return stream_later_flow, "r"


@step
async def tokens_of_awaited_steps(name: str) -> AsyncIterator[str]:
    for number in range(3):
        yield await act_later(f"{name} {number}")


@workflow
async def streams_beside_flow() -> list[Any]:
    async def read(name: str) -> list[str]:
        return [await act_later(f"saw {chunk}") async for chunk in tokens_of_awaited_steps(name)]

    return list(await asyncio.gather(read("a"), both_later("b", "c"), read("d"), both_later("e", "f")))


@scenario
def streams_beside_one_another(trail: Trail) -> Recorded:
    run(trail, streams_beside_flow, id="r")
    return streams_beside_flow, "r"


# Retries.

_tries: dict[str, int] = {}


def _fails_first(name: str, times: int) -> None:
    _tries[name] = _tries.get(name, 0) + 1
    if _tries[name] <= times:
        raise ConnectionError(f"{name} {_tries[name]}")


@step(retry=Retry(attempts=3, backoff=0))
def flaky() -> str:
    calls("flaky")
    _fails_first("flaky", 2)
    return "at last"


@step(retry=Retry(attempts=3, backoff=0))
def flaky_around() -> str:
    inner = act("inner")
    _fails_first("around", 0)
    return f"{inner}, at last"


@step(retry=Retry(attempts=3, backoff=0))
def around_flaky() -> str:
    inner = act("begin")
    return f"{inner} {sometimes()}"


@step
def sometimes() -> str:
    calls("sometimes")
    _fails_first("sometimes", 1)
    return "worked"


@workflow
def retry_flow() -> list[str]:
    found = [flaky(), flaky_around(), around_flaky()]
    try:
        never()
    except ConnectionError as error:
        found.append(str(error))
    return found


@step(retry=Retry(attempts=2, backoff=0))
def never() -> str:
    calls("never")
    raise ConnectionError("no")


@scenario
def retries(trail: Trail) -> Recorded:
    _tries.clear()
    run(trail, retry_flow, id="r")
    return retry_flow, "r"


# Waiting.


@workflow
def sleep_flow() -> str:
    sleep(0.01)
    return str(act("awake"))


@scenario
def sleeps(trail: Trail) -> Recorded:
    run(trail, sleep_flow, id="r")
    return sleep_flow, "r"


@workflow
async def sleep_later_flow() -> list[str]:
    async def after(seconds: float, what: str) -> str:
        await sleep(seconds)
        return str(await act_later(what))

    return list(await asyncio.gather(after(0.02, "late"), after(0.01, "early")))


@scenario
def sleeps_awaited(trail: Trail) -> Recorded:
    run(trail, sleep_later_flow, id="r")
    return sleep_later_flow, "r"


@step
def asking(what: str) -> str:
    said = pause(f"{what}?")
    return str(act(f"{what}: {said}"))


@workflow
def pause_flow() -> list[str]:
    act("before")
    return [asking("tea"), str(act(pause("and now?", options=["go", "stay"])))]


@scenario
def a_pause_that_nobody_answered(trail: Trail) -> Recorded:
    run(trail, pause_flow, id="r")
    return pause_flow, "r"


@scenario
def a_pause_that_was_answered_and_one_that_was_not(trail: Trail) -> Recorded:
    run(trail, pause_flow, id="r")
    run(trail, pause_flow, id="r", answer="yes")
    return pause_flow, "r"


@scenario
def a_pause_that_was_answered_and_not_gone_on_with(trail: Trail) -> Recorded:
    run(trail, pause_flow, id="r")
    trail.answer("r", "yes")
    return pause_flow, "r"


@scenario
def pauses_that_were_answered(trail: Trail) -> Recorded:
    for answer in ({}, {"answer": "yes"}, {"answer": "go"}):
        run(trail, pause_flow, id="r", **answer)
    return pause_flow, "r"


@workflow
async def pause_later_flow() -> list[Any]:
    async def one() -> Any:
        return await act_later(await pause("one?"))

    return list(await asyncio.gather(one(), act_later("two")))


@scenario
def awaited_pauses(trail: Trail) -> Recorded:
    run(trail, pause_later_flow, id="r")
    run(trail, pause_later_flow, id="r", answer="yes")
    return pause_later_flow, "r"


@scenario
def an_awaited_pause_that_nobody_answered(trail: Trail) -> Recorded:
    run(trail, pause_later_flow, id="r")
    return pause_later_flow, "r"


# The world.


@step(external=True)
def charge(amount: int) -> str:
    return str(calls(f"charged {amount}"))


@workflow
def external_flow() -> str:
    return str(act(charge(5)))


@scenario
def external_steps(trail: Trail) -> Recorded:
    run(trail, external_flow, id="r")
    return external_flow, "r"


@scenario
def an_external_step_of_which_nobody_knows(trail: Trail) -> Recorded:
    calls.crash = {"charged 5"}
    crashed(trail, external_flow, id="r")
    run(trail, external_flow, id="r")
    return external_flow, "r"


@scenario
def an_external_step_that_somebody_knew_of(trail: Trail) -> Recorded:
    an_external_step_of_which_nobody_knows(trail)
    run(trail, external_flow, id="r", answer="charged 5")
    return external_flow, "r"


@scenario
def an_external_step_that_was_tried_again(trail: Trail) -> Recorded:
    an_external_step_of_which_nobody_knows(trail)
    trail.answer("r", retry=True)
    run(trail, external_flow, id="r")
    return external_flow, "r"


@step(timeout=0.05)
async def too_slow() -> str:
    inside = str(await act_later("inside"))
    await asyncio.sleep(30)
    return inside


@workflow
async def time_flow() -> str:
    try:
        return await too_slow()
    except TimeoutError:
        return str(await act_later("never mind"))


@scenario
def a_step_that_took_too_long(trail: Trail) -> Recorded:
    run(trail, time_flow, id="r")
    return time_flow, "r"


@step(timeout=0.05)
def waiting_too_long() -> str:
    act("inside")
    dawdle()
    return "done"


@step
def dawdle() -> None:
    calls("dawdling")
    time.sleep(0.2)


@workflow
def time_flow_of_threads() -> str:
    try:
        return waiting_too_long()
    except TimeoutError:
        return str(act("never mind"))


@scenario
def a_step_in_a_thread_that_took_too_long(trail: Trail) -> Recorded:
    run(trail, time_flow_of_threads, id="r")
    time.sleep(0.2)  # until what was given up has ended: it would be taken for a call of the replay
    return time_flow_of_threads, "r"
