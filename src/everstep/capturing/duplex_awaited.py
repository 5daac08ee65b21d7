"""Conversations as steps (`duplex`), of a program that awaits its answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from everstep.capturing import calling as driver
from everstep.capturing import turns
from everstep.capturing.calls import Call
from everstep.capturing.duplex import CLOSE, CLOSED, PATIENCE, TOO_FEW, Connection, Opening, Sides
from everstep.capturing.exchange import inside
from everstep.run.lanes import Lane

T = TypeVar("T")
_IN_VAIN = "in vain"


class AwaitedTalk(Sides[Connection]):
    """A conversation whose program awaits answers."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._waiting: list[asyncio.Future[bool]] = []
        self._kept_back: dict[str, deque[Any]] = defaultdict(deque)  # arrived, and not given out

    def _alone(self) -> bool:
        return len(asyncio.all_tasks()) <= 1

    async def say(self, item: Any, live: Callable[[], Awaitable[T]]) -> T | None:
        """Say something, as plain data; `live` does so. What `live` gives, or None where it is on record."""
        if self.served:
            try:
                self._repeated(item)
            finally:
                self._count += 1
                self._move()
            return None
        entry = self._saying(item)
        try:
            with inside(self.exchange):
                return await live()
        except Exception as error:  # whatever it is, the program gets it in a replay too
            entry["error"] = [type(error).__name__, str(error)]
            raise

    async def hear(self, live: Callable[[], Awaitable[Any]], channel: str = "") -> Any:
        """What the other side says next, as plain data; CLOSED if nothing, as the record has it."""
        if self.served:
            return await self._served(channel)
        exchange, kept = self.exchange, self._kept_back[channel]
        entry: dict[str, Any] = {}
        failed: Exception | None = None
        try:
            if kept:
                entry = kept.popleft()
            else:
                try:
                    with inside(exchange):
                        entry = {"item": await live()}
                except Exception as error:  # noqa: BLE001 - recorded, then raised
                    entry, failed = {"error": [type(error).__name__, str(error)]}, error
            if not exchange.over:
                await turns.part_came_awaited(exchange)
        except asyncio.CancelledError:
            if "item" in entry:
                kept.appendleft(entry)  # the next one who asks gets it
            exchange.turns.append(0)
            exchange.keep(self._entry(channel, cancelled=True))
            raise
        except BaseException as error:  # an exit is noted too
            await driver.settle_awaited(exchange, exchange.end(error), error)
            raise
        if not exchange.over:
            exchange.keep(self._entry(channel, **entry))
        if failed is not None:
            raise failed
        return entry["item"]

    async def _served(self, channel: str) -> Any:
        heard = self._heard[channel]
        if not heard:
            await self._wait(lambda: self.exchange.over)
            return CLOSED
        part, entry = heard.popleft()
        if "cancelled" in entry:
            await asyncio.get_running_loop().create_future()  # until it is cancelled again
        await self._wait(lambda: self._count >= entry["after"] or self.exchange.over)
        await turns.part_due_awaited(self.exchange, part)
        return self._given(entry)

    async def ended(self) -> None:
        """Wait, on record, until the program has ended it."""
        if self.served:
            await self._wait(lambda: self.exchange.over)

    async def _wait(self, until: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        last = loop.time() + PATIENCE
        while not until():
            if self._alone() or not await self._next_move(last - loop.time()):
                raise self._diverged("inserted", "what it heard then", "to hear more", ())

    async def _next_move(self, within: float) -> bool:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        timer = waiter.get_loop().call_later(max(within, 0), _tell, waiter, _IN_VAIN)
        try:
            return await waiter
        finally:
            timer.cancel()

    def _move(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            _tell(waiter)

    async def close(self, live: Callable[[], Awaitable[Any]]) -> Any:
        """End the conversation; `live` does so. What that gives, as plain data. The outcome is on record then."""
        exchange = self.exchange
        if exchange.over:
            return None if self.served else await live()
        if not self.served:
            try:
                return await self.hear(live, CLOSE)
            finally:
                await driver.settle_awaited(exchange, exchange.end())
        last = asyncio.get_running_loop().time() + (0 if self._alone() else TOO_FEW)
        while self._count < len(self._said):
            if not await self._next_move(last - asyncio.get_running_loop().time()):
                raise self._diverged("removed", f"message {self._count + 1}", "its end", ())
        try:
            return await self._served(CLOSE) if self._heard[CLOSE] else None
        finally:
            if exchange.outcome is not None:
                await turns.outcome_due_awaited(exchange)
            exchange.left()
            self._let_rest_go()
            self._move()


def _tell(waiter: asyncio.Future[bool], what: str = "") -> None:
    if not waiter.done():
        waiter.set_result(what != _IN_VAIN)


async def open(  # noqa: A001 - of a module that is named when it is used
    lane: Lane, asked: Call, live: Callable[[], Awaitable[tuple[Any, Connection]]]
) -> AwaitedTalk[Connection]:
    """Begin a conversation. `live` does so, and gives what there is to know of it, and the connection."""
    connections: list[Connection] = []

    async def begun() -> tuple[Opening, None]:
        opened, connection = await live()
        connections.append(connection)
        return Opening(opened), None

    opening, chunks = await driver.call_awaited(lane, asked, begun)
    if connections:
        return AwaitedTalk(chunks.exchange, opening, connections[0], [])
    assert isinstance(chunks, driver.AwaitedRecordedChunks)  # noqa: S101 - it was not made
    return AwaitedTalk(chunks.exchange, opening, None, list(chunks.rest))
