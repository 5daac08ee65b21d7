"""What is left to be done about calls that were given up, and about what nobody reads any more: it holds nobody up."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any

import httpx
import pytest

from everstep.capturing import loops
from everstep.capturing.session import capture
from everstep.run.lanes import Lane, here
from everstep.store.commit import GroupCommit
from everstep.trail.scribe import Scribe
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

# A task that is cancelled leaves its process to the loop, as such programs do.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """An item for each call that was waited for as long as such calls are."""
    lose, found = loops.lose_patience, list[bool]()

    def noted(calls: Collection[Any]) -> None:
        waited_for = [call for call in calls if not call.lingers]
        lose(calls)
        found.extend(True for call in waited_for if call.lingers)

    monkeypatch.setattr(loops, "lose_patience", noted)
    yield found
    gc.collect()  # what was left to the loop is told of now, not in another test


async def shell(command: str) -> bytes:
    process = await asyncio.create_subprocess_exec("sh", "-c", command, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0]


async def cancelled(command: str, after: float) -> None:
    """Begin a process and look after it no more."""
    task = asyncio.create_task(shell(command))
    await asyncio.sleep(after)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def asked(client: httpx.AsyncClient, name: str) -> list[str]:
    return [(await client.get(f"/plain/{name}{number}")).json()["counter"] for number in range(4)]


def test_a_process_that_nobody_ended_is_waited_for_once(trail: Trail, given_up: list[bool]) -> None:
    async def program() -> list[list[str]]:
        await cancelled("sleep 2", 0.1)
        async with httpx.AsyncClient(base_url=server.url) as client:
            return await asyncio.gather(*(asked(client, name) for name in "abc"))

    with ModelServer() as server:
        with capture(trail, "run"):
            first = asyncio.run(program())
        assert len(given_up) == 1
        with capture(trail, "run", mode="verify"):
            assert asyncio.run(program()) == first


def test_nobody_waits_for_what_waits_for_its_turn_behind_them(trail: Trail) -> None:
    """What a process still says that was given up: those before it waited for it, and it for them, half a minute."""

    async def program() -> None:
        await cancelled("sleep 1", 0.1)
        [call] = session.open_calls
        seen.append(call.is_left)
        for ends in ("cancel", "set_result"):
            call.queued = asyncio.get_running_loop().create_future()
            seen.append(call.is_left)
            getattr(call.queued, ends)(*([None] if ends == "set_result" else []))
            seen.append(call.is_left)

    seen: list[bool] = []
    with capture(trail, "run") as session:
        asyncio.run(program())
    assert seen == [True, False, True, False, True]


class Collecting(dict[str, int]):
    """Has the garbage collector come in when it is asked for something."""

    def get(self, name: str, otherwise: Any = None) -> Any:
        gc.collect()
        return super().get(name, otherwise)


async def numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


async def left_open() -> None:
    """Begin to read what only the garbage collector will close."""
    found = numbers()
    await anext(found)
    ring: list[Any] = [found]
    ring.append(ring)


def test_the_garbage_collector_may_come_while_a_lane_is_made(trail: Trail) -> None:
    """What it closes is handed to the loop, and has a lane, too: that must not wait for the other one."""

    async def program() -> int:
        lane = here()
        assert isinstance(lane, Lane)
        await left_open()
        lane.spawned = Collecting(lane.spawned)
        await asyncio.create_task(asyncio.sleep(0))
        return 1

    def run() -> None:
        with capture(trail, "run"):
            ended.append(asyncio.run(program()))

    ended: list[int] = []
    thread = threading.Thread(target=run, daemon=True)
    gc.disable()
    try:
        thread.start()
        thread.join(20)
    finally:
        gc.enable()
    assert ended == [1]


def lines(client: httpx.Client) -> Iterator[str]:
    with client.stream("GET", "/lines?n=5") as answer:
        yield from answer.iter_lines()


def stream_left(client: httpx.Client) -> None:
    """Begin to read a stream that only the garbage collector will close."""
    found = lines(client)
    next(found)
    ring: list[Any] = [found]
    ring.append(ring)


def process_left(_: httpx.Client) -> None:
    """Begin a process after which only the garbage collector will look."""
    process = subprocess.Popen(["true"])
    ring: list[Any] = [process]
    ring.append(ring)
    time.sleep(0.3)


IN_THE_MIDDLE = {"a row": (Scribe, "_draft"), "a commit": (GroupCommit, "_lead_once")}


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("leave", [stream_left, process_left])
@pytest.mark.parametrize("middle", IN_THE_MIDDLE)
def test_the_garbage_collector_may_come_in_the_middle_of(
    middle: str, leave: Callable[[httpx.Client], None], durability: Any, trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 9: what it closes has a row, not in that of another; and it waits for no commit in the middle of one."""
    owner, name = IN_THE_MIDDLE[middle]
    goes_on, due, said = getattr(owner, name), [False], list[Any]()

    def collecting(*args: Any, **about: Any) -> Any:
        if due[0]:
            due[0] = False
            gc.collect()
        return goes_on(*args, **about)

    def program() -> list[str]:
        with httpx.Client(base_url=server.url) as client:
            leave(client)
            due[0] = True
            return [client.get(f"/plain/{number}").json()["counter"] for number in range(3)]

    def run(**how: Any) -> None:
        with capture(trail, "run", durability=durability, **how):
            said.append(program())

    monkeypatch.setattr(owner, name, collecting)
    gc.disable()
    try:
        with ModelServer() as server:
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(20)
            assert (len(said), due) == (1, [False])
            assert trail.verify("run").ok
            run(mode="verify")
        assert said[0] == said[1]
    finally:
        gc.enable()
        gc.collect()  # what is left is told of now, not in another test
