"""A process of the program that is recorded, or played from the record."""

from __future__ import annotations

import functools
import io
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from everstep import actual
from everstep.capturing.breaking import handled_here
from everstep.capturing.calling import RecordedChunks
from everstep.capturing.exchange import Exchange
from everstep.capturing.halting import Halted
from everstep.capturing.pipes import Pump, Puppet
from everstep.capturing.process import ENDED, Script, Transcript, diverged
from everstep.capturing.seams import signals
from everstep.run.execution import Execution

_MOMENT, _LOOK = 0.1, 0.005  # seconds until a signal that ended a process is heard by the program, too
_GRACE = 0.2  # seconds for the rest of the output of a process that has ended; what it left behind may hold it open


class Tape:
    """A process that is recorded, or played."""

    def __init__(self, transcript: Transcript, chunks: Any) -> None:
        self.transcript, self._chunks = transcript, chunks
        self.served = isinstance(chunks, RecordedChunks)
        self.pump: Pump | None = None
        self.puppet: Puppet | None = None
        self.waits: deque[Any] = deque(transcript.waits)
        self._lock = threading.Lock()
        self._over = False
        self._around = frozenset(map(id, handled_here()))  # amid which it was started
        self._signalled = False

    def signal(self, number: int) -> bool:
        """Take note of a signal. Whether it is not to be sent."""
        if number and self.puppet is not None:
            self.puppet.signal()
        elif number and not self.served and not self._over:
            self.transcript.note("signal", int(number))
            self._signalled = True
        return self.served

    def ended(self, status: int) -> None:
        """The program knows that the process has ended, and how: that is its outcome, once all output is there."""
        exchange = self._chunks.exchange
        if exchange.run.defers(exchange.ask.lane, functools.partial(self.ended, status)):
            return
        signals.over(self.transcript.pid, self, self._chunks.exchange.run)
        if self.pump is not None:
            self.pump.exited = True
            if not self.pump.said_all.wait(_GRACE):
                self.transcript.exit = status  # what it left behind goes on: the outcome is written when the run ends
                return
        with self._lock:
            if self._over:
                return
            self._over = True
        self.transcript.exit = status
        if self.served:
            next(self._chunks, None)
            return
        try:
            cut = self._cut_off(status)
        except BaseException as error:  # the signal has come
            self._chunks.leave(error)
            raise
        if cut is None:
            next(self._chunks, None)
        else:
            self._chunks.leave(cut)

    def _cut_off(self, status: int) -> BaseException | None:
        """What takes the code out of its wait, or the program out of the run. How the process ended is no answer then.

        Ctrl-C in a terminal goes to the program and to its processes; code that is taken out of a wait kills what it
        waits for, or misses how that ended. With such an end on record a resume would come to the same again.
        """
        for error in handled_here():
            if isinstance(error, KeyboardInterrupt | SystemExit) and id(error) not in self._around:
                return error
        if status not in ENDED or self._signalled:
            return None
        run: Execution = self._chunks.exchange.run
        patience = actual.monotonic() + _MOMENT
        while run.interrupted is None and actual.monotonic() < patience:
            actual.sleep(_LOOK)
        return run.interrupted

    # From the record.

    def play(self, source: int, targets: dict[str, int]) -> None:
        """Have the process played behind these pipes."""
        exchange = self._chunks.exchange
        script = Script(self.transcript, exchange.clean)
        self.puppet = Puppet(script, source, targets, functools.partial(diverged, exchange))

    def never_ended(self) -> Halted:
        """What takes out a program that waits for a process that was left running."""
        exchange: Exchange = self._chunks.exchange
        return exchange.halted(exchange.diverged("inserted", "a process that was left running", "its end"))

    def waited(self, kind: str) -> Any:
        """What the program was told when it looked for the end: None if that it has ended."""
        while self.waits and self.waits[0] == "poll" != kind:
            self.waits.popleft()
        if not self.waits or (kind == "poll" and self.waits[0] != "poll"):
            return self.waits[0] if self.waits else None
        return self.waits.popleft()

    @contextmanager
    def blocking(self) -> Iterator[None]:
        """Round what waits for the process. Raises Halted if the program does other than it did."""
        puppet = self.puppet
        if puppet is None:
            yield
            return
        puppet.blocked += 1
        try:
            yield
        finally:
            puppet.blocked -= 1
            self.check()

    def check(self) -> None:
        """Raise Halted if the program was found to do other than it did."""
        if self.puppet is not None and self.puppet.failure is not None:
            raise self._chunks.exchange.halted(self.puppet.failure)


class Reader(io.FileIO):
    """The raw end of an output pipe: notes the sizes of reads where the program sees them, and keeps to them."""

    def __init__(self, fd: int, tape: Tape, name: str) -> None:
        super().__init__(fd, "rb")
        self._tape = tape
        self._sizes = tape.transcript.reads.get(name, []) if tape.served else []
        self._left = iter(self._sizes)
        self._kind = name

    def exactly(self) -> None:
        """The program sees the sizes of reads from now on."""
        if not self._tape.served:
            self._tape.transcript.reads.setdefault(self._kind, self._sizes)

    def readinto(self, buffer: Any) -> int | None:
        """Read as much as there is, or as was read then."""
        if not self._tape.served:
            size = super().readinto(buffer)
            self._sizes.append(size or 0)
            return size
        with self._tape.blocking():
            size = next(self._left, None)
            if size is None:
                return super().readinto(buffer)
            got, view = 0, memoryview(buffer)
            while got < min(size, len(view)):
                more = super().readinto(view[got:size])
                if not more:
                    break
                got += more
            return got

    def read(self, size: int | None = -1, /) -> bytes:
        """Read so much, or everything."""
        if size is None or size < 0:
            return self.readall()
        buffer = bytearray(size)
        got = self.readinto(buffer)
        return None if got is None else bytes(buffer[:got])  # type: ignore[return-value] # as in C

    def readall(self) -> bytes:
        """Read everything."""
        with self._tape.blocking():
            return super().readall()


class Buffered(io.BufferedReader):
    """An output pipe as bytes. What its reader gets at once depends on chance only in these two ways of reading."""

    raw: Reader

    def read1(self, size: int = -1, /) -> bytes:
        """Read what is there."""
        self.raw.exactly()
        return super().read1(size)

    def peek(self, size: int = 0, /) -> bytes:
        """See what is there."""
        self.raw.exactly()
        return super().peek(size)
