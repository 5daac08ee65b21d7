"""Sleeps and timeouts: a replay waits for none of them, and they end where they ended."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep.capturing.session import Mode, Session
from everstep.journal.track import FIRED
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


def test_jobs_of_a_resumed_program_go_on_in_their_turn_while_a_call_is_under_way(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.capturing.sleeping._PATIENCE", 5.0)

    async def main(stop: bool) -> list[str]:  # noqa: FBT001 - of this test
        async with httpx.AsyncClient(base_url=ground.url) as client:

            async def asks(path: str) -> str:
                return (await client.get(path)).text

            async def works() -> str:
                said = ""
                for number in range(3):
                    said = await asyncio.to_thread(str.upper, said) + await asks(f"plain/{number}")
                if stop:
                    raise KeyboardInterrupt
                return said

            return list(await asyncio.gather(asks("slow?s=1"), works()))

    with pytest.raises(KeyboardInterrupt):
        ground.go(lambda ask, session: asyncio.run(main(stop=True)))
    before = time.monotonic()
    said = ground.go(lambda ask, session: asyncio.run(main(stop=False)))
    assert time.monotonic() - before < 5
    assert ground.go(lambda ask, session: asyncio.run(main(stop=False)), "verify") == said


def test_a_timeout_that_was_kept_is_kept_however_long_a_job_takes(ground: Ground) -> None:
    limit, work = 20.0, 0.0

    def job() -> str:
        until = time.monotonic() + work
        while time.monotonic() < until:
            pass
        return "done"

    async def waits() -> str:
        return await asyncio.wait_for(asyncio.to_thread(job), limit)

    def written(ask: Ask, session: Session) -> str:
        return asyncio.run(waits())

    assert ground.go(written) == "done"
    limit, work = 0.1, 0.4
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


def test_no_timer_ends_before_its_time(ground: Ground) -> None:
    """A rate limiter that is woken too early waits once more, by a timer that is not on record."""

    async def waits() -> list[bool]:
        loop, late = asyncio.get_running_loop(), list[bool]()
        for at in range(10):
            woken, due = asyncio.Event(), loop.time() + 0.01 + at / 10_000
            loop.call_at(due, woken.set)
            await woken.wait()
            late.append(loop.time() >= due)
        return late

    def written(ask: Ask, session: Session) -> list[bool]:
        return asyncio.run(waits())

    assert ground.go(written) == [True] * 10
    assert ground.go(written, "verify") == [True] * 10


def test_timers_of_one_time_that_do_the_same_are_several(ground: Ground) -> None:
    name = ContextVar[str]("name")

    async def times() -> str:
        loop, told = asyncio.get_running_loop(), list[str]()
        due = loop.time() + 0.01

        def tell() -> None:
            told.append(name.get())

        async def timed(own: str) -> None:
            name.set(own)
            loop.call_at(due, tell)

        await asyncio.gather(*map(timed, "abc"))
        await asyncio.sleep(0.02)
        return "".join(told)

    def written(ask: Ask, session: Session) -> str:
        return asyncio.run(times())

    told = ground.go(written)
    assert sorted(told) == ["a", "b", "c"]
    assert ground.go(written, "verify") == told


def test_a_method_that_is_named_as_the_round_of_a_loop_sees_the_time_of_its_program(ground: Ground) -> None:
    class Poller:
        async def _run_once(self) -> float:
            return asyncio.get_running_loop().time()

    async def polls() -> bool:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        return await Poller()._run_once() - before > 0.04

    assert ground.twice(lambda ask, session: asyncio.run(polls())) == (True, True)


def test_a_sleep_without_end_ends_when_it_is_cancelled(ground: Ground) -> None:
    async def waits() -> str:
        endless = asyncio.create_task(asyncio.sleep(math.inf))
        async with asyncio.timeout(math.inf):
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(endless, 0.01)
        return "cancelled"

    assert ground.twice(lambda ask, session: asyncio.run(waits())) == ("cancelled", "cancelled")


def test_a_timer_ends_no_moment_before_the_time_it_was_set_for(ground: Ground) -> None:
    async def ends(delay: float) -> int:
        loop = asyncio.get_running_loop()
        deadline, over, looks = loop.time() + delay, asyncio.Event(), 0

        def look() -> None:  # as anyio does
            nonlocal looks
            looks += 1
            if loop.time() >= deadline:
                over.set()
            else:
                loop.call_at(deadline, look)

        loop.call_at(deadline, look)
        await over.wait()
        return looks

    async def several() -> list[int]:
        return [await ends(delay) for delay in (0.0101, 0.0104, 0.01, 0.0204)]

    assert ground.twice(lambda ask, session: asyncio.run(several())) == ([1] * 4, [1] * 4)


def test_a_time_limit_begins_when_it_is_set_however_long_the_program_had_slept(ground: Ground) -> None:
    pause = 0.01

    def works() -> str:
        end = time.perf_counter() + 0.1
        while time.perf_counter() < end:
            pass
        return "done"

    async def limited() -> tuple[str, bool]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with asyncio.timeout(60):
            done = await loop.run_in_executor(None, works)
        return done, loop.time() - before < 60

    def written(ask: Ask, session: Session) -> tuple[str, bool]:
        time.sleep(pause)
        return asyncio.run(limited())

    assert ground.go(written) == ("done", True)
    pause = 3600.0
    assert ground.go(written, "verify") == ("done", True)


def test_a_call_that_waits_for_its_place_sets_no_timer_of_the_program(ground: Ground) -> None:
    async def moved(*, is_new: bool) -> None:
        async with httpx.AsyncClient(base_url=ground.url) as client:

            async def beside() -> None:
                await client.get("plain/0")  # which is on record where this task was started
                await asyncio.sleep(0.01)

            task = asyncio.create_task(beside()) if is_new else None
            await asyncio.sleep(0.05)
            await client.get("plain/0")
            if task is None:
                raise KeyError
            await task

    def written(*, is_new: bool) -> Callable[..., None]:
        return lambda ask, session: asyncio.run(moved(is_new=is_new))

    with pytest.raises(KeyError):
        ground.go(written(is_new=False))
    ground.go(written(is_new=True))
    timers = [timer for step in ground.trail.steps("run") for timer in (step.metadata or {}).get(FIRED, ())]
    assert {number for _, lane, number, _ in timers if "beside" in lane} == {1}


def test_timers_that_are_due_at_once_end_one_after_the_other_in_a_task_that_has_no_others(tmp_path: Path) -> None:
    """Work that takes longer than they do makes them so; what was in time is then, too, in a replay."""

    async def works_long(mode: Mode) -> list[str]:
        with everstep.capture(trail, "x", mode=mode):
            loop, told = asyncio.get_running_loop(), list[str]()
            done = loop.create_future()
            loop.call_later(0.001, done.set_result, None)
            loop.call_later(0.002, told.append, "timer")
            began = time.perf_counter()
            while time.perf_counter() - began < 0.02:
                pass
            await done
            told.append("done")
            await asyncio.sleep(0.01)
            return told

    with everstep.open(tmp_path / "own.db") as trail:
        recorded = asyncio.run(works_long("record"))
        assert asyncio.run(works_long("verify")) == recorded == ["done", "timer"]


def test_tasks_that_are_started_within_a_timeout_have_lanes_of_their_own(tmp_path: Path) -> None:
    """On each Python: `wait_for` starts a task for what it is given up to 3.11, and none from 3.12 on."""

    async def both(client: httpx.AsyncClient, url: str) -> list[Any]:
        return await asyncio.gather(*(client.get(f"{url}/plain/{number}") for number in range(2)))

    async def program(url: str) -> None:
        async with httpx.AsyncClient() as client:
            await asyncio.wait_for(both(client, url), 60)

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            asyncio.run(program(server.url))
        lanes = sorted(step.lane for step in trail.steps("x") if step.name.startswith("GET"))
    own = "task:test_tasks_that_are_started_within_a_timeout_have_lanes_of_their_own.<locals>.program#0@0"
    assert lanes == [f"{own}/task:AsyncClient.get#{number}@0" for number in range(2)]
