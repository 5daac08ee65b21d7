"""Calls that the code was taken out of by what is no Exception: Ctrl-C, or a handler of a signal that exits.

Whether the program ends by that is to be seen: a chat catches Ctrl-C and goes on. If it leaves the program, nothing is
recorded of the call, and a resume asks for it anew. If the code goes on to another call, or to its end, then that is
how the call ended, and a replay goes the same way.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from everstep import actual
from everstep.run.execution import Execution
from everstep.run.lanes import here
from everstep.run.signals import heard
from everstep.run.stopping import Suspended
from everstep.trail.late import asyncio, running_loop

if TYPE_CHECKING:
    from everstep.capturing.exchange import Exchange

# Where a step is being written, or waits for its turn.
_OURS = ("everstep.run.", "everstep.store.", "everstep.trail.", "everstep.journal", "everstep.codec.")
_OF_CALLS = frozenset(f"everstep.capturing.{name}" for name in ("calling", "exchange", "session", "threads", "turns"))

_MOMENT, _MOMENTS = 0.005, 200  # seconds until a signal comes again that came amid that; and how often it may


class _Left(NamedTuple):
    thread: int
    error: BaseException
    is_new: bool  # and not on record
    end: Callable[[], None]


class Broken:
    """The calls of one program that were left so, until it is known what came of it."""

    def __init__(self, run: Execution) -> None:
        self._run = run
        self._left: list[_Left] = []

    def keep(self, exchange: Exchange, error: BaseException, end: Callable[[], None], *, is_new: bool = True) -> bool:
        """Have the end of a call wait until the code goes on. False if it is none of those."""
        if exchange.loop is not None:
            if self._left and isinstance(error, asyncio.CancelledError):  # the loop ends, and all of its tasks
                self._run.interrupt(self._left[0].error)
            return False
        if isinstance(error, Exception | GeneratorExit | Suspended) or self._run.stopping is not None:
            return False
        self._left.append(_Left(threading.get_ident(), error, is_new, end))
        return True

    def go_on(self) -> None:
        """The code of this thread asks for something: then it has caught what took it out of a call.

        A `finally` asks too, on the way out. What it would ask for after Ctrl-C is refused, as in a run that is
        interrupted: with that on record, a resume would end there again.
        """
        if not self._left:
            return
        handled = set(map(id, handled_here()))
        mine = [each for each in self._left if each.thread == threading.get_ident()]
        for each in mine:
            if each.is_new and isinstance(each.error, KeyboardInterrupt) and id(each.error) in handled:
                self._run.interrupt(each.error)
                self._left.clear()
                return
        self._end(mine)

    def end(self) -> None:
        """The program has come to its end in spite of it."""
        if self._left and self._run.stopping is None:
            self._end(self._left)

    def is_left_by(self, error: BaseException) -> bool:
        """Whether a call that is not recorded was left by this."""
        return any(each.error is error and each.is_new for each in self._left)

    def _end(self, calls: list[_Left]) -> None:
        ended = tuple(calls)
        for each in ended:
            self._left.remove(each)  # one by one: other threads add theirs
        for each in ended:
            each.end()


def handled_here() -> Iterator[BaseException]:
    """What is being handled here: an exception, and those that it came amid."""
    error = sys.exc_info()[1]
    while error is not None:
        yield error
        error = error.__context__


# Signals.


@contextmanager
def terminable(run: Execution) -> Iterator[None]:
    """Let SIGTERM end the run: what it did is kept, no further call is made, it is given up. Ctrl-C may be caught.

    A stretch of the main thread that cannot go on, and waits for a thread of its own that was taken out, is taken out
    in the same way.
    """
    moment, due = 0, list[BaseException]()

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal moment
        if number == signal.SIGINT and _is_ours(frame) and moment < _MOMENTS:
            moment += 1
            threading.Thread(target=_again, name="everstep-signal", daemon=True).start()
            return
        moment = 0
        if due:
            raise due.pop()
        error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        if number != signal.SIGINT or not _may_go_on(frame):
            run.interrupt(error)
        raise error

    def take_out(error: BaseException) -> None:
        if signal.getsignal(signal.SIGINT) is leave and not run.closed:
            run.captured.stubborn = None  # once: what it asks for on its way out is its own affair
            due.append(run.captured.host.halted(error))
            _press()

    with heard(leave):
        if not run.captured.host.is_task:
            run.captured.stubborn = take_out  # unless it is a whole program, which is ended
        yield


def _again() -> None:
    """Press Ctrl-C once more, when the main thread has had a moment to write down a step."""
    actual.sleep(_MOMENT)
    _press()


def _press() -> None:
    ident = threading.main_thread().ident
    assert ident is not None  # noqa: S101 - it has begun
    signal.pthread_kill(ident, signal.SIGINT)


def _is_ours(frame: FrameType | None) -> bool:
    """Whether a step is being written, or waits for its turn: code that is taken out of that cannot go on."""
    leaf = _leaf()
    while frame is not None and leaf is None:
        name = str(frame.f_globals.get("__name__", ""))
        if name in _OF_CALLS or name.startswith(_OURS):
            return True
        frame = frame.f_back
    return False


def _may_go_on(frame: FrameType | None) -> bool:
    """Whether code that is taken out here can go on, if it catches that. An event loop cannot: it ends its tasks."""
    leaf = _leaf()
    if leaf is not None:
        return leaf.loop is None
    return running_loop() is None and not _is_ours(frame)


def _leaf() -> Exchange | None:
    """The call that is being made here."""
    lane = here()
    leaf: Exchange | None = None if lane is None else lane.scope.leaf
    return None if leaf is None or leaf.over else leaf
