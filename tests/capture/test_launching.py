"""`record` is read twice: by the command, and before that is loaded, if the line is plain. Both read the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everstep.capturing.command import VARIABLE
from everstep.cli import launching
from everstep.cli.group import cli

PROGRAM = ["--", sys.executable, "agent.py", "--id", "its own", "--"]
PLAIN = [
    [],
    ["--id", "trip", "--quiet"],
    ["--id", "one", "--id", "two"],
    ["--durability", "async", "--children", "--json"],
    ["--trail", "a/b.db"],
    ["--trail", "folder/"],
    ["--trail", "postgresql://ada:secret@nowhere/agents"],
]
NOT_PLAIN = [
    ["--tag", "user=ada"],
    ["--id=trip"],
    ["--id", "--quiet"],
    ["--durability", "never"],
    ["--colour"],
    ["--id"],
    ["--help"],
    ["stray"],
    ["--trail", ":memory:"],
]


class _Become(BaseException):
    """The process would be another now."""


@pytest.fixture
def becomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def execve(python: str, words: list[str], environment: dict[str, str]) -> None:
        found.append((python, words, json.loads(environment[VARIABLE]), environment["PYTHONHASHSEED"]))
        raise _Become

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize("options", PLAIN)
@pytest.mark.parametrize("from_environment", [False, True])
def test_a_plain_line_is_read_as_the_command_reads_it(
    becomes: list[Any], monkeypatch: pytest.MonkeyPatch, options: list[str], *, from_environment: bool
) -> None:
    if from_environment:
        monkeypatch.setenv("EVERSTEP_TRAIL", "elsewhere/trail.db")
    words = ["record", *options, *PROGRAM]
    with pytest.raises(_Become):
        launching.record(words)
    with pytest.raises(_Become):
        CliRunner().invoke(cli, words, catch_exceptions=False)
    quick, slow = becomes
    slow[2].pop("tags")  # no plain line has some
    assert quick == slow


@pytest.mark.parametrize("options", NOT_PLAIN)
def test_any_other_line_is_left_to_the_command(becomes: list[Any], options: list[str]) -> None:
    launching.record(["record", *options, *PROGRAM])
    launching.record(["record", *options, "--", "no-such-program"])
    launching.record(["record", *options])
    launching.record(["--json", "record", *options, *PROGRAM])
    assert not becomes


def test_a_plain_line_does_not_load_what_reads_all_others() -> None:
    code = """
import os, sys
from everstep.cli import main
os.execve = lambda *_: (print(*sys.modules), os._exit(0) if not sys.stdout.flush() else None)
main.main()
"""
    words = [sys.executable, "-c", code, "record", "--trail", os.devnull, *PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "everstep.cli.launching" in loaded
    assert not loaded & {"click", "asyncio", "apsw", "rich", "inspect"}


def test_a_recorded_program_loads_nothing_that_only_others_need(tmp_path: Path) -> None:
    program = ["--", sys.executable, "-c", "import gc, sys; print(gc.isenabled(), *sys.modules)"]
    words = [sys.executable, "-m", "everstep", "record", "--trail", str(tmp_path / "trail.db"), *program]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    collects, *loaded = done.stdout.split()
    assert collects == "True"
    assert "everstep.capturing.session" in loaded
    assert not set(loaded) & {"click", "asyncio", "ssl", "rich", "unittest", "subprocess", "everstep.capturing.seal"}


def test_time_machine_knows_classes_of_tests_once_there_can_be_some() -> None:
    code = """
import sys
from everstep.capturing import clock
assert clock.is_there() and "unittest" not in sys.modules
import time_machine, unittest
assert time_machine.TestCase is unittest.TestCase
"""
    subprocess.run([sys.executable, "-c", code], check=True)
