"""Everstep with the whole runner in the path: a workflow of steps, bound, digested, asked for, recorded."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import everstep
from benchmarks import workloads
from benchmarks.report import Case, set_apart
from everstep import current, step, workflow

DURABILITY = "WAL, FULL, 1 commit per step, shared by those who wait"
AGENTS = 100
_changes: list[tuple[dict[str, Any], dict[str, Any]]] = []  # what the agent says at each step, made beforehand


@step(output="document")
def load() -> str:
    """The constant document of W1."""
    return workloads.document()


@step(name="agent", output="messages", append=True)
def agent(number: int) -> dict[str, Any]:
    """A step of W1: it appends a message and replaces the scratchpad."""
    message, current().state["scratchpad"] = _changes[number]
    return message


@step(name="agent", output="messages", append=True)
async def awaited_agent(number: int) -> dict[str, Any]:
    """The same, awaited."""
    message, current().state["scratchpad"] = _changes[number]
    return message


@workflow
def w1(steps: int, seconds: list[float]) -> int:
    """W1 by one run."""
    load()
    for number in range(steps):
        start = perf_counter()
        agent(number)
        seconds.append(perf_counter() - start)
    return steps


@workflow
async def awaited_w1(steps: int, seconds: list[float]) -> int:
    """W1 by one run on an event loop."""
    load()
    for number in range(steps):
        start = perf_counter()
        await awaited_agent(number)
        seconds.append(perf_counter() - start)
    return steps


class _Seconds(list[float]):
    """Where a workflow puts its times; no part of what it is asked."""

    def __everstep_digest__(self) -> str:
        return "seconds"


def _prepare(steps: int) -> None:
    if len(_changes) < steps:
        _changes[:] = workloads.w1(steps)


def sync_run(directory: Path, steps: int) -> list[float]:
    """One run, one thread."""
    _prepare(steps)
    seconds = _Seconds()
    with everstep.open(directory / "trail.db") as trail:
        everstep.Runner(trail).run(w1, steps, seconds, id="w1")
    return seconds


def async_run(directory: Path, steps: int) -> list[float]:
    """One run on an event loop."""
    _prepare(steps)
    seconds = _Seconds()
    with everstep.open(directory / "trail.db") as trail:
        asyncio.run(everstep.AsyncRunner(trail).run(awaited_w1, steps, seconds, id="w1"))
    return seconds


@workflow
async def one_of_many(first: int, steps: int, marks: list[float]) -> int:
    """One run of W2, without the document."""
    for number in range(first, first + steps):
        await awaited_agent(number)
        marks.append(perf_counter())
    return steps


def fleet(directory: Path, steps: int) -> list[float]:
    """W2 in a file."""
    return fleet_on(str(directory / "trail.db"), steps)


def fleet_on(url: str, steps: int) -> list[float]:
    """W2: 100 runs of `steps` steps at once on one event loop. Seconds between acknowledged steps."""
    _prepare(AGENTS * steps)
    marks = _Seconds()

    async def main() -> None:
        with everstep.open(url) as trail:
            runner = everstep.AsyncRunner(trail)
            marks.append(perf_counter())
            async with asyncio.TaskGroup() as group:
                for number in range(AGENTS):
                    group.create_task(runner.run(one_of_many, number * steps, steps, marks, id=f"w2-{number}"))

    asyncio.run(main())
    return [after - before for before, after in pairwise(marks)]


def ticker_lag(directory: Path, steps: int) -> float:
    """How late a timer of 1 ms is, p99 in milliseconds, while 100 agents record on the same loop."""
    _prepare(AGENTS * steps)

    async def main() -> list[float]:
        late: list[float] = []
        with everstep.open(directory / "trail.db") as trail:
            runner = everstep.AsyncRunner(trail)

            async def tick() -> None:
                while True:
                    due = perf_counter() + 0.001
                    await asyncio.sleep(0.001)
                    late.append((perf_counter() - due) * 1e3)

            ticker = asyncio.create_task(tick())
            await asyncio.gather(
                *(runner.run(paced, number * steps, steps, id=f"t-{number}") for number in range(AGENTS))
            )
            ticker.cancel()
        return late

    set_apart()
    late = sorted(asyncio.run(main()))
    return late[int(len(late) * 0.99)]


@workflow
async def paced(first: int, steps: int) -> int:
    """A run whose agent thinks for a while before each step, as agents do."""
    for number in range(first, first + steps):
        await asyncio.sleep(0.02)
        await awaited_agent(number)
    return steps


class _Stop(Exception):  # noqa: N818 - not an error: how a benchmark leaves a run unfinished
    """Ends a run in the middle."""


@step(name="small")
def small(number: int) -> int:
    """A step with next to nothing in it."""
    return number


@workflow
def many_small(steps: int, until: list[float]) -> int:
    """Steps, then an error the first time."""
    for number in range(steps):
        small(number)
    if not until:
        until.append(1)
        raise _Stop
    return steps


def resume(directory: Path, steps: int) -> float:
    """Microseconds for each recorded step until a run that is resumed takes its first new one."""
    until = _Seconds()
    with everstep.open(directory / "trail.db") as trail:
        runner = everstep.Runner(trail, durability="exit")
        with suppress(_Stop):
            runner.run(many_small, steps, until, id="r")
        start = perf_counter()
        runner.run(many_small, steps, until, id="r")
        return (perf_counter() - start) / steps * 1e6


def replay(directory: Path, steps: int, mode: Literal["recorded", "verify"]) -> float:
    """Microseconds for each step of a run that is replayed."""
    until = [1.0]
    with everstep.open(directory / "trail.db") as trail:
        everstep.Runner(trail, durability="exit").run(many_small, steps, until, id="r")
        start = perf_counter()
        if not trail.replay("r", many_small, mode=mode).identical:
            raise AssertionError
        return (perf_counter() - start) / steps * 1e6


def without_store(steps: int) -> float:
    """Microseconds for a step of a run that is not stored."""
    until = _Seconds([1.0])
    runner = everstep.Runner()
    start = perf_counter()
    runner.run(many_small, steps, until)
    return (perf_counter() - start) / steps * 1e6


def import_milliseconds(repeats: int = 7) -> float:
    """What `import everstep` costs over a bare interpreter. Its names are loaded when they are first used."""
    bare = _wall([sys.executable, "-c", "pass"], repeats)
    return _wall([sys.executable, "-c", "import everstep"], repeats) - bare


def runs_command(directory: Path, repeats: int = 7) -> float:
    """Milliseconds of `everstep runs` on a small trail, from start to end."""
    path = directory / "trail.db"
    with everstep.open(path) as trail:
        for _ in range(20):
            everstep.Runner(trail).run(many_small, 3, _Seconds([1.0]))
    return _wall([sys.executable, "-m", "everstep", "runs", "--trail", str(path)], repeats)


def _wall(command: list[str], repeats: int) -> float:
    """Milliseconds of a command whose modules are compiled, as they are after its first use."""
    taken = []
    with tempfile.TemporaryDirectory() as compiled:
        known = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        for _ in range(repeats + 1):
            start = perf_counter()
            subprocess.run(  # noqa: S603 - our own words
                command, check=True, stdout=subprocess.DEVNULL, env={**known, "PYTHONPYCACHEPREFIX": compiled}
            )
            taken.append((perf_counter() - start) * 1e3)
    return statistics.median(taken[1:])


SYNC = Case("everstep, runner", sync_run, DURABILITY)
ASYNC = Case("everstep, async runner", async_run, DURABILITY)
FLEET = Case("everstep, 100 workflows", fleet, DURABILITY)
