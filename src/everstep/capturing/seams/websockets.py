"""The websockets package, both of its clients: a connection is a conversation.

A connection is one step, from its opening to its end (`everstep.capturing.duplex`). So a resumed run does not take up
one that was cut off: whether the other side could go on from there, nobody knows. It is repeated from its opening, if
at all. Pings and pongs are nobody's words: they are neither recorded nor compared, but for the answer to a ping that
the program waits for. The two other clients, for trio and the old one, are refused: what they do would be missed.

Many libraries import a client that their users never open a connection with. So a client that is not laid out as it is
known here is refused when it opens one, not when it is imported.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from everstep.capturing import duplex, duplex_awaited
from everstep.capturing.calls import Call
from everstep.capturing.layout import checked
from everstep.capturing.seams import websockets_revived, websockets_talking
from everstep.capturing.seams.likeness import Stage
from everstep.capturing.session import boundary
from everstep.errors import UnknownLayoutError, UnrecordableError

_REFUSED = {
    "websockets.legacy.client": ("Connect", "__await_impl__"),
    "websockets.trio.client": ("connect", "connect"),
}


def patch(module: ModuleType) -> None:
    """Wrap the openings of one client. They raise UnknownLayoutError, if it is not laid out as it is known."""
    if module.__name__ in _REFUSED:
        _refuse(module, *_REFUSED[module.__name__])
        return
    try:
        for name in ("recv", "recv_streaming", "send", "close", "wait_closed", "ping", "pong"):
            checked(module, f"ClientConnection.{name}", ["self", "message", "text"] if name == "send" else ["self"])
        if module.__name__ == "websockets.sync.client":
            _patch_plain(module)
        else:
            _patch_awaited(module)
    except UnknownLayoutError as unknown:
        _refuse_unknown(module, unknown)


def _patch_plain(module: ModuleType) -> None:
    plain = checked(module, "reconnect.connect", ["self"])
    usual = checked(module, "ClientConnection", ["sock", "protocol"])

    def connect(self: Any) -> Any:
        lane = boundary()
        if lane is None:
            return plain(self)

        def live() -> tuple[dict[str, Any], Any]:
            with stage.live():
                connection = plain(self)
            return websockets_revived.opened(self, connection), connection

        stage = Stage()
        with stage.asked():
            talk = duplex.open(lane, _call(self.uri), live)
        connection = talk.connection or websockets_revived.plain(self, talk.opened, usual)
        return websockets_talking.take_over(connection, talk, websockets_talking.Talking)

    module.reconnect.connect = connect


def _patch_awaited(module: ModuleType) -> None:
    opening = "connect" if hasattr(module.connect, "connect") else "__await_impl__"  # before websockets 17
    plain = checked(module, f"connect.{opening}", ["self"])
    checked(module, "ClientConnection", ["protocol"])
    checked(module, "get_proxy", None)  # tells websockets 15 from those before, whose connections end otherwise

    async def connect(self: Any) -> Any:
        lane = boundary()
        if lane is None:
            return await plain(self)

        async def live() -> tuple[dict[str, Any], Any]:
            with stage.live():
                connection = await plain(self)
            return websockets_revived.opened(self, connection), connection

        stage = Stage()
        with stage.asked():
            talk = await duplex_awaited.open(lane, _call(self.uri), live)
        connection = talk.connection or websockets_revived.awaited(self, talk.opened)
        if opening != "connect":
            self.connection = connection  # which it closes
        return websockets_talking.take_over(connection, talk, websockets_talking.AwaitedTalking)

    setattr(module.connect, opening, connect)


def _refuse_unknown(module: ModuleType, unknown: UnknownLayoutError) -> None:
    """Refuse connections where they are made: a function of the module may have been imported before."""
    opening = checked(module, "connect", None)
    place: Any = opening if isinstance(opening, type) else checked(module, "ClientConnection", None)
    plain = place.__init__

    @functools.wraps(plain)
    def refused(*given: Any, **named: Any) -> None:
        if boundary() is not None:
            raise UnknownLayoutError(unknown.module, unknown.version, unknown.reason)
        plain(*given, **named)

    place.__init__ = refused


def _refuse(module: ModuleType, kind: str, name: str) -> None:
    plain = checked(module, f"{kind}.{name}", ["self"])

    async def refused(self: Any, *given: Any) -> Any:
        if boundary() is not None:
            raise UnrecordableError(module.__name__, "websockets.asyncio.client or websockets.sync.client")
        return await plain(self, *given)

    setattr(getattr(module, kind), name, refused)


def _call(uri: str) -> Call:
    name, revive = f"websocket {urlsplit(uri).hostname}", websockets_revived.error
    return Call(name, {"url": uri}, duplex.FORM, revive, external=True, node_type="websocket")
