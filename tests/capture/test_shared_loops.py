"""Several captured programs on one event loop, beside code that is not captured: none is in the way of another."""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import random
import signal
import tempfile
import threading
import time
import uuid
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep.errors import DivergenceError
from everstep.model import Status
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

UUIDS = [each for each in ("uuid1", "uuid4", "uuid6", "uuid7", "uuid8") if hasattr(uuid, each)]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


async def agent(trail: Trail, url: str, run_id: str, **how: Any) -> list[str]:
    """One that asks, sleeps, waits in vain, and asks two things at once."""
    with everstep.capture(trail, run_id, **how):
        async with httpx.AsyncClient(base_url=url) as client:

            async def ask(number: int) -> str:
                messages = [{"role": "user", "content": f"{run_id} {number} {time.time()}"}]
                answer = await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": messages})
                return str(answer.json()["choices"][0]["message"]["content"])

            said = [await ask(0)]
            await asyncio.sleep(0.02)
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 0.01)
            except TimeoutError:
                said += await asyncio.gather(ask(1), ask(2))
            return said


def test_programs_that_share_a_loop_are_recorded_and_replayed_side_by_side(server: ModelServer, trail: Trail) -> None:
    """Promise 6."""

    async def programs(**how: Any) -> list[list[str]]:
        async with asyncio.timeout(60):
            return await asyncio.gather(*(agent(trail, server.url, f"agent {number}", **how) for number in range(4)))

    first = asyncio.run(programs())
    asked = len(server.requests)
    assert asked == 12
    assert asyncio.run(programs(mode="verify")) == first
    assert len(server.requests) == asked


def test_a_replay_that_sleeps_long_puts_nobody_else_forward(trail: Trail) -> None:
    pause = 0.01

    async def sleeps(**how: Any) -> float:
        with everstep.capture(trail, "sleeper", **how):
            loop = asyncio.get_running_loop()
            before = loop.time()
            await asyncio.sleep(pause)
            return loop.time() - before

    async def beside(**how: Any) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with asyncio.timeout(60):
            slept = await sleeps(**how)
            await asyncio.sleep(0.05)
        return slept, loop.time() - before

    asyncio.run(beside())
    pause = 3600.0
    began = time.monotonic()
    slept, passed = asyncio.run(beside(mode="verify"))
    assert slept >= 3600
    assert 0.04 < passed < 60
    assert time.monotonic() - began > 0.04


def test_a_program_that_is_resumed_shortens_no_sleep_of_a_live_one(trail: Trail, server: ModelServer) -> None:
    pause = 0.01

    async def resumed(*, fails: bool) -> None:
        with everstep.capture(trail, "resumed"):
            await asyncio.sleep(pause)
            async with httpx.AsyncClient() as client:
                await client.get(f"{server.url}/plain/1")
            await asyncio.sleep(0)
            if fails:
                raise KeyError
            before = time.perf_counter()
            await asyncio.sleep(0.05)  # after an hour on record: a live one, by the time of the world
            assert time.perf_counter() - before > 0.04

    async def live() -> float:
        with everstep.capture(trail, "live"):
            before = time.perf_counter()
            await asyncio.sleep(0.2)
            return time.perf_counter() - before

    async def both() -> float:
        taken, _ = await asyncio.gather(live(), resumed(fails=False))
        return taken

    with pytest.raises(KeyError):
        asyncio.run(resumed(fails=True))
    pause = 3600.0
    assert asyncio.run(asyncio.wait_for(both(), 60)) > 0.19
    assert {run.status for run in trail.runs()} == {Status.COMPLETED}


async def _asks(client: httpx.AsyncClient, number: int) -> str:
    return str((await client.get(f"/plain/{number}")).json()["counter"])


async def _gathers(client: httpx.AsyncClient, last: int) -> list[str]:
    return list(await asyncio.gather(_asks(client, 1), _asks(client, last)))


async def _groups(client: httpx.AsyncClient, last: int) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_asks(client, number)) for number in (1, last)]
    return [task.result() for task in tasks]


async def _awaits_jobs(client: httpx.AsyncClient, last: int) -> list[str]:
    def ask(number: int) -> str:
        return str(httpx.get(f"{str(client.base_url).rstrip('/')}/plain/{number}").json()["counter"])

    return list(await asyncio.gather(*(asyncio.to_thread(ask, number) for number in (1, last))))


async def _has_workers(client: httpx.AsyncClient, last: int) -> list[str]:
    """Nobody awaits what they come to: who waits for the queue would do so for ever."""
    jobs: asyncio.Queue[int] = asyncio.Queue()
    said: list[str] = []

    async def work() -> None:
        while True:
            said.append(await _asks(client, await jobs.get()))
            jobs.task_done()

    workers = [asyncio.create_task(work()) for _ in range(2)]
    for number in (1, last):
        jobs.put_nowait(number)
    await jobs.join()
    for worker in workers:
        worker.cancel()
    return said


async def _is_called_back(client: httpx.AsyncClient, last: int) -> list[str]:
    """Nobody awaits a callback either."""
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    url = f"{str(client.base_url).rstrip('/')}/plain/{last}"
    asyncio.get_running_loop().call_soon(lambda: told.set_result(httpx.get(url).json()["counter"]))
    return [str(await told)]


async def _waits(begin: Callable[[Callable[[], None]], None], client: httpx.AsyncClient, last: int) -> list[str]:
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    said: list[str] = []

    def ask() -> None:
        said.append(httpx.get(f"{str(client.base_url).rstrip('/')}/plain/{last}").json()["counter"])
        loop.call_soon_threadsafe(asked.set)

    begin(ask)
    await asked.wait()
    return said


def _in_thread(ask: Callable[[], None]) -> None:
    threading.Thread(target=ask).start()


def _as_job(ask: Callable[[], None]) -> None:
    asyncio.get_running_loop().run_in_executor(None, ask)


async def _talks_with_a_process(client: httpx.AsyncClient, last: int) -> list[str]:
    """What it says differs before it was its turn to say something: a task of ours finds that."""
    del client
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", "echo ready; read word; echo $word", stdin=PIPE, stdout=PIPE
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    said = [await shell.stdout.readline()] if last == 2 else []
    shell.stdin.write(b"%d\n" % last)
    said += [await shell.stdout.readline(), await shell.stdout.read()]
    await shell.wait()
    return [each.decode() for each in said]


_waits_for_thread, _waits_for_job = functools.partial(_waits, _in_thread), functools.partial(_waits, _as_job)
PROGRAMS = [
    _gathers, _groups, _awaits_jobs, _has_workers, _is_called_back, _waits_for_thread, _waits_for_job,
    _talks_with_a_process,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_task_that_asks_for_something_else_ends_its_own_program_alone(
    server: ModelServer, trail: Trail, program: Any
) -> None:
    async def captured(last: int, **how: Any) -> list[str]:
        with everstep.capture(trail, "x", **how):
            async with httpx.AsyncClient(base_url=server.url) as client:
                return list(await program(client, last))

    async def replayed_beside_another() -> float:
        beside = asyncio.create_task(asyncio.sleep(0.3, 1.5))
        task = asyncio.current_task()
        with pytest.raises(DivergenceError):
            await asyncio.wait_for(captured(3, mode="verify"), 20)
        assert task is not None
        assert program is _groups or not task.cancelling()  # a group leaves its task so, before 3.13
        return await beside

    recorded = asyncio.run(captured(2))
    assert asyncio.run(asyncio.wait_for(replayed_beside_another(), 60)) == 1.5
    assert asyncio.run(captured(2, mode="verify")) == recorded


def test_each_of_several_programs_draws_its_own_chance_and_code_beside_them_that_of_the_process(
    server: ModelServer, trail: Trail
) -> None:
    """Replayed alone each draws the same, though others drew in between when it was recorded."""

    def drawn() -> list[str]:
        name = Path(tempfile.mktemp()).name
        return [
            str(random.random()),
            random.choice("abcdefgh"),
            *(str(getattr(uuid, each)()) for each in UUIDS),
            name,
            str(random.sample(range(99), 3)),
        ]

    async def draws(run_id: str, **how: Any) -> list[str]:
        with everstep.capture(trail, run_id, **how):
            found = []
            async with httpx.AsyncClient(base_url=server.url) as client:
                for number in range(3):
                    found += drawn()
                    await client.get(f"/plain/{number}")
        return found

    def draws_in_thread(run_id: str, **how: Any) -> list[str]:
        with everstep.capture(trail, run_id, **how):
            return [each for number in range(3) for each in (*drawn(), httpx.get(f"{server.url}/plain/{number}").text)]

    async def beside(times: int) -> list[float]:
        found = []
        for _ in range(times):
            found.append(random.random())
            await asyncio.sleep(0.002)
        return found

    async def together() -> list[Any]:
        threads = (asyncio.to_thread(draws_in_thread, f"thread {number}") for number in range(2))
        return await asyncio.gather(beside(20), *(draws(f"task {number}") for number in range(3)), *threads)

    random.seed(7)
    expected = [random.random() for _ in range(21)]
    random.seed(7)
    node, names = uuid.getnode(), vars(tempfile)["_name_sequence"]
    drew, *recorded = asyncio.run(together())
    assert [*drew, random.random()] == expected
    assert (uuid.getnode(), vars(tempfile)["_name_sequence"]) == (node, names)
    replayed = [asyncio.run(draws(f"task {number}", mode="verify")) for number in range(3)]
    replayed += [draws_in_thread(f"thread {number}", mode="verify") for number in range(2)]
    assert replayed == recorded
    assert len({run[0] for run in recorded}) == 5


def test_code_beside_one_program_draws_from_the_chance_of_the_process(server: ModelServer, trail: Trail) -> None:
    """It draws as often as it comes to it, in the recording and in the replay."""

    async def draws(**how: Any) -> list[float]:
        with everstep.capture(trail, "x", **how):
            found = []
            async with httpx.AsyncClient(base_url=server.url) as client:
                for number in range(3):
                    found.append(random.random())
                    await client.get(f"/plain/{number}")
        return found

    async def draws_beside(times: int, **how: Any) -> list[float]:
        program = asyncio.create_task(draws(**how))
        for _ in range(times):
            random.random()
            await asyncio.sleep(0.001)
        return await program

    recorded = asyncio.run(draws_beside(50))
    assert asyncio.run(draws_beside(5, mode="verify")) == recorded


def test_the_answers_of_a_block_wait_for_threads_of_its_own_alone(server: ModelServer, trail: Trail) -> None:
    def ask(number: int = 0) -> str:
        return httpx.get(f"{server.url}/plain/{number}").text

    over = threading.Event()
    beside = threading.Thread(target=over.wait)
    beside.start()
    for how in ({}, {"mode": "verify"}):
        with everstep.capture(trail, "alone", **how) as session:  # type: ignore[arg-type] # one of its modes
            ask()
            assert not session.gate.shared
        with everstep.capture(trail, "with another", **how) as session:  # type: ignore[arg-type] # as above
            asking = threading.Thread(target=ask, args=(1,))
            asking.start()
            ask()
            asking.join()
            assert session.gate.shared
    over.set()
    beside.join()


def test_each_of_several_programs_ends_its_own_process_by_a_number_that_all_have_on_record(trail: Trail) -> None:
    async def captured(**how: Any) -> tuple[bytes, int]:
        with everstep.capture(trail, "x", **how):
            shell = await asyncio.create_subprocess_exec(
                "sh", "-c", "echo ready; sleep 60", stdout=PIPE, start_new_session=True
            )
            assert shell.stdout is not None
            said = await shell.stdout.readline()
            await asyncio.sleep(0.01)
            os.killpg(os.getpgid(shell.pid), signal.SIGTERM)
            return said, await shell.wait()

    async def together() -> list[tuple[bytes, int]]:
        return list(await asyncio.wait_for(asyncio.gather(*(captured(mode="verify") for _ in range(3))), 30))

    recorded = asyncio.run(captured())
    assert recorded == (b"ready\n", -signal.SIGTERM)
    assert asyncio.run(together()) == [recorded] * 3


def test_what_draws_can_be_handed_to_another_process_while_programs_are_captured(trail: Trail) -> None:
    with everstep.capture(trail, "x"):
        for draw in (random.uniform, random.random, random.seed, uuid.uuid1):
            assert pickle.loads(pickle.dumps(draw)) is draw
