"""Somebody else at the same store, to be killed, stopped and woken up: a process, or a thread that stands for one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self, cast

from everstep import actual
from everstep.store.base import Store
from everstep.testing.elsewhere import CLOCK, Clock, serve

PATIENCE = 20.0  # seconds that a test waits for what must come; far more than any store needs


class Somebody:
    """Does one call after another. `store` waits for each; `send` does not, and gives what waits."""

    def __init__(self, line: Connection) -> None:
        self._line = line
        self.store = cast("Store", _Calls(self))

    def send(self, call: str, *arguments: Any) -> Callable[[], Any]:
        """Ask for a call; what is given waits for what came of it. Answers are waited for in the order of the calls."""
        self._line.send((call, arguments))
        return self._answer

    def _answer(self) -> Any:
        assert self._line.poll(PATIENCE), "no answer"
        try:
            error, given = self._line.recv()
        except EOFError:
            raise AssertionError("it ended without an answer; what it said of that is in the captured output") from None
        if error is not None:
            raise error
        return given

    def move_clock(self, seconds: float) -> None:
        """Its clock is off by so much from now on, as that of another machine may be."""
        self.send(CLOCK, seconds)()

    def kill(self) -> None:
        """`kill -9`: it does nothing any more, not even what it was asked for."""
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing happens there, and no time passes, until it wakes up."""
        raise NotImplementedError

    def wake(self) -> None:
        """It goes on where it was, and knows nothing of the time between."""
        raise NotImplementedError


class Process(Somebody):
    """Somebody in a process of their own, who opens the store there."""

    def __init__(self, opener: Callable[[], Store]) -> None:
        here, there = Pipe()
        program = Path(__file__).with_name("elsewhere.py")
        self._process = subprocess.Popen(  # noqa: S603 - a program of ours
            [sys.executable, "-P", str(program), str(there.fileno())], pass_fds=[there.fileno()]
        )
        there.close()
        here.send(sys.path)
        here.send(opener)
        super().__init__(here)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()  # which tells it to end
        try:
            self._process.wait(PATIENCE if self._process.poll() is None else 0)
        except subprocess.TimeoutExpired:  # stopped, or stuck: a test that failed has left it so
            self.kill()


class Thread(Somebody):
    """Somebody in a thread, for a store that one process alone can open."""

    def __init__(self, store: Store) -> None:
        here, there = Pipe()
        super().__init__(here)
        self._awake, self._alive = threading.Event(), True
        self._awake.set()
        self._thread = threading.Thread(target=serve, args=(store, there, self._is_alive), daemon=True)
        self._thread.start()

    def _is_alive(self) -> bool:
        self._awake.wait()
        return self._alive

    def kill(self) -> None:
        self._alive = False
        self._line.close()
        self._thread.join(PATIENCE)

    def stop(self) -> None:
        self._awake.clear()

    def wake(self) -> None:
        self._awake.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._awake.set()
        self.kill()


class _Calls:
    """A store whose calls are made by somebody else."""

    def __init__(self, who: Somebody) -> None:
        self._who = who

    def __getattr__(self, call: str) -> Callable[..., Any]:
        return partial(_call, self._who, call)


def _call(who: Somebody, call: str, *arguments: Any) -> Any:
    return who.send(call, *arguments)()


@contextlib.contextmanager
def moved_clock(seconds: float) -> Iterator[None]:
    """The clock of this process, off by so much."""
    clock = Clock()
    clock.ahead = seconds
    kept = time.time, time.time_ns, actual.time, actual.time_ns
    time.time, time.time_ns, actual.time, actual.time_ns = clock.time, clock.time_ns, clock.time, clock.time_ns
    try:
        yield
    finally:
        time.time, time.time_ns, actual.time, actual.time_ns = kept
