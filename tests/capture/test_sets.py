"""Promise 6: what comes out of a set of tasks, futures or jobs is in the same order in every replay."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

import everstep
from tests.capture.server import ModelServer


def jobs_that_were_waited_for(ask: Callable[[object], str]) -> Iterator[str]:
    with ThreadPoolExecutor(4) as pool:
        done, _ = concurrent.futures.wait([pool.submit(ask, number) for number in range(6)])
    for job in done:
        yield ask(f"more of {job.result()}")


def jobs_that_had_ended(ask: Callable[[object], str]) -> Iterator[str]:
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(ask, number) for number in range(6)]
    for job in concurrent.futures.as_completed(jobs):
        yield ask(f"more of {job.result()}")


def tasks_that_were_waited_for(ask: Callable[[object], str]) -> Iterator[str]:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.to_thread(ask, number)) for number in range(6)]
        done, _ = await asyncio.wait(tasks)
        return [ask(f"more of {each.result()}") for each in done]

    yield from asyncio.run(main())


def jobs_that_a_loop_waited_for(ask: Callable[[object], str]) -> Iterator[str]:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        done, _ = await asyncio.wait([loop.run_in_executor(None, ask, number) for number in range(6)])
        return [ask(f"more of {each.result()}") for each in done]

    yield from asyncio.run(main())


def coroutines_that_speak_through_one_task(ask: Callable[[object], str]) -> Iterator[str]:
    """As clients of MCP do: the order in which they begin is that of the calls."""

    async def main() -> list[str]:
        lines: asyncio.Queue[tuple[int, asyncio.Future[str]]] = asyncio.Queue()

        async def speak() -> None:
            while True:
                number, answer = await lines.get()
                answer.set_result(ask(number))

        async def say(number: int) -> str:
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            await lines.put((number, answer))
            return await answer

        speaker = asyncio.create_task(speak())
        said = [await each for each in asyncio.as_completed([say(number) for number in range(6)])]
        speaker.cancel()
        return said

    yield from asyncio.run(main())


@pytest.mark.parametrize(
    "program",
    [
        jobs_that_were_waited_for, jobs_that_had_ended, tasks_that_were_waited_for, jobs_that_a_loop_waited_for,
        coroutines_that_speak_through_one_task,
    ],
)  # fmt: skip
def test_sets_are_in_the_same_order_in_every_replay(
    tmp_path: Path, program: Callable[[Callable[[object], str]], Iterator[str]]
) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def ask(what: object) -> str:
            return httpx.post(f"{server.url}/plain/a", json={"what": str(what)}).text

        with everstep.capture(trail, "trip"):
            said = list(program(ask))
        for _ in range(4):
            held = [bytearray(size * 40) for size in os.urandom(50)]  # so that nothing lies where it lay
            with everstep.capture(trail, "trip", mode="verify") as session:
                assert list(program(ask)) == said
            assert session.report is not None
            assert session.report.identical
            del held


def test_outside_of_a_capture_hashes_are_what_they_were() -> None:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(int)
    assert hash(job) == object.__hash__(job)
