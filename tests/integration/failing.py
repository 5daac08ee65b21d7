"""Workflows that fail, in every shape that a failure takes, and the world that their steps act on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from everstep import AsyncRunner, Runner, RunResult, Status, Trail, step, workflow
from tests.integration.running import Calls, crashed


class World(Calls):
    """What was really executed, and what shall go wrong, or take long, next."""

    def __init__(self) -> None:
        super().__init__()
        self.slow: dict[str, float] = {}  # seconds that a call takes
        self.bad: set[str] = set()  # answers that the code does not like
        self.on: dict[str, Callable[[], object]] = {}  # what else a call does

    def __call__(self, what: Any) -> Any:
        """Note a call, and do what it is to do; give back what was called for."""
        if what in self.on:
            self.on[what]()
        return super().__call__(what)

    def forget(self) -> None:
        """As good as new."""
        super().forget()
        self.heal()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self.fail.clear()
        self.slow.clear()
        self.bad.clear()


WORLD = World()


class Wrapped(Exception):  # noqa: N818 - what the code of these workflows makes of a failure
    """What some of the workflows raise instead."""


@step(output=None)
def act(name: str) -> str:
    WORLD(name)
    return name


@step(output=None)
async def act_later(name: str) -> str:
    await asyncio.sleep(WORLD.slow.get(name, 0))
    WORLD(name)
    return name


def go(trail: Trail | None, workflow: Any, durability: Any = "sync", **options: Any) -> RunResult[Any]:
    """Run a workflow with the runner of its kind. A hang is an error."""
    if workflow.is_async:
        running = AsyncRunner(trail, durability=durability).run(workflow, id="r", **options)
        return asyncio.run(asyncio.wait_for(running, 20))
    return Runner(trail, durability=durability).run(workflow, id="r", **options)


def seen_twice(trail: Trail, fails: Any, kind: str, caught_as: type[Exception] = Exception) -> list[Any]:
    """What the code caught of a step that fails, first live, then after a crash; the step was executed once."""
    caught: list[Any] = []

    @workflow
    def catches() -> str:
        try:
            fails(kind)
        except caught_as as error:
            caught.append(error)
        return str(act("after"))

    WORLD.crash = {"after"}
    crashed(trail, catches, id="r")
    Runner(trail).run(catches, id="r")
    assert WORLD.taken() == [kind, "after", "after"]
    return caught


def healed(trail: Trail, workflow: Any) -> list[str]:
    """Run a workflow again that failed, or was cancelled, in a world where nothing fails: what was executed."""
    WORLD.heal()
    WORLD.taken()
    assert go(trail, workflow).status is Status.COMPLETED
    assert trail.verify("r").ok
    return [str(name) for name in WORLD.taken()]


# The shapes: `b` fails, or `x`, or the code does not like the answer of `a`.


@workflow
def plain() -> str:
    act("a")
    act("b")
    return act("c")


@workflow
def finally_step() -> str:
    act("a")
    try:
        act("b")
    finally:
        act("clean")
    return act("c")


@workflow
def except_log_raise() -> str:
    act("a")
    try:
        act("b")
    except ValueError:
        act("log")
        raise
    return act("c")


@workflow
def wrapped() -> str:
    act("a")
    try:
        act("b")
    except ValueError as error:
        raise Wrapped("b") from error
    return act("c")


@workflow
def wrapped_from_none() -> str:
    act("a")
    try:
        act("b")
    except ValueError:
        raise Wrapped("b") from None
    return act("c")


@workflow
def handled() -> str:
    try:
        act("x")
    except ValueError:
        act("fallback")
    act("b")
    return act("c")


@workflow
def handler_fails() -> str:
    try:
        act("x")
    except ValueError:
        act("b")
    return act("c")


@step(output=None)
def inside() -> str:
    act("a")
    return act("b")


@workflow
def nested() -> str:
    inside()
    return act("c")


@step(output=None)
def deep_inside() -> str:
    act("before")
    try:
        return inside()
    except ValueError:
        act("log")
        raise


@workflow
def deeply_nested() -> str:
    deep_inside()
    return act("c")


@workflow
def code_raises() -> str:
    if act("a") in WORLD.bad:
        raise Wrapped("a")
    return act("c")


def _branch(name: str) -> str:
    act(f"pre {name}")
    return act(name)


@workflow
def pool() -> str:
    with ThreadPoolExecutor() as workers:
        for job in [workers.submit(_branch, name) for name in ("a", "b", "s")]:
            job.result()
    return act("c")


@step(timeout=0.01)
def slow() -> None:
    WORLD("slow")
    time.sleep(0.1)


@workflow
def times_out() -> str:
    try:
        slow()
    except TimeoutError:
        return act("after")
    return "in time"


# The same, awaited.


@workflow
async def plain_later() -> str:
    await act_later("a")
    await act_later("b")
    return await act_later("c")


@workflow
async def finally_step_later() -> str:
    await act_later("a")
    try:
        await act_later("b")
    finally:
        await act_later("clean")
    return await act_later("c")


@workflow
async def except_log_raise_later() -> str:
    await act_later("a")
    try:
        await act_later("b")
    except ValueError:
        await act_later("log")
        raise
    return await act_later("c")


@workflow
async def wrapped_later() -> str:
    await act_later("a")
    try:
        await act_later("b")
    except ValueError as error:
        raise Wrapped("b") from error
    return await act_later("c")


@workflow
async def handled_later() -> str:
    try:
        await act_later("x")
    except ValueError:
        await act_later("fallback")
    await act_later("b")
    return await act_later("c")


@step(output=None)
async def inside_later() -> str:
    await act_later("a")
    return await act_later("b")


@workflow
async def nested_later() -> str:
    await inside_later()
    return await act_later("c")


async def _branch_later(name: str) -> str:
    await act_later(f"pre {name}")
    return await act_later(name)


@workflow
async def task_group() -> str:
    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "slow"):
            group.create_task(_branch_later(name))
    return await act_later("c")


@workflow
async def gather() -> str:
    await asyncio.gather(*map(_branch_later, ("a", "b", "slow")))
    return await act_later("c")


@workflow
async def both_of_a_group() -> str:
    given = await asyncio.gather(*map(_branch_later, ("a", "b", "x")), return_exceptions=True)
    failures = [each for each in given if isinstance(each, Exception)]
    if failures:
        raise ExceptionGroup("both", failures)
    return await act_later("c")


@workflow
async def code_raises_later() -> str:
    if await act_later("a") in WORLD.bad:
        raise Wrapped("a")
    return await act_later("c")


class Shape(NamedTuple):
    """A failure: what it raises, and what the healed run executes again."""

    workflow: Any
    raises: type[Exception]
    again: list[str]
    prepare: Callable[[], object] = lambda: WORLD.fail.update(("b", "x"))


def _bad_answer() -> None:
    WORLD.bad.add("a")


def _slow_sibling() -> None:
    WORLD.fail.add("b")
    WORLD.slow.update({"b": 0.03, "slow": 0.3})


SHAPES = {
    "plain": Shape(plain, ValueError, ["b", "c"]),
    "finally": Shape(finally_step, ValueError, ["b", "clean", "c"]),
    "except, log, raise": Shape(except_log_raise, ValueError, ["b", "c"]),
    "wrapped": Shape(wrapped, Wrapped, ["b", "c"]),
    "wrapped from None": Shape(wrapped_from_none, Wrapped, ["b", "c"]),
    "handled": Shape(handled, ValueError, ["b", "c"]),
    "the handler fails": Shape(handler_fails, ValueError, ["b", "c"]),
    "nested": Shape(nested, ValueError, ["b", "c"]),
    "deeply nested": Shape(deeply_nested, ValueError, ["b", "c"]),
    "code raises": Shape(code_raises, Wrapped, ["c"], _bad_answer),
    "pool": Shape(pool, ValueError, ["b", "c"]),
    "plain, awaited": Shape(plain_later, ValueError, ["b", "c"]),
    "finally, awaited": Shape(finally_step_later, ValueError, ["b", "clean", "c"]),
    "except, log, raise, awaited": Shape(except_log_raise_later, ValueError, ["b", "c"]),
    "wrapped, awaited": Shape(wrapped_later, Wrapped, ["b", "c"]),
    "handled, awaited": Shape(handled_later, ValueError, ["b", "c"]),
    "nested, awaited": Shape(nested_later, ValueError, ["b", "c"]),
    "task group": Shape(task_group, ExceptionGroup, ["b", "slow", "c"], _slow_sibling),
    "gather": Shape(gather, ValueError, ["b", "c"], _slow_sibling),
    "two of a group": Shape(both_of_a_group, ExceptionGroup, ["b", "x", "c"]),
    "code raises, awaited": Shape(code_raises_later, Wrapped, ["c"], _bad_answer),
}
