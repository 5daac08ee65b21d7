"""Runs random programs with real steps, and knows what must come of each: answers come from the true place.

Every leaf answers with a number made from its place in the program, which the step's arguments do not tell. So an answer
that was recorded for another place shows at once, and so does a step that is executed though its outcome was known.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

import everstep
from tests.programs.generator import Node, Program

Spot = tuple[int, ...]  # where in the program, and in which turn of its loops
Key = tuple[Spot, tuple[int, ...]]  # with the attempts of the steps around it
Given = int | None
Answer = tuple[int, int, tuple[str, int, Given]]


def number(*parts: object) -> int:
    """A number that follows from the parts, and from nothing else."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=5).digest(), "big")


class Boom(Exception):  # noqa: N818 - it is raised on purpose
    """What leaves fail with. Its text says where."""


class World:
    """The outside: it answers leaves by their true place, and remembers what it was asked. It survives crashes."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.healed: set[Spot] = set()
        self.executed: set[Key] = set()
        self._newest: dict[Key, int] = {}  # attempt of each
        self.known: set[int] = set()  # numbers of the leaves whose outcome is on record
        self.calls = 0
        self._told: dict[Key, int] = {}  # whose outcome the code was told, and when
        self._clock = 0
        self._life: set[tuple[Key, int]] = set()  # executed since the last crash
        self._failures: dict[Key, int] = {}  # when each leaf failed last
        self._anew = False
        self._lock = threading.Lock()
        self._is_dead: Callable[[], bool] = bool

    def new_life(self, is_dead: Callable[[], bool]) -> None:
        self._life = set()
        self._is_dead = is_dead

    def ask(self, node: Node, key: Key) -> None:
        """The code asks for a step."""

    def execute(self, node: Node, key: Key, given: Given) -> Answer:
        """Execute a leaf: its answer, the number that its row will be known by, and what it was asked."""
        self._note(node, key)
        if node.fails and key[0] not in self.healed and (node.fails == "always" or attempt() == 1):
            with self._lock:
                self._failures[key] = self._clock
            raise Boom(f"{node.name} {number(key[0])}")
        return number("answer", key[0]), number("row", key), (node.name, node.constant, given)

    def enter(self, node: Node, key: Key) -> None:
        """The body of a step that has steps inside begins."""
        self._note(node, key)

    def _note(self, node: Node, key: Key) -> None:
        now = attempt()
        with self._lock:
            self.calls += 1
            if key in self._told or number("row", key) in self.known:
                self.faults.append(f"{node.kind} {node.name} at {key} was executed though its outcome is known")
            if (key, now) in self._life:
                self.faults.append(f"attempt {now} of {node.name} at {key} was executed twice in one life")
            if self._newest.get(key, 0) > now:
                self.faults.append(f"attempt {now} of {node.name} at {key} was repeated after a later one had begun")
            self._life.add((key, now))
            self._newest[key] = now
            self.executed.add(key)

    def told(self, node: Node, key: Key, given: Given, answer: Answer | None, error: Boom | None) -> None:
        """The code was given the outcome of a step: it must be the one that belongs there, and it is known from now on.

        But for what fails in a process that is dead and does not know it yet: that goes nowhere.
        """
        if error is not None and self._is_dead():
            return
        with self._lock:
            self._clock += 1
            self._told.setdefault(key, self._clock)
            if key not in self.executed and not self._anew:
                self.faults.append(f"{node.kind} {node.name} at {key} has an outcome and was never executed")
            if node.kind != "leaf":
                return
            if error is not None and str(error) != f"{node.name} {number(key[0])}" and not self._anew:
                self.faults.append(f"{node.name} at {key} failed with what belongs elsewhere: {error}")
            if answer is not None and answer[0] != number("answer", key[0]) and not self._anew:
                self.faults.append(f"{node.name} at {key} was given the answer of another place")
            if answer is not None and answer[2] != (node.name, node.constant, given):
                self.faults.append(f"{node.name} at {key} was given what {answer[2]} gave")

    def heal(self, text: str) -> None:
        """Let the leaf that failed with this text succeed. What the code did since it failed may happen again."""
        named = {key: when for key, when in self._failures.items() if text == f"{text[0]} {number(key[0])}"}
        if not named:
            self.faults.append(f"it failed with {text!r}, which was set right before")
            return
        since, spot = max(named.values()), next(iter(named))[0]  # of a step's attempts the last one made the run fail
        self.healed.add(spot)
        self._failures = {key: when for key, when in self._failures.items() if key not in named}
        for key in [key for key, told in self._told.items() if told >= since or key[0] == spot]:
            self._told.pop(key, None)
            self._newest.pop(key, None)
            self.known.discard(number("row", key))

    def heal_all(self) -> None:
        """Let every leaf succeed that has failed. Which of them made the run fail is not known: all may happen again.

        And where the code goes another way than it did, it may ask in one place what it had asked in another.
        """
        self.healed.update(key[0] for key in self._failures)
        self._anew = True
        self._told.clear()
        self._newest.clear()
        self.known.clear()


def attempt() -> int:
    """Which attempt at the step the calling code is."""
    return everstep.current().attempt


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


@dataclass(slots=True)
class Player:
    """Goes through one program in one life, with latencies of its own."""

    program: Program
    world: World
    chance: Random

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

    def _threads(self, node: Node, key: Key, total: int) -> list[int]:
        jobs = range(len(node.branches))

        def job(place: int) -> int:
            if self.chance.random() < 0.2:
                time.sleep(self.chance.random() * 0.0005)
            try:
                return self.plain(node.branches[place], _down(key, place), total)
            except Boom as error:
                return number(str(error))

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
            if node.plain:
                return number(total, self._call(node, key, total))
            return number(total, await self._call_awaited(node, key, total))
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

    async def _branches(self, node: Node, key: Key, total: int) -> list[int]:
        async def branch(place: int) -> int:
            try:
                return await self.awaited(node.branches[place], _down(key, place), total)
            except Boom as error:
                if not node.caught:
                    raise
                return number(str(error))

        def job(place: int) -> int:
            try:
                return self.plain(node.branches[place], _down(key, place), total)
            except Boom as error:
                return number(str(error))

        places = range(len(node.branches))
        if node.kind in {"gather", "tasks"}:
            made: list[Any] = [branch(place) for place in places]
            if node.kind == "tasks":
                made = [asyncio.create_task(each) for each in made]
            try:
                return await asyncio.gather(*made)
            except Boom as error:  # which of them comes first is a matter of time: the code must not care
                raise Boom(f"group {number(key[0])}") from error
        if node.kind == "to_thread":
            return await asyncio.gather(*[asyncio.to_thread(job, place) for place in places])
        if node.kind == "executor":
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*[loop.run_in_executor(None, job, place) for place in places])
        if node.kind == "completed":
            return [await done for done in asyncio.as_completed([branch(place) for place in places])]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(branch(place)) for place in places]
        except BaseExceptionGroup as failed:
            if failed.split(Boom)[1] is not None:
                raise
            raise Boom(f"group {number(key[0])}") from failed
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
