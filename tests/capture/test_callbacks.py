"""Promise 6: what is called when a job of a pool has ended finds the same in every replay, whoever calls it."""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import httpx
import pytest

import everstep
from everstep.capturing import clock
from everstep.capturing.session import Session
from everstep.errors import DivergenceError
from everstep.trail.trail import Trail
from tests.capture.sensing import Ask, Ground
from tests.capture.server import ModelServer

JOBS = 6
Found = dict[int, tuple[Any, ...]]
Told = Callable[[int, Any], None]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as opened:
        yield Ground(opened, server.url)


def jobs_that_are_at_work(ask: Ask, told: Told) -> None:
    with ThreadPoolExecutor(3) as pool:
        for number in range(JOBS):
            pool.submit(ask, f"plain/{number}").add_done_callback(functools.partial(told, number))


def jobs_that_have_ended(ask: Ask, told: Told) -> None:
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(ask, f"plain/{number}") for number in range(JOBS)]
    for number, job in enumerate(jobs):
        job.add_done_callback(functools.partial(told, number))


def jobs_that_end_others(ask: Ask, told: Told) -> None:
    promised: list[Future[str]] = [Future() for _ in range(JOBS)]
    for number, future in enumerate(promised):
        future.add_done_callback(functools.partial(told, number))
    with ThreadPoolExecutor(3) as pool:
        for number, future in enumerate(promised):
            pool.submit(lambda number, future: future.set_result(ask(f"plain/{number}")), number, future)


def jobs_of_the_other_pools(ask: Ask, told: Told) -> None:
    with ThreadPool(3) as pool:
        for number in range(1, JOBS):
            pool.apply_async(ask, (f"plain/{number}",), callback=functools.partial(told, number))
        pool.map_async(ask, ["plain/0"], None, functools.partial(told, 0))
        pool.close()
        pool.join()


def jobs_that_a_loop_waits_for(ask: Ask, told: Told) -> None:
    async def main() -> None:
        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(ask, f"plain/{number}") for number in range(JOBS)]
            for number, job in enumerate(jobs):
                job.add_done_callback(functools.partial(told, number))
            await asyncio.gather(*map(asyncio.wrap_future, jobs))

    asyncio.run(main())


@pytest.mark.parametrize(
    "program",
    [
        jobs_that_are_at_work, jobs_that_have_ended, jobs_that_end_others, jobs_of_the_other_pools,
        jobs_that_a_loop_waits_for,
    ],
)  # fmt: skip
def test_what_is_called_after_a_job_asks_draws_and_sees_the_time_as_it_did(
    ground: Ground, program: Callable[[Ask, Told], None]
) -> None:
    def written(ask: Ask, session: Session) -> Found:
        found: Found = {}

        def told(number: int, job: Any) -> None:
            gave = job.result() if isinstance(job, Future) else job
            found[number] = time.time(), str(uuid.uuid4()), gave, ask(f"plain/after?{number}")

        program(ask, told)
        return found

    recorded = ground.go(written)
    assert len(recorded) == JOBS
    for _ in range(3):
        assert ground.go(written, "verify") == recorded


def test_what_is_called_after_a_job_has_the_context_that_it_has_without_us(ground: Ground) -> None:
    name = ContextVar("name", default="of the pool")

    def written(ask: Ask, session: Session) -> list[str]:
        seen, lets_go = list[str](), Future[None]()
        name.set("of the program")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lets_go.result).add_done_callback(lambda _: seen.append(name.get()))
            lets_go.set_result(None)
        return seen

    assert ground.go(written) == ["of the pool"]


class Taken(WeakKeyDictionary[Any, Any]):
    """Lanes of which each is taken right after somebody saw that it is there, as another thread may."""

    def __contains__(self, key: object) -> bool:
        is_there = super().__contains__(key)
        self.pop(key, None)
        return is_there


def test_a_callback_is_called_though_another_thread_takes_the_lane_of_the_job(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_lanes", Taken())
    called: list[Future[str]] = []
    with everstep.capture(trail, "x"), ThreadPoolExecutor(1) as pool:
        pool.submit(str).add_done_callback(called.append)
    assert [job.result() for job in called] == [""]


def test_a_callback_that_asks_for_something_else_leaves_the_thread_of_its_pool_to_others(ground: Ground) -> None:
    def answers(last: int, **how: Any) -> list[str]:
        said = []
        with everstep.capture(ground.trail, "x", **how), ThreadPoolExecutor(1) as pool:
            told = pool.submit(httpx.get, f"{ground.url}/plain/1")
            told.add_done_callback(lambda _: said.append(httpx.get(f"{ground.url}/plain/{last}").text))
            said.append(told.result().text)
            pool.submit(lambda: None).result(20)
        return sorted(said)

    recorded = answers(2)
    with pytest.raises(DivergenceError) as parted:
        answers(3, mode="verify")
    assert parted.value.__context__ is None
    assert answers(2, mode="verify") == recorded
