"""What is left to be done about calls that were given up, and about what nobody reads any more: it holds nobody up."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from everstep.capturing.session import capture
from everstep.run.lanes import Lane, here
from everstep.run.turnstile import Turnstile
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

# A task that is cancelled leaves its process to the loop, as such programs do.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """An item for each wait for the program that went on for as long as such waits do."""
    turn, found = Turnstile._turn, []

    def noted(self: Turnstile, loop: asyncio.AbstractEventLoop, left: int) -> None:
        if left == 0:
            found.append(True)
        turn(self, loop, left)

    monkeypatch.setattr(Turnstile, "_turn", noted)
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


def test_what_a_process_still_says_has_its_turn_like_all_else(trail: Trail, given_up: list[bool]) -> None:
    """Whoever is before it waited for it to be cleared away, and it for them."""

    async def program() -> list[list[str]]:
        async with httpx.AsyncClient(base_url=server.url) as client:
            others = asyncio.gather(*(asked(client, f"{number}-") for number in range(8)))
            for _ in range(8):
                await cancelled("echo a; sleep 0.005; echo b", 0.003)
            return await others

    with ModelServer() as server:
        with capture(trail, "run"):
            first = asyncio.run(program())
        assert len(given_up) < 8
        with capture(trail, "run", mode="verify"):
            assert asyncio.run(program()) == first


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
