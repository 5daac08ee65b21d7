"""Behind the pipes of a process: who carries the bytes, and who plays the process when there is none.

Both sit at the far end of real pipes, so that whatever a program does with the near end works: files, select, text.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from everstep.capturing.process import Script, Transcript
from everstep.errors import DivergenceError

_PIECE = 1 << 16
_FULL = 1 << 18  # bytes that are kept for a program that does not read; then the process has to wait
_LOOK = 20  # milliseconds between looks whether the process has ended, while one is that full
_GLANCE = 250  # milliseconds
_PATIENCE = 2.0  # seconds that a program and the process that is played may wait for each other


class Flow:
    """Bytes on their way from one pipe to another."""

    __slots__ = ("buffer", "kind", "source", "target")

    def __init__(self, kind: str, source: int, target: int) -> None:
        self.kind, self.source, self.target = kind, source, target  # source -1: its end was seen
        self.buffer = bytearray()


class Pump:
    """Carries what goes in and out of a process, and notes it. One thread, so that the order is one."""

    def __init__(self, flows: list[Flow], transcript: Transcript) -> None:
        self._flows, self._transcript = flows, transcript
        self.exited = False  # then nothing is left to hold up
        self.said_all = threading.Event()  # all output was noted
        for flow in flows:
            os.set_blocking(flow.target, False)
        threading.Thread(target=self._carry, name="everstep-pipes", daemon=True).start()

    def _carry(self) -> None:
        while self._flows:
            waiting, is_full = select.poll(), False
            for flow in self._flows:
                if flow.source >= 0 and (len(flow.buffer) < _FULL or self.exited):
                    waiting.register(flow.source, select.POLLIN)
                is_full = is_full or len(flow.buffer) >= _FULL
                waiting.register(flow.target, select.POLLOUT if flow.buffer else 0)
            ready = dict(waiting.poll(_LOOK if is_full else None))
            for flow in list(self._flows):  # what goes in first: it was put in before what comes out now was seen
                if ready.get(flow.target, 0) & (select.POLLERR | select.POLLNVAL):
                    self._broken(flow)
                    continue
                if flow.source in ready:
                    self._read(flow)
                if flow.buffer:
                    self._write(flow)
                if flow.source < 0 and not flow.buffer and flow in self._flows:
                    self._end(flow)
            if not any(flow.source >= 0 and flow.kind != "in" for flow in self._flows):
                self.said_all.set()
        self.said_all.set()

    def _read(self, flow: Flow) -> None:
        try:
            data = os.read(flow.source, _PIECE)
        except OSError:
            data = b""
        self._transcript.note(flow.kind, data or None)
        flow.buffer += data
        if not data:
            os.close(flow.source)
            flow.source = -1

    def _write(self, flow: Flow) -> None:
        try:
            del flow.buffer[: os.write(flow.target, flow.buffer)]
        except BlockingIOError:
            pass
        except OSError:
            self._broken(flow)

    def _broken(self, flow: Flow) -> None:
        """Nobody reads at the other end: whoever writes at this one is to know."""
        if flow.kind == "in" and flow.source >= 0:
            self._transcript.note("gone")
        if flow.source >= 0:
            os.close(flow.source)
        self._end(flow)

    def _end(self, flow: Flow) -> None:
        os.close(flow.target)
        self._flows.remove(flow)


class Puppet:
    """Plays a process from its record."""

    def __init__(self, script: Script, source: int, targets: dict[str, int], diverged: Callable[[Any], Any]) -> None:
        self._script, self._source, self._diverged = script, source, diverged
        self._flows = {kind: Flow(kind, 0, target) for kind, target in targets.items()}  # source -1: all is in it
        self.blocked = 0  # how many threads of the program wait for it
        self.failure: DivergenceError | None = None
        self.through = threading.Event()  # all was said again, and heard
        self._wake, self._woken = os.pipe()
        self._waking = threading.Lock()
        for target in targets.values():
            os.set_blocking(target, False)
        threading.Thread(target=self._act, name="everstep-puppet", daemon=True).start()

    def signal(self) -> None:
        """The program sent it a signal."""
        self._script.signals += 1
        with self._waking:
            if self._woken >= 0:
                os.write(self._woken, b"!")

    def _act(self) -> None:
        try:
            while self._go_on():
                self._wait()
        except DivergenceError as error:
            self.failure = self._diverged(error)
        finally:
            with self._waking:
                os.close(self._woken)
                self._woken = -1
            for fd in (self._source, self._wake, *(flow.target for flow in self._flows.values())):
                if fd >= 0:
                    os.close(fd)
            self.through.set()

    def _go_on(self) -> bool:
        """Put out what is due. Whether anything is left to do. Raises DivergenceError."""
        while (item := self._script.due()) is not None:
            self._say(*item)
        if self._script.gone and self._source >= 0:
            os.close(self._source)
            self._source = -1
        if not self._script.through:
            return True
        if self._script.exit is not None:
            for kind in list(self._flows):
                self._say(kind, None)
        self.through.set()
        return bool(self._flows) or self._source >= 0

    def _say(self, kind: str, data: bytes | None) -> None:
        flow = self._flows.get(kind)
        if flow is None:
            return
        if data is None:
            flow.source = -1
        else:
            flow.buffer += data
        self._write(flow)

    def _write(self, flow: Flow) -> None:
        try:
            while flow.buffer:
                del flow.buffer[: os.write(flow.target, flow.buffer[:_PIECE])]
        except BlockingIOError:
            return
        except OSError:
            flow.buffer.clear()
            flow.source = -1
        if flow.source < 0:
            os.close(flow.target)
            del self._flows[flow.kind]

    def _wait(self) -> None:
        waiting = select.poll()
        waiting.register(self._wake, select.POLLIN)
        if self._source >= 0:
            waiting.register(self._source, select.POLLIN)
        for flow in self._flows.values():
            waiting.register(flow.target, select.POLLOUT if flow.buffer else 0)
        ready = self._patiently(waiting)
        if self._wake in ready:
            os.read(self._wake, _PIECE)
        if self._source in ready:
            data = os.read(self._source, _PIECE)
            self._script.hear(data)
            if not data:
                os.close(self._source)
                self._source = -1
        for flow in [flow for flow in self._flows.values() if flow.target in ready]:
            if ready[flow.target] & select.POLLERR:
                flow.buffer.clear()
                flow.source = -1
            self._write(flow)

    def _patiently(self, waiting: Any) -> dict[int, int]:
        """Wait for something to happen; but if the program waits for us, it will never do what it did then."""
        began = time.monotonic()
        while (gate := self._script.waits_for) is not None:
            ready = dict(waiting.poll(_GLANCE))
            if ready:
                return ready
            if not self.blocked:
                began = time.monotonic()
            elif time.monotonic() - began > _PATIENCE:
                if gate != "signal":
                    raise self._script.missing()
                self._script.skip()  # a timer may send it, and be late
                return {}
        return dict(waiting.poll())
