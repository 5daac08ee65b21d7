"""Steps that give their outcome chunk by chunk.

A stream's beginning is written before its first chunk, because its consumer may take other steps in the same lane
between two chunks. Its outcome is the list of its chunks, also when it was closed early or failed half-way.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from everstep.codec import record
from everstep.model import STATUSES, Status
from everstep.run import faults, flow
from everstep.run.driving import known_loop
from everstep.run.execution import Ask
from everstep.run.lanes import CURRENT, Lane

if TYPE_CHECKING:
    from everstep.run.steps import Step

_IMMUTABLE = (str, int, float, bool, bytes, type(None))


class _Open:
    """A stream at work: what its two drivers share."""

    def __init__(self, lane: Lane, step: Step[..., Any], args: Any, kwargs: Any, loop: Any) -> None:
        self.run, self.step, self.loop = lane.run, step, loop
        self.ask: Ask = self.run.ask(lane, step.name, flow.inputs_of(self.run, step, args, kwargs))
        self.chunks: list[Any] = []
        self.inner: Lane | None = None

    def recorded(self) -> tuple[list[Any], BaseException | None] | None:
        """The chunks that are on record, and the exception that followed them; None if it has no outcome yet."""
        known = self.ask.recorded
        if known is None or known.outcome is None:
            return None
        payload = self.run.payload(known.outcome)
        chunks = (payload[record.OUTPUT] if len(payload) > record.OUTPUT else None) or []
        error = None
        if STATUSES[known.outcome.status] is Status.FAILED:
            error = faults.raised_again(payload[record.ERROR], self.run.reach)
            faults.mark(error, self.ask.lane.scope, known.outcome.seq)
        self.run.note(self.ask, known.id or known.outcome.seq, known.outcome.duration / 1000, Status.RESTORED, error)
        return chunks, error

    def begin(self) -> Lane:
        """The lane of its body, its beginning handed to the store."""
        known = self.ask.recorded
        if known is not None:
            known.id = None  # cut off in the middle: its chunks are gone, it begins again
        inner = self.inner = self.run.enter(self.ask, 1 if known is None else known.attempt + 1)
        self.ask.lane.busy = None  # the consumer's code goes on between the chunks
        inner.scope.waits = True  # until the consumer wants more
        if self.run.pen is not None:
            with self.run.lock:
                self.run.begun(inner.scope)
                self.run.pen.send(self.loop)
        return inner

    def keep(self, chunk: Any) -> None:
        """Remember a chunk as it is now."""
        self.chunks.append(chunk if isinstance(chunk, _IMMUTABLE) else copy.deepcopy(chunk))

    def end(self, error: BaseException | None, *, early: bool = False) -> Any:
        """Record the outcome. What to wait for; None where there is nothing to record."""
        inner = self.inner
        if inner is None:
            return None
        duration = self.run.leave(self.ask)
        if early and self.run.stopping is not None:
            return None  # it was not the code that had enough of it
        if error is None:
            return flow.completed(self.run, self.ask, self.step, inner, self.chunks, duration, self.loop, partial=early)
        if not flow.is_outcome(self.run, error, inner):
            if not isinstance(error, Exception):
                flow.broken_off(self.run, self.ask, error, self.loop)
            return None
        return flow.failed(self.run, self.ask, inner, error, duration, self.loop, chunks=self.chunks)


def stream(lane: Lane, step: Step[..., Any], args: Any, kwargs: Any) -> Iterator[Any]:
    """The chunks of a step, recorded or live."""
    opened = _Open(lane, step, args, kwargs, None)
    recorded = opened.recorded()
    if recorded is not None:
        chunks, error = recorded
        yield from chunks
        if error is not None:
            raise error
        return
    inner = opened.begin()
    source: Any = step.function(*args, **kwargs)
    try:
        while True:
            token = CURRENT.set(inner)  # round each chunk, never across a yield: the consumer has its own lane
            try:
                chunk = next(source)
            finally:
                CURRENT.reset(token)
            opened.keep(chunk)
            yield chunk
    except StopIteration:
        _settle(opened.end(None))
    except GeneratorExit:
        source.close()
        _settle(opened.end(None, early=True))
        raise
    except BaseException as error:
        _settle(opened.end(error))
        raise


def _settle(waiter: Any) -> None:
    if waiter is not None:
        waiter()


async def stream_awaited(lane: Lane, step: Step[..., Any], args: Any, kwargs: Any) -> AsyncIterator[Any]:
    """`stream` for async generators."""
    opened = _Open(lane, step, args, kwargs, known_loop(step.name))
    if opened.ask.recorded is not None and opened.ask.recorded.cancelled is not None:
        await asyncio.get_running_loop().create_future()  # until it is cancelled again
    recorded = opened.recorded()
    if recorded is not None:
        await lane.run.turnstile.deliver(opened.ask.recorded.outcome.seq)  # type: ignore[union-attr] # it has one
        chunks, error = recorded
        for chunk in chunks:
            yield chunk
        if error is not None:
            raise error
        return
    inner = opened.begin()
    source: Any = step.function(*args, **kwargs)
    try:
        while True:
            token = CURRENT.set(inner)
            try:
                chunk = await anext(source)
            finally:
                CURRENT.reset(token)
            opened.keep(chunk)
            yield chunk
    except StopAsyncIteration:
        await _settle_awaited(opened, opened.end(None))
    except GeneratorExit:  # nothing can be awaited here: it is written soon
        opened.end(None, early=True)
        raise
    except BaseException as error:
        await _settle_awaited(opened, opened.end(error))
        raise


async def _settle_awaited(opened: _Open, waiter: Any) -> None:
    if waiter is not None:
        await asyncio.shield(waiter)
    await opened.run.turnstile.deliver(None)
