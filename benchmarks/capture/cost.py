"""What recording and replaying cost: a call, a stream, the start of a program, and the bytes that are kept.

Each round runs the program bare and with each tool in turn, every time in a process of its own, against a server in
another. What a recording adds to a call is less than what the machine changes from one process to the next: for that
they are alive together, and take turns.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from operator import sub
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx2

import everstep
from benchmarks import floor, workloads
from benchmarks.capture import together
from benchmarks.capture.tools import (
    BARE,
    EVERSTEP_ASYNC,
    EVERSTEP_SYNC,
    FLOOR,
    PROGRAMS,
    STATE,
    Ran,
    Tool,
    environment,
)
from benchmarks.report import Figure, stored_bytes
from tests.capture.running import commits, serving

PROMPT = 3_600  # characters
COMMITTED = 5_000  # bytes of the row in the commit that a synced call may cost: a call with such a prompt, stored plain
DELAY = 0.004  # seconds that the server takes at most, where it takes some time
STARTS = 5  # of a program that does nothing, in each round; the median counts
KEY = "sk-bench-4f6d1c0a9b8e7d2c5b3a1f0e9d8c7b6a5"


@dataclass
class Timed:
    """One tool in one round: milliseconds of each call and stream, of the whole program, of its start; bytes a call."""

    tool: str
    what: str  # bare, memory (answered from memory), committed, record, replay; prompt or paced: as servers answer
    round: int
    calls: list[float] = field(default_factory=list)
    streams: list[float] = field(default_factory=list)
    whole: float = 0.0
    start: float = 0.0
    bytes: float = 0.0  # kept for a call
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def median(self) -> float:
        return statistics.median(self.calls)


class Course:
    """The program with its prompts, and a server that answers at once."""

    def __init__(self, folder: Path, url: str, calls: int, streams: int) -> None:
        self.folder, self.calls, self.streams = folder, calls, streams
        prompts = folder / "prompts.json"
        prompts.write_text(json.dumps([workloads.words(PROMPT, seed=number) for number in range(calls + 1)]), "utf-8")
        told = {"BENCH_PROMPTS": str(prompts), "BENCH_COMMITTED": str(COMMITTED)}
        self.environment = environment(url, KEY, folder / "compiled", **told)
        self.nothing = folder / "nothing.py"
        self.nothing.write_text("", "utf-8")

    @staticmethod
    def program(calls: int, streams: int) -> list[str]:
        """How it is called."""
        return [str(PROGRAMS / "calls.py"), str(calls), str(streams)]

    def timed(self, tool: Tool, number: int) -> Iterator[Timed]:
        """One round of one tool."""
        if tool is FLOOR:
            ran = tool.record(self._new(f"floor-{number}"), self.program(self.calls, 0), self.environment)
            yield Timed(tool.name, "committed", number, **read(ran))
            return
        name = tool.name.replace(", ", "-").replace(" ", "-")
        folder, small, empty = (self._new(f"{name}-{number}-{part}") for part in ("all", "calls", "nothing"))
        recorded = read(tool.record(folder, self.program(self.calls, self.streams), self.environment))
        yield Timed(
            tool.name, "bare" if tool is BARE else "record", number,
            start=self._start(tool, empty), bytes=self._bytes(tool, small), **recorded,
        )  # fmt: skip
        if tool is BARE:
            memory = {**self.environment, "BENCH_MEMORY": "1"}
            yield Timed(tool.name, "memory", number, **read(tool.record(folder, self.program(self.calls, 0), memory)))
        else:
            replayed = read(tool.replay(folder, self.program(self.calls, self.streams), self.environment))
            yield Timed(tool.name, "replay", number, **replayed)

    def _start(self, tool: Tool, folder: Path) -> float:
        """Milliseconds of a program that does nothing, from start to end."""
        taken = []
        for number in range(STARTS):
            new = self._new(f"{folder.name}-{number}")
            ran = tool.record(new, [str(self.nothing)], self.environment)
            assert ran.status == 0, ran.stderr
            taken.append(ran.seconds * 1e3)
        return statistics.median(taken)

    def _bytes(self, tool: Tool, folder: Path) -> float:
        """What each further call takes in the files, which are not empty before the first."""
        sizes = []
        for calls in (0, self.calls):
            new = self._new(f"{folder.name}-{calls}")
            ran = tool.record(new, self.program(calls, 0), self.environment)
            assert ran.status == 0, ran.stderr
            sizes.append(stored_bytes(new / STATE))
        return (sizes[1] - sizes[0]) / self.calls

    def _new(self, name: str) -> Path:
        path = self.folder / name
        path.mkdir()
        return path


def read(ran: Ran) -> dict[str, Any]:
    """What the program says of itself in its last line but for what tools say."""
    assert ran.status == 0, ran.stderr
    line = next(line for line in reversed(ran.stderr.splitlines()) if line.startswith('{"calls"'))
    said = json.loads(line)
    return {
        "calls": [second * 1e3 for second in said["calls"]],
        "streams": [second * 1e3 for second in said["streams"]],
        "whole": ran.seconds * 1e3,
    }


def measured(folder: Path, repeats: int, tools: Sequence[Tool], calls: int, streams: int) -> list[Timed]:
    """Every tool in every round; one round comes first and is not reported: it compiles what the others import."""
    found: list[Timed] = []
    with serving(folder, delay=0) as server:
        course = Course(folder, server.url, calls, streams)
        for number in range(repeats + 1):
            for tool in (BARE, FLOOR, *tools):
                found += course.timed(tool, number)
    return [each for each in found if each.round]


def taken(folder: Path, repeats: int, calls: int) -> list[Timed]:
    """Calls alone, of programs that take turns: of a server that answers at once, and of one that takes up to 4 ms."""
    tools, found = (BARE, FLOOR, EVERSTEP_ASYNC, EVERSTEP_SYNC), []
    turns = max(1, calls // together.BLOCK)
    for number in range(1, repeats + 1):
        for what, delay in (("prompt", 0.0), ("paced", DELAY)):
            place = folder / f"{what}-{number}"
            place.mkdir()
            course = Course(place, "", turns * together.BLOCK, 0)
            program = course.program(course.calls, 0)
            ran = together.taken(place, tools, program, course.environment, turns=turns, delay=delay, seed=number)
            found += [Timed(name, what, number, **read(each)) for name, each in ran.items()]
    return found


def one_commit(folder: Path, times: int = 200) -> list[float]:
    """Milliseconds of each commit of a row as large as a call, by SQLite alone, synced, in a loop of nothing else."""
    start = perf_counter()
    seconds = floor.commit_each(folder / f"floor-{start}.db", [os.urandom(COMMITTED) for _ in range(times)])
    return [second * 1e3 for second in seconds]


def counted(folder: Path, calls: int = 20) -> list[int]:
    """The commits that each call of a recording waits for, from the log of its trail, which is not folded so soon."""
    path = folder / "counted.db"
    asked = {"model": "gpt-test", "messages": [{"role": "user", "content": workloads.words(PROMPT, seed=0)}]}
    with (
        serving(folder, delay=0) as server,
        everstep.open(path) as trail,
        everstep.capture(trail, "counted", durability="sync"),
        httpx2.Client(base_url=server.url) as client,
    ):
        counts = [commits(path)]
        for _ in range(calls):
            client.post("/v1/chat/completions", json=asked).raise_for_status()
            counts.append(commits(path))
    return [after - before for before, after in pairwise(counts)]


def figures(found: Sequence[Timed], waited: Sequence[int]) -> list[Figure]:
    """What is asked for, round by round; `waited` are commits, as counted.

    What a synced call takes beside its commit is held against the bare program that commits in the same place, after a
    call: in a loop of nothing else a commit finds all that it needs in the caches.
    """
    by = {(each.tool, each.what, each.round): each for each in found}
    rounds = sorted({each.round for each in found})

    def of(tool: Tool, what: str) -> list[Timed]:
        return [by[tool.name, what, number] for number in rounds]

    def more(tool: Tool, what: str) -> list[tuple[float, float]]:
        """What a call takes on top of the bare one of the same number, and what that takes, in each round."""
        pairs = zip(of(tool, what), of(BARE, what), strict=True)
        return [(statistics.median(map(sub, one.calls, alone.calls)), alone.median) for one, alone in pairs]

    def share(what: str) -> list[float]:
        return [on_top / alone * 100 for on_top, alone in more(EVERSTEP_ASYNC, what)]

    def beside(what: str) -> list[float]:
        return [one - least for (one, _), (least, _) in zip(more(EVERSTEP_SYNC, what), more(FLOOR, what), strict=True)]

    bare, replayed = of(BARE, "bare"), of(EVERSTEP_SYNC, "replay")
    started = [one.start - alone.start for one, alone in zip(of(EVERSTEP_SYNC, "record"), bare, strict=True)]
    apart = [one.median - alone.median for one, alone in zip(replayed, of(BARE, "memory"), strict=True)]
    within, at_once = "answered within 4 ms", "answered at once"
    return [
        Figure(f"recording a call, {within}, durability async: over a bare call", share("paced"), 10.0, unit=" %"),
        Figure(f"the same, {at_once}", share("prompt"), None, unit=" %"),
        Figure(
            "recording a call, durability sync: what it waits for, counted",
            list(map(float, waited)),
            1.0,
            unit=" commits",
        ),
        Figure(f"the same, {within}: beyond a bare call and its commit", beside("paced"), None, unit=" ms"),
        Figure(f"the same, {at_once}: beyond a bare call and its commit", beside("prompt"), None, unit=" ms"),
        Figure("replaying a call", [each.median for each in replayed], 0.7, unit=" ms"),
        Figure("replaying a call: over what the SDK takes for itself", apart, 0.7, unit=" ms"),
        Figure("starting under everstep record: over bare Python", started, 150.0, unit=" ms"),
    ]


def as_json(found: Sequence[Timed]) -> list[dict[str, Any]]:
    """For those who count."""
    return [asdict(each) for each in found]
