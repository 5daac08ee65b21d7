"""What is done for a recording while its program waits for somebody else: at any other time the program waits for us.

A request that is not announced need not be encoded before it is sent, and what nobody waits for need not be drafted
before the program goes on. A seam that can tell says when a request was sent whole; there both are done. Where none
says so, what was asked is looked at when its answer ends, and a row is drafted before the next one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from everstep import actual
from everstep.capturing.calls import Call
from everstep.codec.chain import Entry
from everstep.errors import UnstorableError
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status, from_micros
from everstep.policy.redaction import Gate
from everstep.run.arguments import Inputs
from everstep.run.lanes import CURRENT, Lane
from everstep.run.pen import Waiter
from everstep.trail.detail import micros

if TYPE_CHECKING:
    from everstep.capturing.exchange import Exchange

_STEP, _COMPLETED = KIND_NUMBER[Kind.STEP], STATUS_NUMBER[Status.COMPLETED]


class LateInputs(Inputs):
    """Inputs that are taken when there is time, or when somebody first asks for them."""

    __slots__ = ("_gate", "_name")

    def __init__(self, gate: Gate, name: str, values: dict[str, Any]) -> None:
        self._gate: Gate | None = gate
        self._name, self.values, self.fixed = name, values, True

    def take(self) -> None:
        """See to it that they are there. Raises UnstorableError."""
        if self._gate is not None:
            super().__init__(self._gate, self._name, self.values)
            self._gate, self.fixed = None, True

    def __getattr__(self, name: str) -> Any:  # asked only for what is not there yet
        self.take()
        return object.__getattribute__(self, name)


def inputs_of(call: Call, lane: Lane) -> Inputs | None:
    """What a call asks, as it is stored and compared; None where nothing is. Raises UnstorableError, here or later."""
    trail = lane.run.trail
    if trail is None:
        return None
    is_compared = bool(lane.run.journal.scopes) or lane.unordered
    if call.is_late and not call.external and not is_compared:
        return LateInputs(trail.gate, call.name, call.request)
    inputs = Inputs(trail.gate, call.name, call.request)
    inputs.fixed = True  # a seam made it for this call
    return inputs


def sent(exchange: Exchange) -> None:
    """A call was sent, and nothing is left but to wait for its answer. Raises UnstorableError."""
    exchange.call.sent = None  # they know each other: left so, the garbage collector would have to find every call
    token = CURRENT.set(exchange.ask.lane)  # what is done here is no part of the call: Ctrl-C waits until it is done
    try:
        if exchange.run.pen is not None:
            exchange.run.pen.catch_up()
        take_inputs(exchange)
    finally:
        CURRENT.reset(token)


def take_inputs(exchange: Exchange) -> None:
    """Look at what was asked, if that was not done before. What cannot be stored was no step of its lane."""
    ask = exchange.ask
    if isinstance(ask.inputs, LateInputs):
        try:
            ask.inputs.take()
        except UnstorableError:
            ask.lane.take_back(ask.name, ask.position)
            raise


def may_be_late(exchange: Exchange) -> bool:
    """Whether the row of an outcome can wait: nobody waits for it or is told of it, and nothing is on record."""
    run, pen = exchange.run, exchange.run.pen
    return exchange.call.is_late and pen is not None and pen.may_be_late and not run.events and not run.journal.scopes


def put_later(exchange: Exchange, duration: float, *, partial: bool) -> Waiter:
    """Have the outcome of a call recorded when there is time. Its place in the order, and its time, are those of now.

    Under the run's lock. What is given is to be waited for.
    """
    run, ask = exchange.run, exchange.ask
    assert run.pen is not None  # noqa: S101 - it is recorded
    run.lead_in(ask)
    took = micros(duration)
    began = actual.time_ns() // 1000 - took
    seq = run.pen.scribe.claim.seq + 1
    waiter = run.pen.later(functools.partial(_put, exchange, duration, began, partial=partial))
    ask.entry = Entry(seq, _STEP, _COMPLETED, ask.name, began, took, b"", b"", b"")  # until there is the whole of it
    ask.lane.seen = seq
    return waiter


def _put(exchange: Exchange, duration: float, began: int, *, partial: bool) -> Waiter:
    stored = exchange.packed()
    waiter: Waiter = exchange.put(stored, duration, None, partial=partial, late=True, started=from_micros(began))
    return waiter
