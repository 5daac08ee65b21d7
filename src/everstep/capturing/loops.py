"""Event loops that a captured program starts: their tasks get lanes from the first one on."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from everstep.run.execution import Execution
from everstep.run.lanes import CURRENT, OF_TASK, OUTSIDE, here, outside
from everstep.run.spawning import enter_loop, knows_loop, leave_loop
from everstep.trail.late import asyncio, running_loop


class _OfThread(threading.local):
    entering = False


_of_thread = _OfThread()
PASSES = ContextVar("everstep_passes", default=False)  # whether what a task of ours does next is to tell the program


@contextmanager
def known(run: Execution) -> Iterator[None]:
    """Give the tasks of the loop that runs here lanes, if one does: the code around is one of them."""
    loop = running_loop()
    task = None if loop is None else asyncio.current_task()
    if loop is None or task is None:
        yield
        return
    enter(loop)
    before, OF_TASK[task] = OF_TASK.get(task), run.root
    try:
        yield
    finally:
        if before is None:
            OF_TASK.pop(task, None)
        else:
            OF_TASK[task] = before
        leave_loop(loop)


def enter(loop: asyncio.AbstractEventLoop) -> None:
    """Give the tasks of a loop lanes, around whatever makes them now."""
    _of_thread.entering = True  # to know our own factory when it is set
    try:
        enter_loop(loop)
    finally:
        _of_thread.entering = False


_runners: WeakKeyDictionary[Any, Execution] = WeakKeyDictionary()  # of loops that runs run: the innermost


@contextmanager
def runs(loop: Any) -> Iterator[None]:
    """While this lasts, a loop is run by the code around, and with that by its run."""
    lane = here()
    if lane is None or loop in _runners:
        yield
        return
    _runners[loop] = lane.run
    try:
        yield
    finally:
        _runners.pop(loop, None)


def run_by(loop: asyncio.AbstractEventLoop) -> Execution | None:
    """The run whose code runs a loop; None where that is none's."""
    return _runners.get(loop)


class Entered:
    """The loops whose tasks have lanes for a run because its code made them, runs them, or handed something over."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._loops: WeakSet[Any] = WeakSet()

    def enter(self, loop: Any) -> None:
        """Give the tasks of a loop lanes, until the run is over: one that was there before goes on after it."""
        if loop in self._loops:
            return
        with self._run.lock:
            if loop not in self._loops and not self._run.closed:
                self._loops.add(loop)
                enter(loop)

    def leave(self) -> None:
        """The run is over."""
        while self._loops:
            leave_loop(self._loops.pop())


def is_at_work(run: Execution, calls: Collection[Any], loop: Any) -> bool:
    """Whether the program has something to do on a loop right now; what goes on inside its calls is none of that.

    But for calls that were cancelled: no answer will tell when the code goes on.
    """
    ready = getattr(loop, "_ready", None)  # nothing public tells it, and loops that are not asyncio's own not at all
    if ready is None:
        return True
    if any(_is_of_program(handle, run) for handle in tuple(ready)):  # copies: other threads add to them
        return True
    return any(call.is_left for call in tuple(calls))


def lose_patience(calls: Collection[Any]) -> None:
    """Wait no longer for what is to be done about calls that were cancelled: a process that nobody ended, say."""
    for call in tuple(calls):
        call.lingers = call.lingers or call.is_left


def passing() -> Context:
    """A context for a task of ours that passes on to the program what comes in: it belongs to no run."""
    context = outside()
    context.run(PASSES.set, True)  # noqa: FBT003 - its value
    return context


def _is_of_program(handle: Any, run: Execution) -> bool:
    lane = handle._context.get(CURRENT)  # noqa: SLF001 - nothing public tells it
    if lane is None:  # a context that the program made itself: its task is known
        task = getattr(handle._callback, "__self__", None)  # noqa: SLF001 - as above
        lane = OF_TASK.get(task) if isinstance(task, asyncio.Task) else None
    if lane is None or handle.cancelled():
        return False
    if lane is OUTSIDE:
        return bool(handle._context.get(PASSES))  # noqa: SLF001 - as above
    if lane.run is not run and lane.run.captured is not None:
        return False  # another program that shares the loop
    return lane.scope.leaf is None or lane.scope.leaf.is_left


def factory_set(loop: asyncio.AbstractEventLoop) -> None:
    """Somebody set what makes the tasks of a loop: if they have lanes, those of the new one get them too."""
    if not _of_thread.entering and knows_loop(loop):
        enter(loop)
