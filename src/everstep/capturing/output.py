"""What a program prints: passed on at once, and kept."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIMIT = 1 << 20  # bytes kept of each stream, half of them from its end


class _Tee(io.RawIOBase):
    """The raw end of a text stream: whatever is written goes on to where it went, and is kept."""

    def __init__(self, binary: Any, kept: Kept) -> None:
        self._binary, self._kept = binary, kept

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = len(data)
        self._kept.add(bytes(data))
        self._binary.write(data)
        self._binary.flush()
        return size

    def fileno(self) -> int:
        return int(self._binary.fileno())

    def isatty(self) -> bool:
        return bool(self._binary.isatty())


class Kept:
    """The beginning and the end of what was printed."""

    def __init__(self) -> None:
        self._first = bytearray()
        self._last = bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        """Keep this too."""
        room = LIMIT // 2 - len(self._first)
        self._first += data[: max(room, 0)]
        self._last += data[max(room, 0) :]
        if len(self._last) > LIMIT:
            self._left_out += len(self._last) - LIMIT // 2
            del self._last[: len(self._last) - LIMIT // 2]

    def text(self) -> str:
        """What is kept, with a line that tells how much is not."""
        gap = f"\n[... {self._left_out:,} bytes ...]\n".encode() if self._left_out else b""
        return b"".join((self._first, gap, self._last)).decode("utf-8", "replace")


@contextmanager
def kept_output() -> Iterator[tuple[Kept, Kept]]:
    """Keep what is written to sys.stdout and sys.stderr."""
    kept = Kept(), Kept()
    before = sys.stdout, sys.stderr
    for name, stream, keeps in zip(("stdout", "stderr"), before, kept, strict=True):
        if stream is not None and hasattr(stream, "buffer"):
            stream.flush()
            setattr(sys, name, _teed(stream, keeps))
    try:
        yield kept
    finally:
        for name, stream in zip(("stdout", "stderr"), before, strict=True):
            now = getattr(sys, name)
            if now is not stream:
                flush(now)
            setattr(sys, name, stream)


def flush(stream: Any) -> None:
    """Have what was printed go out. The program may have closed the stream, or put nothing in its place."""
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()


def _teed(stream: Any, kept: Kept) -> io.TextIOWrapper:
    tee = _Tee(stream.buffer, kept)
    raw: Any = tee if stream.write_through else io.BufferedWriter(tee)  # python -u holds nothing back
    raw_name = getattr(stream, "name", "<stdout>")
    teed = io.TextIOWrapper(
        raw, stream.encoding, stream.errors, newline="\n", line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )  # fmt: skip
    tee.name = raw_name  # type: ignore[attr-defined] # what TextIOWrapper.name asks for
    return teed
