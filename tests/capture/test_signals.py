"""Signals by number: to processes on record they are only told, and whoever has the number today is not hit."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.capturing.seams import signals
from everstep.capturing.session import capture

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
