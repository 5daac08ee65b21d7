from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from everstep.errors import HandlerWarning
from everstep.trail import events as module
from everstep.trail.events import Event, Events

DONE = Event("step_completed", "r-1", "research")
current: contextvars.ContextVar[str | None] = contextvars.ContextVar("current", default=None)
kept: contextvars.ContextVar[str | None] = contextvars.ContextVar("kept", default=None)


@pytest.fixture
def events() -> Iterator[Events]:
    made = Events()
    yield made
    made.drain(5)


def emit_and_drain(events: Events) -> None:
    events.emit(DONE)
    assert events.drain(10)


def test_on_a_loop_an_async_handler_is_a_task_of_that_loop(events: Events) -> None:
    got: list[Any] = []

    @events.on("step_completed")
    async def later(event: Event) -> None:
        await asyncio.sleep(0.01)
        got.append((event, asyncio.get_running_loop()))

    async def main() -> None:
        events.emit(DONE)
        assert got == []
        gc.collect()  # nobody but the registry holds the task
        assert await events.drained()
        assert got == [(DONE, asyncio.get_running_loop())]

    asyncio.run(main())


def test_without_a_loop_async_handlers_run_in_one_background_thread(events: Events) -> None:
    got: list[tuple[Event, threading.Thread]] = []

    @events.on("step_completed")
    async def later(event: Event) -> None:
        await asyncio.sleep(0.01)
        got.append((event, threading.current_thread()))

    events.emit(DONE)
    events.emit(DONE)
    assert events.drain(10)
    [(_, first), (_, second)] = got
    assert first is second
    assert first is not threading.current_thread()
    assert first.daemon


def test_whatever_returns_something_to_await_is_awaited(events: Events) -> None:
    got: list[str] = []

    async def work(name: str) -> None:
        got.append(name)

    class Caller:
        async def __call__(self, event: Event) -> None:
            got.append("object")

    events.on("step_completed", handler=lambda _: work("lambda"))
    events.on("step_completed", handler=Caller())
    events.on("step_completed", handler=functools.partial(lambda name, _: work(name), "partial"))
    events.emit(DONE)
    assert events.drain(10)
    assert sorted(got) == ["lambda", "object", "partial"]


@pytest.mark.parametrize("on_a_loop", [True, False])
def test_an_async_handler_that_fails_is_seen_and_harms_nothing(events: Events, *, on_a_loop: bool) -> None:
    """Promise 13."""
    got: list[Event] = []

    @events.on("step_completed")
    async def broken(event: Event) -> None:
        await asyncio.sleep(0)
        raise ValueError("no such table")

    @events.on("step_completed")
    async def whole(event: Event) -> None:
        await asyncio.sleep(0.01)
        got.append(event)

    async def main() -> None:
        events.emit(DONE)
        await events.drained()

    def emit() -> None:
        if on_a_loop:
            asyncio.run(main())
        else:
            events.emit(DONE)
            assert events.drain(10)

    with pytest.warns(HandlerWarning, match=r"broken of step_completed .* ValueError: no such table"):
        emit()
    assert (got, events.failures) == ([DONE], 1)


def test_a_handler_that_the_end_of_its_loop_cut_off_is_told_of(events: Events) -> None:
    """Promise 13."""

    @events.on("step_completed")
    async def slow(event: Event) -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        events.emit(DONE)

    with pytest.warns(HandlerWarning, match="slow of step_completed .* cancelled before it was done"):
        asyncio.run(main())
    assert events.drain(0)


def test_a_handler_whose_loop_was_closed_over_it_is_told_of_and_not_waited_for(events: Events) -> None:
    """Promise 13."""
    begun = threading.Event()

    @events.on("step_completed")
    async def slow(event: Event) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> None:
        events.emit(DONE)
        await asyncio.sleep(0.01)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    assert begun.is_set()
    asked = time.monotonic()
    assert not events.drain(20)
    assert time.monotonic() - asked < 10, "a loop that stands still was waited for"
    [task] = asyncio.all_tasks(loop)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # what asyncio says of it is not what is tested
    loop.close()
    with pytest.warns(HandlerWarning, match="its event loop was closed"):
        assert events.drain()


def test_a_handler_that_exits_ends_neither_the_process_nor_the_other_handlers(events: Events) -> None:
    got: list[Event] = []

    @events.on("step_completed")
    async def leave(event: Event) -> None:
        sys.exit(3)

    @events.on("step_completed")
    async def stay(event: Event) -> None:
        await asyncio.sleep(0.01)
        got.append(event)

    with pytest.warns(HandlerWarning, match="leave of step_completed .* SystemExit: 3"):
        emit_and_drain(events)
    assert got == [DONE]


# Waiting


def test_draining_gives_up_after_its_time(events: Events) -> None:
    release = threading.Event()

    @events.on("step_completed")
    async def slow(event: Event) -> None:
        await asyncio.to_thread(release.wait, 60)

    events.emit(DONE)
    begun = time.monotonic()
    assert not events.drain(0.05)
    assert 0.05 <= time.monotonic() - begun < 20
    release.set()
    assert events.drain(10)


def test_draining_waits_for_what_handlers_set_off(events: Events) -> None:
    got: list[str] = []

    @events.on("step_completed")
    async def first(event: Event) -> None:
        await asyncio.sleep(0.01)
        events.emit(Event("checkpoint", "r", "w"))

    @events.on("checkpoint")
    async def second(event: Event) -> None:
        await asyncio.sleep(0.01)
        got.append(event.name)

    events.emit(DONE)
    assert events.drain(10)
    assert got == ["checkpoint"]


def test_a_loop_can_wait_for_the_background_and_is_not_blocked_by_draining(events: Events) -> None:
    got: list[Event] = []

    @events.on("step_completed")
    async def later(event: Event) -> None:
        await asyncio.sleep(0.02)
        got.append(event)

    async def main() -> None:
        await asyncio.to_thread(events.emit, DONE)
        with pytest.raises(RuntimeError, match="await drained"):
            events.drain()
        assert await events.drained()
        assert got == [DONE]

    asyncio.run(main())


def test_a_handler_that_drains_does_not_wait_for_itself(events: Events) -> None:
    got: list[bool] = []

    @events.on("step_completed")
    async def drains(event: Event) -> None:
        got.append(await events.drained())

    events.emit(DONE)
    assert events.drain(10)
    assert got == [True]


# Apart from the run


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HIDDEN", [])
    module.hide(current, None)


@pytest.mark.usefixtures("hidden")
@pytest.mark.parametrize("on_a_loop", [True, False])
def test_handlers_do_not_see_the_run_but_everything_else(events: Events, *, on_a_loop: bool) -> None:
    got: list[Any] = []

    @events.on("step_completed")
    def plain(event: Event) -> None:
        got.append((current.get(), kept.get()))
        current.set("changed by a handler")

    @events.on("step_completed")
    async def awaited(event: Event) -> None:
        await asyncio.sleep(0)
        got.append((current.get(), kept.get()))

    async def main() -> None:
        events.emit(DONE)
        await events.drained()
        assert current.get() == "r-1"

    def emit() -> None:
        current.set("r-1")
        kept.set("of the user")
        if on_a_loop:
            asyncio.run(main())
        else:
            events.emit(DONE)
            assert current.get() == "r-1"

    contextvars.copy_context().run(emit)
    assert events.drain(10)
    assert got == [(None, "of the user")] * 2


def test_the_task_of_a_handler_is_no_child_of_the_task_it_is_told_by(events: Events) -> None:
    """Whoever counts the tasks that a task spawns, as runs do, must not count it."""
    makers: list[Any] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        makers.append(asyncio.current_task(loop))
        return asyncio.Task(coro, loop=loop, **options)

    @events.on("step_completed")
    async def later(event: Event) -> None: ...

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        events.emit(DONE)
        await events.drained()

    asyncio.run(main())
    assert makers[0] is None


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_handlers_and_a_thread_of_its_own(events: Events) -> None:
    got: list[int] = []
    release = threading.Event()

    @events.on("step_completed")
    async def later(event: Event) -> None:
        await asyncio.to_thread(release.wait, 60)
        got.append(os.getpid())

    events.emit(DONE)
    child = os.fork()
    if child == 0:
        release.set()
        drained = events.drain(10)  # nothing of the parent's is waited for
        events.emit(DONE)
        drained = drained and events.drain(10)
        os._exit(0 if drained and got == [os.getpid()] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    release.set()
    assert events.drain(10)
    assert got == [os.getpid()]
