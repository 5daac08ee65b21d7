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


class Turns:
    """The turns of one loop: how long the steps of this one have taken, and who waits for one of the next."""

    def __init__(self) -> None:
        self._began = 0.0
        self._steps = 0  # of this turn
        self._room = 1  # steps that a turn has time for
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.is_crowded = False  # some wait, or were let in just now

    def enter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        """What to wait for before going on; None if there is time in this turn."""
        now = perf_counter()
        if not self._steps:
            self._began = now
            loop.call_soon(self._next, loop)
        self._steps += 1
        if not self._waiting:
            if now - self._began < _LONG:
                return None
            self._room, self.is_crowded = self._steps - 1, True
        future = loop.create_future()
        self._waiting.append(future)
        return future

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let some in of those that wait. Timers that came due meanwhile are before them."""
        self._steps = 0
        while self._waiting and self._steps < self._room:
            future = self._waiting.popleft()
            if not future.done():  # it was cancelled
                future.set_result(None)
                self._steps += 1
        self.is_crowded = self._steps > 0
        if self.is_crowded:
            self._began = perf_counter()
            loop.call_soon(self._next, loop)  # comes after those that were let in


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
