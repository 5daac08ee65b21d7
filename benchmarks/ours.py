"""Everstep's side of the comparisons: the same work, through the trail, with a full record of every step."""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import everstep
from benchmarks import workloads
from benchmarks.report import Case

DURABILITY = "WAL, FULL, 1 commit per step, shared by those who wait"
WRITERS = 100
_USAGE = {"input_tokens": 812, "output_tokens": 133, "model": "a-model-mini"}


def _detail(step: int, change: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Everything a runner would say of a step that appends a message and replaces the scratchpad."""
    message, scratchpad = change
    return {
        "append": {"messages": [message]},
        "set": {"scratchpad": scratchpad},
        "usage": _USAGE,
        "duration_ms": 4.0,
        "lane": "0",
        "index": step,
        "superstep": step,
        "input_digest": b"0123456789abcdef",
        "fingerprint": "f1",
    }


def fill(path: Path | str, steps: int) -> list[float]:
    """A closed trail with one run of W1, and the seconds of each step."""
    details = [_detail(step, change) for step, change in enumerate(workloads.w1(steps))]
    seconds = []
    with everstep.open(path) as trail:
        run = trail.record("w1", workflow="w1")
        run.step("load", set={"document": workloads.document()})
        for detail in details:
            start = perf_counter()
            run.step("agent", **detail)
            seconds.append(perf_counter() - start)
        run.release()
    return seconds


def sync_w1(directory: Path, steps: int) -> list[float]:
    """One run, one thread: the caller commits."""
    return fill(directory / "trail.db", steps)


def async_w1(directory: Path, steps: int) -> list[float]:
    """One run on an event loop: a background thread commits."""

    async def main() -> list[float]:
        details = [_detail(step, change) for step, change in enumerate(workloads.w1(steps))]
        seconds = []
        async with await everstep.AsyncTrail.open(directory / "trail.db") as trail:
            run = await trail.record("w1", workflow="w1")
            await run.step("load", set={"document": workloads.document()})
            for detail in details:
                start = perf_counter()
                await run.step("agent", **detail)
                seconds.append(perf_counter() - start)
        return seconds

    return asyncio.run(main())


def whole_state(directory: Path, steps: int) -> list[float]:
    """W1 for a caller who hands over the whole state at every step: what changed is found for it."""
    state: dict[str, Any] = {"messages": [], "scratchpad": {}, "document": workloads.document()}
    seconds = []
    with everstep.open(directory / "trail.db") as trail:
        run = trail.record("w1", workflow="w1")
        run.save(state)
        for message, scratchpad in workloads.w1(steps):
            state["messages"].append(message)
            state["scratchpad"] = scratchpad
            start = perf_counter()
            run.save(state)
            seconds.append(perf_counter() - start)
        run.release()
    return seconds


def fleet(directory: Path, steps: int) -> list[float]:
    """W2 in a file."""
    return fleet_on(str(directory / "trail.db"), steps)


def fleet_on(url: str, steps: int) -> list[float]:
    """W2: 100 runs of `steps` steps at once on one event loop, no document. Seconds between acknowledged steps."""

    async def main() -> list[float]:
        details = [_detail(step, change) for step, change in enumerate(workloads.w1(WRITERS * steps))]
        marks: list[float] = []
        async with await everstep.AsyncTrail.open(url) as trail:
            runs = [await trail.record(f"w2-{number}") for number in range(WRITERS)]

            async def write(run: everstep.AsyncRecorder, mine: list[dict[str, Any]]) -> None:
                for detail in mine:
                    await run.step("agent", **detail)
                    marks.append(perf_counter())

            marks.append(perf_counter())
            async with asyncio.TaskGroup() as group:
                for number, run in enumerate(runs):
                    group.create_task(write(run, details[number::WRITERS]))
        return [after - before for before, after in pairwise(marks)]

    return asyncio.run(main())


def _one_of_four(path: str, number: int, steps: int, ready: Any, answers: Any) -> None:
    details = [_detail(step, change) for step, change in enumerate(workloads.w1(steps))]
    with everstep.open(path) as trail:
        run = trail.record(f"p-{number}")
        ready.wait()
        seconds = []
        for detail in details:
            start = perf_counter()
            run.step("agent", **detail)
            seconds.append(perf_counter() - start)
        answers.put((number, seconds))


def four_processes(directory: Path, steps: int) -> dict[str, float]:
    """Four processes on one file, one run each: how long a step takes, and whether one of them starves."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(4), context.Queue()
    path = str(directory / "trail.db")
    everstep.open(path).close()
    processes = [context.Process(target=_one_of_four, args=(path, n, steps, ready, answers)) for n in range(4)]
    for process in processes:
        process.start()
    taken = [answers.get(timeout=120)[1] for _ in processes]
    for process in processes:
        process.join()
    every = sorted(second for seconds in taken for second in seconds)
    totals = [sum(seconds) for seconds in taken]
    return {
        "steps/s": 4 * steps / max(totals),
        "p99 ms": every[int(len(every) * 0.99)] * 1e3,
        "max ms": every[-1] * 1e3,
        "least/most share": min(totals) / max(totals),
    }


def reads(directory: Path, steps: int) -> dict[str, float]:
    """What looking back costs, on a closed trail of W1 opened again."""
    path = directory / "trail.db"
    fill(path, steps)
    with everstep.open(path) as trail:
        middle = steps // 2
        figures = {
            "newest state ms": median_of(lambda: trail.state("w1")) * 1e3,
            f"state at step {middle} ms": median_of(lambda: trail.state("w1", at=middle)) * 1e3,
            f"list {steps} steps ms": median_of(lambda: [(s.id, s.name, s.status) for s in trail.steps("w1")]) * 1e3,
            "list last 10 ms": median_of(lambda: trail.steps("w1", steps - 10)) * 1e3,
            "verify steps/s": (steps + 2) / median_of(lambda: trail.verify("w1")),
            "verify whole trail steps/s": (steps + 2) / median_of(trail.verify),
        }
    figures["open ms"] = median_of(lambda: everstep.open(path).close()) * 1e3
    return figures


def comparison(directory: Path, steps: int) -> float:
    """Seconds that it takes to compare two runs of W1, one of which has a step more and a step changed."""
    with everstep.open(directory / "trail.db") as trail:
        for name in ("a", "b"):
            run = trail.record(name, workflow="w1")
            for step, change in enumerate(workloads.w1(steps)):
                detail = _detail(step, change) | {"index": None}
                if name == "b" and step == steps // 2:
                    run.step("look", output="once more")
                    detail["set"] = {"scratchpad": {"changed": True}}
                run.step("agent", **detail)
            run.finish()
        return median_of(lambda: trail.compare("a", "b"), 3)


def median_of(ask: Callable[[], object], repeats: int = 7) -> float:
    """Seconds that a question takes, the first time left out."""
    seconds = []
    ask()
    for _ in range(repeats):
        start = perf_counter()
        ask()
        seconds.append(perf_counter() - start)
    return statistics.median(seconds)


SYNC = Case("everstep", sync_w1, DURABILITY)
ASYNC = Case("everstep, awaited", async_w1, DURABILITY)
WHOLE = Case("everstep, whole states", whole_state, DURABILITY)
FLEET = Case("everstep, 100 runs", fleet, DURABILITY)
