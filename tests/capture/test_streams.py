"""Streams that are read side by side: what came when is the same in a replay, also of one that was given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest

import everstep
from everstep.capturing.http import Head, request
from everstep.capturing.session import capture
from everstep.capturing.wire import revived
from everstep.run import turnstile
from everstep.run.turnstile import Turnstile
from tests.capture.oddities import serving
from tests.capture.server import ModelServer


async def read_together(url: str, *, lines: int, given_up_after: int) -> list[str]:
    """Two streams, the first of which is cancelled once the second has come so far."""
    said: list[str] = []

    async with httpx.AsyncClient(base_url=url) as client:

        async def read(name: str) -> None:
            async with client.stream("GET", f"/lines?n={lines}&{name}") as answer:
                async for line in answer.aiter_lines():
                    said.append(f"{name}: {line}")  # noqa: PERF401 - as they come, one by one

        first, second = asyncio.create_task(read("first")), asyncio.create_task(read("second"))
        while sum(line.startswith("second") for line in said) < given_up_after:  # noqa: ASYNC110 - as programs do
            await asyncio.sleep(0.002)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return [*said, f"cancelled: {first.cancelled()}"]


@pytest.mark.parametrize("given_up_after", [0, 3, 6])
def test_lines_of_two_streams_come_in_the_order_they_came(given_up_after: int, tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, capture(trail, "run"):
            url = server.url
            first = asyncio.run(read_together(url, lines=12, given_up_after=given_up_after))
        for _ in range(3):
            with capture(trail, "run", mode="verify"):
                again = asyncio.run(read_together(url, lines=12, given_up_after=given_up_after))
            assert again == first


def test_nobody_waits_for_a_chunk_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> list[tuple[int, str]]:
        said: list[tuple[int, str]] = []

        async def read(number: int) -> None:
            async with client.stream("GET", f"{url}/spaced") as answer:
                async for line in answer.aiter_lines():
                    said.append((number, line))  # noqa: PERF401 - as they come, one by one

        async with httpx.AsyncClient() as client:
            await asyncio.gather(*map(read, range(3)))
        return said

    given_up: list[float | None] = []
    plain = Turnstile._pass_over

    def pass_over(self: Turnstile, loop: asyncio.AbstractEventLoop, held_up: float | None) -> None:
        if not self.idle():
            given_up.append(held_up)
        plain(self, loop, held_up)

    monkeypatch.setattr(Turnstile, "_pass_over", pass_over)
    monkeypatch.setattr(turnstile, "_PATIENCE", 3.0)
    with everstep.open(tmp_path / "trail.db") as trail:
        with serving() as url, capture(trail, "run"):
            first = asyncio.run(program())
        with capture(trail, "run", mode="verify"):
            assert asyncio.run(program()) == first
    assert not given_up


def test_an_answer_of_http2_has_the_reason_that_it_had(tmp_path: Path) -> None:
    """It comes without one, and httpx puts that of the status in its place: it stands in its errors."""
    version = {"http_version": b"HTTP/2"}

    class Pool(httpcore.ConnectionPool):
        def handle_request(self, request: httpcore.Request) -> httpcore.Response:
            return httpcore.Response(429, content=b"later", extensions=version)

    def program() -> str:
        with httpx.HTTPTransport() as transport, httpx.Client(transport=transport) as client:
            transport._pool = Pool()  # HTTP/2 itself needs a library that is not asked for here
            answer = client.get("http://127.0.0.1/later")
            with pytest.raises(httpx.HTTPStatusError) as caught:
                answer.raise_for_status()
            return f"{answer.http_version} {answer.reason_phrase} {caught.value}"

    with everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            first = program()
        assert "429 Too Many Requests" in first
        with capture(trail, "run", mode="verify"):
            assert program() == first


class Looked(Sequence[bytes]):
    """Chunks that count how many of them were looked at."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks, self.times = chunks, 0

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, at: Any) -> Any:
        self.times += 1
        return self.chunks[at]


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"event: message_stop\r\ndata: {}\r\n\r\n"])
def test_that_a_stream_was_had_whole_is_seen_at_its_end_however_it_was_cut(end: bytes) -> None:
    is_whole = request("POST", "http://a/v1", {}, b"", revived).is_whole
    assert is_whole is not None
    head, word = Head(200, []), b'data: {"text": "data: [DONE]"}\n\n'
    for body, whole in ((word + end, True), (end, True), (word + end[:-1], False), (word + b"x" + end, False)):
        for at in range(len(body)):
            assert is_whole(head, [body[:at], b"", body[at:], b""]) is whole
    stream = Looked([*[word] * 1000, end])
    assert is_whole(head, stream)
    assert stream.times < 5
