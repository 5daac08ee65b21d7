"""A program that is killed at any instant, and killed again while it is resumed, ends as if nothing had happened."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everstep
from everstep.model import Status
from tests.capture.running import AGENTS, environment
from tests.capture.server import ModelServer


def _start(server: ModelServer, folder: Path, *words: str, agent: str) -> subprocess.Popen[str]:
    env = environment(server.url, EVERSTEP_TRAIL=str(folder / "trail.db"), STEPS="8")
    command = [sys.executable, "-m", "everstep", *words, "--", sys.executable, str(AGENTS / f"{agent}.py")]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _killed(process: subprocess.Popen[str], server: ModelServer, asked: int, later: float) -> None:
    """Kill a program some time after the server was asked so often."""
    patience = time.monotonic() + 60
    while len(server.requests) < asked and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.0005)
    time.sleep(later)
    process.kill()
    process.communicate()


def _answered(server: ModelServer, folder: Path) -> set[str]:
    """The digests of requests whose answers are on record."""
    with everstep.open(folder / "trail.db") as trail:
        if not trail.runs():
            return set()
        steps = [step for step in trail.steps("x") if step.status is Status.COMPLETED and step.node_type == "model"]
        tags = {value for step in steps for name, value in step.output["headers"] if name == "X-Counter"}
    return {request.digest for request in server.requests if request.tag in tags}


def _check(agent: str, calls: int, folder: Path, seed: int, *options: str) -> None:
    chance = random.Random(seed)
    with ModelServer(seed=seed) as server:
        first = chance.randint(1, calls - 1)
        process = _start(server, folder, "record", "--id", "x", *options, agent=agent)
        _killed(process, server, first, chance.random() * 0.02)
        asked, answered = len(server.requests), _answered(server, folder)
        process = _start(server, folder, "resume", "x", agent=agent)
        _killed(process, server, asked + chance.randint(1, calls), chance.random() * 0.02)
        again = [request.digest for request in server.requests[asked:]]
        assert not answered & set(again)
        asked, answered = len(server.requests), _answered(server, folder)
        process = _start(server, folder, "resume", "x", agent=agent)
        out, said = process.communicate(timeout=60)
        assert not answered & {request.digest for request in server.requests[asked:]}
    replay = _start(server, folder, "replay", "x", agent=agent)
    played, told = replay.communicate(timeout=60)
    assert replay.returncode == 0, told
    done = "had completed before" in said  # the second had come to the end before it was killed
    assert (process.returncode, out) == (0, "" if done else played), said


@pytest.mark.parametrize("seed", range(3))
def test_a_program_killed_twice_asks_nothing_that_was_answered(tmp_path: Path, seed: int) -> None:
    """Promises 1 and 2, of a program that never heard of us: prompts hold the time, an id and the answer before."""
    _check("long_agent", 8, tmp_path, seed)


@pytest.mark.parametrize("seed", range(2))
def test_so_does_one_whose_rows_are_written_in_the_background(tmp_path: Path, seed: int) -> None:
    """Promises 1 and 2, of what was on record when it was killed."""
    _check("long_agent", 8, tmp_path, 100 + seed, "--durability", "async")


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(50))
def test_a_program_killed_twice_at_any_instant(tmp_path: Path, seed: int) -> None:
    """Promises 1 and 2."""
    _check("long_agent", 8, tmp_path, 1_000 + seed)


def test_what_a_shell_left_behind_keeps_nobody_from_knowing_how_it_ended(tmp_path: Path) -> None:
    """It holds the pipes open. Once nobody reads them, the outcome is on record, or a resume would ask for it."""
    with everstep.open(tmp_path / "trail.db") as trail, everstep.capture(trail, "x"):
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run("echo part; sleep 5; :", shell=True, timeout=0.2, capture_output=True, check=False)
        processes = [step for step in trail.steps("x") if step.node_type == "process"]
        assert [(step.status, step.output["exit"]) for step in processes] == [(Status.COMPLETED, -9)]


def test_how_an_awaited_process_ended_is_on_record_before_the_program_goes_on(tmp_path: Path) -> None:
    """Promise 1. It had gone on, to its end even, when exit and pipes had ended: the call counted as cancelled."""

    async def waits() -> tuple[bytes, list[Status]]:
        process = await asyncio.create_subprocess_shell("sleep 0.2 & echo part", stdout=subprocess.PIPE)
        said, _ = await process.communicate()
        return said, [step.status for step in trail.steps("x") if step.node_type == "process"]

    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            assert asyncio.run(waits()) == (b"part\n", [Status.COMPLETED])
        with everstep.capture(trail, "x", mode="verify"):
            assert asyncio.run(waits()) == (b"part\n", [Status.COMPLETED])
