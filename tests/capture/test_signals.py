"""Signals: those by number are only told to processes on record, and those to a process that is forked off its own."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import everstep
from everstep.capturing.process import Transcript
from everstep.capturing.seams import signals
from everstep.capturing.session import Mode, capture
from everstep.model import Status
from everstep.run.lanes import outside
from tests.integration.cli_support import COMMAND

SLEEPS = ["sleep", "60"]
MODES: tuple[Mode, ...] = ("record", "verify")


class AsIfPlayed(dict[int, Any]):
    """Every number was that of a process on record, but for those that are forgotten."""

    def __init__(self, played: Any) -> None:
        self.played, self.forgotten = played, set[int]()

    def get(self, pid: int, default: Any = None) -> Any:
        return default if pid in self.forgotten else {None: self.played}

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
            (played,) = signals._KNOWN[first[0]].values()
            monkeypatch.setattr(signals, "_KNOWN", AsIfPlayed(played))
            with outside().run(subprocess.Popen, SLEEPS) as today:
                outside().run(today.terminate)
            assert today.returncode == -signal.SIGTERM


def test_nothing_is_kept_of_a_process_that_has_ended_nor_its_number_when_its_run_has(tmp_path: Path) -> None:
    def program() -> int:
        process = subprocess.Popen(["echo", "a"], stdout=subprocess.PIPE)
        assert process.communicate()[0] == b"a\n"
        return process.pid

    with everstep.open(tmp_path / "trail.db") as trail:
        for mode in MODES:
            with capture(trail, "run", mode=mode):
                pid = program()
                gc.collect()
                assert not [each for each in gc.get_objects() if isinstance(each, Transcript) and each.pid == pid]
                with pytest.raises(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
                with pytest.raises(ProcessLookupError):
                    os.getpgid(pid)
            with pytest.raises(ProcessLookupError):
                os.getpgid(pid)


def test_an_awaited_process_that_is_asked_for_by_a_signal_of_0_plays_on(tmp_path: Path) -> None:
    async def program() -> bytes:
        process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
        os.kill(process.pid, 0)
        said, _ = await asyncio.wait_for(process.communicate(b"a"), 5)
        return said

    with everstep.open(tmp_path / "trail.db") as trail:
        for mode in MODES:
            with capture(trail, "run", mode=mode):
                assert asyncio.run(program()) == b"a"


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


@pytest.mark.parametrize(
    "stop", [lambda pid: os.kill(-pid, signal.SIGTERM), lambda pid: os.killpg(pid, signal.SIGTERM)]
)
def test_a_signal_to_the_group_of_a_process_on_record_goes_to_none_of_today(tmp_path: Path, stop: Any) -> None:
    def program() -> int:
        with subprocess.Popen(SLEEPS, start_new_session=True) as process:
            stop(os.getpgid(process.pid))
        return process.returncode

    with everstep.open(tmp_path / "trail.db") as trail:
        for mode in MODES:
            with capture(trail, "run", mode=mode):
                assert program() == -signal.SIGTERM


def test_ctrl_c_at_any_line_where_signals_are_taken_or_given_back_leaves_none_in_our_hands(
    trail: everstep.Trail,
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    line = 0

    def pressed_at(number: int) -> bool:
        """Whether there is such a line."""
        left = number

        def traced(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if event == "line":
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGINT)
            return traced

        def told(frame: FrameType, *_: Any) -> Any:
            return traced if frame.f_globals.get("__name__") == "everstep.run.signals" else None

        sys.settrace(told)
        try:
            with everstep.capture(trail):
                pass
            time.sleep(0.05)  # it may come again, when what was at work is done
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        return left <= 0

    while pressed_at(line := line + 1):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers, line
    assert line > 10
