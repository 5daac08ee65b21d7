"""Awaited calls that were cancelled, on record: what cancelled them need not come again.

A task that the program cancels, or a timeout, is part of the record and cancels them once more. A signal is not (Ctrl-C
that stops an answer), nor what a library does in its own time. So once all that came before the cancellation has come
again, and the program has done what it can with it, they are cancelled from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep import actual
from everstep.capturing import stillness
from everstep.run.lanes import outside
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.capturing.exchange import Exchange

_LOOK = 0.02  # seconds between two looks
_QUIET = 5  # looks in a row that find the program at rest
_PATIENCE = 5.0  # seconds, for a program that never is: one that polls, or whose loop does not tell


class Cancelling:
    """The calls of one program that wait to be cancelled."""

    def __init__(self) -> None:
        self._waiting: dict[Exchange, asyncio.Task[Any]] = {}
        self._others = stillness.Others()

    def holds(self) -> bool:
        """Whether one of them is to be cancelled next: what is not on record, as a timer, comes after that."""
        return any(map(_is_due, tuple(self._waiting)))

    async def wait(self, exchange: Exchange) -> None:
        """Wait until this is cancelled, by the program or from here."""
        task = asyncio.current_task()
        assert task is not None and exchange.loop is not None  # noqa: PT018, S101 - a coroutine of a task
        self._waiting[exchange] = task
        looks = _Looks(self, exchange)
        try:
            looks.go_on()
            await exchange.loop.create_future()
        finally:
            looks.over = True
            del self._waiting[exchange]

    def is_at_rest(self, exchange: Exchange) -> bool:
        """Whether a call is due, and the program can do nothing else."""
        turnstile = exchange.run.turnstile
        assert exchange.loop is not None  # noqa: S101 - it is awaited
        if not _is_due(exchange) or not turnstile.idle() or turnstile.is_at_work(exchange.loop):
            return False
        return self._others.are_still()

    def cancel(self, exchange: Exchange) -> None:
        """Cancel a call, with those between which and it nothing is on record: one thing cancelled them."""
        due = [
            each for each in tuple(self._waiting) if each is exchange or (_is_due(each) and each.loop is exchange.loop)
        ]
        for each in sorted(due, key=_place):
            self._waiting[each].cancel()


class _Looks:
    """Looks at the program, from time to time, on the loop that a call waits on."""

    def __init__(self, calls: Cancelling, exchange: Exchange) -> None:
        self._calls, self._exchange = calls, exchange
        self._end, self._quiet = actual.monotonic() + _PATIENCE, 0
        self.over = False

    def go_on(self) -> None:
        """Look again in a moment."""
        assert self._exchange.loop is not None  # noqa: S101 - it is awaited
        self._exchange.loop.call_later(_LOOK, self._look, context=outside())  # it is nothing that the program does

    def _look(self) -> None:
        if self.over:
            return
        self._quiet = self._quiet + 1 if self._calls.is_at_rest(self._exchange) else 0
        if self._quiet >= _QUIET or actual.monotonic() > self._end:
            self._calls.cancel(self._exchange)
        else:
            self.go_on()


def _is_due(exchange: Exchange) -> bool:
    return exchange.run.turnstile.is_past(_place(exchange))


def _place(exchange: Exchange) -> int:
    assert exchange.cancelled is not None  # noqa: S101 - else it would not wait for it
    return exchange.cancelled
