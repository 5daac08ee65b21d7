"""kill -9, at any moment, of any mixture of writers: what was acknowledged is there, once, and the trail goes on."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

import everstep
from tests.integration.support import Nursery, output
from tests.integration.writers import KINDS
from tests.places import fewer, with_seeds

PATIENCE = 90.0  # seconds: a writer waits for up to 60 for a server that went away

APPEND = """
import everstep, sys
with everstep.open(sys.argv[1]) as trail, trail.record("afterwards") as run:
    print(run.step("s", output=1).seq)
"""


def lines(path: Path) -> list[str]:
    """The complete lines of a file that a killed process wrote."""
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def until(path: Path, count: int) -> None:
    """Wait until a writer has noted so many acknowledgements."""
    end = time.monotonic() + PATIENCE
    while len(said := lines(path)) < count:
        assert not any(line.startswith("failed") for line in said), said[-1]
        assert time.monotonic() < end, said[-1:]
        time.sleep(0.001)


def kill_some(nursery: Nursery, trail_url: str, folder: Path, number: int, chance: random.Random) -> int:
    """One round: writers on one trail, killed one after another while the others go on. How many were killed."""
    kinds = chance.choices(sorted(KINDS), k=chance.randint(1, 4))
    at_work = []
    for place, kind in enumerate(kinds):
        acks = folder / f"acks-{number}-{place}"
        # The same few runs again and again: each round continues what the last one was killed in.
        at_work.append((nursery.start(kind, trail_url, f"{kind}-{place}", acks), acks))
    chance.shuffle(at_work)
    for process, acks in at_work:
        until(acks, chance.choice([0, 1, 2, 5, 20, 60]))
        nursery.kill(process)
    return len(at_work)


def acknowledged(folder: Path) -> list[tuple[str, int, str]]:
    said = []
    for file in sorted(folder.glob("acks-*")):
        for line in lines(file):
            run, seq, link = line.split(" ")
            said.append((run, int(seq), link))
    return said


def check(trail_url: str, folder: Path) -> int:
    """Whether all that was acknowledged is there, once, and the runs can be continued. How much it was."""
    said = acknowledged(folder)
    assert [place for place, count in Counter((run, seq) for run, seq, _ in said).items() if count > 1] == []
    with everstep.open(trail_url) as trail:
        assert trail.verify().ok
        for run in trail.runs(status="active", limit=1000):
            with trail.record(run.id) as recorder:  # from here on a server refuses what the dead had sent to it
                before = len(trail.steps(run.id))
                assert recorder.step("continued", output=1, output_to="continued").seq == before
            assert trail.state(run.id)["continued"] == 1
        kept = {run.id: [(step.seq, step.hash.hex()) for step in trail.steps(run.id)] for run in trail.runs(limit=1000)}
        lost = [(run, seq) for run, seq, link in said if (seq, link) not in set(kept.get(run, []))]
        assert lost == []
        assert all([seq for seq, _ in steps] == list(range(len(steps))) for steps in kept.values())
        report = trail.verify()
        assert report.ok, str(report)
    return len(said)


def torture(trail_url: str, folder: Path, seed: int, kills: int) -> int:
    """Kill at least so many writers of one trail. How many steps were acknowledged, and are there."""
    chance, killed, number = random.Random(seed), 0, 0
    with Nursery() as nursery:
        while killed < kills:
            killed += kill_some(nursery, trail_url, folder, number, chance)
            number += 1
            if number % 5 == 0:
                with everstep.open(trail_url) as trail, trail.record(f"round-{number}") as run:
                    assert run.step("s").seq == 1  # nothing that the dead left stands in the way
    assert output(APPEND, trail_url) == "1"
    return check(trail_url, folder)


@with_seeds(sqlite=range(4), postgres=[4], files=[5])
def test_kill_minus_nine_loses_nothing_acknowledged(trail_url: str, tmp_path: Path, seed: int) -> None:
    """Promise 1: nothing acknowledged is lost, nothing is there twice, the chain holds, everybody can go on."""
    assert torture(trail_url, tmp_path, seed, fewer(trail_url, 26)) > 26


@pytest.mark.torture
@with_seeds(sqlite=range(100, 150), postgres=range(150, 200), files=range(200, 250))
def test_two_thousand_kills_lose_nothing_acknowledged(trail_url: str, tmp_path: Path, seed: int) -> None:
    """Promise 1: fifty trails of forty kills each, in each place."""
    assert torture(trail_url, tmp_path, seed, 40) > 40
