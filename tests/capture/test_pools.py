"""Jobs of `multiprocessing`'s pools of threads: each in a lane of its own, in workflows and in recorded programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.capturing.session import capture
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
