"""httpx and httpx2: the transports, where a client's requests leave it one by one, redirects and retries included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from types import ModuleType
from typing import Any

from everstep.capturing.calls import Call
from everstep.capturing.http import Head, pairs, request
from everstep.capturing.layout import checked
from everstep.capturing.seams import upgrades
from everstep.capturing.session import boundary
from everstep.capturing.wire import revived

_TRACE = "trace"  # in the extensions of a request: what is told of it on its way
_SENT = ".receive_response_headers.started"  # said when it was sent whole, by HTTP/1 and by HTTP/2


def patch(hx: ModuleType) -> None:
    """Wrap the transports of one of the two. Raises UnknownLayoutError."""
    plain = checked(hx, "HTTPTransport.handle_request", ["self", "request"])
    awaited = checked(hx, "AsyncHTTPTransport.handle_async_request", ["self", "request"])
    checked(hx, "Response", None)
    body, awaited_body = _bodies(hx)

    def handle_request(self: Any, request: Any) -> Any:
        lane = boundary()
        if lane is None:
            return plain(self, request)
        request.read()

        def live() -> tuple[Head, Any]:
            with _traced(request.extensions, call, _Trace):
                response = plain(self, request)
            answers.append(response)
            return _head(response), _Source(response.stream)

        answers: list[Any] = []
        call = _call(hx, request)
        head, chunks = upgrades.call(lane, call, live, hx.__name__)
        return answers[0] if chunks is None else _response(hx, head, body(chunks), answers)

    async def handle_async_request(self: Any, request: Any) -> Any:
        lane = boundary()
        if lane is None:
            return await awaited(self, request)
        await request.aread()

        async def live() -> tuple[Head, Any]:
            with _traced(request.extensions, call, _AwaitedTrace):
                response = await awaited(self, request)
            answers.append(response)
            return _head(response), _AwaitedSource(response.stream)

        answers: list[Any] = []
        call = _call(hx, request)
        head, chunks = await upgrades.call_awaited(lane, call, live, hx.__name__)
        return answers[0] if chunks is None else _response(hx, head, awaited_body(chunks), answers)

    hx.HTTPTransport.handle_request = handle_request
    hx.AsyncHTTPTransport.handle_async_request = handle_async_request


def _call(hx: ModuleType, asked: Any) -> Call:
    def revive(kind: str, message: str) -> BaseException:
        error = getattr(hx, kind, None)
        if isinstance(error, type) and issubclass(error, hx.RequestError):
            made: BaseException = error(message, request=asked)
            return made
        return revived(kind, message, hx)

    call = request(asked.method, str(asked.url), asked.headers, asked.content, revive)
    call.tells_when_sent = True
    return call


class _Trace:
    """Hears what httpcore says, and the program's `own` after it."""

    __slots__ = ("own", "sent")

    def __init__(self, there: Any, sent: Callable[[], None]) -> None:
        self.own: Any = there.own if isinstance(there, _Trace) else there
        self.sent = sent

    def __call__(self, name: str, info: Any) -> Any:
        if name.endswith(_SENT):
            self.sent()
        return None if self.own is None else self.own(name, info)


class _AwaitedTrace(_Trace):
    async def __call__(self, name: str, info: Any) -> None:
        if name.endswith(_SENT):
            self.sent()
        if self.own is not None:
            await self.own(name, info)


class _traced:  # noqa: N801 - it is used as a function is
    """While this lasts httpcore tells also us what it does with a request. Whoever is told already hears the same.

    A request may be sent several times at once: then the last of them tells, and what the program put there comes back.
    """

    __slots__ = ("_extensions", "_ours")

    def __init__(self, extensions: dict[str, Any], call: Call, kind: type[_Trace]) -> None:
        self._extensions = extensions
        self._ours: _Trace | None = None if call.sent is None else kind(extensions.get(_TRACE), call.sent)

    def __enter__(self) -> None:
        if self._ours is not None:
            self._extensions[_TRACE] = self._ours

    def __exit__(self, *_: object) -> None:
        there = self._extensions.get(_TRACE)
        if isinstance(there, _Trace) and there is self._ours:
            del self._extensions[_TRACE]
            if there.own is not None:
                self._extensions[_TRACE] = there.own


def _head(response: Any) -> Head:
    version, reason = map(response.extensions.get, ("http_version", "reason_phrase"))
    return Head(response.status_code, pairs(response.headers.raw), _text(version) or "HTTP/1.1", _text(reason))


def _text(said: Any) -> str:
    return said.decode("latin-1") if isinstance(said, bytes) else str(said or "")


def _response(hx: ModuleType, head: Head, stream: Any, answers: list[Any]) -> Any:
    """The answer that the library made, with another stream; on record there is none, and it is made anew."""
    if answers:
        answers[0].stream = stream
        return answers[0]
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
    extensions = {"http_version": head.version.encode()}
    if head.version != "HTTP/2":  # which has none: then the library names the status itself
        extensions["reason_phrase"] = head.reason.encode("latin-1")
    return hx.Response(head.status, headers=headers, stream=stream, extensions=extensions)


class _Source:
    def __init__(self, stream: Any) -> None:
        self._stream, self._chunks = stream, iter(stream)

    def __next__(self) -> bytes:
        return next(self._chunks)  # type: ignore[no-any-return] # bytes, as the library says

    def close(self) -> None:
        self._stream.close()


class _AwaitedSource:
    def __init__(self, stream: Any) -> None:
        self._stream, self._chunks = stream, aiter(stream)

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _bodies(hx: ModuleType) -> tuple[Any, Any]:
    class Body(hx.SyncByteStream):  # type: ignore[name-defined, misc] # of whichever module it is
        def __init__(self, chunks: Any) -> None:
            self._chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self._chunks)

        def close(self) -> None:
            self._chunks.close()

    class AwaitedBody(hx.AsyncByteStream):  # type: ignore[name-defined, misc] # as above
        def __init__(self, chunks: Any) -> None:
            self._chunks = chunks

        def __aiter__(self) -> AsyncIterator[bytes]:
            return aiter(self._chunks)

        async def aclose(self) -> None:
            await self._chunks.aclose()

    return Body, AwaitedBody
