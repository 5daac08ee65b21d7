"""The transports of an awaited process, as the program has them: over the loop's own, or over nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from everstep.capturing.seams import signals

if TYPE_CHECKING:
    from everstep.capturing.awaited_process import Link

KINDS = {1: "out", 2: "err"}


class Pipe(asyncio.ReadTransport, asyncio.WriteTransport):
    """One pipe of a process, as the program has it."""

    def __init__(self, link: Link, fd: int) -> None:
        super().__init__()
        self._link, self._fd = link, fd
        self.closing = False

    @property
    def _real(self) -> Any:
        tap = self._link.tap
        return None if tap is None or tap.real is None else tap.real.get_pipe_transport(self._fd)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of it."""
        return default if self._real is None else self._real.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether it is at its end."""
        return self.closing or (self._real is not None and bool(self._real.is_closing()))

    def close(self) -> None:
        """Close it."""
        if not self.closing:
            self.closing = True
            if self._fd == 0:
                self._link.say(None)
            if self._real is not None:
                self._real.close()

    def abort(self) -> None:
        """Close it at once."""
        self.closing = True
        if self._real is not None:
            self._real.abort()

    def pause_reading(self) -> None:
        """Have nothing passed on."""
        self._link.pause(KINDS[self._fd], paused=True)
        if self._real is not None:
            self._real.pause_reading()

    def resume_reading(self) -> None:
        """Have it passed on again."""
        self._link.pause(KINDS[self._fd], paused=False)
        if self._real is not None:
            self._real.resume_reading()

    def is_reading(self) -> bool:
        """Whether something would be passed on."""
        return not self.closing and KINDS[self._fd] not in self._link.paused

    def write(self, data: Any) -> None:
        """Put something in."""
        if data and not self.closing:
            self._link.say(bytes(data))
        if self._real is not None:
            self._real.write(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Put something in."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Whether it can be closed alone. It can."""
        return True

    def write_eof(self) -> None:
        """Put in nothing more."""
        self.close()

    def get_write_buffer_size(self) -> int:
        """How much is on its way."""
        return 0 if self._real is None else int(self._real.get_write_buffer_size())

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """When the program is told to wait."""
        if self._real is None:
            return (1 << 14, 1 << 16)
        low, high = self._real.get_write_buffer_limits()
        return low, high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when the program is to be told to wait."""
        if self._real is not None:
            self._real.set_write_buffer_limits(high, low)


class Transport(asyncio.SubprocessTransport):
    """A process, as the program has it."""

    def __init__(self, link: Link, fds: Iterable[int]) -> None:
        super().__init__()
        self.link = link
        self.pipes = {fd: Pipe(link, fd) for fd in fds}
        self.returncode: int | None = None
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self._waiters: list[asyncio.Future[int | None]] = []
        self._closing = False

    @property
    def _real(self) -> Any:
        return None if self.link.tap is None else self.link.tap.real

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of it."""
        return default if self._real is None else self._real.get_extra_info(name, default)

    def get_protocol(self) -> Any:
        """Who is told."""
        return self.link.protocol

    def set_protocol(self, protocol: Any) -> None:
        """Say who is told."""
        self.link.protocol = protocol

    def get_pid(self) -> int:
        """Its process id."""
        return self.link.transcript.pid

    def get_returncode(self) -> int | None:
        """How it ended, as far as the program was told."""
        return self.returncode

    def get_pipe_transport(self, fd: int) -> Any:
        """One of its pipes."""
        return self.pipes.get(fd)

    def send_signal(self, signal: int) -> None:
        """Send it a signal."""
        if self.returncode is not None or self.ended:
            raise ProcessLookupError
        if self._real is None:
            self.link.signal(signal)
        else:
            self._real.send_signal(signal)  # which is noted where it is sent

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signals.TERMINATE)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signals.KILL)

    def is_closing(self) -> bool:
        """Whether it is at its end."""
        return self._closing

    def close(self) -> None:
        """Close its pipes; if it still runs, end it."""
        if self._closing:
            return
        self._closing = True
        for pipe in self.pipes.values():
            pipe.close()
        if self._real is not None:
            self._real.close()
        elif self.returncode is None:
            self.link.signal(signals.KILL)

    async def _wait(self) -> int | None:
        """Wait for its end, and that of its pipes: this is what asyncio's Process calls."""
        if self.returncode is not None:
            return self.returncode
        waiter: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter

    def wake(self) -> None:
        """Tell who waits."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(self.returncode)
        self._waiters.clear()
