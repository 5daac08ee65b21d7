"""Telling others what happens to runs, while it happens.

A handler only looks on: whatever it does, the run goes on as if it were not there. One that fails is told of in a
warning and counted, and the next one is called. It does not see the run that is current where the event comes from, so
that nothing it calls is recorded as a step of that run: what `hide` names is hidden from it.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
import time
import warnings
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from everstep import actual
from everstep.codec.record import StepRecord
from everstep.errors import HandlerWarning
from everstep.trail.late import Late, running_loop

if TYPE_CHECKING:
    import asyncio
    import logging
    from concurrent import futures
else:
    asyncio, logging, futures = Late("asyncio"), Late("logging"), Late("concurrent.futures")

NAMES = (
    "run_started", "run_resumed", "run_completed", "run_failed", "run_partial", "run_paused", "run_stopped",
    "run_cancelled", "step_completed", "step_failed", "step_restored", "chunk", "checkpoint",
)  # fmt: skip
_KNOWN = frozenset(NAMES)
_HIDDEN: list[tuple[contextvars.ContextVar[Any], Any]] = []


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run. `step` is there when it happened to one of its steps."""

    name: str
    run_id: str
    workflow: str
    step: StepRecord | None = None
    error: str | None = None
    node_name: str | None = None  # of a chunk: the node that is at work, and has no record yet
    chunk: Any = None
    at: datetime = field(default_factory=actual.now)


Handler = Callable[[Event], Any]
H = TypeVar("H", bound=Handler)


def hide(variable: contextvars.ContextVar[Any], value: Any) -> None:
    """Let handlers find `value` in a context variable, whatever is in it where the event comes from."""
    _HIDDEN.append((variable, value))


class Subscription:
    """What `on` gives: a decorator for handlers, and the way to end what it began."""

    def __init__(self, events: Events, names: tuple[str, ...]) -> None:
        self._events, self._names = events, names
        self._handlers: list[Handler] = []

    def __call__(self, handler: H) -> H:
        """Call the handler from now on. It stays what it was."""
        if not callable(handler):
            raise TypeError(f"{handler!r:.60} cannot be called; a handler is a function of one event")
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise TypeError(f"{_name_of(handler)} is a generator, which a call does not run; a handler must not yield")
        self._events._add(self._names, handler)  # noqa: SLF001 - the registry's own other half
        self._handlers.append(handler)
        return handler

    def stop(self) -> None:
        """Call none of its handlers again. Idempotent; what runs already runs to its end."""
        while self._handlers:
            self._events._remove(self._names, self._handlers.pop())  # noqa: SLF001 - as above


class Events:
    """Who wants to be told. True while anybody does, so that `if events:` is all that an event nobody wants costs."""

    def __init__(self) -> None:
        self.failures = 0
        self._handlers: dict[str, tuple[Handler, ...]] = {}
        self._jobs: set[_Job] = set()  # a task that nobody holds may be collected before it is done
        self._lock = threading.RLock()  # a signal may come while it is held, and its handler emit
        _all.add(self)

    def __bool__(self) -> bool:
        return bool(self._handlers)

    def on(self, *names: str, handler: Handler | None = None) -> Subscription:
        """Call a handler, plain or async, at these events; without names at all. Also a decorator: `@trail.on(...)`."""
        unknown = [name for name in names if not isinstance(name, str) or name not in _KNOWN]
        if unknown:
            raise ValueError(f"there is no event {unknown[0]!r:.60}; there are {', '.join(NAMES)}")
        subscription = Subscription(self, tuple(dict.fromkeys(names)) or NAMES)
        if handler is not None:
            subscription(handler)
        return subscription

    def _add(self, names: tuple[str, ...], handler: Handler) -> None:
        with self._lock:  # tuples and dicts are replaced, not changed: emit reads them without the lock
            self._handlers = {**self._handlers, **{name: (*self._handlers.get(name, ()), handler) for name in names}}

    def _remove(self, names: tuple[str, ...], handler: Handler) -> None:
        with self._lock:
            left = {name: list(handlers) for name, handlers in self._handlers.items()}
            for name in names:
                left[name].remove(handler)
            self._handlers = {name: tuple(handlers) for name, handlers in left.items() if handlers}

    # Telling.

    def emit(self, event: Event) -> None:
        """Call the handlers of an event in the order they came. What is async is begun here and goes on by itself."""
        for handler in self._handlers.get(event.name, ()):
            context = contextvars.copy_context()
            for variable, value in _HIDDEN:
                context.run(variable.set, value)
            try:
                result = context.run(handler, event)
                if result is not None and inspect.isawaitable(result):
                    self._begin(event, handler, result, context)
            except Exception as error:  # noqa: BLE001 - whatever a handler raises, the run goes on
                self._failed(event, handler, error)

    def _begin(self, event: Event, handler: Handler, work: Awaitable[Any], context: contextvars.Context) -> None:
        # From a callback of the loop, not from here: the new task must not look like a child of the current one.
        loop = running_loop()
        job = _Job(event, handler, loop or _background())
        with self._lock:
            self._jobs.add(job)
        post = job.loop.call_soon if loop is not None else job.loop.call_soon_threadsafe
        post(self._start, job, work, context=context)

    def _start(self, job: _Job, work: Awaitable[Any]) -> None:
        # A coroutine as it is: in a wrapper that is cancelled before it begins, it would never be awaited.
        job.task = job.loop.create_task(work if inspect.iscoroutine(work) else _awaited(work))
        job.task.add_done_callback(partial(self._ended, job))

    def _ended(self, job: _Job, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._failed(job.event, job.handler, "it was cancelled before it was done; drain() waits for handlers")
        elif (error := task.exception()) is not None:
            self._failed(job.event, job.handler, error)
        self._close(job)

    def _close(self, job: _Job) -> None:
        with self._lock:
            if job in self._jobs:  # two who drain may both find its loop closed
                self._jobs.remove(job)
                job.done.set_result(None)

    def _failed(self, event: Event, handler: Handler, error: BaseException | str) -> None:
        with self._lock:
            self.failures += 1
        message = (
            f"the handler {_name_of(handler)} of {event.name} (run {event.run_id!r}) failed: {_words(error)}. "
            "The run went on without it; mend the handler, or stop() it."
        )
        warn_in_any_case(message, HandlerWarning)

    # Waiting.

    def drain(self, timeout: float | None = None) -> bool:
        """Wait for the async handlers that were begun. False when some are not done, or never will be by waiting.

        Not on a thread that runs an event loop, which it would stop: `await drained()` there.
        """
        if running_loop() is not None:
            raise RuntimeError("drain() would block the event loop of this thread. Use `await drained()` here.")
        end = None if timeout is None else time.monotonic() + timeout
        while (pending := self._pending()) and (end is None or time.monotonic() < end):
            futures.wait([job.done for job in pending], None if end is None else end - time.monotonic())
        return not self._jobs

    def settle(self, timeout: float) -> None:
        """`drain` for whoever closes a trail. It cannot wait on a thread that runs an event loop, and does not."""
        if self._jobs and running_loop() is None:
            self.drain(timeout)

    async def drained(self) -> bool:
        """`drain` for event loops. A handler that calls it does not wait for itself."""
        this = asyncio.current_task()
        while pending := [job for job in self._pending() if job.task is not this]:
            await asyncio.wait([asyncio.wrap_future(job.done) for job in pending])
        return all(job.task is this for job in self._snapshot())

    def _pending(self) -> list[_Job]:
        """The jobs that can be waited for. One whose loop was closed will never be done; that is told here."""
        pending = []
        for job in self._snapshot():
            if job.loop.is_closed():
                self._failed(job.event, job.handler, "its event loop was closed before it was done")
                self._close(job)
            elif job.loop.is_running():
                pending.append(job)
        return pending

    def _snapshot(self) -> list[_Job]:
        with self._lock:
            return list(self._jobs)


class _Job:
    """An async handler at work."""

    __slots__ = ("done", "event", "handler", "loop", "task")

    def __init__(self, event: Event, handler: Handler, loop: asyncio.AbstractEventLoop) -> None:
        self.event, self.handler, self.loop = event, handler, loop
        self.task: asyncio.Task[Any] | None = None
        self.done: futures.Future[None] = futures.Future()


async def _awaited(work: Awaitable[Any]) -> None:
    await work


def warn_in_any_case(message: str, category: type[Warning]) -> None:
    """Warn. Where warnings are errors it must still be seen, and still break no run."""
    try:
        warnings.warn(message, category, stacklevel=3)
    except Exception:  # noqa: BLE001 - whatever a filter or a hook makes of it
        with suppress(Exception):
            logging.getLogger("everstep").error(message)


def _name_of(handler: Handler) -> str:
    with suppress(Exception):
        return str(handler.__qualname__)
    return type(handler).__name__


def _words(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    with suppress(Exception):
        return f"{type(error).__name__}: {error}"
    return type(error).__name__


# One loop in one thread, for the async handlers of code that runs none. It ends with the process, which it never keeps.

_all: weakref.WeakSet[Events] = weakref.WeakSet()
_making = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_left: list[asyncio.AbstractEventLoop | None] = []  # those of parents: they look alive, and to collect one would warn


def _background() -> asyncio.AbstractEventLoop:
    global _loop
    with _making:
        if _loop is None:
            _loop, started = asyncio.new_event_loop(), threading.Event()
            _loop.call_soon(started.set)
            threading.Thread(target=_serve, args=(_loop,), name="everstep handlers", daemon=True).start()
            started.wait()
        return _loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        with suppress(SystemExit):  # of a handler, which is told of like any failure
            loop.run_forever()


def _born() -> None:
    """In a forked child, whose threads stayed with the parent, and with them what they had in hand."""
    global _loop, _making
    _left.append(_loop)
    _loop, _making = None, threading.Lock()
    for events in list(_all):
        events._lock, events._jobs = threading.RLock(), set()  # noqa: SLF001 - as above


os.register_at_fork(after_in_child=_born)
