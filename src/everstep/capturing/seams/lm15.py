"""lm15: its own transports, over sockets and asyncio's streams. DSPy carries it, and asks its models through it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from everstep.capturing.calls import Call
from everstep.capturing.http import Head, request
from everstep.capturing.layout import checked
from everstep.capturing.seams import upgrades
from everstep.capturing.session import boundary
from everstep.capturing.wire import revived

_ANSWER = ["self", "status", "reason", "headers", "http_version", "chunks", "release"]


def patch(module: ModuleType) -> None:
    """Wrap both transports. Raises UnknownLayoutError."""
    plain = checked(module, "StdlibTransport.stream", ["self", "request"])
    awaited = checked(module, "StdlibAsyncTransport._do_stream", ["self", "request"])
    checked(module, "TransportResponse.__init__", _ANSWER)
    checked(module, "AsyncTransportResponse.__init__", _ANSWER)

    def stream(self: Any, request: Any) -> Any:
        lane = boundary()
        if lane is None:
            return plain(self, request)

        def live() -> tuple[Head, Any]:
            answers.append(plain(self, request))
            return _head(answers[0]), _Source(answers[0])

        answers: list[Any] = []
        head, chunks = upgrades.call(lane, _call(module, request), live, "lm15")
        return answers[0] if chunks is None else _response(module.TransportResponse, head, chunks, _closing(chunks))

    async def _do_stream(self: Any, request: Any) -> Any:
        lane = boundary()
        if lane is None:
            return await awaited(self, request)

        async def live() -> tuple[Head, Any]:
            answers.append(await awaited(self, request))
            return _head(answers[0]), _AwaitedSource(answers[0])

        answers: list[Any] = []
        head, chunks = await upgrades.call_awaited(lane, _call(module, request), live, "lm15")
        if chunks is None:
            return answers[0]
        return _response(module.AsyncTransportResponse, head, chunks, _awaited_closing(chunks))

    module.StdlibTransport.stream = stream
    module.StdlibAsyncTransport._do_stream = _do_stream  # noqa: SLF001 - checked above


def _call(module: ModuleType, asked: Any) -> Call:
    def revive(kind: str, message: str) -> BaseException:
        return revived(kind, message, module)

    headers = {name.lower(): value for name, value in asked.headers}
    return request(asked.method, asked.url, headers, asked.body or b"", revive)


def _head(response: Any) -> Head:
    return Head(response.status, list(response.headers), response.http_version, response.reason)


def _response(kind: Any, head: Head, chunks: Any, release: Any) -> Any:
    """An answer as the library makes it, live and on record alike."""
    return kind(
        status=head.status, reason=head.reason, headers=head.headers, http_version=head.version, chunks=chunks,
        release=release,
    )  # fmt: skip


def _closing(chunks: Any) -> Any:
    return lambda _: chunks.close()


def _awaited_closing(chunks: Any) -> Any:
    async def release(_: bool) -> None:  # noqa: FBT001 - as the library calls it
        await chunks.aclose()

    return release


class _Source:
    def __init__(self, response: Any) -> None:
        self._response, self._chunks = response, iter(response)

    def __next__(self) -> bytes:
        return next(self._chunks)  # type: ignore[no-any-return] # bytes, as the library says

    def close(self) -> None:
        self._chunks.close()
        self._response.close()


class _AwaitedSource:
    def __init__(self, response: Any) -> None:
        self._response, self._chunks = response, aiter(response)

    async def __anext__(self) -> bytes:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._chunks.aclose()
        await self._response.aclose()
