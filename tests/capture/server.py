"""A model server on the loopback interface. No two of its answers are alike, so a call that is made twice is seen.

In a test: `with ModelServer() as server:`, then `server.url` and `server.requests`. As a process of its own, which
outlives the program that asks it: `python -m tests.capture.server --port-file F`; its log is at `/_log`.

Besides the endpoints of `replies.py` there are `/plain/<anything>`, `/slow?s=0.5`, `/flaky?key=k` (fails once for each
key), `/gzip`, `/bytes?n=1000`, `/redirect?hops=2`, `/drop` and `/drop?stream=1` (end amid the answer), `/cookie`,
`/echo` and `/lines?n=5`. A prompt can hold `[slow 0.5]`, `[flaky key]` and `[drop]` to the same effect.
"""

from __future__ import annotations

import argparse
import gzip
import json
import select
import signal
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.capture.replies import ENDPOINTS, Asked, digest, framed, wished

JSON = "application/json"
LATER = 5  # milliseconds, after which one may try again


class GoneError(ConnectionError):
    """The client has closed its end, or the server is stopping."""


@dataclass
class Request:
    """One line of the log."""

    number: int
    tag: str  # stands in the answer, and in no other
    method: str
    path: str
    digest: str  # of the body
    marker: str | None  # header `X-Marker`, or `user` or `metadata.marker` in the body
    began: float
    body: bytes = field(repr=False)
    status: int | None = None
    sent: bool = False  # the answer, to its end
    ended: float | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it but the body."""
        return {name: value for name, value in vars(self).items() if name != "body"}


class ModelServer:
    """A server that can be stopped and started again at the same port; the log and the numbers go on.

    `delay` is the longest random wait before an answer and between the parts of a stream, in seconds; `seed` settles
    which waits there are.
    """

    def __init__(self, port: int = 0, *, delay: float = 0.004, seed: int | None = None) -> None:
        self.port = port
        self.delay = delay
        self.seed = uuid.uuid4().hex if seed is None else seed
        self.life = uuid.uuid4().hex[:4]  # a second server at this port gives other answers than this one
        self.requests: list[Request] = []
        self.faults: list[str] = []  # of the server itself
        self.failed: set[str] = set()  # keys of what has failed once
        self.connections: set[socket.socket] = set()
        self.quiet = threading.Condition()
        self._http: _Http | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen. On return clients can connect."""
        self._http = _Http(self)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), name="model server")
        self._thread.start()

    def stop(self) -> None:
        """Close every connection; on return nobody is being answered. Raises if the server itself went wrong."""
        if self._http is None:
            return
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        self._http = None
        with self.quiet:
            for connection in self.connections:
                with suppress(OSError):  # it may be closed already
                    connection.shutdown(socket.SHUT_RDWR)
            ended = self.quiet.wait_for(lambda: not self.connections, timeout=10)
        if self.faults or not ended:
            raise RuntimeError("\n".join(self.faults) or "a request is still being answered")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def note(self, method: str, path: str, marker: str | None, body: bytes) -> Request:
        """A new line of the log."""
        with self.quiet:
            number = len(self.requests) + 1
            tag = f"{self.life}-{number}"
            asked = Request(number, tag, method, path, digest(body), marker, time.time(), body)
            self.requests.append(asked)
        return asked

    def fails(self, key: str) -> bool:
        """Whether this key has not failed yet; from now on it has."""
        with self.quiet:
            first = key not in self.failed
            self.failed.add(key)
        return first


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, ground: ModelServer) -> None:
        self.ground = ground
        super().__init__(("127.0.0.1", ground.port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking for the name of the machine, as the base class would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Know the connection before its thread begins, so that `stop` misses none."""
        with self.ground.quiet:
            self.ground.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection, and forget it."""
        super().shutdown_request(request)
        with self.ground.quiet:
            self.ground.connections.discard(request)
            self.ground.quiet.notify_all()

    def handle_error(self, *_: Any) -> None:
        """Say nothing; `stop` will."""
        self.ground.faults.append(traceback.format_exc())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http
    asked: Request
    chance: Random

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Answer the requests of one connection, until either side closes it."""
        with suppress(ConnectionError):  # clients may go away whenever they like
            super().handle()

    def answer(self) -> None:
        """Answer one request, and log it."""
        body = self.body()
        if self.path == "/_log":
            log = [asked.as_json() for asked in self.server.ground.requests]
            data = json.dumps(log).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.asked = self.server.ground.note(self.command, self.path, self.marker(body), body)
        self.chance = Random(f"{self.server.ground.seed}-{self.asked.number}")
        try:
            self.wait()
            self.route(body)
        except ConnectionError:
            self.asked.sent = False
            self.close_connection = True
        finally:
            self.asked.ended = time.time()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer  # noqa: N815 - the base class calls them so

    def route(self, body: bytes) -> None:
        """Find what is asked for."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path in ENDPOINTS and self.command == "POST":
            return self.model(url.path, Asked(json.loads(body)))
        page = PAGES.get(url.path.split("/")[1])
        if page is None:
            return self.json({"error": {"message": f"nothing at {url.path}"}}, status=404)
        return page(self, query, body)

    def model(self, path: str, asked: Asked) -> None:
        """What a model says."""
        whole, events = ENDPOINTS[path]
        key = wished(asked.text, "flaky")
        if key is not None and self.server.ground.fails(key):
            return self.fail()
        self.wait(float(wished(asked.text, "slow") or 0))
        tag, drop = self.asked.tag, wished(asked.text, "drop") is not None
        if asked.streams:
            frames = [framed(event) for event in events(asked, tag)]
            return self.stream(frames[: len(frames) // 2] if drop else frames, "text/event-stream", cut=drop)
        data = json.dumps(whole(asked, tag)).encode()
        return self.cut(data) if drop else self.whole(data)

    # Pages

    def plain(self, query: dict[str, str], body: bytes) -> None:
        self.json({"path": self.path, "digest": digest(body)})

    def slow(self, query: dict[str, str], body: bytes) -> None:
        self.wait(float(query.get("s", "0.5")))
        self.json({"slow": True})

    def flaky(self, query: dict[str, str], body: bytes) -> None:
        if self.server.ground.fails(query.get("key", "")):
            return self.fail()
        return self.json({"flaky": False})

    def gzipped(self, query: dict[str, str], body: bytes) -> None:
        data = gzip.compress(json.dumps({"counter": self.asked.tag, "text": "squeezed " * 50}).encode())
        self.whole(data, headers={"Content-Encoding": "gzip"})

    def random(self, query: dict[str, str], body: bytes) -> None:
        head = f"{self.asked.tag}\r\n".encode()
        data = head + Random(self.asked.tag).randbytes(int(query.get("n", "1000")))
        self.whole(data[: int(query.get("n", "1000"))], "application/octet-stream")

    def lines(self, query: dict[str, str], body: bytes) -> None:
        count = int(query.get("n", "5"))
        self.stream([f"line {at} of {self.asked.tag}\n".encode() for at in range(count)], "text/plain")

    def redirect(self, query: dict[str, str], body: bytes) -> None:
        hops = int(query.get("hops", "1"))
        to = "/plain/redirected" if hops == 1 else f"/redirect?hops={hops - 1}"
        self.json({"to": to}, status=302, headers={"Location": to})

    def drop(self, query: dict[str, str], body: bytes) -> None:
        if "stream" in query:
            self.stream([f"data: {at} of {self.asked.tag}\n\n".encode() for at in range(3)], cut=True)
        else:
            self.cut(json.dumps({"counter": self.asked.tag, "text": "cut " * 50}).encode())

    def cookie(self, query: dict[str, str], body: bytes) -> None:
        sent = self.headers.get("Cookie")
        self.json({"sent": sent}, headers={"Set-Cookie": f"visit={self.asked.tag}; Path=/; HttpOnly"})

    def echo(self, query: dict[str, str], body: bytes) -> None:
        said = {"method": self.command, "path": self.path, "headers": dict(self.headers)}
        self.json({**said, "body": body.decode("utf-8", "replace")})

    # Requests

    def body(self) -> bytes:
        """The body of the request, whether its length is known before or not."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def marker(self, body: bytes) -> str | None:
        """What the client wants the request to be known by."""
        try:
            said = json.loads(body)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            said = {}
        return self.headers.get("X-Marker") or said.get("user") or (said.get("metadata") or {}).get("marker")

    # Answers

    def wait(self, seconds: float | None = None) -> None:
        """Wait, by default for a short random time. Raises GoneError as soon as the client is gone."""
        span = self.chance.uniform(0, self.server.ground.delay) if seconds is None else seconds
        readable, _, _ = select.select([self.connection], [], [], span)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise GoneError

    def head(self, status: int, kind: str, headers: Iterable[tuple[str, str]]) -> None:
        """Everything before the body."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.asked.status = status
        self.send_header("X-Counter", self.asked.tag)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def whole(self, data: bytes, kind: str = JSON, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """An answer of known length. It counts as sent before it goes, so that who has got it finds it so."""
        self.head(status, kind, [("Content-Length", str(len(data))), *(headers or {}).items()])
        self.asked.sent = True
        if self.command != "HEAD":
            self.wfile.write(data)

    def json(self, value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> None:
        """A small answer with the counter in it."""
        self.whole(json.dumps({"counter": self.asked.tag, **value}).encode(), status=status, headers=headers)

    def fail(self) -> None:
        """An error after which one should try again."""
        error = {"error": {"type": "server_error", "message": f"failed once {self.asked.tag}"}}
        self.json(error, status=500, headers={"retry-after-ms": str(LATER)})

    def cut(self, data: bytes) -> None:
        """Half of an answer, and then the end of the connection."""
        self.head(200, JSON, [("Content-Length", str(len(data)))])
        self.wfile.write(data[: len(data) // 2])
        raise GoneError

    def stream(self, parts: list[bytes], kind: str = "text/event-stream", *, cut: bool = False) -> None:
        """An answer in chunks, with waits between them; the last chunk and the end go together."""
        self.head(200, kind, [("Transfer-Encoding", "chunked"), ("Cache-Control", "no-cache")])
        for part, data in self.chunks(parts, cut=cut):
            self.wait()
            self.asked.sent = part == len(parts) - 1 and not cut
            self.wfile.write(data)
        if cut:
            raise GoneError

    @staticmethod
    def chunks(parts: list[bytes], *, cut: bool) -> Iterator[tuple[int, bytes]]:
        """Numbered parts, as chunks of HTTP."""
        for number, part in enumerate(parts):
            end = b"0\r\n\r\n" if number == len(parts) - 1 and not cut else b""
            yield number, b"%x\r\n%s\r\n" % (len(part), part) + end


Page = Callable[[_Handler, dict[str, str], bytes], None]
PAGES: dict[str, Page] = {
    "plain": _Handler.plain,
    "slow": _Handler.slow,
    "flaky": _Handler.flaky,
    "gzip": _Handler.gzipped,
    "bytes": _Handler.random,
    "lines": _Handler.lines,
    "redirect": _Handler.redirect,
    "drop": _Handler.drop,
    "cookie": _Handler.cookie,
    "echo": _Handler.echo,
}


def main() -> None:
    """Serve until a SIGTERM or SIGINT comes. The file holds the port as soon as clients can connect."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port-file", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.004)
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    # Blocked in every thread and waited for: a handler runs in the main thread, which a signal that another thread
    # takes does not wake.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with ModelServer(args.port, delay=args.delay, seed=args.seed) as server:
        new = args.port_file.with_suffix(".new")
        new.write_text(str(server.port), "utf-8")
        new.replace(args.port_file)
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
