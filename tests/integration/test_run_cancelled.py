"""Steps that were cancelled, by the code around them or by what they awaited: a resumed run finds them so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal

import pytest

import everstep
from everstep import Status, Trail, pause, step, workflow
from everstep.testing import always_replay
from tests.integration.failing import WORLD, act_later, go
from tests.integration.running import crashed


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


def in_time(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives that might wait for ever."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function(*args)), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it does not come to its end"
    return found[0]


# By the code.


@pytest.mark.parametrize("unknown", ["ask", "retry"])
def test_an_effect_that_its_branch_gave_up_is_not_had_again(trail: Trail, unknown: Literal["ask", "retry"]) -> None:
    """Promise 3: nothing came after it in its lane, and yet the code has dealt with it."""

    @step(external=True, unknown=unknown)
    async def book(hotel: str) -> str:
        WORLD(hotel)
        await asyncio.sleep(60 if hotel == "A" else 0)
        return hotel

    async def offer(hotel: str) -> str | None:
        try:
            return await asyncio.wait_for(book(hotel), 0.05)
        except TimeoutError:
            given_up.set()
            return None

    async def other() -> str:
        await given_up.wait()
        return await act_later("other")

    @workflow
    async def trip() -> list[str | None]:
        return list(await asyncio.gather(offer("A"), offer("B"), other()))

    given_up = asyncio.Event()
    WORLD.crash = {"other"}
    crashed(trail, trip, id="r")
    assert WORLD.taken() == ["A", "B", "other"]
    given_up = asyncio.Event()
    assert in_time(go, trail, trip).value == [None, "B", "other"]
    assert WORLD.taken() == ["other"]


def test_a_run_does_not_ask_about_an_effect_that_lost_a_race(trail: Trail) -> None:
    @step(external=True)
    async def book() -> None:
        WORLD("book")
        await asyncio.sleep(60)

    async def race() -> list[str]:
        tasks = [asyncio.create_task(book()), asyncio.create_task(act_later("quick"))]
        done, losers = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in losers:
            task.cancel()
        await asyncio.wait(losers)
        return [str(task.result()) for task in done]

    @workflow
    async def trip() -> tuple[list[str], str]:
        raced, sure = await asyncio.gather(race(), pause("Sure?", schema=str))
        return raced, sure

    assert [asked.prompt for asked in go(trail, trip).pauses] == ["Sure?"]
    trail.answer("r", "yes")
    WORLD.taken()
    result = in_time(go, trail, trip)
    assert (result.status, result.value) == (Status.COMPLETED, (["quick"], "yes"))
    assert WORLD.taken() == []


# By what it awaited.


async def broken() -> None:
    """What a library does that closes its pool."""
    job = asyncio.create_task(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(job.cancel)
    await job


@step
async def fetch() -> None:
    WORLD("fetch")
    await broken()


@step
def fetch_plainly() -> None:
    WORLD("fetch")
    raise asyncio.CancelledError


@step
async def tokens() -> AsyncIterator[str]:
    WORLD("fetch")
    yield "one"
    await broken()


@workflow
async def child() -> None:
    await fetch()


async def leaf() -> None:
    await fetch()


async def plain() -> None:
    fetch_plainly()


async def stream() -> None:
    assert [token async for token in tokens()] == []


async def below() -> None:
    await child()


async def task() -> None:
    found = await asyncio.gather(asyncio.create_task(fetch()), return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    raise found[0]


@pytest.mark.parametrize("call", [leaf, plain, stream, below, task], ids=lambda call: call.__name__)
def test_a_step_that_ended_with_a_cancellation_of_its_own_ends_with_it_again(trail: Trail, call: Any) -> None:
    """Promise 2: nobody cancels it in a resumed run either, so to wait for that would be to wait for ever."""

    @workflow
    async def main() -> str:
        try:
            await call()
        except asyncio.CancelledError:
            await act_later("caught")
        return await act_later("last")

    WORLD.crash = {"last"}
    crashed(trail, main, id="r")
    assert WORLD.taken() == ["fetch", "caught", "last"]
    assert in_time(go, trail, main).value == "last"
    assert WORLD.taken() == ["last"]
    assert in_time(trail.replay, "r", main).identical


@pytest.mark.parametrize("call", [leaf, plain, stream, below, task], ids=lambda call: call.__name__)
def test_a_run_that_ended_by_such_a_cancellation_asks_for_the_step_again(trail: Trail, call: Any) -> None:
    """No code went on after it, and the run has not ended."""

    @workflow
    async def main() -> str:
        await act_later("first")
        await call()
        return await act_later("last")

    for _ in range(2):
        with pytest.raises(asyncio.CancelledError):
            go(trail, main)
        assert trail.run("r").status is Status.ACTIVE
    assert WORLD.taken() == ["first", "fetch", "fetch"]


# On the way out of a run that is gone through anew.


class Door:
    """What is closed by a step."""

    async def __aenter__(self) -> None:
        await act_later("open")

    async def __aexit__(self, *_: object) -> None:
        await act_later("close")


async def with_finally() -> str:
    try:
        return await act_later("work")
    finally:
        await act_later("close")


async def with_except() -> str:
    try:
        return await act_later("work")
    except BaseException:
        await act_later("close")
        raise


async def with_context() -> str:
    async with Door():
        return await act_later("work")


@pytest.mark.parametrize("body", [with_finally, with_except, with_context], ids=lambda body: body.__name__)
def test_always_replay_comes_to_an_end_where_code_takes_steps_on_its_way_out(trail: Trail, body: Any) -> None:
    @workflow
    async def main() -> str:
        await act_later("first")
        found: str = await body()
        return found

    def run() -> Any:
        with always_replay():
            return go(trail, main)

    assert in_time(run).value == "work"
    taken = WORLD.taken()
    assert len(taken) == len(set(taken))
