"""Programs that failed because an answer did not come in time: taken up again, it may."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import Any

import aiohttp
import httpx
import pytest

from everstep.capturing.session import capture
from everstep.model import Status
from everstep.trail.trail import Trail
from tests.capture.asking import answering, question

PATH, SOON = "/v1/chat/completions", 0.3


async def waits_for_one(url: str) -> list[str]:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        await asyncio.sleep(0.02)
        return [(await asyncio.wait_for(client.post(PATH, json=question("Hello")), SOON)).text]


async def waits_for_several(url: str) -> list[str]:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:

        async def one(number: int) -> str:
            await asyncio.sleep(0.01 * number)
            return (await client.post(PATH, json=question(f"Hello {number}"))).text

        async with asyncio.timeout(SOON):
            return await asyncio.gather(*map(one, range(3)))


async def waits_after_others(url: str) -> list[str]:
    async with httpx.AsyncClient(base_url=url, timeout=None) as client:
        first = (await client.post(PATH, json=question("First"))).text
        try:
            async with asyncio.timeout(SOON):
                return [first, (await client.post(PATH, json=question("Hello"))).text]
        except TimeoutError as error:
            raise RuntimeError("it took too long") from error


async def lets_the_client_wait(url: str) -> list[str]:
    timeout = aiohttp.ClientTimeout(SOON)
    async with (
        aiohttp.ClientSession(timeout=timeout) as client,
        client.post(f"{url}{PATH}", json=question("Hello")) as answer,
    ):
        return [await answer.text()]


@pytest.mark.parametrize(
    "program",
    [waits_for_one, waits_for_several, waits_after_others, lets_the_client_wait],
    ids=lambda each: each.__name__,
)
def test_a_timeout_that_is_over_is_not_had_again(trail: Trail, program: Callable[[str], Awaitable[Any]]) -> None:
    """The timer that ended what is asked for anew stands on record, and must not end that again."""
    late = chain([10 * SOON], repeat(0.0))

    def run(**how: Any) -> Any:
        with capture(trail, "run", **how):
            return asyncio.run(program(url))  # type: ignore[arg-type] # a coroutine

    def thinks(asked: bytes) -> None:
        if b"Hello" in asked:
            threading.Event().wait(next(late))

    with answering("paid", thinks) as (url, asked):
        for _ in range(2):
            with pytest.raises((TimeoutError, RuntimeError)):
                run(**({"mode": "verify"} if trail.runs() else {}))
        assert trail.run("run").status is Status.FAILED
        calls = len(asked)
        said = run()
        assert set(said) == {"paid"}
        assert trail.run("run").status is Status.COMPLETED
        assert len(asked) > calls
        assert run(mode="verify") == said
