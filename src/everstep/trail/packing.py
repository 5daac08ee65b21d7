"""What a row carries, to bytes: encoded, and without its secrets."""

from __future__ import annotations

from typing import Any

from ormsgpack import Fragment

from everstep.codec import record
from everstep.codec.delta import SET
from everstep.codec.encoding import pack
from everstep.codec.record import trimmed
from everstep.codec.values import Kept, plain, view
from everstep.errors import UnstorableError
from everstep.policy.redaction import Gate
from everstep.trail.refusal import META, PAYLOAD, named
from everstep.trail.shadow import Taken

_OF_THREE = b"\x93"  # how msgpack begins a list of three


def gated_row(gate: Gate, meta: list[Any], payload: list[Any], inputs: bytes | None) -> tuple[bytes, bytes, None]:
    """Meta and payload. `inputs` are those that passed the gate already. Raises UnstorableError."""
    ops = payload[record.OPS] or []
    try:
        light = gate.gate(meta)
    except UnstorableError as refused:
        raise named(refused, META) from None
    payload[record.OPS] = opened(ops) or None
    try:
        body = gate.gate(trimmed(payload))
    except UnstorableError as refused:
        raise named(refused, PAYLOAD, ops) from None
    return light, body if inputs is None else _with_inputs(inputs, body), None


def plain_row(
    gate: Gate, meta: list[Any], payload: list[Any], inputs: bytes | None, *, own_meta: bool
) -> tuple[bytes, bytes, Taken | None] | None:
    """What `gated_row` gives, if all of it is plain data without secrets, as most is: each value is encoded once.

    With it what the row does to the state, if that is to set names, or to add what a step gave to a list. In a meta of
    our `own` there is nothing to search.
    """
    names, ops, others = gate.names, payload[record.OPS], payload[record.ERROR :]
    light, said = pack(meta) if own_meta else plain(meta, names), plain(payload[record.OUTPUT], names)
    if ops is None or light is None or said is None or others.count(None) < len(others):
        return None
    found = said if own_meta else light + said
    if inputs is None:
        inputs = plain(payload[record.INPUTS], names)
        if inputs is None:
            return None
        found += inputs
    kept: list[Any] = []
    is_taken = True
    for op in ops:
        if len(op) == 2:  # what it is about is its name, and the output
            kept.append(op)
            continue
        is_set, value = op[0] == SET and type(op[1]) is str, op[2]
        data = value.data if type(value) is Kept else plain(value if is_set else op, names)
        if data is None:
            return None
        found += data
        is_taken = is_taken and is_set
        kept.append([SET, op[1], Fragment(data)] if is_set else Fragment(data))
    if gate.is_suspicious(found):
        return None
    return light, b"".join((_OF_THREE, inputs, said, pack(kept))), (kept, said) if is_taken else None


def opened(ops: list[Any]) -> list[Any]:
    """Operations with their values as they were given."""
    return [[*op[:-1], view(op[-1].data)] if type(op[-1]) is Kept else op for op in ops]


def _with_inputs(inputs: bytes, body: bytes) -> bytes:
    """A payload with its inputs, encoded already, in the place that was left empty for them (a nil, or nothing)."""
    return b"".join((body[:1], inputs, body[2:])) if len(body) > 1 else b"\x91" + inputs
