"""A run that was begun in one kind of store is taken to another, and goes on there as if it had never moved."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import COMMAND, data
from tests.integration.copying import Places
from tests.integration.support import environment, output, python

AGENT = """
import asyncio, os, signal, sys
import everstep
from everstep import AsyncRunner, Graph, Runner, interrupt, node, step, workflow

@step
def ask(question, token):
    print("asking", question, flush=True)
    if question == 3 and "crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"answer": question * 10, "text": "x" * 70_000}

@workflow
def research(count, token):
    return sum(ask(question, token)["answer"] for question in range(count))

@step
async def look(question):
    print("asking", question, flush=True)
    if question == 3 and "crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return question * 10

@workflow
async def awaited(count):
    return sum([await look(question) for question in range(count)])

@node(output="draft")
def write(topic):
    print("writing", flush=True)
    return f"about {topic}"

@interrupt(output="verdict")
def review(draft):
    return f"send {draft}?"

@node(output="text")
def send(draft, verdict):
    return f"{draft}: {verdict}"

letter = Graph([write, review, send], name="letter")
with everstep.open(sys.argv[1]) as trail:
    if sys.argv[2] == "sync":
        print(Runner(trail).run(research, 6, "sk-proj-Abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH", id="r").value)
    elif sys.argv[2] == "async":
        print(asyncio.run(AsyncRunner(trail).run(awaited, 6, id="r")).value)
    elif "answered" in sys.argv:
        print(Runner(trail).run(letter, id="r").value["text"])
    else:
        print(Runner(trail).run(letter, topic="tides", id="r").status)
"""
BEGAN = ["asking 0", "asking 1", "asking 2", "asking 3", ""]
WENT_ON = ["asking 3", "asking 4", "asking 5", "150"]


@pytest.fixture
def pair(request: pytest.FixtureRequest, places: Places, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "redaction.key"))
    return [places.url(kind) for kind in request.param.split("-")]


there_and_back = pytest.mark.parametrize("pair", ["sqlite-postgres", "postgres-sqlite"], indirect=True)


@pytest.mark.parametrize(
    ("pair", "runner"),
    [
        ("sqlite-postgres", "sync"),
        ("sqlite-postgres", "async"),
        ("postgres-sqlite", "sync"),
        ("postgres-sqlite", "async"),
        ("files-postgres", "sync"),
        ("sqlite-files", "async"),
    ],
    indirect=["pair"],
)
def test_a_killed_run_is_resumed_in_the_other_store(pair: list[str], runner: str) -> None:
    """Promises 1, 2 and 10: no completed step again, with large values and a secret among its arguments."""
    source, to = pair
    killed = python(AGENT, source, runner, "crash")
    assert (killed.returncode, killed.stdout.split("\n")) == (-signal.SIGKILL, BEGAN)
    copied = data("copy", source, to)["copy"]
    assert (copied["runs"], copied["refused"]) == (1, [])
    assert output(AGENT, to, runner).split("\n") == WENT_ON
    with everstep.open(source, read_only=True) as here, everstep.open(to) as there:
        assert (here.run("r").status, there.run("r").status) == ("active", "completed")
        assert there.verify().ok
    assert data("copy", to, source)["copy"]["refused"] == []  # and home again
    with everstep.open(source, read_only=True) as here:
        assert here.run("r").status == "completed"


@there_and_back
def test_a_graph_that_waits_is_answered_in_the_other_store(pair: list[str]) -> None:
    """Promise 2."""
    source, to = pair
    assert output(AGENT, source, "graph").split("\n") == ["writing", "paused"]
    assert data("copy", source, to, "r")["copy"]["runs"] == 1
    with everstep.open(to) as there:
        there.answer("r", "yes")
    assert output(AGENT, to, "graph", "answered") == "about tides: yes"


PROGRAM = """
import os, signal, subprocess, sys
for number in range(4):
    done = subprocess.run(["sh", "-c", f"echo {number} >> calls; echo {number}0"], capture_output=True, text=True)
    print(done.stdout.strip(), flush=True)
    if number == 1 and os.environ.get("CRASH"):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@there_and_back
def test_a_captured_program_goes_on_in_the_other_store(pair: list[str], tmp_path: Path) -> None:
    """Promise 2: a program that never heard of us."""
    source, to = pair
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")

    def everstep_(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *words, "--", sys.executable, "program.py"]
        return subprocess.run(
            command, cwd=tmp_path, env={**environment(), **more}, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    assert everstep_("record", "--id", "r", "--trail", source, CRASH="1").returncode == -signal.SIGKILL
    assert data("copy", source, to)["copy"]["runs"] == 1
    done = everstep_("resume", "r", "--trail", to)
    assert (done.returncode, done.stdout) == (0, "00\n10\n20\n30\n"), done.stderr
    assert (tmp_path / "calls").read_text().split() == ["0", "1", "2", "3"]
