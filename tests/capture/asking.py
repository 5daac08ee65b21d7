"""Questions to models, by several libraries, and a server that says what it is told to say."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from typing import Any

import aiohttp
import httpx
import requests

import everstep
from everstep.model import Kind


def question(text: str) -> dict[str, Any]:
    """What is asked of a model."""
    return {"model": "gpt-test", "messages": [{"role": "user", "content": text}]}


OK: Iterator[int] = repeat(200)


@contextmanager
def answering(
    body: str, thinks: Callable[[bytes], Any] = id, statuses: Iterator[int] = OK
) -> Iterator[tuple[str, list[bytes]]]:
    """A server that always says this, once it has thought: its address, and what it was asked."""
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as the class wants it named
            asked.append(self.rfile.read(int(self.headers["content-length"])))
            thinks(asked[-1])
            with suppress(OSError):  # whoever asked did not wait for it
                self.send_response(next(statuses))
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def outcomes(trail: everstep.Trail, run: str = "run") -> list[everstep.StepRecord]:
    """The rows of calls that have ended, in order."""
    return [step for step in trail.steps(run) if step.kind is Kind.STEP]


def by_urllib(url: str, body: str) -> str:
    asked = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.read().decode())


async def by_aiohttp(url: str, body: str) -> str:
    async with aiohttp.ClientSession() as client, client.post(url, data=body.encode()) as answer:
        return await answer.text()


Post = Callable[[str, str], str]  # to this address, this body; what was answered
TELLS_WHEN_SENT: dict[str, Post] = {
    "httpx": lambda url, body: httpx.post(url, content=body, timeout=60).text,
    "requests": lambda url, body: requests.post(url, data=body, timeout=60).text,
    "urllib": by_urllib,
}
LIBRARIES: dict[str, Post] = {**TELLS_WHEN_SENT, "aiohttp": lambda url, body: asyncio.run(by_aiohttp(url, body))}
