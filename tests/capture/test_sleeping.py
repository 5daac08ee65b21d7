"""Sleeps and timeouts: a replay waits for none of them, and they end where they ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import everstep
from everstep.capturing.session import Session
from tests.capture.sensing import Ask, Ground, program
from tests.capture.server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


@pytest.fixture
def ground(tmp_path: Path, server: ModelServer) -> Iterator[Ground]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield Ground(opened, server.url)


def test_sleeps_timeouts_and_answers_end_in_the_same_order(server: ModelServer, tmp_path: Path) -> None:
    recorded = program("sleeper", "record", server.url, tmp_path)
    assert (recorded.returncode, recorded.stderr) == (0, "")
    server.stop()
    for _ in range(2):
        replayed = program("sleeper", "verify", server.url, tmp_path)
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


def test_a_replay_sleeps_through_nothing(ground: Ground) -> None:
    pause = 0.01

    async def sleeps() -> str:
        await asyncio.sleep(pause)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), pause)
        try:
            async with asyncio.timeout(pause):
                await asyncio.sleep(2 * pause)
        except TimeoutError:
            return "over"
        return "slept"

    def written(ask: Ask, session: Session) -> str:
        time.sleep(pause)
        return asyncio.run(sleeps())

    assert ground.go(written) == "over"
    pause = 3600.0
    assert ground.go(written, "verify") == "over"


def test_a_resumed_program_sleeps_only_from_where_it_was_left(ground: Ground) -> None:
    pauses, slept = [0.01, 0.01], list[str]()

    async def sleeps(ask: Ask, stop: bool) -> None:  # noqa: FBT001 - of this test
        await asyncio.sleep(pauses[0])
        ask("plain/1")
        if stop:
            raise KeyboardInterrupt
        await asyncio.sleep(pauses[1])
        slept.append("really")

    def written(stop: bool) -> Callable[..., None]:  # noqa: FBT001 - of this test
        return lambda ask, session: asyncio.run(sleeps(ask, stop))

    with pytest.raises(KeyboardInterrupt):
        ground.go(written(stop=True))
    pauses[0] = 3600.0
    before = time.monotonic()
    pauses[1] = 0.2
    ground.go(written(stop=False))
    assert (slept, time.monotonic() - before >= 0.2) == (["really"], True)


def test_a_timeout_that_was_kept_is_kept_however_long_a_job_takes(ground: Ground) -> None:
    work = 0.0

    def job() -> str:
        until = time.monotonic() + work
        while time.monotonic() < until:
            pass
        return "done"

    async def waits() -> str:
        return await asyncio.wait_for(asyncio.to_thread(job), 0.3)

    def written(ask: Ask, session: Session) -> str:
        return asyncio.run(waits())

    assert ground.go(written) == "done"
    work = 0.6
    assert ground.go(written, "verify") == "done"


def test_after_a_timer_the_clock_is_that_of_the_record_for_however_long_it_was_set(ground: Ground) -> None:
    """A rate limiter waits for what is left of its period, which depends on how long the code itself took."""
    pause = 0.01

    async def sleeps(ask: Ask) -> float:
        await asyncio.sleep(pause)
        ask(f"plain/{time.time()}")
        return time.time()

    def written(ask: Ask, session: Session) -> float:
        return asyncio.run(sleeps(ask))

    first = ground.go(written)
    pause = 0.0123
    assert ground.go(written, "verify") == first
