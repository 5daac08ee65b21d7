"""What a row carries, to bytes: encoded, and without its secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ormsgpack import Fragment

from everstep.codec import record
from everstep.codec.delta import DELETE, SET
from everstep.codec.encoding import pack
from everstep.codec.record import trimmed
from everstep.codec.values import Kept, plain, view
from everstep.errors import UnstorableError
from everstep.policy.redaction import Gate
from everstep.trail.refusal import META, PAYLOAD, named
from everstep.trail.shadow import Taken

_NIL = b"\xc0"  # nothing, in msgpack
_UNCHANGED = _NIL, None
_LISTS = b"\x90", b"\x91", b"\x92", b"\x93"  # how a list begins, by how many it holds


def gated_row(gate: Gate, meta: list[Any], payload: list[Any], inputs: bytes | None) -> tuple[bytes, bytes, None]:
    """Meta and payload. `inputs` are those that passed the gate already. Raises UnstorableError."""
    ops = payload[record.OPS] or []
    try:
        light = gate.gate(trimmed(meta))
    except UnstorableError as refused:
        raise named(refused, META) from None
    try:
        body = gate.gate(trimmed([*payload[: record.OPS], opened(ops) or None, *payload[record.ERROR :]]))
    except UnstorableError as refused:
        raise named(refused, PAYLOAD, ops) from None
    return light, body if inputs is None else _with_inputs(inputs, body), None


def plain_row(
    gate: Gate, meta: list[Any], payload: list[Any], inputs: bytes | None, *, own_meta: bool
) -> tuple[bytes, bytes, Taken | None] | None:
    """What `gated_row` gives, if all of it is plain data without secrets, as most is: each value is encoded once.

    With it what the row does to the state, if that is to set names, or to add what a step gave to a list. A meta of our
    `own` is not searched: there is nothing in it but numbers and a digest, whose bytes look like the signs of secrets.
    """
    if len(payload) > record.ERROR:  # a failure or a question: few have one
        return None
    names, meta = gate.names, trimmed(meta)
    light, said = pack(meta) if own_meta else plain(meta, names), plain(payload[record.OUTPUT], names)
    given = plain(payload[record.INPUTS], names) if inputs is None else inputs
    if light is None or given is None or said is None:
        return None
    found = [said]
    if not own_meta:
        found.append(light)
    if inputs is None:
        found.append(given)
    changes = _plain_changes(payload[record.OPS], names, found) if payload[record.OPS] else _UNCHANGED
    if changes is None or gate.is_suspicious(b"".join(found)):
        return None
    kept, taken = changes
    parts = [given, said, kept]
    while parts and parts[-1] == _NIL:  # as `trimmed` does
        parts.pop()
    return light, _LISTS[len(parts)] + b"".join(parts), None if taken is None else (taken, said)


def _plain_changes(
    ops: Iterable[Any], names: Mapping[str, bool], found: list[bytes]
) -> tuple[bytes, list[Any] | None] | None:
    """Operations, encoded, and themselves, if a tree can take them in so; `found` gets the values, to be searched."""
    kept: list[Any] = []
    is_taken = True
    for op in ops:
        at_top = type(op[1]) is str
        if at_top and len(op) == 2:
            kept.append(op)
            if op[0] == DELETE:  # else it is about the output
                is_taken = False
        elif at_top and op[0] == SET:
            value = op[2]
            data = value.data if type(value) is Kept else plain(value, names)
            if data is None:
                return None
            found.append(data)
            kept.append([SET, op[1], Fragment(data)])
        else:
            data, is_taken = plain(op, names), False
            if data is None:
                return None
            found.append(data)
            kept.append(Fragment(data))
    try:
        return pack(kept), kept if is_taken else None
    except TypeError:  # a name that has no stored form
        return None


def opened(ops: list[Any]) -> list[Any]:
    """Operations with their values as they were given."""
    return [[*op[:-1], view(op[-1].data)] if type(op[-1]) is Kept else op for op in ops]


def _with_inputs(inputs: bytes, body: bytes) -> bytes:
    """A payload with its inputs, encoded already, in the place that was left empty for them (a nil, or nothing)."""
    return b"".join((body[:1], inputs, body[2:])) if len(body) > 1 else b"\x91" + inputs
