"""Programs of tasks made by chance, recorded once and replayed: whatever they do, they see the same in the same order.

What a program sees is the order of all that its tasks note: answers, lines of streams, timers that ended, what was cut
off by a timeout or cancelled, what processes printed, chance. (promise 3)
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx
import pytest

import everstep
from everstep.capturing.session import capture
from tests.capture.running import serving

# A task that is cancelled leaves its process to the loop, as such programs do.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
DEEPEST = 3
SIMPLE = ("get", "get", "post", "broken", "lines", "few_lines", "sleep", "chance", "process")
TOGETHER = ("gather", "gather", "as_completed", "group", "queue")
CUT_OFF = ("timeout", "cancel")  # in the long runs alone: what is cleared away takes its time, see ADR 34
Block = list[tuple[str, Any]]


def made(seed: int, together: tuple[str, ...]) -> Block:
    """A program, as data."""
    rng = random.Random(seed)

    def block(depth: int) -> Block:
        kinds = SIMPLE + together if depth < DEEPEST else SIMPLE
        return [(kind, detail(kind, depth)) for kind in rng.choices(kinds, k=rng.randint(1, 4))]

    def detail(kind: str, depth: int) -> Any:
        if kind in {"gather", "as_completed", "group", "queue"}:
            return [block(depth + 1) for _ in range(rng.randint(2, 4))]
        if kind in {"timeout", "cancel"}:
            return rng.choice([0.002, 0.01, 0.03, 0.1]), block(depth + 1)
        return rng.choice([0, 0.001, 0.005, 0.02]) if kind == "sleep" else rng.randint(1, 8)

    return block(0)


class Program:
    """Runs one, and notes what it sees."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.seen: list[Any] = []
        self._client = client

    def note(self, *what: Any) -> None:
        self.seen.append(what)

    async def run(self, block: Block, name: str) -> str:
        for number, (kind, detail) in enumerate(block):
            await getattr(self, kind)(f"{name}.{number}", detail)
        return name

    def each(self, name: str, blocks: list[Block]) -> Iterator[Coroutine[Any, Any, str]]:
        return (self.run(block, f"{name}-{number}") for number, block in enumerate(blocks))

    async def get(self, name: str, _: int) -> None:
        self.note(name, (await self._client.get(f"/plain/{name}")).text)

    async def post(self, name: str, _: int) -> None:
        asked = {"model": "m", "messages": [{"role": "user", "content": f"{name} {len(self.seen)}"}]}
        self.note(name, (await self._client.post("/v1/chat/completions", json=asked)).json())

    async def broken(self, name: str, _: int) -> None:
        try:
            self.note(name, (await self._client.get("/drop")).text)
        except httpx.HTTPError as error:
            self.note(name, type(error).__name__)

    async def lines(self, name: str, count: int, enough: int = 99) -> None:
        async with self._client.stream("GET", f"/lines?n={count}") as answer:
            number = 0
            async for line in answer.aiter_lines():
                self.note(name, line)
                number += 1
                if number == enough:
                    break

    async def few_lines(self, name: str, count: int) -> None:
        await self.lines(name, count + 2, enough=count)

    async def sleep(self, name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.note(name, "slept")

    async def chance(self, name: str, _: int) -> None:
        self.note(name, random.random(), os.urandom(3), len(self.seen))

    async def process(self, name: str, _: int) -> None:
        process = await asyncio.create_subprocess_exec("sh", "-c", "echo $$", stdout=PIPE)
        self.note(name, (await process.communicate())[0])

    async def gather(self, name: str, blocks: list[Block]) -> None:
        self.note(name, list(map(repr, await asyncio.gather(*self.each(name, blocks), return_exceptions=True))))

    async def as_completed(self, name: str, blocks: list[Block]) -> None:
        for done in asyncio.as_completed([asyncio.create_task(each) for each in self.each(name, blocks)]):
            self.note(name, await done)

    async def group(self, name: str, blocks: list[Block]) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self.each(name, blocks):
                group.create_task(each)
        self.note(name, "all")

    async def timeout(self, name: str, detail: tuple[float, Block]) -> None:
        try:
            self.note(name, await asyncio.wait_for(self.run(detail[1], f"{name}-in"), detail[0]))
        except TimeoutError:
            self.note(name, "too late")

    async def cancel(self, name: str, detail: tuple[float, Block]) -> None:
        task = asyncio.create_task(self.run(detail[1], f"{name}-in"))
        await asyncio.sleep(detail[0])
        task.cancel()
        self.note(name, repr(await asyncio.gather(task, return_exceptions=True)))

    async def queue(self, name: str, blocks: list[Block]) -> None:
        queue: asyncio.Queue[int | None] = asyncio.Queue()

        async def give() -> None:
            for number in range(3):
                await self.get(f"{name}-give{number}", 0)
                queue.put_nowait(number)
            for _ in blocks[1:]:
                queue.put_nowait(None)

        async def take(who: int) -> None:
            while (number := await queue.get()) is not None:
                self.note(name, who, number)
                await self.get(f"{name}-take{number}", 0)

        await asyncio.gather(give(), *map(take, range(len(blocks) - 1)), self.run(blocks[0], f"{name}-beside"))


async def seen_by(block: Block, url: str) -> list[Any]:
    async with httpx.AsyncClient(base_url=url) as client:
        program = Program(client)
        try:
            await program.run(block, "r")
        except Exception as error:  # noqa: BLE001 - of a group, say; that is seen too
            program.note(type(error).__name__)
        return program.seen


def same(block: Block, folder: Path) -> None:
    run: Callable[[str], list[Any]] = lambda url: asyncio.run(seen_by(block, url))  # noqa: E731 - twice below
    with everstep.open(folder / "trail.db") as trail:
        with serving(folder) as server, capture(trail, "run"):
            first = run(server.url)
        for _ in range(2):
            with capture(trail, "run", mode="verify"):
                assert run(server.url) == first
    gc.collect()  # what was left to the loop is told of now, not in another test


@pytest.mark.parametrize("seed", range(12))
def test_tasks_see_the_same_in_every_replay(seed: int, tmp_path: Path) -> None:
    same(made(seed, TOGETHER), tmp_path)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 1_100))
def test_tasks_of_any_program_see_the_same_in_every_replay(seed: int, tmp_path: Path) -> None:
    same(made(seed, TOGETHER + CUT_OFF), tmp_path)
