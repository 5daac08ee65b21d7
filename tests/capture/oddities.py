"""A server that answers byte by byte what it is told to: framings, codings and faults that a decent one never shows."""

from __future__ import annotations

import gzip
import re
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import brotli  # type: ignore[import-untyped] # it has no stubs
import zstandard

import everstep

COOKIE = "c00kie-5ecret-v4lue"
KEY = "sk-proj-" + "Zq8x" * 12  # in the shape of an API key
TEXT = b"".join(b"line %d of the answer\n" % at for at in range(40))


def whole(body: bytes, *lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """An answer of known length."""
    return head(f"Content-Length: {len(body)}", *lines, status=status, version=version) + body


def head(*lines: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """The beginning of an answer."""
    return "\r\n".join([f"HTTP/{version} {status}", *lines, "", ""]).encode("latin-1")


def chunks(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + end


def deflated(*parts: bytes, window: int) -> list[bytes]:
    """A body squeezed part by part, so that each can be read when it is there."""
    squeeze = zlib.compressobj(wbits=window)
    pieces = [squeeze.compress(part) + squeeze.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*pieces[:-1], pieces[-1] + squeeze.flush()]


def spaced(*parts: bytes) -> list[bytes]:
    """The same, with the head and the end of gzip in chunks of their own."""
    (first, *others), end = deflated(*parts, window=31), 8
    return [first[:10], first[10:], *others[:-1], others[-1][:-end], others[-1][-end:]]


def zstd(*parts: bytes) -> list[bytes]:
    """The same by Zstandard."""
    squeeze = zstandard.ZstdCompressor().compressobj()
    pieces = [squeeze.compress(part) + squeeze.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for part in parts]
    return [*pieces[:-1], pieces[-1] + squeeze.flush()]


def brotli_parts(*parts: bytes) -> list[bytes]:
    """The same by Brotli."""
    squeeze = brotli.Compressor()
    pieces = [squeeze.process(part) + squeeze.flush() for part in parts]
    return [*pieces[:-1], pieces[-1] + squeeze.finish()]


CHUNKED = "Transfer-Encoding: chunked"
PAUSE = "pause"  # a short one, so that what comes before it arrives first
STALL = "stall"  # longer than anybody waits
RESET = "reset"  # the connection breaks

SEPARATE = [b"event one\n", b"event two, which is longer\n", b"event three\n"]
ANSWERS: dict[str, list[bytes | str]] = {
    "empty": [head("Content-Length: 0")],
    "nothing": [head(status="204 No Content")],
    "unchanged": [head('ETag: "x"', "Content-Length: 42", status="304 Not Modified")],
    "old": [head(version="1.0"), TEXT],
    "endless": [head("Connection: close"), TEXT[:100], PAUSE, TEXT[100:]],
    "chunks": [head(CHUNKED), *(part for each in SEPARATE for part in (chunks(each, end=b""), PAUSE)), chunks()],
    "split": [head(CHUNKED), b"16\r\nhalf a chunk, ", PAUSE, b"and half\r\n", chunks(b"more")],
    "extended": [head(CHUNKED), b"5;a=b\r\nhello\r\n0\r\nTrailer: x\r\n\r\n"],
    "large": [head(CHUNKED), chunks(b"x" * 200_000, b"y" * 10)],
    "huge": [whole(b"z" * 300_000)],
    "gzip": [whole(gzip.compress(TEXT), "Content-Encoding: gzip")],
    "deflate": [whole(zlib.compress(TEXT), "Content-Encoding: deflate")],
    "bare": [whole(b"".join(deflated(TEXT, window=-15)), "Content-Encoding: deflate")],
    "squeezed": [
        head(CHUNKED, "Content-Encoding: gzip"),
        *(part for each in deflated(*SEPARATE, window=31) for part in (chunks(each, end=b""), PAUSE)),
        chunks(),
    ],
    "spaced": [  # what is squeezed begins, and ends, in chunks that say nothing
        head(CHUNKED, "Content-Encoding: gzip"),
        *(part for each in spaced(*SEPARATE * 4) for part in (chunks(each, end=b""), PAUSE)),
        chunks(),
    ],
    "zstd": [whole(zstandard.compress(TEXT), "Content-Encoding: zstd")],
    "zstd-frames": [whole(zstandard.compress(TEXT[:99]) + zstandard.compress(TEXT[99:]), "Content-Encoding: zstd")],
    "zstd-parts": [head(CHUNKED, "Content-Encoding: zstd"), chunks(*zstd(*SEPARATE))],
    "brotli": [whole(brotli.compress(TEXT), "Content-Encoding: br")],
    "brotli-parts": [head(CHUNKED, "Content-Encoding: br"), chunks(*brotli_parts(*SEPARATE))],
    "squeezed-cut": [head("Content-Length: 400", "Content-Encoding: gzip"), gzip.compress(TEXT)[:60]],
    "unsqueezed": [whole(b"this is no gzip", "Content-Encoding: gzip")],
    "strange": [whole(b"\x00\x01 what is it", "Content-Encoding: x-strange")],
    "continue": [b"HTTP/1.1 100 Continue\r\n\r\n", whole(b"went on")],
    "folded": [whole(b"ok", "X-Long: one\r\n two", "X-Latin: caf\xe9", "X-Twice: a", "X-Twice: b")],
    "bare-status": [b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"],
    "cookies": [whole(b"set", f"Set-Cookie: sid={COOKIE}; Path=/", "Set-Cookie: two=2; Path=/; HttpOnly")],
    "onward": [whole(b"go", "Location: /check", f"Set-Cookie: sid={COOKIE}; Path=/", status="302 Found")],
    "again": [whole(b"go", "Location: /body", status="307 Temporary Redirect")],
    "secret": [whole(f'{{"key": "{KEY}", "text": "plain"}}'.encode(), f"X-Api-Key: {KEY}")],
    "busy": [whole(b"busy", status="503 Service Unavailable")],
    "numbered": [whole(b'{"index": {"of": "a"}, "text": "it is 5"}\n' * 2)],  # as streams of models are, and is none
    "deep": [whole((b'{"a":' * 3000 + b"5" + b"}" * 3000 + b"\n") * 2)],
    "denied": [whole(b"no", "WWW-Authenticate: Basic", status="401 Unauthorized")],
    # Faults.
    "short": [head("Content-Length: 500"), TEXT[:100]],
    "cut": [head(CHUNKED), chunks(*SEPARATE[:2], end=b"")],
    "cut-within": [head(CHUNKED), chunks(SEPARATE[0], end=b""), b"ff\r\nonly this"],
    "miscounted": [head(CHUNKED), chunks(SEPARATE[0], end=b"zz\r\nnonsense\r\n")],
    "stalled": [head("Content-Length: 500"), TEXT[:100], STALL],
    "stalled-chunks": [head(CHUNKED), chunks(*SEPARATE, end=b""), STALL],
    "failed-short": [head("Content-Length: 500", status="500 Oh"), TEXT[:100]],
    "failed-stalled": [head("Content-Length: 500", status="500 Oh"), TEXT[:100], STALL],
    "silent": [STALL],
    "nonsense": [b"this is not HTTP\r\n\r\n"],
    "gone": [],
    "reset": [RESET],
    "reset-within": [head("Content-Length: 500"), TEXT[:100], PAUSE, RESET],
}
CLOSED = {  # after it
    "old", "endless", "squeezed-cut", "nonsense", "gone", "short", "failed-short", "cut", "cut-within", "miscounted",
}  # fmt: skip


@contextmanager
def serving() -> Iterator[str]:
    """The address of such a server. `/check` tells whether the cookie came back, `/body` what was sent."""
    over = threading.Event()
    talks: list[tuple[threading.Thread, socket.socket]] = []
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:

        def accept() -> None:
            with suppress(OSError):  # the listener is shut down
                while True:
                    connection, _ = listener.accept()
                    talks.append((threading.Thread(target=_talk, args=(connection, over)), connection))
                    talks[-1][0].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread, connection in talks:
                with suppress(OSError):  # it may be closed already
                    connection.shutdown(socket.SHUT_RDWR)
                thread.join()


def _talk(connection: socket.socket, over: threading.Event) -> None:
    with connection, connection.makefile("rb") as file, suppress(OSError, ValueError):  # clients say what they like
        while file.peek(1) and _answer(connection, file, over):
            pass


def _answer(connection: socket.socket, file: BinaryIO, over: threading.Event) -> bool:
    """Answer one request. Whether there may be another."""
    method, target = file.readline().decode().split(" ")[:2]
    headers = {}
    while (said := file.readline().decode("latin-1").strip()) != "":
        name, _, value = said.partition(":")
        headers[name.lower()] = value.strip()
    body = _body(headers, file)
    path = re.sub(r"^https?://[^/]+", "", target).strip("/").partition("?")[0]
    if path == "check":
        parts: list[bytes | str] = [whole(b"came back" if COOKIE in headers.get("cookie", "") else b"did not")]
    elif path == "body":
        kind = headers.get("content-type", "").partition(";")[0] + headers.get("transfer-encoding", "")
        parts = [whole(f"{method} {len(body)} {body[-40:]!r} {kind}".encode())]
    else:
        parts = ANSWERS[path]
    return _send(connection, parts[:1] if method == "HEAD" else parts, over) and path not in CLOSED


def _body(headers: dict[str, str], file: BinaryIO) -> bytes:
    if headers.get("transfer-encoding") != "chunked":
        return file.read(int(headers.get("content-length", "0")))
    parts = []
    while size := int(file.readline(), 16):
        parts.append(file.read(size))
        file.readline()
    file.readline()
    return b"".join(parts)


def _send(connection: socket.socket, parts: list[bytes | str], over: threading.Event) -> bool:
    for part in parts:
        if isinstance(part, bytes):
            connection.sendall(part)
        elif part == PAUSE:
            time.sleep(0.01)
        elif part == STALL:
            over.wait(2)
            return False
        else:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
    return True


def thrice(folder: Path, program: Callable[[str], Any]) -> tuple[Any, Any, Any]:
    """What a program gives bare, recorded, and in a replay with the server gone."""
    with everstep.open(folder / "trail.db") as trail:
        with serving() as url:
            bare = program(url)
            with everstep.capture(trail, "x", durability="async"):
                recorded = program(url)
        with everstep.capture(trail, "x", mode="verify"):
            return bare, recorded, program(url)


def same(folder: Path, program: Callable[[str], Any]) -> Any:
    """What a program gives, each of three times."""
    bare, recorded, replayed = thrice(folder, program)
    assert recorded == bare
    assert replayed == recorded
    return bare


def patience(name: str) -> float:
    """The seconds to wait for an answer: few for one that never comes."""
    return 0.5 if STALL in ANSWERS[name] else 5


def outcome(call: Callable[[], Any]) -> Any:
    """What it gives, or type and text of what it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is compared
        return f"{type(error).__module__}.{type(error).__qualname__}", str(error)


def stored(folder: Path) -> str:
    """All that is to be found of a trail: its files, and all that it shows."""
    files = b"".join(path.read_bytes() for path in folder.glob("trail.db*"))
    with everstep.open(folder / "trail.db") as trail:
        return files.decode("latin-1") + repr([(step.inputs, step.output, step.error) for step in trail.steps("x")])
