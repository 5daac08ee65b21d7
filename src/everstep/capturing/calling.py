"""Calls to the outside, answered from the record, or made and recorded: by waiting, or by awaiting.

Awaited answers leave in the order of the record part by part: code may go on at the head, at a chunk, or at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from everstep import actual
from everstep.capturing import threads, turns
from everstep.capturing.calls import Call
from everstep.capturing.exchange import Exchange, inside, wait
from everstep.capturing.leaving import left_whole
from everstep.errors import UnrecordableError
from everstep.run.lanes import Lane, outside
from everstep.trail.late import asyncio

_END: Any = object()
_NOTHING = b""  # said by a chunk that had its turn, and that no reader may take for the end: HTTP/2 closes with one


# Waiting.


class Chunks(Iterator[Any]):
    """The chunks of an answer that is read by waiting."""

    def __init__(self, exchange: Exchange, source: Any) -> None:
        self.exchange, self._source = exchange, source

    @threads.away
    def __next__(self) -> Any:
        exchange = self.exchange
        if exchange.outlived:
            return next(self._source)
        if exchange.over:
            raise StopIteration
        try:
            with inside(exchange):
                chunk = next(self._source, _END)
        except BaseException as error:  # an exit is noted too
            settle(exchange, exchange.end(error), error)
            raise
        if chunk is _END:
            settle(exchange, exchange.end())
            raise StopIteration
        turns.part_came(exchange)
        exchange.keep(chunk)
        return chunk

    def leave(self, error: BaseException) -> None:
        """The code is being taken out of the call by this, which does not come through here."""
        exchange = self.exchange
        if not exchange.over:
            settle(exchange, exchange.end(error), error)

    def close(self) -> None:
        """Read no further. Said also of an answer that was read to its end.

        The garbage collector may say it, too.
        """
        if not self.exchange.run.defers(self.exchange.ask.lane, self._close):
            self._close()

    @threads.away
    def _close(self) -> None:
        exchange = self.exchange
        try:
            with inside(exchange):
                self._source.close()
        finally:
            if not exchange.over:
                settle(exchange, exchange.end(early=True))


class RecordedChunks(Iterator[Any]):
    """The chunks of an answer that is on record."""

    def __init__(self, exchange: Exchange, chunks: list[Any]) -> None:
        self.exchange, self.rest = exchange, iter(chunks)
        self._part = 0

    def __next__(self) -> Any:
        exchange = self.exchange
        for chunk in self.rest:
            self._part += 1
            turns.part_due(exchange, self._part)
            exchange.chunks.append(chunk)
            if chunk != _NOTHING:
                return chunk
        if not exchange.over:
            exchange.served()
        raise StopIteration

    def close(self) -> None:
        """Read no further."""
        self.exchange.left()


@threads.away
def call(lane: Lane, asked: Call, live: Callable[[], tuple[Any, Any]]) -> tuple[Any, Chunks | RecordedChunks]:
    """Head and chunks of the answer. `live` makes the call and gives both. Raises what it raises, or raised."""
    for other in left_whole(lane, None):
        if other.outcome is not None:
            other.left()
        else:
            settle(other, other.end())
    exchange = Exchange(lane, asked, None)
    if exchange.outcome is not None:
        head, chunks = exchange.recorded()
        if head is None:
            exchange.served()
        turns.part_due(exchange, 0)
        exchange.give(head)
        return head, RecordedChunks(exchange, chunks)
    exchange.unknown()
    for seconds in exchange.in_place():
        actual.sleep(seconds)
    wait(exchange.begin())
    exchange.session.open_calls.add(exchange)
    try:
        with inside(exchange):
            head, source = live()
    except BaseException as error:  # an exit is noted too
        settle(exchange, exchange.end(error), error)
        raise
    exchange.answered(head)
    turns.part_came(exchange)
    return head, Chunks(exchange, source)


def settle(exchange: Exchange, waiter: Any, error: BaseException | None = None) -> None:
    """Wait until an outcome is durable, and tell of it."""
    if exchange.outlived:
        return
    gate = exchange.session.gate
    try:
        if waiter is not None:
            wait(waiter)
            exchange.told(error)
        gate.pass_(exchange.ticket)
    finally:
        gate.drop(exchange.ticket)
    exchange.session.passed(exchange.ask)


# Awaiting.


class AwaitedChunks(AsyncIterator[Any]):
    """The chunks of an answer that is awaited."""

    def __init__(self, exchange: Exchange, source: Any) -> None:
        self.exchange, self._source = exchange, source

    async def __anext__(self) -> Any:
        exchange = self.exchange
        if exchange.outlived:
            return await anext(self._source)
        if exchange.over:
            raise StopAsyncIteration
        try:
            with inside(exchange):
                chunk = await anext(self._source, _END)
                if chunk is _END:
                    await self._source.aclose()  # now: no replay takes the time of it
        except BaseException as error:  # a cancellation, and an exit, are noted too
            await settle_awaited(exchange, exchange.end(error), error)
            raise
        if chunk is _END:
            await settle_awaited(exchange, exchange.end())
            raise StopAsyncIteration
        try:
            await turns.part_came_awaited(exchange)
        except BaseException as error:  # a cancellation, and an exit, are noted too
            await settle_awaited(exchange, exchange.end(error), error)
            raise
        exchange.keep(chunk)
        return chunk

    async def aclose(self) -> None:
        """Read no further. Said also of an answer that was read to its end."""
        exchange = self.exchange
        try:
            with inside(exchange):
                await self._source.aclose()
        finally:
            if not exchange.over:
                await settle_awaited(exchange, exchange.end(early=True))


class AwaitedRecordedChunks(AsyncIterator[Any]):
    """The chunks of an awaited answer that is on record."""

    def __init__(self, exchange: Exchange, chunks: list[Any]) -> None:
        self.exchange, self.rest = exchange, iter(chunks)
        self._part = 0

    async def __anext__(self) -> Any:
        exchange = self.exchange
        for chunk in self.rest:
            self._part += 1
            await turns.part_due_awaited(exchange, self._part)
            exchange.chunks.append(chunk)
            if chunk != _NOTHING:
                return chunk
        if exchange.cancelled is not None:
            await exchange.until_cancelled()
        if not exchange.over:
            exchange.over = True  # whether the code gets it, or is cancelled before that
            try:
                await turns.outcome_due_awaited(exchange)
            except asyncio.CancelledError:
                exchange.had()
                raise
            exchange.served()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Read no further."""
        exchange = self.exchange
        if exchange.outcome is not None and not exchange.over:
            await turns.outcome_due_awaited(exchange)
        exchange.left()


async def call_awaited(
    lane: Lane, asked: Call, live: Callable[[], Awaitable[tuple[Any, Any]]]
) -> tuple[Any, AwaitedChunks | AwaitedRecordedChunks]:
    """`call`, for what is awaited."""
    try:
        loop, turnstile = asyncio.get_running_loop(), lane.run.turnstile
    except RuntimeError:
        raise UnrecordableError("an event loop that is not asyncio's, as trio's", "asyncio") from None
    turnstile.adopt(loop)
    for other in left_whole(lane, loop):
        if other.outcome is not None:
            await turns.outcome_due_awaited(other)
            other.left()
        else:
            await settle_awaited(other, other.end())
    exchange = Exchange(lane, asked, loop)
    if exchange.cancelled is not None or exchange.outcome is not None:
        head, chunks = exchange.recorded()
        if head is None and exchange.cancelled is not None:
            await exchange.until_cancelled()
        if head is None:
            await turns.outcome_due_awaited(exchange)
            exchange.served()
        await turns.part_due_awaited(exchange, 0)
        exchange.give(head)
        return head, AwaitedRecordedChunks(exchange, chunks)
    exchange.unknown()
    await _in_place(exchange, loop)
    waiter = exchange.begin()
    exchange.session.open_calls.add(exchange)
    source = None
    try:
        if waiter is not None:
            await waiter
        with inside(exchange):
            head, source = await live()
        exchange.answered(head)
        await turns.part_came_awaited(exchange)
    except BaseException as error:  # a cancellation, and an exit, are noted too
        try:
            if source is not None:
                await source.aclose()
        finally:
            await settle_awaited(exchange, exchange.end(error), error)
        raise
    return head, AwaitedChunks(exchange, source)


async def _in_place(exchange: Exchange, loop: asyncio.AbstractEventLoop) -> None:
    for seconds in exchange.in_place():
        over: asyncio.Future[None] = loop.create_future()
        # It is none of the program's: neither where it runs, nor by whose function it is.
        timer = loop.call_later(seconds, _waited, over, context=outside())
        try:
            await over
        finally:
            timer.cancel()


def _waited(over: asyncio.Future[None]) -> None:
    over.set_result(None)


async def settle_awaited(exchange: Exchange, waiter: Any, error: BaseException | None = None) -> None:
    """`settle`, for what is awaited."""
    if exchange.outlived:
        return
    if isinstance(error, asyncio.CancelledError):
        exchange.session.passed(exchange.ask)
        return
    gate = exchange.session.gate
    try:
        try:
            if waiter is not None:
                if isinstance(waiter, asyncio.Future):
                    await asyncio.shield(waiter)
                else:  # a row of long ago, which nobody would wait for if the store kept up
                    wait(waiter)
                exchange.told(error)
            await exchange.run.turnstile.deliver(None, exchange.place)
        finally:
            exchange.run.turnstile.give_up(exchange.place)
        await gate.pass_awaited(exchange.ticket)
    finally:
        gate.drop(exchange.ticket)
    exchange.session.passed(exchange.ask)
