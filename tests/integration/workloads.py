"""Runs that are made to be killed.

Every leaf notes that it begins, in a file that outlives it; every caller, that it got the outcome.

Run as a program without arguments it is a nursery: it reads requests, forks runs, and tells how they ended. With
arguments it is one run.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import psycopg

import everstep
from everstep import AsyncRunner, Graph, Retry, Runner, current, gate, node, step, workflow
from tests.integration.support import ROOT, environment

SIDE = -1  # the file to note in; each process has its own, on the same path
PACE = 0.0  # seconds that a leaf takes, at most


def note(what: str, place: str) -> None:
    """One system call: nothing of it is lost with the process."""
    os.write(SIDE, f"{what} {place}\n".encode())


def begin(place: str) -> int:
    """A leaf begins. What it gives follows from its place."""
    note("begin", place)
    return len(place) * 1000 + sum(place.encode())


@step(append=True, output="leaves")
def leaf(place: str) -> int:
    found = begin(place)
    time.sleep(random.random() * PACE)
    return found


@step(append=True, output="leaves")
async def leaf_later(place: str) -> int:
    found = begin(place)
    await asyncio.sleep(random.random() * PACE)
    return found


@step(external=True, unknown="retry", output=None)
def pay(place: str) -> int:
    return begin(place)


@step(output=None, retry=Retry(attempts=3, backoff=0))
def flaky(place: str) -> int:
    if current().attempt < 3:
        raise OSError(place)
    return begin(place)


@step(output=None)
def picky(place: str) -> int:
    raise ValueError(begin(place))


def got(place: str, value: int) -> int:
    """The caller has the outcome: it was acknowledged."""
    note("ack", place)
    return value


@step(output=None)
def group(place: str) -> int:
    total = sum(got(each, leaf(each)) for each in (f"{place}.{number}" for number in range(2)))
    current().state[place] = total
    return total + got(f"{place}.paid", pay(f"{place}.paid"))


@step(output=None)
async def group_later(place: str) -> int:
    total = 0
    for number in range(2):
        each = f"{place}.{number}"
        total += got(each, await leaf_later(each))
    return total


@workflow
def sync() -> list[int]:
    found = []
    for number in range(5):
        place = f"s{number}"
        found.append(got(place, leaf(place)))
        found.append(group(f"{place}g"))
        current().checkpoint(place)
        try:
            picky(f"{place}p")
        except ValueError as error:
            found.append(got(f"{place}p", error.args[0]))
    found.append(got("flaky", flaky("flaky")))
    return found


async def _branch(name: str) -> list[int]:
    found = []
    for number in range(3):
        place = f"{name}{number}"
        found.append(got(place, await leaf_later(place)))
    found.append(await group_later(f"{name}g"))
    return found


@workflow
async def awaited() -> list[Any]:
    found: list[Any] = [got("first", await leaf_later("first"))]
    for turn in range(2):
        found += await asyncio.gather(*(_branch(f"a{turn}{branch}") for branch in "xyz"))
    for done in asyncio.as_completed([leaf_later(f"c{number}") for number in range(4)]):
        found.append(got("", await leaf_later(f"after {await done}")))
    return [*found[:7], sorted(found[7:])]


def _job(name: str) -> list[int]:
    return [got(place, leaf(place)) for place in (f"{name}{number}" for number in range(4))]


@step(output=None)
def pool(place: str) -> list[list[int]]:
    with ThreadPoolExecutor(3) as workers:
        return list(workers.map(_job, [f"{place}{worker}." for worker in range(3)]))


@workflow
async def parallel() -> list[Any]:
    mixed = await asyncio.gather(
        _branch("px"), asyncio.to_thread(_job, "pt"), group_later("pg"), asyncio.to_thread(pool, "pp")
    )
    return [*mixed, got("last", await leaf_later("last"))]


@workflow
def child(name: str) -> list[int]:
    return [got(f"{name}0", leaf(f"{name}0")), group(f"{name}g"), got(f"{name}1", leaf(f"{name}1"))]


@workflow
async def child_later(name: str) -> list[Any]:
    return list(await asyncio.gather(_branch(f"{name}x"), _branch(f"{name}y")))


@step(output=None)
def with_child(place: str) -> list[int]:
    return [got(place, leaf(place)), *child(f"{place}c")]


@workflow
def nested() -> list[Any]:
    found: list[Any] = [got("n", leaf("n")), *child("n0")]
    found += with_child("n1")
    with ThreadPoolExecutor(2) as workers:
        found += workers.map(child, ["n2", "n3"])
    return [*found, got("end", leaf("end"))]


@workflow
async def nested_later() -> list[Any]:
    found = await asyncio.gather(child_later("m0"), child_later("m1"), leaf_later("m2"))
    return [*found, got("end", await leaf_later("end"))]


@node(output="plan")
def plan() -> int:
    return got("plan", leaf("plan"))


@node(output="left")
def left(plan: int) -> list[int]:
    return [plan, *_job("left")]


@node(output="right")
def right(plan: int) -> int:
    return plan + sum(pool("right")[0]) + got("right.paid", pay("right.paid"))


@node(output="right")
async def right_later(plan: int) -> list[Any]:
    return list(await asyncio.gather(_branch("rx"), _branch("ry"), group_later("rg")))


@node(output=("turn", "seen"))
def look(left: list[int], right: Any, turn: int = 0, seen: list[Any] | None = None) -> tuple[int, list[Any]]:
    place = f"look{turn}"
    return turn + 1, [*(seen or []), got(place, leaf(place)), right]


@gate(when_true="look", when_false="report")
def more(turn: int) -> bool:
    return turn < 3


@node(output="report")
def report(seen: list[Any]) -> int:
    return got("report", leaf("report")) + len(seen)


research = Graph([plan, left, right, look, more, report], name="research")
research_later = Graph([plan, left, right_later, look, more, report], name="research")


KINDS: dict[str, Any] = {
    "sync": sync, "awaited": awaited, "parallel": parallel, "nested": nested, "nested, awaited": nested_later,
    "graph": research, "graph, awaited": research_later,
}  # fmt: skip


def go(
    kind: str, trail: str, run_id: str, side: str, pace: float, lease: float = 120.0, durability: Any = "sync"
) -> Any:
    """One run, to its end: what it gives."""
    global SIDE, PACE
    SIDE, PACE = os.open(side, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), pace
    workload = KINDS[kind]
    with everstep.open(trail) as opened:  # who asks for the run again and again must not use up a server's connections
        if workload.is_async:
            return asyncio.run(AsyncRunner(opened, lease=lease, durability=durability).run(workload, id=run_id)).value
        return Runner(opened, lease=lease, durability=durability).run(workload, id=run_id).value


class Nursery:
    """One interpreter that has everything imported and forks runs on request, so that a kill costs milliseconds."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.workloads"],
            env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # the end of its input is its end
        assert self._process.returncode == 0

    def _ask(self, *question: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, kind: str, trail: str, run_id: str, side: Path, pace: float, durability: str) -> int:
        """A run at work: its process id. What it gives is noted, or why it could not."""
        return self._ask("start", kind, trail, run_id, str(side), pace, 120.0, durability)

    def wait(self, process: int) -> int:
        """How a run ended: the signal as a negative number, or its exit code."""
        return self._ask("wait", process)


def started(kind: str, trail: Path | str, run_id: str, side: Path, pace: float, lease: float = 120.0) -> Any:
    """A run in an interpreter of its own."""
    arguments = map(str, (kind, trail, run_id, side, pace, lease))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.workloads", *arguments],
        env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def stop(process: Any, trail: str) -> None:
    """SIGSTOP between two writes: who is stopped within one keeps the trail's lock, and everybody else out."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        if not _writes(trail):
            return
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.001)


def _writes(trail: str) -> bool:
    """Whether somebody is in the midst of a write to a trail that one process alone uses."""
    if trail.startswith("postgresql:"):
        with psycopg.connect(trail) as connection:
            held = "select 1 from pg_locks where relation = 'everstep_run'::regclass and pid <> pg_backend_pid()"
            return bool(connection.execute(held).fetchall())
    lock = os.open(unquote(urlsplit(trail).path) if trail.startswith("file:") else f"{trail}-lock", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def lines(side: Path) -> list[str]:
    """The complete lines of a file that a killed process wrote."""
    return side.read_text("utf-8").split("\n")[:-1] if side.exists() else []


def until(side: Path, count: int, seconds: float = 30) -> None:
    """Wait until so many lines were written."""
    end = time.monotonic() + seconds
    while len(said := lines(side)) < count:
        assert not any(line.startswith("failed") for line in said), said[-1]
        assert time.monotonic() < end, said
        time.sleep(0.0005)


def _child(arguments: list[Any]) -> None:
    side = arguments[3]
    try:
        result = go(*arguments)
        note("result", json.dumps(result))
        code = 0
    except BaseException as error:  # noqa: BLE001 - a child must never become a second nursery
        traceback.print_exc()
        with open(side, "a", encoding="utf-8") as file:  # noqa: PTH123 - nothing but this is left to do
            file.write(f"failed: {error!r}\n")
        code = 1
    os._exit(code)


def serve() -> None:
    everstep.open(":memory:").close()
    Runner(None).run(_warm)  # loads everything once, for all runs
    alive = set[int]()
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        if what == "wait":
            alive.discard(arguments[0])
            _, status = os.waitpid(arguments[0], 0)
            number = os.waitstatus_to_exitcode(status)
        else:
            number = os.fork()
            if number == 0:
                _child(arguments)
            alive.add(number)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    for number in alive:  # a test that failed has left them at work
        os.kill(number, signal.SIGKILL)


@workflow
def _warm() -> None:
    """Nothing."""


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one, two, three, four, five, six = sys.argv[1:]
        sys.stdout.write(json.dumps(go(one, two, three, four, float(five), float(six))))
    else:
        serve()
