"""What a program reads from standard input: each piece that comes is a step, so that a replay types it again.

A run that is taken up again is given what was read before, then what comes now. A person goes on typing; a file or a
pipe is likely to come from its beginning again, and then what is on record of it is passed over.
"""

from __future__ import annotations

import builtins
import io
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from everstep.capturing import calling
from everstep.capturing.calls import Call, Form
from everstep.capturing.session import boundary

_NAME = "stdin"
_PATIENCE = 1.0  # seconds to wait for the rest of what begins like the record: a person's pipe would not come at once
_input = builtins.input


class _Form(Form):
    """How what was read is stored: as text where it is text."""

    def pack(self, head: Any, chunks: Sequence[bytes], offsets: Any, clean: Callable[[str], str]) -> str | bytes:
        del head, offsets, clean
        data = b"".join(chunks)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return data

    def unpack(self, stored: Any) -> tuple[bool, list[bytes]]:
        data = stored if isinstance(stored, bytes) else b"" if stored is None else str(stored).encode()
        return True, [data] if data else []


_FORM = _Form()


def _revived(kind: str, message: str) -> BaseException:
    error = getattr(builtins, kind, None)
    return error(message) if isinstance(error, type) and issubclass(error, Exception) else RuntimeError(message)


class _Source(io.RawIOBase):
    """The raw end of standard input."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._rest = b""  # of a piece that was larger than whoever reads had room for
        self._known = b""  # what the record gave, and nothing live since
        self.name = _NAME

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._real.fileno())

    def isatty(self) -> bool:
        return bool(self._real.isatty())

    def readinto(self, buffer: Any) -> int:
        data = self._rest or self._next(len(buffer))
        size = min(len(data), len(buffer))
        buffer[:size], self._rest = data[:size], data[size:]
        return size

    def _next(self, size: int) -> bytes:
        lane = boundary()
        if lane is None:
            return self._read(size)
        was_live = False

        def live() -> tuple[bool, Iterator[bytes]]:
            nonlocal was_live
            was_live = True
            piece = self._live(size)
            return True, iter([piece] if piece else [])

        _, chunks = calling.call(lane, Call(_NAME, {}, _FORM, _revived, node_type=_NAME), live)
        data = b"".join(chunks)
        self._known = b"" if was_live else self._known + data
        return data

    def _live(self, size: int) -> bytes:
        """The next piece of the world; of one that begins as the record does, what comes after that."""
        known, got = self._known, b""
        if not known or self.isatty():
            return self._read(size)
        while len(got) < len(known):
            piece = self._read(size)
            got += piece
            if not piece or not known.startswith(got[: len(known)]):
                return got
            if len(got) < len(known) and not select.select([self], [], [], _PATIENCE)[0]:
                return got
        return got[len(known) :] or self._read(size)

    def _read(self, size: int) -> bytes:
        if (
            self.isatty() and sys.stdout is not None and sys.stdout.isatty()
        ):  # then Python edits lines, if it is told to
            try:
                return f"{_input()}\n".encode(self._real.encoding)
            except EOFError:
                return b""
        return bytes(self._real.buffer.read1(size))


@contextmanager
def recorded_input() -> Iterator[None]:
    """While this lasts, what is read from `sys.stdin` and by `input` is a matter of the run."""
    real = sys.stdin
    if real is None or not hasattr(real, "buffer"):
        yield
        return
    ours = sys.stdin = io.TextIOWrapper(io.BufferedReader(_Source(real)), real.encoding, real.errors)

    def asked(prompt: object = "", /) -> str:
        """`input`, which on a terminal asks past `sys.stdin`."""
        if sys.stdin is not ours:
            return _input(prompt)
        print(prompt, end="", flush=True)  # noqa: T201 - as it does
        line = ours.readline()
        if not line:
            raise EOFError("EOF when reading a line")
        return line.removesuffix("\n")

    builtins.input = asked
    try:
        yield
    finally:
        builtins.input, sys.stdin = _input, real
