"""A process that is awaited: between an event loop's transport and the protocol of the program.

Live, the loop's own transport tells us what comes out, and it is passed on in an order that is noted. From the record,
the same is told in the same order, and there is no process. The program has the same transport in both cases: ours.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import Any

from everstep.capturing import loops
from everstep.capturing.exchange import Exchange
from everstep.capturing.halting import Halted
from everstep.capturing.process import Script, Transcript, diverged
from everstep.capturing.seams import signals
from everstep.capturing.transports import KINDS, Transport
from everstep.errors import DivergenceError

_PATIENCE = 30.0  # seconds that the program may take until it puts in what it had put in then
_FDS = {"out": 1, "err": 2}
_PIPES = {**_FDS, "lost": 0}


class Tap(asyncio.SubprocessProtocol):
    """What the loop's own transport talks to: keeps what comes out until it may be passed on."""

    def __init__(self) -> None:
        self.items: deque[list[Any]] = deque()
        self.real: Any = None
        self.link: Link | None = None  # known a little later: nothing comes out before that is passed on
        self.arrived = asyncio.Event()

    def _add(self, *item: Any) -> None:
        self.items.append(list(item))
        self.arrived.set()

    def connection_made(self, transport: Any) -> None:
        """It was started."""
        self.real = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Something came out."""
        self._add(KINDS[fd], bytes(data))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """A pipe ended."""
        if fd:
            self._add(KINDS[fd], None)
        else:
            self._add("lost", None if exc is None else [type(exc).__name__, str(exc)])

    def process_exited(self) -> None:
        """It ended."""
        self._add("exit", self.real.get_returncode())

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended, and so did all pipes."""
        del exc
        self._add("end")

    def pause_writing(self) -> None:
        """It takes no more for now."""
        if self.link is not None:
            self.link.protocol.pause_writing()

    def resume_writing(self) -> None:
        """It takes more again."""
        if self.link is not None:
            self.link.protocol.resume_writing()


class Heard:
    """What comes out of a live process, one after the other. What the program does not want to have yet waits."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._ended = False

    async def __anext__(self) -> list[Any]:
        tap = self._tap
        while not self._ended:
            paused = set() if tap.link is None else tap.link.paused
            for item in tap.items:
                if item[0] not in paused and (item[0] != "end" or len(tap.items) == 1):
                    tap.items.remove(item)
                    self._ended = item[0] == "end"
                    return item
            tap.arrived.clear()
            await tap.arrived.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Nothing to close."""


class Link:
    """A process of the program: live, or from the record."""

    def __init__(self, transcript: Transcript, chunks: Any, tap: Tap | None) -> None:
        self.transcript, self._chunks, self.tap = transcript, chunks, tap
        self.protocol: Any = None
        self.transport: Transport | None = None
        self.paused: set[str] = set()
        self.changed = asyncio.Event()  # the program did something that may be waited for
        self.served = tap is None
        self._script = Script(transcript, chunks.exchange.clean) if tap is None else None
        self._context = contextvars.copy_context()
        signals.know(transcript.pid, self, chunks.exchange.run)

    def begin(self, protocol: Any, transport: Transport) -> None:
        """Pass on what comes out, from now on."""
        self.protocol, self.transport = protocol, transport
        if self.tap is not None:
            self.tap.link = self
        protocol.connection_made(transport)
        task = loops.passing().run(asyncio.get_running_loop().create_task, self._pass_on())
        task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - the loop may be closed first, as with any transport
        task.add_done_callback(lambda task: task.cancelled() or task.exception())  # the run tells of it
        transport.task = task

    async def _pass_on(self) -> None:
        last: list[list[Any]] = []  # told when the outcome is on record: with it the program goes on
        await self._due()
        async for item in self._chunks:
            while item[0] in self.paused:
                self.changed.clear()
                await self.changed.wait()
            self._note(item)
            if last or self._is_last(item):
                last.append(item)
                continue
            self._tell(item)
            loops.PASSES.set(False)
            await self._chunks.exchange.run.turnstile.settled(asyncio.get_running_loop())
            loops.PASSES.set(True)
            await self._due()
        for item in last:
            self._tell(item)

    def _is_last(self, item: list[Any]) -> bool:
        """Whether the program knows by this that the process and all that it has of it have ended."""
        kind, transport = item[0], self.transport
        assert transport is not None  # noqa: S101 - it has begun
        if kind == "end":
            return True
        if self._chunks.exchange.cancelled is not None or (kind in _FDS and item[1] is not None):
            return False
        is_over = kind == "exit" or transport.returncode is not None
        return is_over and all(pipe.closing or fd == _PIPES.get(kind) for fd, pipe in transport.pipes.items())

    async def _due(self) -> None:
        """Wait until the program has done what it had done before the next came out."""
        while self._script is not None and not self._script.through:
            try:
                if self._script.due() is not None:
                    return
                self.changed.clear()
                await asyncio.wait_for(self.changed.wait(), None if self._script.waits_for == "signal" else _PATIENCE)
            except DivergenceError as error:
                raise self.diverged(error) from None
            except TimeoutError:
                raise self.diverged(self._script.missing()) from None

    def _note(self, item: list[Any]) -> None:
        """Note what the program is told now: what came out after it was cut off, it never knew."""
        if self.tap is not None:
            if item[0] == "exit":
                self._chunks.exchange.wait_with_children()  # the program may go on before its pipes have ended
                self.transcript.exit = item[1]
            self.transcript.note(*item)

    def _tell(self, item: list[Any]) -> None:
        kind, data = item[0], item[1] if len(item) > 1 else None
        transport, protocol = self.transport, self.protocol
        assert transport is not None  # noqa: S101 - it has begun
        if transport.ended or (kind in _PIPES and _PIPES[kind] not in transport.pipes):
            return  # it was given up, or a fork has it say something where nobody listens
        if kind in _FDS and data is not None:
            self._context.run(protocol.pipe_data_received, _FDS[kind], data)
        elif kind in _FDS:
            transport.pipes[_FDS[kind]].closing = True
            self._context.run(protocol.pipe_connection_lost, _FDS[kind], None)
        elif kind == "lost":
            transport.pipes[0].closing = True
            error = None if data is None else self._chunks.exchange.call.revive(*data)
            self._context.run(protocol.pipe_connection_lost, 0, error)
        elif kind == "exit":
            transport.returncode = data
            self._context.run(protocol.process_exited)
        else:
            transport.ended = True
            signals.over(self.transcript.pid, self, self._chunks.exchange.run)
            self._context.run(protocol.connection_lost, None)
            transport.wake()

    # What the program does.

    def say(self, data: bytes | None) -> None:
        """The program puts something in, or closes. Raises Halted if that is not what it did."""
        if self._script is None:
            self.transcript.note("in", data)
            return
        self._script.hear(data or b"")
        try:
            self._script.compare()
        except DivergenceError as error:
            raise self.diverged(error) from None
        self.changed.set()

    def signal(self, number: int) -> bool:
        """Take note of a signal. Whether it is not to be sent."""
        if number and self._script is not None:
            self._script.signals += 1
            self.changed.set()
        elif number:  # one of 0 only asks whether it is there
            self.transcript.note("signal", int(number))
        return self.served

    def pause(self, kind: str, *, paused: bool) -> None:
        """The program wants nothing for now, or something again."""
        (self.paused.add if paused else self.paused.discard)(kind)
        self.changed.set()
        if self.tap is not None:
            self.tap.arrived.set()

    def diverged(self, error: DivergenceError) -> Halted:
        """What takes out a program that says something else to the process than it did."""
        asyncio.get_running_loop().call_soon(self._die)
        exchange: Exchange = self._chunks.exchange
        return exchange.halted(diverged(exchange, error))

    def _die(self) -> None:
        """Be over: a program that is taken out must not wait for a process that nobody plays any more."""
        transport: Any = self.transport
        if transport is None or transport.ended:
            return
        for kind, fd in _PIPES.items():
            if fd in transport.pipes and not transport.pipes[fd].closing:
                self._tell([kind, None])
        if transport.returncode is None:
            self._tell(["exit", -signals.KILL])
        self._tell(["end"])
