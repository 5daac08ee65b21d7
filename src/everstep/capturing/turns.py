"""When the code gets an answer, or a part of one: live as it comes, on record when its turn has come.

Each for threads, and for what is awaited: there the turnstile decides among tasks first, and the gate among threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.capturing.exchange import Exchange
    from everstep.capturing.threads import Gate, Ticket


def part_came(exchange: Exchange) -> None:
    """Let a part that was just received wait for its turn, and note when it was there. Alone it need not."""
    if exchange.outlived:
        return
    run, gate, ticket, turn = exchange.run, exchange.session.gate, None, 0.0
    together = len(exchange.session.open_calls) > 1 or gate.is_waited_at()  # there may be an end that is being written
    if (together or gate.shared) and run.pen is not None:  # the last call may follow on others that are over
        with run.lock:
            turn = run.turnstile.mark(run.pen.seq)
            ticket = gate.queue(turn) if together else None
        gate.pass_(ticket)
    exchange.turns.append(turn)


async def part_came_awaited(exchange: Exchange) -> None:
    """`part_came`, for an answer that is awaited."""
    if exchange.outlived:
        return
    run, gate = exchange.run, exchange.session.gate
    if run.pen is None or not run.turnstile.shared:  # as above
        exchange.turns.append(0)
        return
    with run.lock:
        turn = run.turnstile.mark(run.pen.seq)
        ticket = gate.queue(turn, exchange.loop)
        place = exchange.queued = run.turnstile.reserve()
    try:
        await run.turnstile.deliver(None, place)
        await gate.pass_awaited(ticket)
    finally:
        gate.drop(ticket)
    exchange.turns.append(turn)


def part_due(exchange: Exchange, part: int) -> None:
    """Wait until a part of an answer on record is due: 0 is its head."""
    turn = _turn(exchange, part)
    if turn:
        exchange.session.gate.pass_recorded(turn)


async def part_due_awaited(exchange: Exchange, part: int) -> None:
    """`part_due`, for an answer that is awaited."""
    turn = _turn(exchange, part)
    if turn:
        await exchange.run.turnstile.deliver(turn)
        await exchange.session.gate.pass_recorded_awaited(turn)


def outcome_came(exchange: Exchange) -> tuple[Ticket | None, asyncio.Future[None] | None]:
    """Take the places of an outcome that was just recorded, under the run's lock: at the gate, and among tasks."""
    entry, gate = exchange.ask.entry, exchange.session.gate
    ticket = None if entry is None else gate.queue(entry.seq, exchange.loop)
    return ticket, None if exchange.loop is None else exchange.run.turnstile.reserve()


def outcome_due(exchange: Exchange) -> None:
    """Wait until an outcome on record is due, where that was not awaited already."""
    gate: Gate = exchange.session.gate
    if exchange.loop is None:
        gate.pass_recorded(exchange.outcome.seq)
    else:
        gate.went(exchange.outcome.seq)


async def outcome_due_awaited(exchange: Exchange) -> None:
    """The same, awaited."""
    await exchange.run.turnstile.deliver(exchange.outcome.seq)
    await exchange.session.gate.pass_recorded_awaited(exchange.outcome.seq)


def _turn(exchange: Exchange, part: int) -> float:
    recorded = exchange.ask.recorded
    if recorded is None or not recorded.turns:
        return 0
    return recorded.turns[part] if part < len(recorded.turns) else 0
