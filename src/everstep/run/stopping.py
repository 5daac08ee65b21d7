"""How a run comes to rest: lanes that wait, cancellation, interrupts, steps that took too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everstep.errors import EverstepError, RunStoppedError
from everstep.run import collecting
from everstep.run.faults import is_marked, levels
from everstep.run.lanes import Closing, Lane, Scope
from everstep.run.pen import Pen
from everstep.run.turnstile import Turnstile
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.run.execution import Execution

RESTARTING = "is gone through anew"
PATIENCE = 30.0  # seconds for the steps at work in a run that takes no further one


class Suspended(BaseException):
    """Takes a thread out of a run that waits, or that is gone through anew. No Exception: no handler may keep it."""


def came_of_stopping(error: BaseException, scope: Scope | None = None) -> bool:
    """Whether the code ended with this because a lane waits for an answer, and not by itself.

    Nor by a step of `scope` that failed since. One that had failed before is what the code was about when it stopped.
    """
    stopped = (Suspended, RunStoppedError, asyncio.CancelledError)
    for level in levels(error):
        if scope is not None and any(is_marked(each, scope) for each in level):
            return False
        if any(isinstance(each, stopped) for each in level):
            return True
    return False


class Stoppable:
    """The part of a run that decides whether it takes a further step."""

    run_id: str
    root: Lane
    pen: Pen | None
    lock: threading.RLock
    closing: Closing
    turnstile: Turnstile

    def __init__(self) -> None:
        self.closed = False
        self.stopping: str | None = None  # why no further step is taken
        self.failing: BaseException | None = None  # what the code raised, while its streams are closed
        self.interrupted: BaseException | None = None  # the program was told to end
        self.is_dropped: Callable[[], bool] = lambda: False  # whether the task that awaits the run is being cancelled
        self.cancelling = False
        self.is_graph = False
        self.asked_to_stop = False  # when the superstep at work is over
        self.is_stopped = False  # it was, and some of it is left to do
        self.waiting: list[tuple[str, int]] = []  # pauses and unknown outcomes that suspend a lane: run and seq
        self.unawaited: dict[Any, None] = {}  # pauses and sleeps on an event loop that nobody awaits so far
        self.children: list[Execution] = []
        self.at_work: set[Scope] = set()
        self.on_halt: Callable[[], object] | None = None
        self.on_suspend: Callable[[], object] | None = None
        self.overdue = False  # a step was given up, perhaps with a thread still at work in it
        self._halted = threading.Event()  # nobody sleeps any longer
        self._patience = 0.0  # with steps at work: when it ends
        self.suspended: list[Lane] = []

    def suspend(self, lane: Lane, seq: int | None, *, around: bool) -> None:
        """Stop a lane until somebody answers. Others go on, but for those `around` it, which a thread will unwind."""
        with self.lock:
            if seq is not None:
                self.waiting.append((self.run_id, seq))
            lane.stopped = True
            self.suspended.append(lane)
            outer = lane.up
            while around and outer is not None and outer.run is self:
                outer.stopped = True
                outer = outer.up
        if self.on_suspend is not None:
            self.on_suspend()

    def restart(self, lane: Lane) -> None:
        """Have the code gone through anew, over what is recorded once the steps at work are."""
        self.stopping = RESTARTING
        self.suspend(lane, None, around=False)

    def idle(self) -> bool:
        """Whether no step is at work, but for those that wait with a suspended lane."""
        if self.cancelling or self.interrupted is not None:
            return not self.busy()
        held: set[Scope] = set()
        at_work = self.at_work.copy()  # threads go on meanwhile
        for lane in self.suspended.copy():
            held.update(scope for scope in at_work if scope.place is lane)
            scope = lane.scope
            while scope.place is not None:
                held.add(scope)
                scope = scope.place.scope
        return at_work <= held and self.turnstile.idle()

    def busy(self) -> bool:
        """Whether a step is at work whose outcome is still to be kept, though no further one is taken.

        Not for ever: one that takes too long, or has no end, is left without an outcome.
        """
        self._patience = self._patience or time.monotonic() + PATIENCE
        if time.monotonic() > self._patience or (self.pen is not None and self.pen.failure is not None):
            return False
        leaves = (scope for scope in self.at_work.copy() if not (scope.lanes or scope.child or scope.waits))
        return any(not scope.is_over() for scope in leaves) or any(not child.closed for child in self.children.copy())

    def fails_with(self, error: BaseException | None) -> bool:
        """Whether this is what the code failed with, or what that came of."""
        if error is None or self.failing is None:
            return False
        return any(each is error for level in levels(self.failing) for each in level)

    def cancel(self) -> None:
        """Take no further step. Outcomes of those at work are still recorded."""
        if self.stopping is None:
            self.stopping, self.cancelling = "was cancelled", True
            for child in self.children.copy():
                child.cancel()
            self.halt()

    def stop(self) -> None:
        """Take no further superstep. What is no graph has none, and takes no further step."""
        self.asked_to_stop = True
        if not self.is_graph:
            self.cancel()

    def interrupt(self, error: BaseException) -> None:
        """Take no further step, because of this. The run has not ended: it is left for another to continue."""
        if not self.closed:
            self.interrupted = self.interrupted or error
            self.stopping = self.stopping or "was interrupted"
            for child in self.children.copy():
                child.interrupt(error)

    def cannot_read(self, error: EverstepError) -> None:
        """What is on record cannot be read here. That is no doing of the code: no run has failed by it."""
        lane: Lane | None = self.root
        while lane is not None:  # this run, and those that it is inside of
            lane.run.interrupt(error)
            lane = lane.run.root.up

    def halt(self) -> None:
        """Wake whoever sleeps in a run that takes no further step. Not for handlers of signals: it takes locks."""
        self._halted.set()
        for child in self.children.copy():
            child.halt()
        if self.on_halt is not None and not self.closed:
            with suppress(RuntimeError):  # its loop was closed
                self.on_halt()

    def defers(self, lane: Lane, action: Callable[[], None]) -> bool:
        """Whether the garbage collector asks for this, in the middle of anything: then it is done with a later step."""
        if not collecting.is_at_work():
            return False
        self.closing.add(lane, action)
        return True

    def give_up(self, scope: Scope) -> None:
        """Take no step that belongs to this one any more: it took too long, and its outcome is known."""
        scope.over = self.overdue = True
        for child in self.children.copy():
            if child.root.up is not None and child.root.up.scope.is_over():
                child.interrupt(asyncio.CancelledError())

    def lose(self, error: EverstepError) -> None:
        """Another process has taken the run: nothing more can be written."""
        if self.pen is not None:
            self.pen.failure = self.pen.failure or error
        self.cancel()

    def sleep(self, seconds: float) -> None:
        """Sleep, unless the run is cancelled meanwhile."""
        if self._halted.wait(seconds):
            raise RunStoppedError(self.run_id, "sleep", self.stopping or "was cancelled")
