"""Connections and exceptions of the websockets package, made again from what is on record of them."""

from __future__ import annotations

import builtins
import re
import threading
from collections.abc import Iterator
from typing import Any

from websockets import exceptions
from websockets.client import ClientProtocol
from websockets.datastructures import Headers
from websockets.frames import Close
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from everstep.capturing.seams.likeness import likeness

_ERRNO = re.compile(r"\[Errno (\d+)\] ")
_STATUS = re.compile(r"HTTP (\d+)$")
_CLOSE = re.compile(r"(received|sent) (\d+) \([^)]*\) ?(.*)", re.DOTALL)


def opened(connect: Any, connection: Any) -> dict[str, Any]:
    """What there is to know of a connection at its opening."""
    response = connection.response
    return {
        "uri": connect.uri, "status": response.status_code, "reason": response.reason_phrase,
        "headers": [[name, value] for name, value in response.headers.raw_items()],
        "subprotocol": connection.subprotocol,
        "addresses": [_listed(connection.local_address), _listed(connection.remote_address)],
    }  # fmt: skip


def _listed(address: Any) -> Any:
    return list(address) if isinstance(address, tuple) else address


def awaited(connect: Any, known: dict[str, Any]) -> Any:
    """A connection of the asyncio client that leads nowhere."""
    connect.uri = known["uri"]
    if hasattr(connect, "factory"):
        connection = connect.factory(connect.ws_uri)
    else:  # before websockets 17
        connection = connect.protocol_factory(parse_uri(connect.uri))
    connection.transport = _Socket(known["addresses"])
    return _open(connect, connection, known)


def plain(connect: Any, known: dict[str, Any], usual: type) -> Any:
    """A connection of the threading client that leads nowhere, and has no thread that reads."""
    connect.uri = known["uri"]
    kind: Any = connect.create_connection if isinstance(connect.create_connection, type) else usual
    connection = kind.__new__(kind)
    protocol = ClientProtocol(connect.ws_uri, **connect.protocol_kwargs)
    vars(connection).update(
        socket=_Socket(known["addresses"]), protocol=protocol, id=protocol.id, logger=protocol.logger,
        debug=protocol.debug, latency=0.0, connection_exc=None, protocol_mutex=threading.Lock(),
        pending_legacy_warning=False, keepalive_thread=None, **connect.connection_kwargs,
    )  # fmt: skip
    return _open(connect, connection, known)


def _open(connect: Any, connection: Any, known: dict[str, Any]) -> Any:
    request = connection.request = connection.protocol.connect()
    request.headers.update(connect.additional_headers or {})
    if connect.user_agent_header is not None:
        request.headers.setdefault("User-Agent", connect.user_agent_header)
    connection.response = Response(
        known["status"], known["reason"], Headers([tuple(each) for each in known["headers"]])
    )
    connection.protocol.subprotocol = known["subprotocol"]
    connection.protocol.state = State.OPEN
    return connection


class _Socket:
    """What a connection is asked about the socket that it does not have."""

    def __init__(self, addresses: list[Any]) -> None:
        self._local, self._remote = (tuple(each) if isinstance(each, list) else each for each in addresses)

    def getsockname(self) -> Any:
        return self._local

    def getpeername(self) -> Any:
        return self._remote

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self._local, "peername": self._remote}.get(name, default)


# How a connection ended.


def ended(connection: Any) -> dict[str, Any]:
    """What was said last, and by whom first."""
    protocol = connection.protocol
    sides = {"rcvd": protocol.close_rcvd, "sent": protocol.close_sent}
    told: dict[str, Any] = {
        side: None if said is None else [int(said.code), said.reason] for side, said in sides.items()
    }
    return {**told, "rcvd_first": protocol.close_rcvd_then_sent}


def end(connection: Any, known: dict[str, Any]) -> None:
    """Bring a connection to its recorded end."""
    protocol = connection.protocol
    protocol.close_rcvd, protocol.close_sent = (
        None if known[side] is None else Close(*known[side]) for side in ("rcvd", "sent")
    )
    protocol.close_rcvd_then_sent = known["rcvd_first"]
    protocol.state = State.CLOSED


# Exceptions.


def error(kind: str, message: str) -> BaseException:
    """An exception of this class with this text, whatever it takes to make one."""
    found = getattr(exceptions, kind, None) or getattr(builtins, kind, None)
    if not isinstance(found, type) or not issubclass(found, Exception):
        return RuntimeError(f"{kind}: {message}")
    for given in _arguments(found, message):
        try:
            made: Exception = found(*given)
        except (TypeError, ValueError, AssertionError, AttributeError):
            continue
        if str(made) == message:
            return made
    return likeness(found, message)


def _arguments(kind: type[Exception], message: str) -> Iterator[tuple[Any, ...]]:
    if issubclass(kind, exceptions.ConnectionClosed):
        said = [_CLOSE.match(part.removeprefix("then ")) for part in message.split("; ")]
        sides = [(each.group(1), Close(int(each.group(2)), each.group(3))) for each in said if each is not None]
        known = dict(sides)
        order = sides[0][0] == "received" if len(known) > 1 else None
        yield known.get("received"), known.get("sent"), order
    status, number = _STATUS.search(message), _ERRNO.match(message)
    if status is not None:
        yield (Response(int(status.group(1)), "", Headers()),)
    if number is not None:
        yield int(number.group(1)), message[number.end() :]
    if not message:
        yield ()
    yield (message,)
