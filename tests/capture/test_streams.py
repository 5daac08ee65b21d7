"""Streams that are read side by side: what came when is the same in a replay, also of one that was given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

import everstep
from everstep.capturing.session import capture
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
