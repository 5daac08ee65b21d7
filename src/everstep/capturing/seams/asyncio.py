"""asyncio: its loops and uvloop's, whose tasks get lanes from the first one on; timers; what comes of other threads.

Patched when the program loads asyncio: one that does not need not wait for it.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from types import ModuleType
from typing import Any

from everstep.capturing import sets
from everstep.capturing.clock import Hand, lane_of, looked_at
from everstep.capturing.halting import halted_in
from everstep.capturing.loops import factory_set, runs
from everstep.capturing.seams import asyncio_subprocess
from everstep.capturing.sleeping import Timers, put_forward_here, real_time
from everstep.run.lanes import CURRENT, Lane, here
from everstep.run.spawning import function_name

_OURS = "everstep."
_NO_TIME = (None, math.inf)  # what is no time to asyncio, and what never comes
_run = asyncio.Runner.run
call_at, _call_later = asyncio.BaseEventLoop.call_at, asyncio.BaseEventLoop.call_later
_time = asyncio.BaseEventLoop.time
_ROUND = "_run_once"  # what a loop does again and again, in the context in which it was started: its own time is real
_wrap = asyncio.wrap_future
_as_completed: Any = asyncio.as_completed


def patch(module: ModuleType) -> None:
    """Wrap the ways loops begin and timers are set, and their processes. Raises UnknownLayoutError."""
    asyncio_subprocess.patch(module)
    if module.__name__ == "uvloop":
        _patch_loop(module.Loop)
        return
    loop: Any = asyncio.BaseEventLoop
    _patch_loop(loop)
    loop.time, loop.call_at, loop.call_later = time_shown, _call_at_held, _call_later_held
    asyncio.Runner.run = _run_in_lane  # type: ignore[method-assign] # this is the wrapping
    asyncio.wrap_future = asyncio.futures.wrap_future = _wrapped_in_turn
    asyncio.as_completed = asyncio.tasks.as_completed = _as_completed_in_order


# The loops.


def _is_captured() -> bool:
    lane = here()
    return lane is not None and lane.run.captured is not None


def _enter_here(loop: Any) -> None:
    """Have a loop give lanes that captured code makes, runs, or hands something over to."""
    lane = here()
    if lane is not None and lane.run.captured is not None:
        lane.run.captured.loops.enter(loop)


def _patch_loop(loop: Any) -> None:
    """Have loops of this kind give lanes: to their tasks, and to what other threads hand over to them."""
    init, set_factory, hand_over = loop.__init__, loop.set_task_factory, loop.call_soon_threadsafe
    run, run_on, tell = loop.run_until_complete, loop.run_forever, loop.call_exception_handler

    @functools.wraps(init)
    def init_in_lane(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _enter_here(self)

    @functools.wraps(set_factory)
    def set_factory_in_lane(self: Any, factory: Any) -> None:
        set_factory(self, factory)
        factory_set(self)

    @functools.wraps(run)
    def run_in_lane(self: Any, future: Any) -> Any:
        _enter_here(self)
        return run(self, future)

    @functools.wraps(run_on)
    def run_on_in_lane(self: Any) -> None:
        with runs(self):
            run_on(self)

    @functools.wraps(hand_over)
    def hand_over_in_lane(self: Any, callback: Any, *args: Any, context: Any = None) -> Any:
        """In a lane that begins here: how far this thread has gone on when the loop comes to it is chance."""
        lane = here() if context is None else None
        if lane is not None and lane.run.captured is not None:
            _enter_here(self)
            context = copy_context()
            context.run(CURRENT.set, lane.spawn("callback", function_name(callback, args)))
        return hand_over(self, callback, *args, context=context)

    @functools.wraps(tell)
    def tell_of_failures(self: Any, context: dict[str, Any]) -> None:
        """What takes the program out is told by whoever runs it. Nobody asks tasks for it whose loop it has ended."""
        error = context.get("exception")
        if error is None or halted_in(error) is None:
            tell(self, context)

    for wrapping in (
        init_in_lane,
        set_factory_in_lane,
        run_in_lane,
        run_on_in_lane,
        hand_over_in_lane,
        tell_of_failures,
    ):
        setattr(loop, wrapping.__name__, wrapping)


@functools.wraps(_run)
def _run_in_lane(self: asyncio.Runner, *args: Any, **kwargs: Any) -> Any:
    _enter_here(self.get_loop())
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


@functools.wraps(_time)
def time_shown(self: Any) -> float:
    """The time of a loop: to captured code as far ahead as its clock."""
    ahead = put_forward_here(self)
    if not ahead:
        return _time(self)
    caller = sys._getframe(1)  # noqa: SLF001 - whose line it is
    is_round = caller.f_code.co_name == _ROUND and caller.f_locals.get("self") is self
    return _time(self) + (0.0 if is_round else ahead)


class Held(asyncio.TimerHandle):
    """A timer that no loop knows of: it ends when its turn has come."""

    __eq__, __hash__ = object.__eq__, object.__hash__  # to asyncio timers are one that do the same at the same time

    def __init__(self, timers: Timers, when: float, job: tuple[Any, ...], context: Context | None) -> None:
        callback, args, self.loop = job
        super().__init__(when, callback, args, self.loop, context)
        self._timers = timers
        self.mark: float | None = None
        self.due: Callable[[], None] = lambda: None
        self.hand: Hand | None = None  # by which it is set; None where that is the time of the world

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
    if found is None or when in _NO_TIME or self.is_closed():
        moment: Any = when if when is None else real_time(self, when)
        return call_at(self, moment, callback, *args, context=context)
    timers, lane, hand = found
    delay = round(when - self.time(), 3)  # how far ahead it was meant to be, a little before
    return timers.set(lane, hand, when, delay, (callback, args, self), context)


@functools.wraps(_call_later)
def _call_later_held(self: Any, delay: Any, callback: Any, *args: Any, context: Any = None) -> Any:
    found = _timers_here(callback)
    if found is None or delay in _NO_TIME or self.is_closed():
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
