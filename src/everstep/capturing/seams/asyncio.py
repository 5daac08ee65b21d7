"""asyncio: its loops, whose tasks get lanes from the first one on; its timers, and what awaits the jobs of a pool.

Patched when the program loads asyncio: one that does not need not wait for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import Context
from types import ModuleType
from typing import Any

from everstep.capturing import sets
from everstep.capturing.clock import Hand, lane_of, looked_at
from everstep.capturing.loops import enter, factory_set
from everstep.capturing.seams import asyncio_subprocess
from everstep.capturing.sleeping import Timers
from everstep.run.lanes import Lane, here
from everstep.run.spawning import knows_loop

_OURS = "everstep."
_init = asyncio.BaseEventLoop.__init__
_set_factory = asyncio.BaseEventLoop.set_task_factory
_run = asyncio.Runner.run
call_at, _call_later = asyncio.BaseEventLoop.call_at, asyncio.BaseEventLoop.call_later
_wrap = asyncio.wrap_future
_as_completed: Any = asyncio.as_completed


def patch(module: ModuleType) -> None:
    """Wrap the ways loops begin and timers are set, and asyncio's processes. Raises UnknownLayoutError."""
    loop: Any = asyncio.BaseEventLoop
    loop.__init__ = _init_in_lane
    loop.set_task_factory = _set_factory_in_lane
    loop.call_at, loop.call_later = _call_at_held, _call_later_held
    asyncio.Runner.run = _run_in_lane  # type: ignore[method-assign] # this is the wrapping
    asyncio.wrap_future = asyncio.futures.wrap_future = _wrapped_in_turn
    asyncio.as_completed = asyncio.tasks.as_completed = _as_completed_in_order
    asyncio_subprocess.patch(module)


# The loops.


def _is_captured() -> bool:
    lane = here()
    return lane is not None and lane.run.captured is not None


@functools.wraps(_init)
def _init_in_lane(self: asyncio.BaseEventLoop, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    if _is_captured():
        enter(self)


@functools.wraps(_set_factory)
def _set_factory_in_lane(self: asyncio.BaseEventLoop, factory: Any) -> None:
    _set_factory(self, factory)
    factory_set(self)


@functools.wraps(_run)
def _run_in_lane(self: asyncio.Runner, *args: Any, **kwargs: Any) -> Any:
    if _is_captured() and not knows_loop(self.get_loop()):  # one that is not asyncio's own
        enter(self.get_loop())
    return _run(self, *args, **kwargs)


@functools.wraps(_as_completed)
def _as_completed_in_order(fs: Any, **options: Any) -> Any:
    """It makes a set of what it is given, and then tasks of that: in the order of where it lies in memory."""
    if not _is_captured() or not isinstance(fs, list | tuple):
        return _as_completed(fs, **options)
    return (
        _started_in_order(fs, options)
        if inspect.isgeneratorfunction(_as_completed)
        else _as_completed(_tasks(fs), **options)
    )


def _started_in_order(fs: Any, options: dict[str, Any]) -> Iterator[Any]:
    """As a generator, which begins when it is first asked."""
    yield from _as_completed(_tasks(fs), **options)


def _tasks(fs: Any) -> list[Any]:
    return [asyncio.ensure_future(each) for each in dict.fromkeys(fs)]


# The timers.


class Held(asyncio.TimerHandle):
    """A timer that no loop knows of: it ends when its turn has come."""

    def __init__(self, timers: Timers, when: float, job: tuple[Any, ...], context: Context | None) -> None:
        callback, args, self.loop = job
        super().__init__(when, callback, args, self.loop, context)
        self._timers = timers
        self.mark: float | None = None
        self.due: Callable[[], None] = lambda: None
        self.takes_time = True

    def cancel(self) -> None:
        """Never end."""
        super().cancel()
        self._timers.forget(self)


def _timers_here(callback: Any) -> tuple[Timers, Lane, Hand] | None:
    """Those that a new timer belongs to; None if it is none of a captured program's."""
    found = looked_at()
    if found is None or (getattr(callback, "__module__", None) or "").startswith(_OURS):
        return None
    captured = found[0].run.captured
    return None if captured is None else (captured.senses.timers, *found)


@functools.wraps(call_at)
def _call_at_held(self: Any, when: Any, callback: Any, *args: Any, context: Any = None) -> Any:
    found = _timers_here(callback)
    if found is None or when is None or self.is_closed():
        return call_at(self, when, callback, *args, context=context)
    timers, lane, hand = found
    delay = round(when - self.time(), 3)  # how far ahead it was meant to be, a little before
    return timers.set(lane, hand, when, delay, (callback, args, self), context)


@functools.wraps(_call_later)
def _call_later_held(self: Any, delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
    found = _timers_here(callback)
    if found is None or delay is None or self.is_closed():
        return _call_later(self, delay, callback, *args, context=context)
    timers, lane, hand = found
    return timers.set(lane, hand, self.time() + delay, delay, (callback, args, self), context)


# The jobs.


@functools.wraps(_wrap)
def _wrapped_in_turn(future: Any, *, loop: Any = None) -> asyncio.Future[Any]:
    """What awaits a job of a pool, and goes on among timers and answers where it went on."""
    found = looked_at()
    lane = None if found is None or found[0].run.captured is None else lane_of(future)
    wrapped = _wrap(future, loop=loop)
    if found is None or lane is None:
        return wrapped
    hand, loop = found[1], wrapped.get_loop()
    gone_on = sets.awaited(lane, loop)
    ended = lane.run.captured.senses.timers.wait_for_job(lane.path, loop)

    def go_on() -> None:
        hand.meet(lane)
        if not gone_on.done():
            _copy(wrapped, gone_on)

    wrapped.add_done_callback(lambda _: ended(go_on))
    gone_on.add_done_callback(lambda _: wrapped.cancel() if gone_on.cancelled() else None)
    return gone_on


def _copy(source: asyncio.Future[Any], target: asyncio.Future[Any]) -> None:
    if source.cancelled():
        target.cancel()
    elif (error := source.exception()) is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())
