"""What a person says once, in pyproject.toml or on the command line, and what a recording makes of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import everstep
from tests.capture.running import environment
from tests.capture.server import ModelServer

ASKS = """
    import os, subprocess, sys
    import httpx

    body = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
    for _ in range(int(sys.argv[1])):
        httpx.post(os.environ["MODEL_URL"] + "/v1/chat/completions", json=body).raise_for_status()
    if "child" in sys.argv:
        subprocess.run([sys.executable, "asks.py", "1"], check=True)
"""
SENSES = """
    import random, time, uuid

    before = time.time()
    moves = any(time.time() > before for _ in range(10_000))  # no clock stands for a program that only waits for it
    print("moves" if moves else "stands", random.random(), uuid.uuid4())
"""


class Ground:
    """A folder with a program, a trail and a server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self._url = folder, url

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text), "utf-8")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "everstep", *words], cwd=self.folder, env=environment(self._url), text=True,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    def costs(self, parent: str | None = None) -> list[list[float | None]]:
        """Of the calls to models, for each run that has this parent."""
        with everstep.open(self.folder / ".everstep" / "trail.db") as trail:
            found = [[step.usage for step in trail.steps(run.id) if step.usage] for run in trail.runs(parent=parent)]
        return [[used.get("cost") for used in each] for each in found]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ModelServer() as server:
        ground = Ground(tmp_path, server.url)
        ground.write("asks.py", ASKS)
        yield ground


def test_calls_have_the_costs_that_the_project_says(ground: Ground) -> None:
    """Those of the programs that it starts as well."""
    ground.write("pyproject.toml", '[tool.everstep.prices]\n"gpt-*" = [1.25, 10]\n')
    words = ["record", "--id", "paid", "--children", "--", sys.executable, "asks.py", "2", "child"]
    assert ground.run(*words).returncode == 0
    (costs,), (below,) = ground.costs(), ground.costs("paid")
    assert (len(costs), len(below)) == (2, 1)
    assert all(cost is not None and cost > 0 for cost in (*costs, *below))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[tool.everstep.prices]\n"gpt-test" = [1.25]\n',
            "prices['gpt-test'] is [1.25]; give what a million tokens cost",
        ),
        ('[tool.everstep.prices]\n"gpt-test" = "cheap"\n', "prices['gpt-test'] is 'cheap'; give what"),
        ("[tool.everstep.prices]\ngpt-4.1 = [1.25, 10]\n", "a name with a dot stands in quotes"),
        ("[tool.everstep]\nprices = 3\n", "prices is 3; give a table"),
        ("[tool.everstep.prices\n", "the prices in [tool.everstep] of ./pyproject.toml cannot be used: "),
    ],
)
def test_prices_that_are_none_are_refused_before_anything_is_asked(ground: Ground, text: str, said: str) -> None:
    """Promise 13."""
    ground.write("pyproject.toml", text)
    got = ground.run("record", "--id", "r", "--", sys.executable, "asks.py", "1")
    assert got.returncode == 1
    assert said in got.stderr
    assert "Traceback" not in got.stderr
    assert not (ground.folder / ".everstep" / "trail.db").exists()


def test_a_project_that_says_nothing_of_us_may_be_broken(ground: Ground) -> None:
    ground.write("pyproject.toml", "[project\n")
    assert ground.run("record", "--", sys.executable, "asks.py", "1").returncode == 0


@pytest.mark.parametrize(
    ("options", "moves", "same"), [([], False, True), (["--no-clock", "--no-entropy"], True, False)]
)
def test_time_and_chance_are_those_of_the_world_where_somebody_wants_that(
    ground: Ground, options: list[str], *, moves: bool, same: bool
) -> None:
    ground.write("senses.py", SENSES)
    program = ["--", sys.executable, "senses.py"]
    first = ground.run("record", "--id", "r", *options, *program)
    assert first.stdout.startswith("moves" if moves else "stands"), first.stderr
    again = ground.run("replay", "r", *program)
    assert (again.stdout == first.stdout) is same
    assert (again.returncode == 0) is same, "what it printed differs, and is told"
    assert ("note: the time is not on record" in again.stderr) is not same


def test_a_replay_that_parts_is_told_what_was_left_to_the_world_and_of_other_words(ground: Ground) -> None:
    ground.write(
        "draws.py",
        """
        import os, random, sys
        import httpx

        httpx.post(os.environ["MODEL_URL"] + "/echo", json=[sys.argv[1:], random.random()])
    """,
    )
    program = ["--", sys.executable, "draws.py"]
    for run_id, options in ("whole", []), ("left", ["--no-clock", "--no-entropy"]):
        assert ground.run("record", "--id", run_id, *options, *program, "Oslo").returncode == 0
    assert notes(ground.run("replay", "whole", *program, "Rome")) == [
        "note: the program was called with other words than on record: command[1]: 'Oslo' -> 'Rome'"
    ]
    assert notes(ground.run("replay", "left", *program, "Oslo"))[1:] == [
        "note: the time is not on record: it was recorded without time-machine, or with --no-clock",
        "note: chance is not on record: it was recorded with --no-entropy",
    ]


def notes(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("note: ")]
