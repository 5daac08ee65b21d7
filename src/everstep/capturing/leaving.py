"""Answers that the code has not ended: it goes on, or is over, and never read them to their ends or closed them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everstep.capturing.exchange import Exchange, wait
from everstep.capturing.halting import Halted
from everstep.errors import DivergenceError, EverstepError
from everstep.model import Status
from everstep.run import flow
from everstep.run.lanes import Lane

if TYPE_CHECKING:
    import asyncio


def left_whole(lane: Lane, loop: asyncio.AbstractEventLoop | None) -> list[Exchange]:
    """The answers that the code of a lane has had whole and neither closed nor read to their ends, when it goes on.

    In the order of their calls, and only those that are waited for in the same way: others end when the code ends them.
    """
    session = lane.run.captured
    if not session.open_calls and not session.given:
        return []
    there = (each for each in (*session.open_calls, *session.given) if each.ask.lane is lane and each.loop is loop)
    return sorted((each for each in there if each.is_whole), key=lambda each: each.ask.position)


def end_open_calls(session: Any, *, completes: bool) -> bool:
    """Record what is left of answers that the code neither read to the end nor closed; on record they were had.

    A call that was not answered at all (of a thread or a task that nobody waits for) has no outcome. Of one that is
    awaited a run that completes says that nobody got one: a replay waits for none. What comes later is the code's.
    False if the run has not ended with its code: a process that nobody waited for waits for an answer.
    """
    may_end = True
    for exchange in list(session.given):
        exchange.left()
    for exchange in list(session.open_calls):
        loop, exchange.loop = exchange.loop, None
        exchange.outlived = True
        if exchange.head is None:
            if completes and loop is not None:
                flow.cancelled(session.run, exchange.ask, None)
            exchange.over = True
            session.open_calls.discard(exchange)
            continue
        try:
            with suppress(EverstepError):
                wait(exchange.end(early=True))
        except Halted:
            may_end = False
    return may_end


def end_block(session: Any, error: BaseException | None) -> None:
    """End the run of a program. What a block fails with that had not failed goes before what differs by that."""
    parted: DivergenceError | None = None
    is_own = isinstance(error, Exception) and not isinstance(error, EverstepError) and session.run.divergence is None
    try:
        session.end(error)
    except DivergenceError as found:
        if session.is_whole or not is_own or session.run.trail.run(session.id).status is Status.FAILED:
            raise
        parted = found
    if parted is not None and error is not None:
        error.add_note(f"everstep: {parted}")
        raise error
