"""Calls that ask for what the record has, byte for byte: that need be neither searched for secrets nor digested.

Equal bytes have equal digests, so nothing is decided otherwise than by comparing those. What is not plainly the same is
compared as ever: it may hold secrets, of which the record has placeholders.
"""

from __future__ import annotations

from typing import Any

from everstep.capturing.calls import Call
from everstep.codec import chain, frame
from everstep.codec.encoding import pack
from everstep.errors import EverstepError
from everstep.policy.redaction import Gate
from everstep.run.arguments import Inputs
from everstep.run.lanes import Lane

_OTHER = None, None
_LIST_HEAD = 1  # bytes before the first item of a list as short as what a row carries


class KnownInputs(Inputs):
    """Inputs whose digest is known. The rest is made when it is asked for, as it is not for a call that is served."""

    __slots__ = ("_gate", "_name")

    def __init__(self, gate: Gate, name: str, values: dict[str, Any], digest: bytes) -> None:
        self._gate, self._name = gate, name
        self.values, self.digest, self.fixed = values, digest, True

    def __getattr__(self, name: str) -> Any:  # asked only for what is not there yet
        super().__init__(self._gate, self._name, self.values)
        self.fixed = True
        return object.__getattribute__(self, name)


def known_inputs(lane: Lane, call: Call) -> tuple[Inputs | None, bytes | None]:
    """What a call asks, if its lane has that next, and the body of the row that tells it, with the outcome."""
    track, position, trail = lane.track, lane.position, lane.run.trail
    if track is None or trail is None or position >= len(track.steps) or lane.unordered:
        return _OTHER
    step = track.steps[position]
    entry = step.outcome
    # One whose beginning was written tells there what it asks.
    if entry is None or step.cancelled is not None or step.id is not None or step.name != call.name:
        return _OTHER
    try:
        body = frame.unpack(entry.data[chain.KEY_SIZE :])
        if step.digest is None or not body.startswith(pack(call.request), _LIST_HEAD):
            return _OTHER
    except (EverstepError, TypeError):  # a row that was erased, or a request that is not plain data
        return _OTHER
    return KnownInputs(trail.gate, call.name, call.request, step.digest), body
