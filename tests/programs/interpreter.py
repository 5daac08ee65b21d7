"""Runs random programs with real steps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import everstep
from tests.programs.generator import Node, Program
from tests.programs.world import Answer, Boom, Given, Key, World, attempt, number


@dataclass(frozen=True, slots=True)
class Call:
    """A step that is asked for. It goes along as an ignored argument, so it is no part of what is recorded."""

    player: Player
    node: Node
    key: Key


_STEPS: dict[tuple[str, str, bool, int], Any] = {}


def step_for(node: Node) -> Any:
    """The step of a node: nodes that look alike share one."""
    known = node.kind, node.name, node.plain, node.attempts
    if known not in _STEPS:
        function: Any = _FUNCTIONS[node.kind, node.plain]
        retry = everstep.Retry(attempts=node.attempts, backoff=0) if node.attempts > 1 else None
        _STEPS[known] = everstep.step(name=node.name, retry=retry, ignore=["call"])(function)
    return _STEPS[known]


def _plain_leaf(constant: int, given: Given, call: Call) -> Answer:
    chance = call.player.chance
    if chance.random() < 0.2:
        time.sleep(chance.random() * 0.0005)
    return call.player.world.execute(call.node, call.key, given)


async def _leaf(constant: int, given: Given, call: Call) -> Answer:
    await call.player.nap()
    return call.player.world.execute(call.node, call.key, given)


def _plain_step(constant: int, given: Given, call: Call) -> int:
    call.player.world.enter(call.node, call.key)
    spot, turns = call.key
    return call.player.plain(call.node.body, (spot, (*turns, attempt())), number(constant, given))


async def _step(constant: int, given: Given, call: Call) -> int:
    call.player.world.enter(call.node, call.key)
    spot, turns = call.key
    return await call.player.awaited(call.node.body, (spot, (*turns, attempt())), number(constant, given))


_FUNCTIONS: dict[tuple[str, bool], Callable[..., Any]] = {
    ("leaf", True): _plain_leaf,
    ("leaf", False): _leaf,
    ("step", True): _plain_step,
    ("step", False): _step,
}


def _down(key: Key, *parts: int) -> Key:
    return (*key[0], *parts), key[1]


class Stumble(Exception):  # noqa: N818 - it is raised on purpose
    """What the code itself raises, between its steps."""


@dataclass(slots=True)
class Player:
    """Goes through one program in one life, with latencies of its own."""

    program: Program
    world: World
    chance: Random
    stumbles: int | None = None  # after so many parts of the program its code raises, by no step's fault

    @property
    def nodes(self) -> list[Node]:
        return self.program.nodes[: self.stumbles]

    def ended(self, total: int) -> int:
        """What the program gives."""
        if self.stumbles is not None:
            raise Stumble
        return total

    async def nap(self) -> None:
        if self.chance.random() < 0.05:
            await asyncio.sleep(self.chance.random() * 0.001)
        for _ in range(self.chance.choice([0, 0, 0, 1, 2, 3, 5, 8])):
            await asyncio.sleep(0)

    # Plain code.

    def plain(self, nodes: list[Node], key: Key, total: int) -> int:
        for node in nodes:
            total = self._plain(node, _down(key, node.uid), total)
        return total

    def _plain(self, node: Node, key: Key, total: int) -> int:
        if node.kind in {"leaf", "step"}:
            return number(total, self._call(node, key, total))
        if node.kind == "loop":
            for turn in range(node.times):
                total = self.plain(node.body, _down(key, turn), total)
            return total
        if node.kind == "try":
            try:
                return self.plain(node.body, key, total)
            except Boom as error:
                return self.plain(node.other, _down(key, -1), number(total, str(error)))
        if node.kind == "finally":
            try:
                return self.plain(node.body, key, total)
            finally:
                self.plain(node.other, _down(key, -1), total)
        return number(total, self._threads(node, key, total))

    def _call(self, node: Node, key: Key, total: int) -> int:
        given = total % 7 if node.depends else None
        self.world.ask(node, key)
        try:
            value = step_for(node)(node.constant, given, call=Call(self, node, key))
        except Boom as error:
            self.world.told(node, key, given, None, error)
            raise
        return self._told(node, key, given, value)

    def _told(self, node: Node, key: Key, given: Given, value: Any) -> int:
        """The number that the code goes on with."""
        self.world.told(node, key, given, value if node.kind == "leaf" else None, None)
        result: int = value[0] if node.kind == "leaf" else value
        return result

    def _job(self, node: Node, key: Key, total: int, place: int) -> int:
        if self.chance.random() < 0.2:
            time.sleep(self.chance.random() * 0.0005)
        try:
            return self.plain(node.branches[place], _down(key, place), total)
        except Boom as error:
            return number(str(error))

    def _threads(self, node: Node, key: Key, total: int) -> list[int]:
        jobs, job = range(len(node.branches)), partial(self._job, node, key, total)
        if node.kind == "thread":
            return _in_threads(job, len(node.branches))
        with ThreadPoolExecutor(3) as pool:
            if node.kind == "map":
                return list(pool.map(job, jobs))
            submit = everstep.submit if node.kind == "explicit" else ThreadPoolExecutor.submit
            futures = [submit(pool, job, place) for place in jobs]
            return [future.result() for future in futures]

    # Async code.

    async def awaited(self, nodes: list[Node], key: Key, total: int) -> int:
        for node in nodes:
            total = await self._awaited(node, _down(key, node.uid), total)
        return total

    async def _awaited(self, node: Node, key: Key, total: int) -> int:
        if node.kind in {"leaf", "step"}:
            called = self._call(node, key, total) if node.plain else await self._call_awaited(node, key, total)
            return number(total, called)
        if node.kind == "loop":
            for turn in range(node.times):
                total = await self.awaited(node.body, _down(key, turn), total)
            return total
        if node.kind == "try":
            try:
                return await self.awaited(node.body, key, total)
            except Boom as error:
                text = str(error)
            return await self.awaited(node.other, _down(key, -1), number(total, text))
        if node.kind == "finally":
            try:
                return await self.awaited(node.body, key, total)
            finally:
                await self.awaited(node.other, _down(key, -1), total)
        return number(total, await self._branches(node, key, total))

    async def _call_awaited(self, node: Node, key: Key, total: int) -> int:
        given = total % 7 if node.depends else None
        self.world.ask(node, key)
        try:
            value = await step_for(node)(node.constant, given, call=Call(self, node, key))
        except Boom as error:
            self.world.told(node, key, given, None, error)
            raise
        return self._told(node, key, given, value)

    async def _branch(self, node: Node, key: Key, total: int, place: int) -> int:
        try:
            return await self.awaited(node.branches[place], _down(key, place), total)
        except Boom as error:
            if not node.caught:
                raise
            return number(str(error))

    async def _branches(self, node: Node, key: Key, total: int) -> list[int]:
        job, branch = partial(self._job, node, key, total), partial(self._branch, node, key, total)
        places = range(len(node.branches))
        if node.kind == "to_thread":
            return await asyncio.gather(*[asyncio.to_thread(job, place) for place in places])
        if node.kind == "executor":
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*[loop.run_in_executor(None, job, place) for place in places])
        if node.kind == "completed":
            return [await done for done in asyncio.as_completed([branch(place) for place in places])]
        try:
            return await _together(node.kind, [branch(place) for place in places])
        except Boom as error:  # which of them comes first is a matter of time: the code must not care
            raise Boom(f"group {number(key[0])}") from error
        except BaseExceptionGroup as failed:
            if failed.split(Boom)[1] is not None:
                raise
            raise Boom(f"group {number(key[0])}") from failed


async def _together(kind: str, branches: list[Coroutine[Any, Any, int]]) -> list[int]:
    """What the branches give, run in one of the ways to run tasks."""
    if kind == "gather":
        return await asyncio.gather(*branches)
    if kind == "tasks":
        return await asyncio.gather(*[asyncio.create_task(each) for each in branches])
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in branches]
    return [task.result() for task in tasks]


def _in_threads(job: Callable[[int], int], count: int) -> list[int]:
    results: dict[int, int] = {}
    errors: list[BaseException] = []

    def work(place: int) -> None:
        try:
            results[place] = job(place)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[place] for place in range(count)]
