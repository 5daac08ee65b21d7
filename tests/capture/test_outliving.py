"""Tasks and threads that a block leaves at work: what still comes to them is theirs, and no part of the run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests

import everstep
from everstep.model import Status
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

LINES = "lines?n=6"
SLOW = "slow?s=0.1"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(delay=0.02) as serving:
        yield serving


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


async def by_httpx(url: str, began: Callable[[], None]) -> str:
    async with httpx.AsyncClient() as client, client.stream("GET", url) as answer:
        text = ""
        async for piece in answer.aiter_text():
            began()
            text += piece
        return text


async def by_aiohttp(url: str, began: Callable[[], None]) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = ""
        async for piece in answer.content.iter_any():
            began()
            text += piece.decode()
        return text


@pytest.mark.parametrize("asks", [by_httpx, by_aiohttp])
@pytest.mark.parametrize("path", [LINES, SLOW])
def test_a_task_that_goes_on_after_its_block_gets_all_of_its_answer(
    server: ModelServer, trail: Trail, asks: Any, path: str
) -> None:
    async def program() -> str:
        begun = asyncio.Event()
        with everstep.capture(trail, "x"):
            task = asyncio.create_task(asks(f"{server.url}/{path}", begun.set))
            if path == LINES:
                await begun.wait()
            else:
                await asyncio.sleep(0.05)
        return str(await task)

    said = asyncio.run(program())
    assert said.count("line ") == 6 if path == LINES else "counter" in said
    assert trail.run("x").status is Status.COMPLETED


@pytest.mark.parametrize("get", [httpx.get, requests.get])
def test_a_thread_that_goes_on_after_its_block_gets_its_answer(server: ModelServer, trail: Trail, get: Any) -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(get(f"{server.url}/{SLOW}").text), daemon=True)
    with everstep.capture(trail, "x"):
        thread.start()
        while not server.requests:
            time.sleep(0.001)
    thread.join()
    assert "counter" in said[0]
    assert trail.run("x").status is Status.COMPLETED


def test_a_replay_waits_for_no_answer_that_nobody_had_got_when_the_block_ended(
    server: ModelServer, trail: Trail
) -> None:
    """Neither a timeout around it nor the end of the block cancels such a task."""

    async def program(**how: Any) -> str:
        with everstep.capture(trail, "x", **how):
            async with httpx.AsyncClient() as client:
                task = asyncio.create_task(client.get(f"{server.url}/{SLOW}"))
                try:
                    async with asyncio.timeout(0.03):
                        return (await asyncio.shield(task)).text
                except TimeoutError:
                    return "too late"

    assert asyncio.run(program()) == "too late"
    asked = len(server.requests)
    assert asyncio.run(program(mode="verify")) == "too late"
    assert len(server.requests) == asked
