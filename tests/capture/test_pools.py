"""Jobs of pools of threads. Those of `multiprocessing` have lanes, in workflows and in recorded programs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.capturing.seams import anyio as anyio_seam
from everstep.capturing.session import capture
from everstep.errors import UnknownLayoutError
from tests.capture.server import ModelServer

JOBS = 8
WAYS: dict[str, Callable[[ThreadPool, Callable[[int], Any]], list[Any]]] = {
    "map": lambda pool, job: pool.map(job, range(JOBS)),
    "starmap": lambda pool, job: pool.starmap(job, [(number,) for number in range(JOBS)]),
    "chunks": lambda pool, job: pool.map(job, range(JOBS), chunksize=3),
    "imap": lambda pool, job: list(pool.imap(job, iter(range(JOBS)))),
    "unordered": lambda pool, job: sorted(pool.imap_unordered(job, range(JOBS))),
    "apply": lambda pool, job: [each.get() for each in [pool.apply_async(job, (number,)) for number in range(JOBS)]],
}


@step
def slow(number: int) -> int:
    """The first ones take longest."""
    time.sleep(0.002 * (number % 3))
    return number


@pytest.mark.parametrize("way", WAYS)
def test_the_jobs_of_a_workflow_are_found_again(tmp_path: Path, way: str) -> None:
    @workflow
    def pooled() -> list[int]:
        with ThreadPool(3) as pool:
            return WAYS[way](pool, slow)

    with everstep.open(tmp_path / "trail.db") as trail:
        assert Runner(trail).run(pooled, id="r").value == list(range(JOBS))
        lanes = {entry.lane for entry in trail.steps("r") if entry.kind == "step"}
        assert len(lanes) == JOBS
        for _ in range(3):
            assert trail.replay("r", pooled).identical


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(delay=0.004) as server:
        yield server


@pytest.mark.parametrize("way", [way for way in WAYS if way != "unordered"])
def test_the_jobs_of_a_program_are_answered_as_they_were(tmp_path: Path, server: ModelServer, way: str) -> None:
    def asked() -> list[Any]:
        with httpx.Client() as client, ThreadPool(2) as pool:
            return WAYS[way](pool, lambda number: client.get(f"{server.url}/plain/{number}").json()["counter"])

    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            first = asked()
        for _ in range(3):
            with capture(trail, "run", mode="verify"):
                assert asked() == first
    assert len(server.requests) == JOBS


@pytest.mark.parametrize("pool", [asyncio.to_thread, anyio.to_thread.run_sync], ids=["asyncio", "anyio"])
def test_jobs_that_are_awaited_go_on_in_the_order_of_the_record_whichever_ends_first(tmp_path: Path, pool: Any) -> None:
    def gone_on(order: list[int]) -> list[int]:
        may_end = [threading.Event() for _ in order]
        said = []

        def job(number: int) -> None:
            may_end[number].wait()
            later = order[order.index(number) + 1 :]
            if later:
                may_end[later[0]].set()

        async def use(number: int) -> None:
            await pool(job, number)
            said.append(number)

        async def use_all() -> None:
            may_end[order[0]].set()
            await asyncio.gather(*(use(number) for number in range(len(order))))

        asyncio.run(use_all())
        return said

    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            first = gone_on([2, 0, 3, 1])
        for _ in range(3):
            with capture(trail, "run", mode="verify"):
                assert gone_on([1, 3, 0, 2]) == first


def test_a_job_of_anyio_that_a_limit_gives_up_is_given_up_in_a_replay_and_one_that_is_waited_for_is_not(
    tmp_path: Path,
) -> None:
    async def limited(*, gives_up: bool) -> bool:
        with anyio.move_on_after(0.05) as limit:
            await anyio.to_thread.run_sync(time.sleep, 0.2, abandon_on_cancel=gives_up)
        return limit.cancelled_caught

    async def both() -> tuple[bool, bool]:
        return await limited(gives_up=True), await limited(gives_up=False)

    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            assert asyncio.run(both()) == (True, False)
        for _ in range(3):
            with capture(trail, "run", mode="verify"):
                assert asyncio.run(both()) == (True, False)


def test_a_pool_of_anyio_with_another_layout_is_an_error() -> None:
    other: Any = SimpleNamespace(__name__="anyio._backends._asyncio", AsyncIOBackend=SimpleNamespace())
    with pytest.raises(UnknownLayoutError, match=r"no AsyncIOBackend\.run_sync_in_worker_thread"):
        anyio_seam.patch(other)
