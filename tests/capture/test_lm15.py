"""Calls over lm15, DSPy's client: whatever way an answer is read, a replay gives what the server gave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import lm15.transports
import pytest
from lm15 import AsyncOpenAIChatLM, Message, OpenAIChatLM, Request
from lm15.transports import StdlibAsyncTransport, StdlibTransport, TransportRequest

import everstep
from everstep.capturing.seams import lm15 as seam
from everstep.errors import UnknownLayoutError
from everstep.model import Kind
from tests.capture.oddities import ANSWERS, COOKIE, KEY, outcome, patience, same, serving, stored, thrice
from tests.capture.server import ModelServer

HIDDEN = {"cookies", "onward", "secret"}  # no two are alike, as their secrets are not kept


def asked(url: str, name: str) -> TransportRequest:
    return TransportRequest("GET", f"{url}/{name}", read_timeout=patience(name))


def readings(url: str) -> dict[str, Any]:
    """Every answer, to its end and to its beginning, by both transports."""

    def whole(name: str) -> Any:
        with StdlibTransport() as transport, transport.stream(asked(url, name)) as got:
            return got.status, got.reason, got.headers, got.http_version, got.read()

    def early(name: str) -> Any:
        with StdlibTransport() as transport, transport.stream(asked(url, name)) as got:
            return got.status, len(next(iter(got), b"")) > 0

    async def awaited(name: str) -> Any:
        async with StdlibAsyncTransport() as transport, transport.stream(asked(url, name)) as got:
            return got.status, got.reason, got.headers, got.http_version, await got.read()

    async def awaited_early(name: str) -> Any:
        async with StdlibAsyncTransport() as transport, transport.stream(asked(url, name)) as got:
            return got.status, got.header("content-type")

    def ran(awaited: Callable[[str], Awaitable[Any]], name: str) -> Any:
        return asyncio.run(awaited(name))  # type: ignore[arg-type] # it is a coroutine

    ways = whole, early, partial(ran, awaited), partial(ran, awaited_early)
    return {name: [outcome(partial(way, name)) for way in ways] for name in ANSWERS}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """What comes of them bare, recorded and in replay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        return thrice(tmp_path_factory.mktemp("lm15"), readings)


@pytest.mark.parametrize("name", sorted({*ANSWERS} - HIDDEN))
def test_every_answer_is_read_as_without_capture_and_in_replay_again(name: str, results: tuple[Any, Any, Any]) -> None:
    bare, recorded, replayed = (each[name] for each in results)
    assert replayed == recorded
    assert recorded == bare


def test_an_agent_asks_and_streams_by_both_clients(tmp_path: Path) -> None:
    question = Request(model="m", messages=(Message.user("why? [chunks 6]"),))

    async def program(url: str) -> list[Any]:
        with StdlibTransport() as plain:
            model = OpenAIChatLM(api_key="k", base_url=f"{url}/v1", transport=plain)
            said = [model.complete(question).text, *(str(event) for event in model.stream(question))]
        async with StdlibAsyncTransport() as transport:
            awaited = AsyncOpenAIChatLM(api_key="k", base_url=f"{url}/v1", transport=transport)
            said += [got.text for got in await asyncio.gather(*(awaited.complete(question) for _ in range(4)))]
            return said + [str(event) async for event in awaited.stream(question)]

    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, everstep.capture(trail, "x"):
            recorded = asyncio.run(program(server.url))
        with everstep.capture(trail, "x", mode="verify"):
            assert asyncio.run(program(server.url)) == recorded
        steps = [step for step in trail.steps("x") if step.kind is Kind.STEP]
    assert [step.name for step in steps] == ["openai chat"] * 7
    assert len(server.requests) == 7


def test_connections_that_fail_raise_the_same_errors(tmp_path: Path, closed: str) -> None:
    async def awaited() -> Any:
        async with StdlibAsyncTransport() as transport, transport.stream(asked(closed, "empty")) as got:
            return got.status

    def plain() -> Any:
        with StdlibTransport() as transport, transport.stream(asked(closed, "empty")) as got:
            return got.status

    found = same(tmp_path, lambda _: [outcome(plain), outcome(lambda: asyncio.run(awaited()))])
    assert [kind.rpartition(".")[2] for kind, _ in found] == ["ConnectError", "ConnectError"]


def test_an_answer_that_is_closed_unread_gives_its_connection_back(tmp_path: Path) -> None:
    async def awaited(url: str) -> int:
        async with StdlibAsyncTransport() as transport:
            async with transport.stream(asked(url, "large")) as got:
                assert got.status == 200
            return len(transport._pool._in_use)

    def plain(url: str) -> int:
        with StdlibTransport() as transport:
            with transport.stream(asked(url, "large")) as got:
                assert got.status == 200
            return len(transport._pool._in_use)

    assert same(tmp_path, lambda url: [plain(url), asyncio.run(awaited(url))]) == [0, 0]


def test_no_secret_reaches_the_trail(tmp_path: Path) -> None:
    headers = [("Authorization", "Bearer tok-a1B2c3D4e5F6a1B2c3D4"), ("Content-Type", "application/json")]
    body = f'{{"text": "my key is {KEY}", "shown": "words of no weight"}}'.encode()
    with everstep.open(tmp_path / "trail.db") as trail, serving() as url, everstep.capture(trail, "x"):
        plain = StdlibTransport()
        for name in ("secret", "cookies"):
            with plain.stream(TransportRequest("POST", f"{url}/{name}", headers, body)) as got:
                got.read()
        plain.close()
    kept = stored(tmp_path)
    assert "words of no weight" in kept
    assert [secret for secret in (KEY, COOKIE, "tok-a1B2c3D4e5F6a1B2c3D4") if secret in kept] == []


def test_a_library_with_another_layout_is_an_error() -> None:
    other = ModuleType("lm15.transports")
    vars(other).update({**vars(lm15.transports), "StdlibTransport": type("Other", (), {"stream": lambda self: None})})
    with pytest.raises(UnknownLayoutError, match="stream takes self"):
        seam.patch(other)
