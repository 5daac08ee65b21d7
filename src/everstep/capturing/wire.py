"""HTTP/1 answers as the standard library reads them: taken apart as they come, put together again from what was kept.

A program always reads through an HTTPResponse on a `Wire`, live as in replay. Whatever that class does with a body that
has a length, chunks, neither, or was cut off, it does both times.
"""

from __future__ import annotations

import builtins
import io
import re
import socket
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from http import client as http_client
from http.client import IncompleteRead
from types import ModuleType
from typing import Any

from everstep.capturing.http import Head
from everstep.trail.failure import str_of

_PIECE = 1 << 16  # bytes, the most that is taken at once of a body without chunks
_LINE = 1 << 16  # bytes, the longest line there may be between chunks
_NO_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_ERRNO = re.compile(r"\[Errno (-?\d+)\] (.*)", re.DOTALL)
_OF_TLS = re.compile(r"\[(\w+): (\w+)\]")


def head_of(response: Any) -> Head:
    """The beginning of an answer that was just received."""
    version = "HTTP/1.0" if response.version == 10 else "HTTP/1.1"
    return Head(response.status, list(response.headers.items()), version, response.reason or "")


class Source:
    """The body of an answer from the network, piece by piece: a chunk, or as much as was there.

    Raises IncompleteRead where the connection ended before the answer did.
    """

    def __init__(self, response: Any) -> None:
        self._response, self._fp = response, response.fp
        self._left: int | None = response.length
        has_chunks = response.chunked and response.length != 0  # of a HEAD there are none, whatever it says
        self._pieces = self._chunks() if has_chunks else self._parts()

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Read no further."""
        self._response.close()

    def _parts(self) -> Iterator[bytes]:
        while self._fp is not None and self._left != 0:
            piece = self._fp.read1(_PIECE if self._left is None else min(self._left, _PIECE))
            if not piece and self._left is not None:
                raise IncompleteRead(b"", self._left)
            if not piece:
                break
            if self._left is not None:
                self._left -= len(piece)
                if not self._left:
                    self.close()  # the connection is free again
            yield piece
        self.close()

    def _chunks(self) -> Iterator[bytes]:
        while size := self._size():
            chunk = self._fp.read(size)
            if chunk:
                yield chunk
            if len(chunk) < size:
                raise IncompleteRead(b"", size - len(chunk))
            self._fp.read(2)  # the end of its line
        while self._fp.readline(_LINE) not in {b"\r\n", b"\n", b""}:
            pass  # trailers, which nobody gets to see
        self.close()

    def _size(self) -> int:
        line = self._fp.readline(_LINE)
        try:
            return int(line.partition(b";")[0], 16)
        except ValueError:
            raise IncompleteRead(b"") from None


class Wire:
    """Stands for the socket of an answer, or of a connection that needs none."""

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        """The answer, as its server would send it."""
        assert self._answer is not None  # noqa: S101 - nobody reads from a connection that needs none
        return _Reader(self._answer)

    def _ignored(self, *_: Any, **__: Any) -> None:
        """What is asked of a socket that does nothing."""

    settimeout = setsockopt = setblocking = shutdown = close = _ignored

    def gettimeout(self) -> None:
        """There is nothing to wait for."""


class _Reader(io.BufferedReader):
    """The file in a response. Where both are thrown away at once, the response may still flush it afterwards."""

    def flush(self) -> None:
        """There is nothing to flush."""


class Answer(io.RawIOBase):
    """The bytes of an answer, from its head and the chunks of an exchange."""

    def __init__(self, method: str, head: Head, chunks: Any) -> None:
        self._chunks = chunks
        self._waiting = memoryview(head.lines())
        self._chunked = (head.get("transfer-encoding") or "").lower() == "chunked"
        self.length = None if self._chunked else head.length
        if method == "HEAD" or head.status in _NO_BODY:
            self.length = 0
        self._left = self.length
        self._over = False
        self._timed_out = False
        if self._left == 0:
            self._end()  # nobody has to read what is not there

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Some of it: what is there, else what comes next."""
        if not self._waiting:
            self._waiting = memoryview(self._more())
        size = min(len(buffer), len(self._waiting))
        buffer[:size], self._waiting = self._waiting[:size], self._waiting[size:]
        return size

    def _more(self) -> bytes:
        if self._timed_out:
            raise OSError("cannot read from timed out object")  # as a socket says that has done so once
        if self._over:
            return b""
        try:
            chunk: bytes | None = next(self._chunks, None)
        except IncompleteRead:  # whoever reads finds out by itself
            self._over = True
            return b""
        except TimeoutError:
            self._timed_out = True
            raise
        if chunk is None:
            self._over = True
            return b"0\r\n\r\n" if self._chunked else b""
        if self._left is not None:
            self._left -= len(chunk)
            if self._left <= 0:
                self._end()
        return b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk

    def _end(self) -> None:
        """Have the end of the answer recorded: of a body whose length is known, nobody asks for more."""
        self._over = True
        next(self._chunks, None)

    def close(self) -> None:
        """Read no further."""
        if not self.closed:
            super().close()
            self._chunks.close()


def revived(kind: str, message: str, *modules: ModuleType) -> BaseException:
    """An exception of Python, or of a library, with this name and this text."""
    if kind == "IncompleteRead":
        return IncompleteRead(b"")
    for module in (builtins, http_client, *modules, socket, ssl):
        cls = getattr(module, kind, None)
        if isinstance(cls, type) and issubclass(cls, Exception):
            return _saying(cls, message)
    return RuntimeError(f"{kind}: {message}")


def _saying(cls: type[Exception], message: str) -> Exception:
    numbered = _ERRNO.fullmatch(message)
    args: tuple[Any, ...] = (int(numbered[1]), numbered[2]) if numbered else (message,)
    if issubclass(cls, ssl.SSLError):
        args = (int(ssl.SSL_ERROR_EOF if issubclass(cls, ssl.SSLEOFError) else ssl.SSL_ERROR_SSL), message)
    error = _made(cls, args)
    if isinstance(error, ssl.SSLError) and (names := _OF_TLS.match(message)):
        error.library, error.reason = names.groups()
    if str_of(error) == message:
        return error
    said = {"__str__": lambda _: message, "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return _made(type(cls.__name__, (cls,), said), args)


def _made(cls: type[Exception], args: tuple[Any, ...]) -> Exception:
    error = cls.__new__(cls, *args)
    if isinstance(error, OSError):
        OSError.__init__(error, *args)
    error.args = args
    return error
