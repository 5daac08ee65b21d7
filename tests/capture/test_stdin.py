"""Programs that talk to a person: what they read from standard input is on record, and typed again by a replay."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import COMMAND

CHAT = """
import os, signal, sys
name = input("Who are you? ")
print("Hello,", name, flush=True)
for number, line in enumerate(sys.stdin):
    print("You say", line.strip(), flush=True)
    if number == int(os.environ.get("CRASH", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
print("Bye", flush=True)
"""
SAID = "Who are you? Hello, Ada\nYou say tea\nYou say two sugars\nBye\n"


class Table:
    """A folder with a chat program and a trail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "chat.py").write_text(CHAT, "utf-8")

    def command(self, *words: str) -> list[str]:
        return [*COMMAND, *words, "--trail", "t.db", "--", sys.executable, "chat.py"]

    def run(self, *words: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), cwd=self.folder, env={**os.environ, **more}, input=typed, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_replay_needs_nobody_to_type(table: Table) -> None:
    recorded = table.run("record", "--id", "chat", typed="Ada\ntea\ntwo sugars\n")
    assert (recorded.returncode, recorded.stdout) == (0, SAID)
    replayed = table.run("replay", "chat", "--sealed")
    assert (replayed.returncode, replayed.stdout) == (0, SAID)
    assert "chat: identical" in replayed.stderr
    with everstep.open(table.folder / "t.db", read_only=True) as trail:
        steps = [step for step in trail.steps("chat") if step.node_type]
        assert {(step.name, step.node_type) for step in steps} == {("stdin", "stdin")}
        assert "".join(step.output for step in steps) == "Ada\ntea\ntwo sugars\n"


@pytest.mark.parametrize("typed", ["two sugars\n", "Ada\ntea\ntwo sugars\n"], ids=["the rest", "from the beginning"])
def test_a_run_goes_on_with_what_was_not_read_yet(table: Table, typed: str) -> None:
    killed = table.run("record", "--id", "chat", typed="Ada\ntea\n", CRASH="0")
    assert killed.returncode == -9
    resumed = table.run("resume", "chat", typed=typed)
    assert (resumed.returncode, resumed.stdout) == (0, SAID), resumed.stderr
    assert table.run("replay", "chat").stdout == SAID


def test_a_fork_lets_a_person_have_said_something_else(table: Table) -> None:
    assert table.run("record", "--id", "chat", typed="Ada\n").returncode == 0
    forked = table.run("fork", "chat", "--outcome", '1="Bob\\n"', "--id", "other")
    assert (forked.returncode, forked.stdout) == (0, "Who are you? Hello, Bob\nBye\n"), forked.stderr


def test_lines_that_are_typed_at_a_terminal_are_recorded(table: Table) -> None:
    here, there = pty.openpty()
    with subprocess.Popen(
        table.command("record", "--id", "chat"), cwd=table.folder, stdin=there, stdout=there, stderr=subprocess.PIPE
    ) as process:
        os.close(there)
        for line in (b"Ada\n", b"tea\n", b"two sugars\n", b"\x04"):
            os.write(here, line)
        shown = b""
        while b"Bye" not in shown:
            shown += os.read(here, 1000)
        assert process.wait(60) == 0
    os.close(here)
    assert b"Who are you? " in shown
    replayed = table.run("replay", "chat")
    assert (replayed.returncode, replayed.stdout) == (0, SAID), replayed.stderr
