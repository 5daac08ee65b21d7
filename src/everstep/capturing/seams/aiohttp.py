"""aiohttp: the innermost middleware of each request, where it is about to be sent, redirects and retries included.

The body of an answer is taken from aiohttp's own reader when the program waits for more of it, so the pieces that the
program saw are the pieces on record. Everything round it, cookies, history, decompression, traces, stays aiohttp's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from everstep.capturing.calling import AwaitedChunks, AwaitedRecordedChunks
from everstep.capturing.calls import Call
from everstep.capturing.http import FORM, Head, is_answer, pairs, request
from everstep.capturing.layout import checked
from everstep.capturing.seams import aiohttp_bodies, aiohttp_errors, aiohttp_sockets, upgrades
from everstep.capturing.seams.likeness import Stage
from everstep.capturing.session import boundary
from everstep.capturing.telemetry import Aside
from everstep.run.lanes import here

_OF_THE_PACKED = frozenset({"content-encoding", "content-length"})
_NO_LIMIT = 1 << 30
_FAILED = 400  # and above: the status of an answer that tells of a failure
Handler = Callable[[Any], Awaitable[Any]]


def patch(aio: ModuleType) -> None:
    """Wrap the requests of every session. Raises UnknownLayoutError."""
    plain = checked(aio, "ClientSession._request", ["self", "method", "str_or_url"])
    checked(aio, "client_middlewares.build_client_middlewares", ["handler", "middlewares"])
    checked(aio, "StreamReader.set_exception", ["self", "exc", "exc_cause"])
    checked(aio, "StreamReader._wait", ["self", "func_name"])
    checked(aio, "client_proto.ResponseHandler.set_response_params", ["self"])
    checked(aio, "connector.Connection", ["connector", "key", "protocol", "loop"])
    checked(aio, "ClientResponse.start", ["self", "connection"])

    async def _request(self: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        lane = here()
        if lane is None or lane.run.captured is None:
            return await plain(self, method, str_or_url, **options)
        unpack = options.get("auto_decompress")
        seam = _Seam(
            aio, options.get("read_bufsize") or self._read_bufsize,
            unpacks=self._auto_decompress if unpack is None else bool(unpack),
        )  # fmt: skip
        given = options.get("middlewares")
        options["middlewares"] = (*(self._middlewares if given is None else given), seam.middleware)
        return await plain(self, method, str_or_url, **options)

    aio.ClientSession._request = _request  # noqa: SLF001 - this is the wrapping
    aiohttp_sockets.patch(aio, revived)


class _Seam:
    """One request of a session, which may be several: it can be sent elsewhere, or again."""

    def __init__(self, aio: ModuleType, limit: int, *, unpacks: bool) -> None:
        self.aio, self.limit, self.unpacks = aio, limit, unpacks

    async def middleware(self, asked: Any, handler: Handler) -> Any:
        """Answer a request, as aiohttp asks its middlewares to."""
        lane = boundary()
        if lane is None:
            return await handler(asked)
        body = await asked.body.as_bytes() if asked.body else b""

        async def live() -> tuple[_Head, Any]:
            with stage.live(), asked._timer:  # noqa: SLF001 - says of a cancellation whether it came of aiohttp's own timeout
                answers.append(await handler(asked))
            return _head(answers[0], unpacks=self.unpacks), aiohttp_bodies.Source(answers[0])

        answers: list[Any] = []
        stage = Stage()
        with stage.asked(), _out_of_time(asked):
            head, chunks = await upgrades.call_awaited(lane, self._call(asked, body), live, "aiohttp")
        if chunks is None:
            return answers[0]
        response = answers[0] if answers else await revived(self.aio, asked, head)
        await self._give(response, head, chunks)
        return response

    def _call(self, asked: Any, body: bytes) -> Call:
        def revive(kind: str, message: str) -> BaseException:
            return aiohttp_errors.revived(self.aio, asked, kind, message)

        call = request(asked.method, str(asked.url), asked.headers, body, revive)
        call.form = AS_READ
        return call

    async def _give(self, response: Any, head: _Head, chunks: AwaitedChunks | AwaitedRecordedChunks | Aside) -> None:
        """Have the body of an answer read from these chunks."""
        if isinstance(chunks, Aside):
            return
        if isinstance(response.content, self.aio.streams.EmptyStreamReader):
            async for _ in chunks:
                pass
            return
        is_chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
        if isinstance(chunks, AwaitedRecordedChunks):
            content: Any = aiohttp_bodies.RecordedContent(chunks, head.cancelled, self.limit, is_chunked=is_chunked)
            content.on_eof(response._response_eof)  # noqa: SLF001 - what its reader does at the end of a body
        else:
            source = aiohttp_bodies.Source(response)
            content = aiohttp_bodies.LiveContent(
                chunks.exchange, source, head.cancelled, self.limit, is_chunked=is_chunked
            )
        response.content = content
        if head.status >= _FAILED:  # code that tries again leaves it unread, and a resumed run would ask for it anew
            await content.read_ahead()


@contextmanager
def _out_of_time(asked: Any) -> Iterator[None]:
    """Where aiohttp's own timeout has no power: an answer on record says itself whether it took too long."""
    running: list[Any] = getattr(vars(asked).get("_timer"), "_tasks", [])
    task = asyncio.current_task()
    if task not in running:
        yield
        return
    running.remove(task)
    try:
        yield
    finally:
        running.append(task)


class _Head(Head):
    """The beginning of an answer."""

    __slots__ = ("cancelled", "unpacked")
    unpacked: bool  # the body was decompressed before anybody read it
    cancelled: list[int]  # after how many pieces of it somebody waited in vain


class _AsRead:
    """How answers are stored whose bodies may be decompressed already."""

    def pack(
        self, head: _Head, chunks: Sequence[bytes], offsets: Sequence[float], clean: Callable[[str], str]
    ) -> dict[str, Any]:
        """The stored form of an answer."""
        headers = head.headers
        kept = [pair for pair in headers if not (head.unpacked and pair[0].lower() in _OF_THE_PACKED)]
        stored = FORM.pack(Head(head.status, kept, head.version, head.reason), chunks, offsets, clean)
        if head.unpacked:
            stored["headers"] = [list(pair) for pair in headers]
            stored["unpacked"] = True
        if head.cancelled:
            stored["cancelled"] = head.cancelled
        return stored

    def unpack(self, stored: Any) -> tuple[_Head, list[bytes]]:
        """Head and chunks of a stored answer, or of what a fork has put in its place."""
        about = stored if is_answer(stored) else {}
        unpacked = bool(about.get("unpacked"))
        known, chunks = FORM.unpack({**about, "raw": True} if unpacked else stored)
        head = _Head(known.status, known.headers, known.version, known.reason)
        head.unpacked, head.cancelled = unpacked, list(about.get("cancelled", ()))
        return head, chunks

    def used(self, request: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
        """What a model's answer says that it used."""
        return FORM.used(request, stored)


AS_READ = _AsRead()


def _head(response: Any, *, unpacks: bool) -> _Head:
    version = f"HTTP/{response.version.major}.{response.version.minor}"
    head = _Head(response.status, pairs(response.raw_headers), version, response.reason or "")
    head.cancelled = []
    head.unpacked = unpacks and "content-encoding" in response.headers
    return head


# From the record.


async def revived(aio: ModuleType, asked: Any, head: Head) -> Any:
    """An answer on record, made by the library's own parser from its head. Its body comes from elsewhere."""
    loop, known = asyncio.get_running_loop(), vars(asked)
    protocol = aio.client_proto.ResponseHandler(loop)
    protocol.connection_made(_Transport())
    protocol.set_response_params(
        skip_payload=asked.method in aio.helpers.EMPTY_BODY_METHODS, read_until_eof=True, auto_decompress=False,
        max_line_size=_NO_LIMIT, max_field_size=_NO_LIMIT, max_headers=_NO_LIMIT,
    )  # fmt: skip
    response = asked.response_class(
        asked.method, asked.original_url, writer=None, continue100=None, timer=known["_timer"],
        request_info=asked.request_info, traces=known["_traces"], loop=loop, session=known["_session"],
        stream_writer=_Written(),
    )  # fmt: skip
    protocol.data_received(head.lines())
    await response.start(aio.connector.Connection(_Connector(), asked.connection_key, protocol, loop))
    return response


class _Transport(asyncio.Transport):
    """Where a request would have gone."""

    def write(self, data: Any) -> None:
        del data

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def is_closing(self) -> bool:
        return False


class _Connector:
    """Takes back connections that were none."""

    force_close = False

    def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
        del key, should_close
        protocol.close()


class _Written:
    output_size = 0
