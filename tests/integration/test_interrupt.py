"""Ctrl-C into a thread that commits for others: nobody hangs, nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

import everstep
from tests.integration.support import ROOT, environment
from tests.places import fewer, in_each_place


def interrupt(style: str, trail_url: str, *numbers: int) -> dict[str, Any]:
    """Run one of the programs of interrupting.py; what it tells."""
    command = [sys.executable, "-m", "tests.integration.interrupting", style, trail_url, *map(str, numbers)]
    done = subprocess.run(
        command, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["hung"] == 0
    assert told["errors"] == []  # the others see neither the interrupt nor what it broke
    return told


def check(trail_url: str, acks: list[list[Any]]) -> None:
    assert [place for place, count in Counter((run, seq) for run, seq, _ in acks).items() if count > 1] == []
    with everstep.open(trail_url) as trail:
        report = trail.verify()
        assert report.ok, str(report)
        kept = {run.id: {(step.seq, step.hash.hex()) for step in trail.steps(run.id)} for run in trail.runs(limit=1000)}
        assert [(run, seq) for run, seq, link in acks if (seq, link) not in kept[run]] == []


def check_main(trail_url: str) -> None:
    """The interrupted run holds each of its steps once, in order, and its state is what they make."""
    with everstep.open(trail_url) as trail:
        names = [step.name for step in trail.steps("main")][1:]
        assert len(set(names)) == len(names)
        assert trail.state("main")["log"] == names


@pytest.mark.parametrize(("style", "stride"), [("committing", 5), ("recording", 17)])
@in_each_place()
def test_an_interrupted_leader_leaves_its_batch_to_the_next(trail_url: str, style: str, stride: int) -> None:
    """Promise 1: at bytecodes all along the way of a step, while two threads and an event loop write."""
    further = {"file": 9, "postgresql": 3}.get(trail_url.partition(":")[0], 1)  # the way is longer there
    told = interrupt(style, trail_url, stride * further, 40)
    assert told["interrupts"] >= 40
    check(trail_url, told["acks"])
    check_main(trail_url)


@in_each_place()
def test_signals_at_any_moment_are_survived(trail_url: str) -> None:
    """Promise 1."""
    told = interrupt("random", trail_url, 7, 20)
    assert told["interrupts"] == 20
    check(trail_url, told["acks"])
    check_main(trail_url)


@in_each_place()
def test_a_run_whose_end_is_interrupted_ends_once(trail_url: str) -> None:
    """Promise 5."""
    told = interrupt("finishing", trail_url, 19, fewer(trail_url, 40))
    check(trail_url, told["acks"])
    with everstep.open(trail_url) as trail:
        for run in trail.runs(limit=1000):
            names = [step.name for step in trail.steps(run.id)]
            assert (names.count("end"), names[-1], run.status, run.owner) == (1, "end", "completed", None)


@in_each_place()
def test_an_interrupted_close_can_be_repeated_and_leaves_nobody_waiting(trail_url: str) -> None:
    """Promise 1."""
    told = interrupt("closing", trail_url, 7, fewer(trail_url, 12))
    assert told["interrupts"] == fewer(trail_url, 12)
    check(trail_url, told["acks"])


@pytest.mark.torture
@pytest.mark.parametrize("style", ["committing", "recording"])
@in_each_place()
def test_a_leader_may_be_interrupted_at_every_bytecode(trail_url: str, style: str) -> None:
    """Promise 1."""
    told = interrupt(style, trail_url, 1, 300)
    assert told["interrupts"] >= 300
    check(trail_url, told["acks"])
    check_main(trail_url)


@pytest.mark.torture
@in_each_place()
def test_hundreds_of_signals_are_survived(trail_url: str) -> None:
    """Promise 1."""
    told = interrupt("random", trail_url, 8, 400)
    check(trail_url, told["acks"])
    check_main(trail_url)


@pytest.mark.torture
@in_each_place()
def test_hundreds_of_interrupted_ends_and_closes_are_survived(trail_url: str) -> None:
    """Promises 1 and 5."""
    for style in ("finishing", "closing"):
        told = interrupt(style, trail_url, 3, 200)
        assert told["interrupts"] >= 200
        check(trail_url, told["acks"])
