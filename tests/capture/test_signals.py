"""Signals: those by number are only told to processes on record, and those to a process that is forked off its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.capturing.seams import signals
from everstep.capturing.session import capture
from everstep.model import Status
from tests.integration.cli_support import COMMAND

SLEEPS = ["sleep", "60"]


class AsIfPlayed(dict[int, Any]):
    """Every number was that of a process on record, but for those that are forgotten."""

    def __init__(self, played: Any) -> None:
        self.played, self.forgotten = played, set[int]()

    def get(self, pid: int, _: Any = None) -> Any:
        return None if pid in self.forgotten else self.played

    def pop(self, pid: int, *_: Any) -> Any:
        self.forgotten.add(pid)


def test_a_process_of_today_gets_its_signals_whoever_had_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> tuple[int, int]:
        with subprocess.Popen(SLEEPS) as process:
            os.kill(process.pid, signal.SIGTERM)
        return process.pid, process.returncode

    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            first = program()
        with capture(trail, "run", mode="verify"):
            assert program() == first
    played = signals._KNOWN[first[0]]
    monkeypatch.setattr(signals, "_KNOWN", AsIfPlayed(played))
    with subprocess.Popen(SLEEPS) as today:
        today.terminate()
    assert today.returncode == -signal.SIGTERM


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")  # of Python's own, since 3.12
@pytest.mark.filterwarnings("ignore:.*starts a process:everstep.errors.CaptureWarning")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, 7 << 8)])
def test_a_signal_to_a_process_that_is_forked_off_does_what_it_would_without_us(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """A pool of multiprocessing ends its workers by SIGTERM, and waits for that."""
    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            child = os.fork()
            if child == 0:
                try:
                    os.kill(os.getpid(), number)
                except KeyboardInterrupt:
                    os._exit(7)
                finally:
                    os._exit(1)
            ended = os.waitpid(child, 0)[1]
        assert ended == status
        assert trail.run("run").status is Status.COMPLETED


def test_a_pool_of_processes_ends_however_new_its_workers_are(tmp_path: Path) -> None:
    program = (
        "import multiprocessing as mp\nif __name__ == '__main__':\n    with mp.get_context('fork').Pool(2) as pool:\n"
    )
    (tmp_path / "agent.py").write_text(program + "        print(pool.map(abs, range(3)))\n", "utf-8")
    for each in range(4):
        command = [*COMMAND, "record", "--id", f"run-{each}", "--trail", "t.db", "--", sys.executable, "agent.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "[0, 1, 2]\n"), done.stderr
        assert "completed" in done.stderr
        assert "interrupted" not in done.stderr
