"""The endpoint that the programs on the pages ask: it numbers its answers, so that each new one is another."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint(ThreadingHTTPServer):
    """Speaks as much of OpenAI's API as the pages need, takes orders, and gives a rate."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.counts: dict[str, int] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def number(self, kind: str) -> int:
        """How many answers of a kind there are, with this one."""
        with self.lock:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return self.counts[kind]


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        """Answer one connection. Its program may be killed meanwhile."""
        with suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/chat/completions"):
            return self.answer(_completion(asked, self.server.number("answer")))
        return self.answer({"order": self.server.number("order")})

    def do_GET(self) -> None:
        self.answer({"rate": 1.5 + self.server.number("rate")})

    def answer(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _completion(asked: dict[str, Any], number: int) -> dict[str, Any]:
    words = sum(len(str(message["content"]).split()) for message in asked["messages"])
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": f"answer {number}"}}
    usage = {"prompt_tokens": 10 + words, "completion_tokens": 2, "total_tokens": 12 + words}
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": asked["model"]}
    return {**head, "choices": [choice], "usage": usage}


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """An endpoint that listens."""
    with Endpoint() as server, _listening(server):
        yield server


@contextmanager
def brought(source: str) -> Iterator[str]:
    """The address of the server that a page brings for its readers, on a port of its own: pages run side by side."""
    names: dict[str, Any] = {"__name__": "server"}
    exec(source, names)
    with ThreadingHTTPServer(("127.0.0.1", 0), names["Handler"]) as server, _listening(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


@contextmanager
def _listening(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
