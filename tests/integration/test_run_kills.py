"""kill -9 of real processes, at any moment of any workload, also while it is resumed: nothing is lost or repeated."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, StepRecord, Trail
from tests.integration.workloads import KINDS, Nursery, lines
from tests.places import fewer, with_seeds

LEAVES = {"leaf", "leaf_later", "pay", "flaky", "picky"}
PACE = 0.002  # seconds that a leaf takes, at most


def family(trail: Trail, run_id: str) -> list[str]:
    """A run and all below it."""
    found = [run_id]
    for each in found:
        found += [run.id for run in trail.runs(parent=each, limit=1000)]
    return found


def recorded(path: Path | str, run_id: str) -> Counter[str]:
    """The places whose outcome is on disk, with how many rows say so."""
    with everstep.open(path) as trail:
        if all(run.id != run_id for run in trail.runs(limit=100_000)):
            return Counter()
        return Counter(place for each in family(trail, run_id) for place in _leaves(trail.steps(each)))


def _leaves(rows: list[StepRecord]) -> Iterator[str]:
    for row in rows:
        if row.kind is Kind.STEP and row.name in LEAVES:
            beginning = rows[row.id]  # of an external one: it says what was given
            yield (row.inputs or beginning.inputs)["place"]


class Killed:
    """One run that is killed again and again, until it may finish."""

    def __init__(
        self, nursery: Nursery, trail_url: str, folder: Path, kind: str, number: int, chance: random.Random,
        durability: str = "sync",
    ) -> None:  # fmt: skip
        self.nursery, self.kind, self.chance, self.durability = nursery, kind, chance, durability
        self.trail, self.run_id, self.side = trail_url, f"{kind}-{number}", folder / f"side-{number}"
        self.known: set[str] = set()  # places that must not begin again
        self.read = 0

    def life(self, after: int | None) -> bool:
        """Let it run until so many more lines were written, or to its end. Whether it was killed."""
        before = len(lines(self.side))
        process = self.nursery.start(self.kind, self.trail, self.run_id, self.side, PACE, self.durability)
        if after is not None:
            end = time.monotonic() + 20
            while len(lines(self.side)) < before + after and not self.done():
                assert time.monotonic() < end, lines(self.side)
                time.sleep(0.0003)
            time.sleep(self.chance.random() * 0.003)
            os.kill(process, signal.SIGKILL)
        ended = self.nursery.wait(process)
        assert ended in {0, -signal.SIGKILL}, lines(self.side)[-1]
        self.check()
        return ended != 0

    def done(self) -> bool:
        return any(line.startswith(("result", "failed")) for line in lines(self.side))

    def check(self) -> None:
        """Nothing that was on disk began again; all that was acknowledged is on disk, once."""
        said, self.read = lines(self.side)[self.read :], len(lines(self.side))
        again = [line for line in said if line.startswith("begin ") and line.removeprefix("begin ") in self.known]
        assert again == []
        places = recorded(self.trail, self.run_id)
        acknowledged = {line.removeprefix("ack ") for line in said if line.startswith("ack ")} - {""}
        assert self.durability != "sync" or acknowledged - set(places) == set()
        assert self.known - set(places) == set()
        assert [place for place, count in places.items() if count > 1] == []
        self.known = set(places)

    def result(self) -> Any:
        [said] = [line for line in lines(self.side) if line.startswith("result ")]
        return json.loads(said.removeprefix("result "))


def expected(nursery: Nursery, trail_url: str, folder: Path) -> dict[str, tuple[Any, int]]:
    """What each workload gives when nobody kills it, and how many lines it writes."""
    found = {}
    for kind in KINDS:
        whole = Killed(nursery, trail_url, folder, kind, -1, random.Random(0))
        whole.side = folder / f"side-{kind}"
        assert not whole.life(None)
        found[kind] = whole.result(), len(lines(whole.side))
    return found


def torture(trail_url: str, folder: Path, seed: int, kills: int, durability: str = "sync") -> None:
    """Kill at least so many processes, then let every run finish and compare."""
    chance, killed, number = random.Random(seed), 0, 0
    with Nursery() as nursery:
        whole = expected(nursery, trail_url, folder)
        while killed < kills:
            kind = sorted(KINDS)[number % len(KINDS)]
            value, length = whole[kind]
            run = Killed(nursery, trail_url, folder, kind, number, chance, durability)
            for _ in range(chance.choice([1, 2, 3])):
                if run.done():
                    break
                killed += run.life(chance.randrange(0, length))
            if not run.done():
                run.life(None)
            assert run.result() == value
            number += 1
    with everstep.open(trail_url) as trail:
        report = trail.verify()
        assert report.ok, str(report)
        assert {run.status for run in trail.runs(limit=100_000)} == {Status.COMPLETED}


@with_seeds(sqlite=range(4), postgres=[4], files=[5])
def test_kill_minus_nine_of_a_run_loses_nothing_and_repeats_nothing(trail_url: str, tmp_path: Path, seed: int) -> None:
    """Promises 1 and 2: also when it is killed again while it is resumed; and it gives what it would have given."""
    torture(trail_url, tmp_path, seed, fewer(trail_url, 26))


@with_seeds(sqlite=[7], postgres=[8], files=[9])
def test_kill_minus_nine_of_a_run_that_does_not_wait_for_the_disk_repeats_nothing_that_is_on_it(
    trail_url: str, tmp_path: Path, seed: int
) -> None:
    """Promise 2: what was lost with the process is executed again, from the same place on; nothing else is."""
    torture(trail_url, tmp_path, seed, fewer(trail_url, 20), "async")


@pytest.mark.torture
@with_seeds(sqlite=range(100, 140), postgres=range(140, 180), files=range(180, 220))
def test_two_thousand_kills_of_runs_lose_nothing_and_repeat_nothing(trail_url: str, tmp_path: Path, seed: int) -> None:
    """Promises 1 and 2: forty trails of fifty kills each, in each place."""
    torture(trail_url, tmp_path, seed, 50)
