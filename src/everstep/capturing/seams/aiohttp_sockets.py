"""aiohttp's websockets: under a socket of its own, what is read and written are the sides of a conversation.

A connection is one step, from its opening to its end (`everstep.capturing.duplex`): one that was cut off in the middle
is repeated from its opening, if at all. Pings and pongs are nobody's words, and neither recorded nor compared.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from everstep.capturing import duplex, duplex_awaited
from everstep.capturing.calls import Call
from everstep.capturing.http import Head, pairs
from everstep.capturing.layout import checked
from everstep.capturing.seams import aiohttp_errors
from everstep.capturing.seams.likeness import Stage
from everstep.capturing.session import boundary

Talk = duplex_awaited.AwaitedTalk[Any]


def patch(aio: ModuleType, revived: Callable[..., Any]) -> None:
    """Wrap the opening of websockets; `revived` makes an answer from its head. Raises UnknownLayoutError."""
    plain = checked(aio, "ClientSession._ws_connect", ["self", "url"])
    checked(aio, "ClientWebSocketResponse", ["reader", "writer", "protocol", "response", "timeout"])
    checked(aio, "http_websocket.WebSocketWriter.send_frame", ["self", "message", "opcode", "compress"])
    checked(aio, "http_websocket.WebSocketWriter.close", ["self", "code", "message"])
    checked(aio, "_websocket.reader.WebSocketDataQueue.read", ["self"])

    async def _ws_connect(self: Any, url: Any, **options: Any) -> Any:
        lane = boundary()
        if lane is None:
            return await plain(self, url, **options)

        async def live() -> tuple[dict[str, Any], Any]:
            with stage.live():
                socket = await plain(self, url, **options)
            return _opened(socket), socket

        stage = Stage()
        asked = self._request_class("GET", self._build_url(url).extend_query(options.get("params") or {}), session=self)
        with stage.asked():
            talk = await duplex_awaited.open(lane, _call(aio, asked, options), live)
        socket = talk.connection or await _revived(aio, self, asked, talk, options, revived)
        _take_over(aio, socket, talk)
        return socket

    aio.ClientSession._ws_connect = _ws_connect  # noqa: SLF001 - this is the wrapping


def _call(aio: ModuleType, asked: Any, options: dict[str, Any]) -> Call:
    request = {"url": str(asked.url), "protocols": list(options.get("protocols", ()))}
    revive = functools.partial(aiohttp_errors.revived, aio, asked)
    name = f"websocket {asked.url.host}"
    return Call(name, request, duplex.FORM, revive, external=True, node_type="websocket")


def _opened(socket: Any) -> dict[str, Any]:
    headers = [list(pair) for pair in pairs(vars(socket)["_response"].raw_headers)]
    return {
        "status": 101, "headers": headers, "protocol": socket.protocol, "compress": socket.compress,
        "notakeover": socket.client_notakeover,
    }  # fmt: skip


async def _revived(
    aio: ModuleType, session: Any, asked: Any, talk: Talk, options: dict[str, Any], revived: Callable[..., Any]
) -> Any:
    """A websocket over a connection that is none. It has no heartbeat: what that led to is on record."""
    opened = talk.opened
    head = Head(opened["status"], [(name, value) for name, value in opened["headers"]], reason="Switching Protocols")
    response = await revived(aio, asked, head)
    timeout = options.get("timeout")
    if not isinstance(timeout, aio.ClientWSTimeout):
        timeout = aio.ClientWSTimeout(ws_close=timeout if isinstance(timeout, float | int) else 10.0)
    if options.get("receive_timeout") is not None:
        timeout = aio.ClientWSTimeout(ws_receive=options["receive_timeout"], ws_close=timeout.ws_close)
    kind = vars(session)["_ws_response_class"]
    return kind(
        None, None, opened["protocol"], response, timeout, options.get("autoclose", True),
        options.get("autoping", True), asyncio.get_running_loop(), compress=opened["compress"],
        client_notakeover=opened["notakeover"],
    )  # fmt: skip


def _take_over(aio: ModuleType, socket: Any, talk: Talk) -> None:
    """Have a websocket read and write in a conversation."""
    parts = vars(socket)
    parts["_reader"] = _Reader(aio, talk, parts["_reader"], socket)
    parts["_writer"] = _Writer(aio, talk, parts["_writer"])
    close = socket.close

    async def close_both(**options: Any) -> Any:
        done = await close(**options)
        if socket.closed:
            await talk.close(_nothing)
        return done

    socket.close = close_both


async def _nothing() -> None:
    """What is left to do when all was said."""


class _Reader:
    """What a websocket reads from."""

    def __init__(self, aio: ModuleType, talk: Talk, reader: Any, socket: Any) -> None:
        self._aio, self._talk, self._reader, self._socket = aio, talk, reader, socket
        self._fed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def feed_data(self, message: Any, size: int = 0) -> None:
        """Take what the websocket tells itself: that it is being closed, or that its heart has stopped."""
        if not self._fed.done():
            self._fed.set_result(message)
        if self._reader is not None:
            self._reader.feed_data(message, size)

    async def read(self) -> Any:
        """The next message. Raises as aiohttp's own does."""
        item = await self._talk.hear(self._live)
        if item is duplex.CLOSED:
            return self._aio.http.WS_CLOSED_MESSAGE
        if "told" in item:  # by itself
            return self._told(item["told"]) if item["told"] else await self._fed
        if "broken" in item:
            raise self._aio.WebSocketError(*item["broken"])
        if "ends" in item:
            raise self._aio.streams.EofStream
        return self._aio.WSMessage(self._aio.WSMsgType(item["type"]), item["data"], item["extra"])

    def _told(self, why: str) -> Any:
        error, state = self._aio.ServerTimeoutError(why), vars(self._socket)
        state.update(_closed=True, _close_code=self._aio.WSCloseCode.ABNORMAL_CLOSURE, _exception=error)
        return self._aio.WSMessage(self._aio.WSMsgType.ERROR, error, None)

    async def _live(self) -> dict[str, Any]:
        try:
            message = await self._reader.read()
        except self._aio.WebSocketError as error:
            return {"broken": [int(error.code), str(error)]}
        except self._aio.streams.EofStream:
            return {"ends": True}
        if message.type is self._aio.WSMsgType.ERROR:
            return {"told": str(message.data)}
        if message.type is self._aio.WSMsgType.CLOSING:
            return {"told": ""}
        return {"type": int(message.type), "data": message.data, "extra": message.extra}


class _Writer:
    """What a websocket writes to."""

    def __init__(self, aio: ModuleType, talk: Talk, writer: Any) -> None:
        self._aio, self._talk, self._writer = aio, talk, writer

    async def send_frame(self, message: bytes, opcode: int, compress: int | None = None) -> None:
        """Send a message, or a ping or pong."""
        kind = self._aio.WSMsgType
        if opcode in {kind.PING, kind.PONG}:
            if self._writer is not None:
                await self._writer.send_frame(message, opcode, compress)
            return
        item = {"text": bytes(message).decode()} if opcode == kind.TEXT else {"bytes": bytes(message)}
        await self._say(item, lambda: self._writer.send_frame(message, opcode, compress))

    async def close(self, code: int = 1000, message: bytes = b"") -> None:
        """Say that nothing more will be said."""
        await self._say({"close": int(code), "reason": bytes(message)}, lambda: self._writer.close(code, message))

    async def _say(self, item: dict[str, Any], live: Callable[[], Any]) -> None:
        if not self._talk.exchange.over:
            await self._talk.say(item, live)
        elif self._talk.served:
            raise self._aio.ClientConnectionResetError("Cannot write to closing transport")
        else:
            await live()
