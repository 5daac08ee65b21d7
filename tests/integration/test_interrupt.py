"""Ctrl-C into a thread that commits for others: nobody hangs, nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import everstep
from tests.integration.support import ROOT, environment


def interrupt(style: str, place: Path, *numbers: int) -> dict[str, Any]:
    """Run one of the programs of interrupting.py; what it tells."""
    command = [sys.executable, "-m", "tests.integration.interrupting", style, str(place), *map(str, numbers)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["hung"] == 0
    assert told["errors"] == []  # the others see neither the interrupt nor what it broke
    return told


def check(path: Path, acks: list[list[Any]]) -> None:
    assert [place for place, count in Counter((run, seq) for run, seq, _ in acks).items() if count > 1] == []
    with everstep.open(path) as trail:
        report = trail.verify()
        assert report.ok, str(report)
        kept = {run.id: {(step.seq, step.hash.hex()) for step in trail.steps(run.id)} for run in trail.runs()}
        assert [(run, seq) for run, seq, link in acks if (seq, link) not in kept[run]] == []


def check_main(path: Path) -> None:
    """The interrupted run holds each of its steps once, in order, and its state is what they make."""
    with everstep.open(path) as trail:
        names = [step.name for step in trail.steps("main")][1:]
        assert len(set(names)) == len(names)
        assert trail.state("main")["log"] == names


@pytest.mark.parametrize(("style", "stride"), [("committing", 5), ("recording", 17)])
def test_an_interrupted_leader_leaves_its_batch_to_the_next(tmp_path: Path, style: str, stride: int) -> None:
    """Promise 1: at bytecodes all along the way of a step, while two threads and an event loop write."""
    told = interrupt(style, tmp_path / "trail.db", stride, 40)
    assert told["interrupts"] >= 40
    check(tmp_path / "trail.db", told["acks"])
    check_main(tmp_path / "trail.db")


def test_signals_at_any_moment_are_survived(tmp_path: Path) -> None:
    """Promise 1."""
    told = interrupt("random", tmp_path / "trail.db", 7, 20)
    assert told["interrupts"] == 20
    check(tmp_path / "trail.db", told["acks"])
    check_main(tmp_path / "trail.db")


def test_a_run_whose_end_is_interrupted_ends_once(tmp_path: Path) -> None:
    """Promise 5."""
    told = interrupt("finishing", tmp_path / "trail.db", 19, 40)
    check(tmp_path / "trail.db", told["acks"])
    with everstep.open(tmp_path / "trail.db") as trail:
        for run in trail.runs(limit=1000):
            names = [step.name for step in trail.steps(run.id)]
            assert (names.count("end"), names[-1], run.status, run.owner) == (1, "end", "completed", None)


def test_an_interrupted_close_can_be_repeated_and_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Promise 1."""
    told = interrupt("closing", tmp_path, 7, 12)
    assert told["interrupts"] == 12
    by_file: dict[str, list[list[Any]]] = {}
    for place, seq, link in told["acks"]:
        file, _, run = place.partition("/")
        by_file.setdefault(file, []).append([run, seq, link])
    for file, acks in by_file.items():
        check(tmp_path / file, acks)


@pytest.mark.torture
@pytest.mark.parametrize("style", ["committing", "recording"])
def test_a_leader_may_be_interrupted_at_every_bytecode(tmp_path: Path, style: str) -> None:
    """Promise 1."""
    told = interrupt(style, tmp_path / "trail.db", 1, 300)
    assert told["interrupts"] >= 300
    check(tmp_path / "trail.db", told["acks"])
    check_main(tmp_path / "trail.db")


@pytest.mark.torture
def test_hundreds_of_signals_are_survived(tmp_path: Path) -> None:
    """Promise 1."""
    told = interrupt("random", tmp_path / "trail.db", 8, 400)
    check(tmp_path / "trail.db", told["acks"])
    check_main(tmp_path / "trail.db")
