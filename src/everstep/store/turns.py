"""Many steps on one event loop, some at each of its turns, so that whatever else is on the loop gets its turn as well.

A loop looks after its timers and sockets between two turns. When a hundred agents are ready at the same time, a turn
would take as long as a step of each. So those that come when the steps of a turn have taken a millisecond wait for one
of the next. What they write still shares a commit with that of the others (commit.py).
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    import asyncio

_LONG = 0.001  # seconds that the steps of one turn may take
_LOST = 0.05  # seconds after which a turn may have been lost to an interrupt


class Turns:
    """The turns of one loop: how long the steps of this one have taken, and who waits for one of the next."""

    def __init__(self) -> None:
        self._is_due = False  # the next turn will be heard of
        self._began = 0.0
        self._steps = 0  # of this turn
        self._room = 1  # steps that a turn has time for
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._let_in = 0  # who go on in the next turn
        self.is_crowded = False  # some wait, or go on in this turn or the next

    def enter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        """What to wait for before going on; None if there is time in this turn."""
        now = perf_counter()
        if not self._is_due:
            self._began, self._steps, self._is_due = now, 0, True
            loop.call_soon(self._next, loop)
        elif now - self._began > _LOST:
            loop.call_soon(self._next, loop)  # once too often does no harm
        self._steps += 1
        if not self._waiting:
            if now - self._began < _LONG:
                return None
            self._room = max(1, self._steps - 1)
        future = loop.create_future()
        self._waiting.append(future)
        self.is_crowded = True
        return future

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let some in of those that wait. Timers that came due meanwhile are before them."""
        self._is_due = bool(self._waiting or self._let_in)
        if self._is_due:
            loop.call_soon(self._next, loop)  # first: an interrupt may come anywhere below
        self._began, self._steps, self._let_in = perf_counter(), self._let_in, 0
        while self._waiting and self._let_in < self._room:
            future = self._waiting[0]
            if not future.done():  # it was cancelled
                future.set_result(None)
                self._let_in += 1
            self._waiting.popleft()
        self.is_crowded = self._is_due


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


def turns_of(loop: asyncio.AbstractEventLoop) -> Turns:
    """The turns of a loop."""
    turns = _turns.get(loop)
    if turns is None:
        turns = _turns[loop] = Turns()
    return turns


def enter_turn(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
    """What to wait for before a step of this loop goes on; None if there is time for it in this turn."""
    return turns_of(loop).enter(loop)
