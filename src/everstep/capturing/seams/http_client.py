"""http.client, and so urllib.request: a request is held back until all of it is known, then it is one call.

What cannot be sent fails where it is sent, what is not answered where the answer is asked for: code that tells the two
apart, as urllib does, finds them where they were.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from http import client as http_client
from http.client import HTTPConnection
from types import ModuleType
from typing import Any

from everstep.capturing import calling
from everstep.capturing.calls import Call, Form
from everstep.capturing.http import Head, request
from everstep.capturing.layout import checked
from everstep.capturing.seams import upgrades
from everstep.capturing.session import boundary
from everstep.capturing.wire import Answer, Source, Wire, head_of, revived
from everstep.errors import UnknownLayoutError
from everstep.run.lanes import Lane

SENT = "_everstep_sent"  # on a connection: what is to be called when the request on its way was sent whole
_OUTGOING = "_everstep_outgoing"  # on a connection: the request on its way
_STATE, _RESPONSE = "_HTTPConnection__state", "_HTTPConnection__response"
_ALL_SENT = "Request-sent"
_UNANSWERED = 0  # the status of a call that was sent, and then failed


class _Outgoing:
    """A request on its way."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.parts: list[bytes] = []
        self.sending = False
        self.answer: tuple[Head, Any] | None = None
        self.error: Exception | None = None  # what asking for the answer will raise
        self.upgraded: Any = None  # the answer, if the connection is no longer one of HTTP; and the state of that

    @property
    def held_back(self) -> bool:
        """Whether it is not sent yet."""
        return not self.sending and self.answer is None and self.upgraded is None


def patch(module: ModuleType) -> None:
    """Wrap the connections. Raises UnknownLayoutError."""
    seam = _Seam(module)
    for name in ("putrequest", "send", "request", "getresponse", "close"):
        _wrap(getattr(HTTPConnection, name), getattr(seam, name))
    _wrap_connects()


def _wrap(plain: Callable[..., Any], wrapped: Callable[..., Any]) -> None:
    @wraps(plain)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapped(self, *args, **kwargs)

    setattr(HTTPConnection, plain.__name__, method)


class _Seam:
    """The methods of a connection, and what they are instead."""

    def __init__(self, module: ModuleType) -> None:
        self._putrequest = checked(module, "HTTPConnection.putrequest", ["self", "method", "url"])
        self._send = checked(module, "HTTPConnection.send", ["self", "data"])
        self._request = checked(module, "HTTPConnection.request", ["self", "method", "url", "body", "headers"])
        self._getresponse = checked(module, "HTTPConnection.getresponse", ["self"])
        self._close = checked(module, "HTTPConnection.close", ["self"])
        made = HTTPConnection("localhost")
        lacks = [name for name in (_STATE, _RESPONSE, "sock", "auto_open", "_tunnel_host") if not hasattr(made, name)]
        if lacks or checked(module, "_CS_REQ_SENT", None) != _ALL_SENT:
            lacks = lacks or [f"state {_ALL_SENT!r}"]
            raise UnknownLayoutError("http.client", sys.version.split()[0], f"a connection has no {', '.join(lacks)}")

    def putrequest(self, connection: Any, *args: Any, **kwargs: Any) -> None:
        """Begin a request: whose it is, is settled here."""
        self._putrequest(connection, *args, **kwargs)
        lane = boundary()
        setattr(connection, _OUTGOING, None if lane is None else _Outgoing(lane))

    def send(self, connection: Any, data: Any) -> None:
        """Send a part of a request, or hold it back."""
        going = _going(connection)
        if going is None or not going.held_back:
            self._send(connection, data)
            return
        if connection.sock is None:
            if not connection.auto_open:
                raise http_client.NotConnected
            connection.sock = Wire()
        going.parts.extend(_pieces(data, connection.blocksize))

    def request(self, connection: Any, *args: Any, **kwargs: Any) -> None:
        """Send all of a request."""
        self._request(connection, *args, **kwargs)
        going = _going(connection)
        if going is not None and going.held_back and not _is_read_from(connection):
            self._exchange(connection, going)

    def getresponse(self, connection: Any) -> Any:
        """The answer."""
        going = _going(connection)
        if going is None or going.sending or getattr(connection, _STATE) != _ALL_SENT or _is_read_from(connection):
            sent = getattr(connection, SENT, None)
            if sent is not None:
                sent()
            return self._getresponse(connection)
        if going.held_back:
            self._exchange(connection, going)
        setattr(connection, _OUTGOING, None)
        if going.upgraded is not None:
            response, state, known = going.upgraded
            setattr(connection, _STATE, state)
            setattr(connection, _RESPONSE, known)
            return response
        if going.error is not None:
            if isinstance(going.error, ConnectionError):
                connection.close()
            raise going.error
        return self._response(connection, going)

    def close(self, connection: Any) -> None:
        """Close it, and an answer that nobody asked for."""
        going = _going(connection)
        if going is not None and not going.sending:
            setattr(connection, _OUTGOING, None)
            if going.answer is not None:
                going.answer[1].close()
        self._close(connection)

    def _exchange(self, connection: Any, going: _Outgoing) -> None:
        """Make the call, or have it answered. Raises what sending raised."""

        def live() -> tuple[Head, Any]:
            going.sending = True
            try:
                head, source, response = self._sent(connection, going.parts, call.sent)
                made.append((response, getattr(connection, _STATE), getattr(connection, _RESPONSE)))
                return head, source
            finally:
                going.sending = False

        made: list[Any] = []
        call = _call(connection, going)
        head, chunks = upgrades.call(going.lane, call, live, "http.client")
        if chunks is None:
            going.upgraded = made[0]
        else:
            going.answer = head, chunks
        setattr(connection, _STATE, _ALL_SENT)  # until the program asks for the answer
        setattr(connection, _RESPONSE, None)
        if head.status == _UNANSWERED:
            try:
                next(chunks, None)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is due when the answer is
                going.error = error

    def _sent(self, connection: Any, parts: Sequence[bytes], sent: Callable[[], None] | None) -> tuple[Head, Any, Any]:
        if isinstance(connection.sock, Wire):
            connection.sock = None  # there was no connection before, as all was answered from the record
        for part in parts:
            self._send(connection, part)
        if sent is not None:
            sent()
        try:
            response = self._getresponse(connection)
        except Exception as error:  # noqa: BLE001 - as above
            return Head(_UNANSWERED, []), _Broken(error), None
        return head_of(response), Source(response), response

    def _response(self, connection: Any, going: _Outgoing) -> Any:
        """What the program gets: made by the library, from a socket that is none."""
        assert going.answer is not None  # noqa: S101 - it was asked for
        answer = Answer(connection._method, *going.answer)  # noqa: SLF001 - as its own class of responses is given it
        wire, sock = Wire(answer), connection.sock
        connection.sock = wire
        try:
            response = self._getresponse(connection)
        finally:
            if connection.sock is wire:  # else it was closed, as the answer said
                connection.sock = sock
        if answer.length is not None:
            response.length = answer.length
        return response


class _Broken:
    """What comes after the head of an answer that never began."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __next__(self) -> bytes:
        raise self._error

    def close(self) -> None:
        """There is nothing to close."""


def _going(connection: Any) -> _Outgoing | None:
    return getattr(connection, _OUTGOING, None)


def _is_read_from(connection: Any) -> bool:
    """Whether there is an answer on it whose end nobody has read."""
    response = getattr(connection, _RESPONSE)
    return response is not None and not response.isclosed()


def _pieces(data: Any, size: int) -> Iterator[bytes]:
    """What `send` would send: bytes, a file, or an iterable of bytes."""
    if hasattr(data, "read"):
        while piece := data.read(size):
            yield piece.encode("iso-8859-1") if isinstance(piece, str) else bytes(piece)
        return
    try:
        yield bytes(memoryview(data))
    except TypeError:
        if not isinstance(data, Iterable) or isinstance(data, str):
            raise TypeError(f"data should be a bytes-like object or an iterable, got {type(data)!r}") from None
        for each in data:
            yield bytes(memoryview(each))


def _call(connection: Any, going: _Outgoing) -> Call:
    lines, _, body = b"".join(going.parts).partition(b"\r\n\r\n")
    first, _, rest = lines.partition(b"\r\n")
    headers: Mapping[str, str] = http_client.parse_headers(io.BytesIO(rest + b"\r\n\r\n"))  # type: ignore[assignment] # it gets, as one does
    method, target = first.decode("latin-1").split(" ")[:2]
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = _joined(body)
    call = request(method, _url(connection, target), headers, body, revived)
    call.tells_when_sent = True
    return call


def _url(connection: Any, target: str) -> str:
    """Where a request goes, whoever hands it on."""
    if "://" in target.partition("?")[0]:
        return target
    tunnelled = connection._tunnel_host is not None  # noqa: SLF001 - there is no other way to know
    host, port = (
        (connection._tunnel_host, connection._tunnel_port) if tunnelled else (connection.host, connection.port)  # noqa: SLF001 - as above
    )
    secure = connection.default_port == http_client.HTTPS_PORT
    place = f"[{host}]" if ":" in host else host
    if port != connection.default_port:
        place += f":{port}"
    return f"http{'s' if secure else ''}://{place}{target}"


def _joined(body: bytes) -> bytes:
    """A body without its chunks."""
    parts, rest = [], body
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        parts.append(rest[:size])
        rest = rest[size + 2 :] if size else b""
    return b"".join(parts)


# Connections that a program opens before it asks for anything.


class _Silent(Form):
    """The form of an answer that says nothing."""

    def pack(self, head: Any, chunks: Any, offsets: Any, clean: Any) -> None:
        """There is nothing to keep."""

    def unpack(self, stored: Any) -> tuple[None, list[Any]]:
        """Nothing was kept."""
        del stored
        return None, []


def _wrap_connects() -> None:
    """Wrap `connect` of all kinds of connections, those too that are still to be defined."""

    def defined(cls: type) -> None:
        _wrap_connect(cls)

    HTTPConnection.__init_subclass__ = classmethod(defined)  # type: ignore[assignment, method-assign] # it has none of its own
    waiting: list[type] = [HTTPConnection]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        _wrap_connect(cls)


def _wrap_connect(cls: type) -> None:
    plain: Callable[[Any], None] | None = cls.__dict__.get("connect")
    if plain is None:
        return

    def connect(self: Any) -> None:
        going = _going(self)
        lane = boundary() if going is None or not going.sending else None
        if lane is None:
            plain(self)
            return

        def live() -> tuple[None, Iterator[Any]]:
            plain(self)
            return None, iter(())

        asked = {"host": self.host, "port": self.port}
        _, chunks = calling.call(lane, Call(f"connect {self.host}", asked, _Silent(), revived), live)
        next(chunks, None)
        if self.sock is None:
            self.sock = Wire()

    cls.connect = connect  # type: ignore[attr-defined] # it has one
