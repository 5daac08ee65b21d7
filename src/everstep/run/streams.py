"""Steps that give their outcome chunk by chunk.

A stream's beginning is written before its first chunk, because its consumer may take other steps in the same lane
between two chunks. Its outcome is the list of its chunks, also when it was closed early or failed half-way. One that
was cut off has none: its code is gone through again, over the steps inside that are on record.
"""

from __future__ import annotations

import contextvars
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from everstep.codec import record
from everstep.errors import DivergenceError, EverstepError, JournalError, RunStoppedError
from everstep.journal.track import CUT, flags_of, metadata_of
from everstep.model import Kind
from everstep.run import flow
from everstep.run.arguments import IMMUTABLE
from everstep.run.asked import Ask
from everstep.run.driving import drive, drive_awaited, known_loop
from everstep.run.lanes import CURRENT, Lane, Scope, here
from everstep.run.outcomes import is_outcome
from everstep.run.restoring import check_form, restored
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.run.steps import Step

_CLOSED = "closed"  # in the metadata of a stream that was cancelled: while its consumer closed it


class _Open:
    """A stream that is read: what its two drivers share."""

    def __init__(self, lane: Lane, step: Step[..., Any], args: Any, kwargs: Any, loop: Any) -> None:
        self.run, self.step, self.loop = lane.run, step, loop
        self.ask: Ask = self.run.ask(lane, step.name, flow.inputs_of(self.run, step, args, kwargs))
        check_form(self.run, self.ask, is_stream=True)
        self.chunks: list[Any] = []
        self.inner: Lane | None = None
        self.closed = False  # its consumer closes it
        self.because: BaseException | None = None  # what the code was handling when it let go of it
        if self.ask.recorded is not None and self.run.flow is not None:  # a replay does not go into it
            self.run.turnstile.skip(self.ask.recorded)

    # On record.

    @property
    def outcome(self) -> Any:
        """The row with its outcome, if there is one."""
        return None if self.ask.recorded is None else self.ask.recorded.outcome

    @property
    def cancelled(self) -> int | None:
        """The row that says that it was cancelled."""
        return None if self.ask.recorded is None else self.ask.recorded.cancelled

    def recorded(self) -> list[Any]:
        """The chunks on record."""
        entry = self.outcome if self.cancelled is None else self.run.entry(self.cancelled)
        payload = self.run.payload(entry)
        return (payload[record.OUTPUT] if len(payload) > record.OUTPUT else None) or []

    def served(self) -> None:
        """All chunks on record were given: what follows them. Raises what the stream raised."""
        _, error = restored(self.run, self.ask)
        if error is not None:
            raise error
        if flags_of(self.outcome) & record.PARTIAL:
            lane, name = self.ask.lane, self.ask.name
            raise self.run.diverged(
                DivergenceError(
                    "inserted", lane=lane.path, position=self.ask.position, seq=self.outcome.seq,
                    recorded=f"{name}, closed after its last chunk", requested=f"another chunk of {name}",
                )
            )  # fmt: skip

    async def served_awaited(self) -> None:
        """`served` for async generators, in its turn; or until it is cancelled again."""
        if self.cancelled is not None:
            await asyncio.get_running_loop().create_future()
        try:
            await self.run.turnstile.deliver(self.outcome.seq)
        except asyncio.CancelledError as error:  # it was not when this was recorded
            self._undelivered(error)
            raise
        self.served()

    def _undelivered(self, error: BaseException) -> None:
        ask, known = self.ask, self.ask.recorded
        assert known is not None  # noqa: S101 - it has an outcome
        ask.scope = Scope(ask.lane, ask.name, ask.index, known.attempt + 1)
        ask.scope.id, self.chunks = known.id, self.recorded()
        self.broken_off(error)

    async def left_awaited(self) -> None:
        """`left` for async generators; or until that is cancelled again, if it was then, and is not already."""
        task = asyncio.current_task()
        if self.cancelled is None:
            self.left()
        elif self.run.stopping is not None or task is None or task.cancelling():
            return
        elif await asyncio.to_thread(self._was_closed):
            await asyncio.get_running_loop().create_future()

    def _was_closed(self) -> bool:
        return _CLOSED in metadata_of(self.run.entry(self.cancelled or 0))

    def let_go(self, close: Callable[[], None]) -> None:
        """Close it with the next step, or at the end; at once where no step is taken any more."""
        if self.run.stopping is None:
            self.run.closing.add(self.ask.lane, close)
        else:
            close()

    def left(self) -> None:
        """The consumer closed what is on record."""
        if self.run.stopping is None:
            restored(self.run, self.ask)

    # Live.

    def begin(self) -> Lane:
        """The lane of its body, its beginning handed to the store."""
        known = self.ask.recorded
        inner = self.inner = self.run.enter(self.ask, 1 if known is None else known.attempt + 1)
        self.ask.lane.busy = None  # the consumer's code goes on between the chunks
        self.run.at_work.discard(inner.scope)
        inner.scope.waits = True  # for the consumer, and has no outcome before that has enough
        if self.run.pen is not None and inner.scope.start:
            with self.run.lock:
                self.run.begun(inner.scope)
                self.run.pen.send(self.loop, unawaited=True)
        return inner

    def keep(self, chunk: Any) -> None:
        """Remember a chunk as it is now."""
        self.chunks.append(chunk if type(chunk) in IMMUTABLE else copy.deepcopy(chunk))

    def check_sent(self, value: Any) -> None:
        """Raise JournalError for what a consumer sends: its generator is not gone through again to take it."""
        if value is not None:
            raise JournalError(
                f"{value!r:.60} was sent to step {self.ask.name!r}, of which only what it yields is recorded. Give it "
                "what it needs when it is called; or make steps of what the generator calls, and none of the generator."
            )

    def end(self, error: BaseException | None, *, early: bool = False) -> Any:
        """Record the outcome. What to wait for; None where there is nothing to record."""
        run, ask, inner = self.run, self.ask, self.inner
        assert inner is not None  # noqa: S101 - what has not begun does not end
        duration = run.leave(ask)
        if early and (run.stopping is not None or run.fails_with(self.because)):
            return None  # it was not the code that had enough of it
        if error is not None and not is_outcome(run, error, inner):
            if not isinstance(error, Exception):
                self.broken_off(error)
            return None
        self._let_go()
        if error is not None:
            return flow.failed(run, ask, inner, error, duration, self.loop, chunks=self.chunks)
        return flow.completed(
            run, ask, self.step, inner, self.chunks, duration, self.loop,
            flags=record.STREAM | (record.PARTIAL if early else 0),
        )  # fmt: skip

    def broken_off(self, error: BaseException) -> None:
        """Note that the code did not get its end."""
        run = self.run
        if isinstance(error, asyncio.CancelledError) and run.stopping is None and not run.is_dropped():
            with suppress(EverstepError):  # what is wrong is told by the next row
                self._let_go()  # only where the code goes on: else it is begun again, and may come as far
        about = {_CLOSED: True} if self.closed else None
        flow.broken_off(run, self.ask, error, self.loop, output=self.chunks, metadata=about)

    def _let_go(self) -> None:
        """Take back what followed the chunks of an earlier attempt, as far as it did not follow those of this one."""
        lane, track, pen = self.ask.lane, self.ask.lane.track, self.run.pen
        rest = [] if track is None else track.steps[lane.position :]
        if track is not None and pen is not None and rest and rest[0].loose:
            with self.run.lock:
                pen.draft(
                    "lane cut", kind=Kind.LANE_END, parent=lane.scope.id, lane=lane.path or None,
                    metadata={CUT: lane.position},
                )  # fmt: skip
                self.run.journal.cut(lane.scope.id, track, lane.position)

    def told(self, error: BaseException | None) -> None:
        """Tell of the outcome, now that it is durable."""
        if self.run.events:
            self.run.tell_outcome(self.ask, error)


@contextmanager
def _inside(lane: Lane) -> Iterator[None]:
    """Round each chunk, never across a yield: the consumer has its own lane."""
    token = CURRENT.set(lane)
    lane.run.at_work.add(lane.scope)
    try:
        yield
    finally:
        lane.run.at_work.discard(lane.scope)
        with suppress(ValueError):  # closed from elsewhere, where another context is in use
            CURRENT.reset(token)


def stream(lane: Lane, step: Step[..., Any], args: Any, kwargs: Any) -> Iterator[Any]:
    """The chunks of a step, recorded or live."""
    opened = _Open(here() or lane, step, args, kwargs, None)
    if opened.outcome is not None:
        try:
            for chunk in opened.recorded():
                opened.check_sent((yield chunk))
        except GeneratorExit:
            opened.let_go(opened.left)
            raise
        opened.served()
        return
    drive(flow.in_place(opened.run, opened.ask), lane, _nothing)
    inner = opened.begin()
    source: Any = step.function(*args, **kwargs)
    try:
        while True:
            with _inside(inner):
                chunk = next(source, _END)
            if chunk is _END:
                break
            opened.keep(chunk)
            opened.check_sent((yield chunk))
    except GeneratorExit as left:
        opened.because = left.__context__
        opened.let_go(partial(_close, opened, inner, source))
        raise
    except BaseException as error:  # a cancellation, and an exit, are noted too
        _settle(opened, opened.end(error), error)
        raise
    _settle(opened, opened.end(None), None)


_END: Any = object()


def _nothing() -> Any:
    raise AssertionError("nothing is called before a stream begins")


def _close(opened: _Open, inner: Lane, source: Any) -> None:
    error = None
    try:
        # In a copy of the context: if this is the garbage collector, it may be in the middle of setting this variable,
        # and to set it there too corrupts the context (in Python 3.11).
        contextvars.copy_context().run(_close_inside, inner, source)
    except Exception as raised:  # noqa: BLE001 - nobody is there to get it: it is recorded
        error = raised
    _settle(opened, opened.end(error, early=True), error)


def _close_inside(lane: Lane, source: Any) -> None:
    CURRENT.set(lane)
    source.close()


def _settle(opened: _Open, waiter: Any, error: BaseException | None) -> None:
    if waiter is not None:
        waiter()
        opened.told(error)


async def stream_awaited(lane: Lane, step: Step[..., Any], args: Any, kwargs: Any) -> AsyncIterator[Any]:
    """`stream` for async generators."""
    opened = _Open(here() or lane, step, args, kwargs, known_loop(step.name))
    if opened.cancelled is not None or opened.outcome is not None:
        chunks = opened.recorded() if opened.cancelled is None else await asyncio.to_thread(opened.recorded)
        try:
            for chunk in chunks:
                opened.check_sent((yield chunk))
        except GeneratorExit:
            await opened.left_awaited()
            raise
        await opened.served_awaited()
        return
    await drive_awaited(flow.in_place(opened.run, opened.ask), lane, _nothing)
    inner = opened.begin()
    source: Any = step.function(*args, **kwargs)
    try:
        while True:
            with _inside(inner):
                chunk = await anext(source, _END)
            if chunk is _END:
                break
            opened.keep(chunk)
            opened.check_sent((yield chunk))
    except GeneratorExit:
        await _close_awaited(opened, inner, source)
        raise
    except BaseException as error:  # a cancellation, and an exit, are noted too
        await _settle_awaited(opened, opened.end(error), error)
        raise
    await _settle_awaited(opened, opened.end(None), None)


async def _close_awaited(opened: _Open, inner: Lane, source: Any) -> None:
    opened.closed = True
    try:
        with _inside(inner), suppress(RunStoppedError):
            await source.aclose()
    except asyncio.CancelledError as error:
        opened.end(error, early=True)
        raise
    await _settle_awaited(opened, opened.end(None, early=True), None)


async def _settle_awaited(opened: _Open, waiter: Any, error: BaseException | None) -> None:
    if waiter is None:
        return
    try:
        # With no turn of the loop more than a step has, as a shield would: who is recorded first leaves first.
        await (waiter if isinstance(waiter, asyncio.Future) else asyncio.to_thread(waiter))
        opened.told(error)
        await opened.run.turnstile.deliver(None)
    except asyncio.CancelledError as cancelled:  # it has its outcome, and the code does not get it
        opened.broken_off(cancelled)
        raise
