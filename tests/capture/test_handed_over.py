"""What threads hand over to an event loop in another thread: known by who did so, whenever the loop comes to it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import uvloop

from everstep.capturing.session import capture
from everstep.errors import DivergenceError
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

Make = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[Make] = [asyncio.new_event_loop, uvloop.new_event_loop]
Answers = Future[list[str]]


@contextmanager
def going(make: Make) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that runs in a thread of its own."""
    loop = make()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def by_coroutine(asked: Callable[[], Coroutine[Any, Any, list[str]]], loop: asyncio.AbstractEventLoop) -> Answers:
    return asyncio.run_coroutine_threadsafe(asked(), loop)


def by_callback(asked: Callable[[], Coroutine[Any, Any, list[str]]], loop: asyncio.AbstractEventLoop) -> Answers:
    answers: Answers = Future()

    async def told() -> None:
        answers.set_result(await asked())

    loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(told())))
    return answers


tasks: list[Any] = []  # a loop keeps none


@pytest.mark.parametrize("make", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("handed", [by_coroutine, by_callback])
def test_a_task_is_known_however_far_the_thread_has_gone_on_that_handed_it_over(
    trail: Trail, make: Make, handed: Callable[..., Answers]
) -> None:
    def asked(*, late: bool) -> list[str]:
        began, went_on = threading.Event(), threading.Event()

        async def awaited() -> list[str]:
            began.set()
            async with httpx.AsyncClient(timeout=30, verify=False) as client:
                return [(await client.get(f"{server.url}/plain/a")).text]

        with going(make) as loop, httpx.Client(timeout=30) as client:
            if late:
                loop.call_soon_threadsafe(went_on.wait)
            answers = handed(awaited, loop)
            if not late:
                began.wait()
            mine = client.get(f"{server.url}/plain/b").text
            went_on.set()
            return [mine, *answers.result(timeout=30)]

    with ModelServer() as server:
        with capture(trail, "run"):
            recorded = asked(late=True)
        for late in (False, True):
            with capture(trail, "run", mode="verify"):
                assert asked(late=late) == recorded
        assert len(server.requests) == 2


@pytest.mark.parametrize("is_before", [False, True], ids=["made inside", "made before"])
@pytest.mark.parametrize("make", LOOPS, ids=["asyncio", "uvloop"])
def test_tasks_of_a_loop_that_is_run_by_hand_are_told_apart(trail: Trail, make: Make, *, is_before: bool) -> None:
    """No `asyncio.run`: the program makes a loop, and has it run."""
    before = contextlib.closing(make()) if is_before else contextlib.nullcontext()

    async def all_at_once() -> list[str]:
        async with httpx.AsyncClient(timeout=30, verify=False) as client:
            alike = [asyncio.ensure_future(client.get(f"{server.url}/plain/a")) for _ in range(6)]
            return [(await each).text for each in asyncio.as_completed(alike)]

    def run() -> list[str]:
        if made is not None:
            return made.run_until_complete(all_at_once())
        with contextlib.closing(make()) as loop:
            return loop.run_until_complete(all_at_once())

    with before as made, ModelServer() as server:
        with capture(trail, "run") as session:
            recorded = run()
        lanes = {step.lane for step in trail.steps(session.id) if step.node_type == "http"}
        assert len(lanes) == len(recorded) == 6
        for _ in range(3):
            with capture(trail, "run", mode="verify"):
                assert run() == recorded


@pytest.mark.parametrize("make", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_awaited", [True, False])
def test_a_task_that_asks_for_something_else_leaves_the_loop_that_it_was_handed_over_to_as_it_was(
    trail: Trail, make: Make, is_awaited: Any
) -> None:
    """Whoever handed it over is not kept waiting, also where nobody awaits the task that asked."""

    async def asked(last: int) -> list[str]:
        said, over = list[str](), asyncio.Event()

        async def ask(number: int) -> None:
            async with httpx.AsyncClient(base_url=server.url) as client:
                said.append(str((await client.get(f"/plain/{number}")).json()["counter"]))
            over.set()

        task = asyncio.create_task(ask(last))
        await (task if is_awaited else over.wait())
        return said

    def answers(last: int, **how: Any) -> list[str]:
        with capture(trail, "x", **how):
            return asyncio.run_coroutine_threadsafe(asked(last), loop).result(20)

    with ModelServer() as server, going(make) as loop:
        factory = loop.get_task_factory()
        recorded = answers(1)
        with pytest.raises(DivergenceError) as parted:
            answers(2, mode="verify")
        assert not isinstance(parted.value.__context__, TimeoutError)
        assert answers(1, mode="verify") == recorded
        assert len(server.requests) == 1
        assert loop.get_task_factory() is factory
