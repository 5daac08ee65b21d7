"""Streams that several tests read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from everstep import Kind, StepRecord, Trail, step, workflow
from tests.integration.running import act, act_later, calls, rows


@step
def tokens(count: int) -> Iterator[str]:
    for number in range(count):
        calls(f"made {number}")
        yield f"token {number}"


@step
async def tokens_later(count: int) -> AsyncIterator[str]:
    for number in range(count):
        await asyncio.sleep(0)
        calls(f"made {number}")
        yield f"token {number}"


@workflow
def reading(count: int) -> list[str]:
    found = []
    for chunk in tokens(count):
        calls(f"got {chunk}")
        found.append(chunk)
    act("afterwards")
    return found


@workflow
async def reading_later(count: int) -> list[str]:
    found = []
    async for chunk in tokens_later(count):
        calls(f"got {chunk}")
        found.append(chunk)
    await act_later("afterwards")
    return found


def streams(trail: Trail, run_id: str = "r", name: str = "tokens") -> list[StepRecord]:
    return [row for row in rows(trail, run_id, Kind.STEP) if row.name.startswith(name)]


def both(plain: Any, later: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("streaming", [plain, later], ids=["generator", "async generator"])


def as_generator(stream: Any) -> Any:
    """What is declared as an iterator, as what it is."""
    return stream
