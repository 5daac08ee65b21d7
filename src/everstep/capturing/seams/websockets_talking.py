"""Connections of the websockets package whose two sides are recorded, or on record."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from websockets.exceptions import ConnectionClosed

from everstep.capturing import duplex
from everstep.capturing.seams import websockets_revived as revived

_ONE = (str, bytes, bytearray, memoryview)
_PONG, _END = "pong", "end"  # channels


def take_over(connection: Any, talk: Any, kind: type) -> Any:
    """Have a connection speak and listen in a conversation."""
    known: Any = type(connection)
    connection.__class__ = _joined(kind, known)
    connection.everstep_talk, connection.everstep_closing = talk, False
    return connection


@functools.cache
def _joined(kind: type, known: type) -> type:
    """A connection's class with the methods of one below: not a subclass of both, as no object can become one."""
    methods = {name: each for part in (_Sides, kind) for name, each in vars(part).items() if inspect.isfunction(each)}
    return type(known.__name__, (known,), {**methods, "__module__": known.__module__, "everstep_kind": known})


def _said(message: Any, text: Any) -> dict[str, Any]:
    item: dict[str, Any] = {"text": message} if isinstance(message, str) else {"bytes": bytes(message)}
    return item if text is None else {**item, "as_text": text}


class _Sides:
    """What the two kinds of connections share."""

    everstep_kind: Any  # what it was made from
    everstep_talk: Any
    everstep_closing: bool  # the program closes it
    protocol: Any

    def _close_exc(self) -> Exception:
        """How the connection ended. Its own `close_exc`, which has a cause, is there from websockets 17 on."""
        found: Exception = getattr(self, "close_exc", None) or self.protocol.close_exc
        return found

    def _is_over(self) -> bool:
        """Whether the conversation is. Raises ConnectionClosed if it is one on record."""
        talk = self.everstep_talk
        if talk.exchange.over and talk.served:
            raise self._close_exc()
        return bool(talk.exchange.over)

    def _closed(self) -> dict[str, Any]:
        return {"closed": revived.ended(self), "own": self.everstep_closing}

    def _given(self, item: Any) -> Any:
        """What was heard. Raises ConnectionClosed."""
        if item is duplex.CLOSED:
            raise self._close_exc()
        if "closed" in item:
            if self.everstep_talk.served and not item["own"]:
                revived.end(self, item["closed"])
            raise self._close_exc()
        return item["data"]

    def _failed(self, error: ConnectionClosed) -> None:
        """Learn from a send that the connection is closed."""
        if self.everstep_talk.served:
            sides = {"rcvd": error.rcvd, "sent": error.sent}
            known = {side: None if said is None else [said.code, said.reason] for side, said in sides.items()}
            revived.end(self, {**known, "rcvd_first": error.rcvd_then_sent})


def _is_in_parts(message: Any) -> bool:
    return isinstance(message, Iterable) and not isinstance(message, (*_ONE, Mapping))


class Talking(_Sides):
    """A connection of the threading client."""

    keepalive_thread: threading.Thread | None

    def recv(self, timeout: float | None = None, decode: Any = None) -> Any:
        """The next message."""
        if self._is_over():
            return self.everstep_kind.recv(self, timeout, decode)
        return self._hear(functools.partial(self.everstep_kind.recv, self, timeout, decode))

    def _hear(self, plain: Callable[[], Any], channel: str = "") -> Any:
        def live() -> dict[str, Any]:
            try:
                return {"data": plain()}
            except ConnectionClosed:
                return self._closed()
            except StopIteration:
                return {"data": None, "ends": True}

        item = self.everstep_talk.hear(live, channel)
        if item is not duplex.CLOSED:
            if item.get("own"):
                self.everstep_talk.ended()
            if item.get("ends"):
                raise StopIteration
        return self._given(item)

    def recv_streaming(self, decode: Any = None) -> Iterator[Any]:
        """The next message, in its parts."""
        parts = None if self.everstep_talk.served else self.everstep_kind.recv_streaming(self, decode)
        while True:
            self._is_over()
            try:
                part = self._hear(functools.partial(next, parts))
            except StopIteration:
                return
            yield part

    def send(self, message: Any, *, text: bool | None = None) -> None:
        """Send a message."""
        plain, talk = functools.partial(self.everstep_kind.send, self), self.everstep_talk
        is_one = isinstance(message, _ONE)
        if not is_one and not _is_in_parts(message):
            plain(message, text=text)  # it knows what is wrong with it
            return
        if self._is_over():
            plain(message, text=text)
            return
        try:
            if is_one:
                talk.say(_said(message, text), functools.partial(plain, message, text=text))
            elif talk.served:
                for _ in self._parts(message, text):
                    pass
            else:
                plain(self._parts(message, text), text=text)
        except ConnectionClosed as error:
            self._failed(error)
            raise

    def _parts(self, message: Iterable[Any], text: Any) -> Iterator[Any]:
        for part in message:
            self.everstep_talk.say({**_said(part, text), "part": True}, _nothing)
            yield part

    def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection."""
        plain, talk = functools.partial(self.everstep_kind.close, self), self.everstep_talk
        if talk.exchange.over:
            if not talk.served:
                plain(code, reason)
            return

        def live() -> dict[str, Any]:
            plain(code, reason)
            return revived.ended(self)

        self.everstep_closing = True
        talk.say({"close": int(code), "reason": reason}, _nothing)
        known = talk.close(live)
        if talk.served and known is not None:
            revived.end(self, known)

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until the connection is closed."""
        talk = self.everstep_talk
        if talk.exchange.over:
            return True if talk.served else bool(self.everstep_kind.wait_closed(self, timeout))
        plain = functools.partial(self.everstep_kind.wait_closed, self)
        item = talk.hear(lambda: {"done": plain(timeout), **self._closed()}, _END)
        if item is not duplex.CLOSED and item["done"] and talk.served:
            revived.end(self, item["closed"])
        return item is duplex.CLOSED or bool(item["done"])

    def ping(self, *given: Any, **named: Any) -> Any:
        """Send a ping. The event that its answer sets."""
        talk = self.everstep_talk
        if threading.current_thread() is self.keepalive_thread or self._is_over():
            return self.everstep_kind.ping(self, *given, **named)
        return _Pong(talk, None if talk.served else self.everstep_kind.ping(self, *given, **named))

    def pong(self, data: Any = b"") -> None:
        """Send a pong."""
        if not self.everstep_talk.served:
            self.everstep_kind.pong(self, data)


def _nothing() -> None:
    """What is left to do when it is done elsewhere."""


class _Pong:
    """The answer to a ping, as the threading client gives it."""

    def __init__(self, talk: Any, event: threading.Event | None) -> None:
        self._talk, self._event = talk, event
        self._came = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it. Whether it came."""
        if not self._came:
            self._came = bool(self._talk.hear(lambda: self._event.wait(timeout), _PONG))  # type: ignore[union-attr] # live only
        return self._came

    def is_set(self) -> bool:
        """Whether it came."""
        return self._came or self.wait(0)


class AwaitedTalking(_Sides):
    """A connection of the asyncio client."""

    keepalive_task: asyncio.Task[None] | None

    async def recv(self, decode: Any = None) -> Any:
        """The next message."""
        if self._is_over():
            return await self.everstep_kind.recv(self, decode)
        return await self._hear(functools.partial(self.everstep_kind.recv, self, decode))

    async def _hear(self, plain: Callable[[], Awaitable[Any]], channel: str = "") -> Any:
        async def live() -> dict[str, Any]:
            try:
                return {"data": await plain()}
            except ConnectionClosed:
                return self._closed()
            except StopAsyncIteration:
                return {"data": None, "ends": True}

        item = await self.everstep_talk.hear(live, channel)
        if item is not duplex.CLOSED:
            if item.get("own"):
                await self.everstep_talk.ended()
            if item.get("ends"):
                raise StopAsyncIteration
        return self._given(item)

    async def recv_streaming(self, decode: Any = None) -> AsyncIterator[Any]:
        """The next message, in its parts."""
        parts = None if self.everstep_talk.served else self.everstep_kind.recv_streaming(self, decode)
        while True:
            self._is_over()
            try:
                part = await self._hear(functools.partial(anext, parts))
            except StopAsyncIteration:
                return
            yield part

    async def send(self, message: Any, *, text: bool | None = None) -> None:
        """Send a message."""
        plain, talk = functools.partial(self.everstep_kind.send, self), self.everstep_talk
        is_one = isinstance(message, _ONE)
        in_parts = _is_in_parts(message) or isinstance(message, AsyncIterable)
        if (not is_one and not in_parts) or self._is_over():
            await plain(message, text=text)  # it knows what is wrong with it
            return
        try:
            if is_one:
                await talk.say(_said(message, text), functools.partial(plain, message, text=text))
            elif talk.served:
                async for _ in self._parts(message, text):
                    pass
            else:
                await plain(self._parts(message, text), text=text)
        except ConnectionClosed as error:
            self._failed(error)
            raise

    async def _parts(self, message: Any, text: Any) -> AsyncIterator[Any]:
        async for part in message if isinstance(message, AsyncIterable) else _one_by_one(message):
            await self.everstep_talk.say({**_said(part, text), "part": True}, _nothing_awaited)
            yield part

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """End the connection."""
        plain, talk = functools.partial(self.everstep_kind.close, self), self.everstep_talk
        if talk.exchange.over:
            if not talk.served:
                await plain(code, reason)
            return

        async def live() -> dict[str, Any]:
            await plain(code, reason)
            return revived.ended(self)

        self.everstep_closing = True
        await talk.say({"close": int(code), "reason": reason}, _nothing_awaited)
        known = await talk.close(live)
        if talk.served and known is not None:
            revived.end(self, known)

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        plain, talk = functools.partial(self.everstep_kind.wait_closed, self), self.everstep_talk
        if talk.exchange.over:
            if not talk.served:
                await plain()
            return

        async def live() -> dict[str, Any]:
            await plain()
            return self._closed()

        item = await talk.hear(live, _END)
        if item is not duplex.CLOSED and talk.served:
            revived.end(self, item["closed"])

    async def ping(self, data: Any = None) -> Any:
        """Send a ping. What to await for its answer."""
        plain, talk = functools.partial(self.everstep_kind.ping, self), self.everstep_talk
        if asyncio.current_task() is self.keepalive_task or self._is_over():
            return await plain(data)
        return _AwaitedPong(talk, None if talk.served else await plain(data))

    async def pong(self, data: Any = b"") -> None:
        """Send a pong."""
        if not self.everstep_talk.served:
            await self.everstep_kind.pong(self, data)


async def _nothing_awaited() -> None:
    """What is left to do when it is done elsewhere."""


async def _one_by_one(parts: Iterable[Any]) -> AsyncIterator[Any]:
    for part in parts:
        yield part


class _AwaitedPong:
    """The answer to a ping, as the asyncio client gives it: the seconds that it took."""

    def __init__(self, talk: Any, coming: asyncio.Future[float] | None) -> None:
        self._talk, self._coming = talk, coming

    def __await__(self) -> Generator[Any, None, float]:
        return self._heard().__await__()

    async def _heard(self) -> float:
        async def live() -> float:
            return await asyncio.shield(self._coming)  # type: ignore[arg-type] # it is not called on record

        return float(await self._talk.hear(live, _PONG))
