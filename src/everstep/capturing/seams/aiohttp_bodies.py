"""The bodies of aiohttp's answers: taken from its reader, or from the record, when somebody waits for more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import aiohttp

from everstep.capturing import calling, turns
from everstep.capturing.calling import AwaitedRecordedChunks
from everstep.capturing.exchange import Exchange, inside
from everstep.capturing.halting import Halted
from everstep.capturing.seams.likeness import recordable
from everstep.codec import record
from everstep.journal.track import flags_of

_AHEAD = 64  # pieces of a body that are taken in before anybody asks for them


class Source:
    """The body of a live answer, in pieces: where the other side made pieces of it, those."""

    def __init__(self, response: Any) -> None:
        self.reader = response.content
        self._response = response
        self._failure: Exception | None = None
        self._piece = b""  # what there is of the next one; here, as whoever waits for the rest may be cancelled

    async def __anext__(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        while True:
            try:
                data, ends = await self.reader.readchunk()
            except Exception as error:  # raised now or with the next piece
                if not self._piece:
                    raise
                self._failure = error  # what came before it comes first
                ends, data = True, b""
            self._piece += data
            is_over = not data and (not ends or self.reader.at_eof())  # an empty body says that it ends for ever
            if self._piece and (ends or is_over or self.reader._http_chunk_splits is None):  # noqa: SLF001 - None if there are no pieces
                piece, self._piece = self._piece, b""
                return piece
            if is_over:
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Read no further."""
        self._response.close()


class Content(aiohttp.StreamReader):
    """aiohttp's reader, filled when somebody waits for more. Who waits may be cancelled, and wait again."""

    def __init__(self, call: Exchange, cancelled: list[int], limit: int, *, is_chunked: bool) -> None:
        super().__init__(_Unlimited(), limit, loop=asyncio.get_running_loop())  # type: ignore[arg-type] # all that is needed of it
        self._call = call
        self._cancelled = cancelled  # after how many pieces somebody waited in vain
        self._left: asyncio.Future[None] = self._loop.create_future()
        self._pulling = False
        if is_chunked:
            self.begin_http_chunk_receiving()

    async def _next(self) -> bytes | None:
        """The next piece, None at the end."""
        raise NotImplementedError

    def _leave(self, error: BaseException) -> None:
        """End the call: by code that cannot wait, so nothing is waited for."""
        raise NotImplementedError

    async def _wait(self, func_name: str) -> None:
        if self._pulling:
            raise RuntimeError(f"{func_name}() called while another coroutine is already waiting for incoming data")
        self._pulling = True
        try:
            piece = await self._next()
        except Exception as error:  # a reader keeps what it failed with, as aiohttp's does
            if self._exception is None:
                super().set_exception(error)
            raise
        finally:
            self._pulling = False
        if piece is None:
            self.feed_eof()
            return
        self.feed_data(piece)
        if self._http_chunk_splits is not None:
            self.end_http_chunk_receiving()

    async def wait_eof(self) -> None:
        """Read until there is no more: nothing comes by itself."""
        while not self._eof:
            await self._wait("wait_eof")

    async def read_ahead(self) -> None:
        """Take in the body, unless it is long: whoever reads finds it, or what went wrong with it."""
        with suppress(Exception):  # which the reader keeps
            for _ in range(_AHEAD):  # so many pieces live, and so many on record
                if self._eof:
                    return
                await self._wait("read_ahead")

    def set_exception(self, exc: Any, *cause: Any) -> None:
        """Let go of the body: so the library tells its readers that a response was released or closed."""
        super().set_exception(exc, *cause)
        if not self._left.done():
            self._left.set_result(None)
        self._leave(exc)


class LiveContent(Content):
    """The body of an answer that is being recorded."""

    def __init__(self, call: Exchange, source: Source, *given: Any, **named: Any) -> None:
        super().__init__(call, *given, **named)
        self._source = source
        self._piece: bytes | None = None  # that came, and did not leave

    async def _next(self) -> bytes | None:
        call = self._call
        if call.over and not call.outlived:
            return None
        try:
            if self._piece is None:
                with inside(call):
                    self._piece = await anext(self._source, b"")
            if not self._piece:
                await calling.settle_awaited(call, call.end())
                return None
            await turns.part_came_awaited(call)
        except asyncio.CancelledError:
            self._cancelled.append(len(call.chunks))
            raise
        except BaseException as error:  # an exit is noted too
            kept = recordable(error) if isinstance(error, Exception) else error
            if not call.over:  # else it was let go of while somebody waited
                await calling.settle_awaited(call, call.end(kept), kept)
            raise
        piece, self._piece = self._piece, None
        call.keep(piece)
        return piece

    def _leave(self, error: BaseException) -> None:
        call = self._call
        if self._source.reader.exception() is None:
            self._source.reader.set_exception(error)
        waiter = call.end(early=True, awaits=self._pulling)
        if call.ticket is not None:
            call.session.gate.drop(call.ticket)
        call.run.turnstile.give_up(call.place)
        if waiter is not None:
            asyncio.ensure_future(waiter).add_done_callback(self._told)
            call.session.passed(call.ask)

    def _told(self, done: asyncio.Future[Any]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._call.told()


class RecordedContent(Content):
    """The body of an answer that is on record."""

    def __init__(self, chunks: AwaitedRecordedChunks, *given: Any, **named: Any) -> None:
        super().__init__(chunks.exchange, *given, **named)
        self._chunks = chunks
        self._count = 0

    async def _next(self) -> bytes | None:
        call = self._call
        if self._cancelled and self._cancelled[0] == self._count:
            del self._cancelled[0]
            await self._loop.create_future()  # until it is cancelled again
        piece = await anext(self._chunks, None)
        if piece is None and flags_of(call.outcome) & record.PARTIAL:  # it had no end
            if len(asyncio.all_tasks()) <= 1:  # nobody else could let go of it
                raise _one_too_many(call)
            await self._left
            raise self._exception or aiohttp.ClientConnectionError("Connection closed")
        self._count += 1
        return piece

    def _leave(self, error: BaseException) -> None:
        del error
        if not self._call.over and self._call.ask.recorded is not None:
            self._call.run.turnstile.leave(self._call.ask.recorded)
        self._call.left()


class _Unlimited:
    """What a reader needs of a connection. How much is read ahead is the business of the reader before it."""

    connected = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - as the library calls it
        pass


def _one_too_many(call: Exchange) -> Halted:
    name = call.call.name
    return call.halted(call.diverged("inserted", f"{name}, closed after its last piece", f"another piece of {name}"))
