"""An endpoint on the loopback interface that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["_Handler"], None]


class Endpoint:
    """Gives its answers in order, the last one ever after; keeps what it was asked."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        self.released = threading.Event()  # set at the end: answers may wait for it

    def answer(self, handler: _Handler) -> None:
        """The next answer."""
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.asked.append((handler.path, dict(handler.headers), json.loads(body)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer(handler)


class _Handler(BaseHTTPRequestHandler):
    endpoint: Endpoint

    def do_POST(self) -> None:
        self.endpoint.answer(self)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(*answers: Answer) -> Iterator[tuple[str, Endpoint]]:
    """The address of an endpoint, and what it was asked."""
    endpoint = Endpoint(answers)
    handler = type("Handler", (_Handler,), {"endpoint": endpoint})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", endpoint
        finally:
            endpoint.released.set()
            server.shutdown()
            thread.join()


def body(text: str = "Paris", **more: Any) -> dict[str, Any]:
    """An answer, as OpenAI's endpoint gives it."""
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-2026-01-01",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}, **more,
    }  # fmt: skip


def sends(data: bytes, kind: str = "application/json", status: int = 200, length: int | None = None) -> Answer:
    """An answer of these bytes; with `length`, it says that they are as many."""

    def answer(handler: _Handler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def says(text: str = "Paris", **more: Any) -> Answer:
    """A good answer."""
    return sends(json.dumps(body(text, **more)).encode())


def refuses(status: int, message: str = "no") -> Answer:
    """An answer that is an error."""
    return sends(json.dumps({"error": {"message": message}}).encode(), status=status)


def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"model": "m-2026-01-01", "choices": choices, **more}).encode() + b"\n\n"


COUNTED = event(
    None, usage={"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
)
DONE = b"data: [DONE]\n\n"


def streams(*events: bytes) -> Answer:
    """A stream of events, which ends when its connection does."""

    def answer(handler: _Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.end_headers()
        for each in events:
            handler.wfile.write(each)
            handler.wfile.flush()

    return answer
