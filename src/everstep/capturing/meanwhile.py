"""What is done for a recording when its program does not wait for it: at any other time the program waits for us.

A request that is not announced need not be encoded before it is sent. A seam that can tells when it was sent whole:
there it is done, while the answer is waited for. And where nobody waits for a row, request and answer are left to the
thread of the store, which sees to those of the last moment together: one by one, between other work, each would find
little of what it needs in the caches of the processor, and leave little of what the program needs.
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
from everstep.run.execution import Execution
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
    if not (call.external or is_compared) and (may_be_late(call, lane.run) or (call.is_late and call.tells_when_sent)):
        return LateInputs(trail.gate, call.name, call.request)
    inputs = Inputs(trail.gate, call.name, call.request)
    inputs.fixed = True  # a seam made it for this call
    return inputs


def listen(exchange: Exchange) -> None:
    """Have what a call asks looked at while its answer is waited for, if it is left for later and its row is not."""
    if isinstance(exchange.ask.inputs, LateInputs) and not may_be_late(exchange.call, exchange.run):
        exchange.call.sent = functools.partial(_sent, exchange)


def _sent(exchange: Exchange) -> None:
    """A call was sent, and nothing is left but to wait for its answer. Raises UnstorableError."""
    exchange.call.sent = None  # they know each other: left so, the garbage collector would have to find every call
    token = CURRENT.set(exchange.ask.lane)  # what is done here is no part of the call: Ctrl-C waits until it is done
    try:
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


def may_be_late(call: Call, run: Execution) -> bool:
    """Whether the row of an outcome can wait: nobody waits for it or is told of it, and nothing is on record."""
    pen = run.pen
    return call.is_late and pen is not None and pen.may_be_late and not run.events and not run.journal.scopes


def put_later(exchange: Exchange, duration: float, *, partial: bool) -> Waiter:
    """Have the outcome of a call recorded when there is time. Its place in the order, and its time, are those of now.

    Under the run's lock. What is given is to be waited for.
    """
    run, ask = exchange.run, exchange.ask
    assert run.pen is not None  # noqa: S101 - it is recorded
    run.lead_in(ask)
    took = micros(duration)
    began = actual.time_ns() // 1000 - took
    seq, waiter = run.pen.later(functools.partial(_put, exchange, duration, began, partial=partial))
    ask.entry = Entry(seq, _STEP, _COMPLETED, ask.name, began, took, b"", b"", b"")  # until there is the whole of it
    ask.lane.seen = seq
    return waiter


def _put(exchange: Exchange, duration: float, began: int, *, partial: bool) -> Waiter:
    stored = exchange.packed()
    waiter: Waiter = exchange.put(stored, duration, None, partial=partial, late=True, started=from_micros(began))
    return waiter
