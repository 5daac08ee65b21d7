"""Others at work on the same file or the same run: one writes, the rest are told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from everstep import errors
from everstep.store.sqlite import SqliteStore
from tests.integration.support import environment, small_trail

FOREIGN = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("begin immediate")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_a_foreign_program_that_keeps_the_file_locked_is_named(tmp_path: Path) -> None:
    """Promise 13."""
    path = small_trail(tmp_path / "trail.db")
    store = SqliteStore(str(path), patience=0.2)
    trail = everstep.Trail(store)
    run = trail.record("other")
    command = [sys.executable, "-c", FOREIGN, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as foreign:
        assert foreign.stdout is not None
        assert foreign.stdout.readline() == "locked\n"
        with pytest.raises(errors.LockedError, match=r"locked by another program for 0\.2 s"):
            run.step("s")
        assert trail.state("r") == {"x": 1}  # reading goes on
        foreign.communicate("end\n")
    assert run.step("s").seq == 1
    trail.close()


STOPPED = """
import everstep, fcntl, os, signal, sys
lock = os.open(sys.argv[1] + "-lock", os.O_RDWR)
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_process_that_holds_the_lock_is_not_waited_for_without_end(tmp_path: Path) -> None:
    path = small_trail(tmp_path / "trail.db")
    trail = everstep.Trail(SqliteStore(str(path), patience=0.2))
    run = trail.record("other")
    command = [sys.executable, "-c", STOPPED, str(path)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(errors.LockedError, match="a paused process"):
            run.step("s")
        other.send_signal(signal.SIGKILL)
    assert run.step("s").seq == 1
    trail.close()


RACE = """
import everstep, sys
from everstep.errors import OwnedError, RunExistsError
trail = everstep.open(sys.argv[1])
sys.stdin.readline()
try:
    run = trail.record("contested")
    run.step("mine")
    print("won", flush=True)
except (OwnedError, RunExistsError) as error:
    print(type(error).__name__, flush=True)
sys.stdin.readline()
"""


def test_of_processes_that_want_one_run_one_gets_it(tmp_path: Path) -> None:
    """Promise 4."""
    path = small_trail(tmp_path / "trail.db")
    command = [sys.executable, "-c", RACE, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    racers = [subprocess.Popen(command, env=environment(), text=True, **pipes) for _ in range(4)]  # type: ignore[call-overload] # typeshed cannot follow **
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.stdout.readline().strip() for racer in racers]
    for racer in racers:
        racer.communicate("end\n", timeout=30)
    assert sorted(said).count("won") == 1
    assert set(said) <= {"won", "OwnedError", "RunExistsError"}
    with everstep.open(path) as trail:
        assert [step.name for step in trail.steps("contested")] == ["start", "mine"]


def test_a_writer_that_lost_its_run_is_told_and_writes_nothing(tmp_path: Path) -> None:
    """Promise 4."""
    with everstep.open(tmp_path / "trail.db") as trail:
        old = trail.record("r")
        old.step("mine")
        trail.store.renew(old._scribe.claim, 0)  # as if its lease had ended
        new = trail.record("r")
        with pytest.raises(errors.StaleWriterError, match="stop here"):
            old.step("zombie")
        new.step("hers")
        with pytest.raises(errors.StaleWriterError):
            old.step("zombie again")
        assert [step.name for step in trail.steps("r")] == ["start", "mine", "hers"]
