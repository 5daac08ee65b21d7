"""What people read of a row: its name, how it stands, what went in and came out. For files that are reviewed.

Part of the formats of exported runs and of trails of JSON files. Made of the row alone, so that whoever reads the file
can make it again, and see that it tells the truth.
"""

from __future__ import annotations

from typing import Any

from everstep.codec import chain, frame, record
from everstep.codec.chain import Entry
from everstep.codec.delta import SET, VERBS
from everstep.codec.readable import Readable, parts
from everstep.model import KINDS, STATUSES, Kind, Status

_META = {
    record.PARENT: "parent", record.LANE: "lane", record.ATTEMPT: "attempt", record.SUPERSTEP: "superstep",
    record.DECISION: "decision", record.USAGE: "usage", record.CHILD: "child", record.METADATA: "metadata",
}  # fmt: skip
_PAYLOAD = {record.INPUTS: "inputs", record.OUTPUT: "output", record.PAUSE: "pause"}


def told(entry: Entry) -> dict[str, Any]:
    """What a row says, as JSON has it and cut where it is long. Raises DamagedError."""
    shown, kind, status = Readable(), KINDS[entry.kind], STATUSES[entry.status]
    fields: dict[str, Any] = {"step": entry.seq, "name": entry.name}
    if kind is not Kind.STEP:
        fields["kind"] = str(kind)
    if status is not Status.COMPLETED:
        fields["status"] = str(status)
    _show(shown, fields, _META, parts(entry.meta) or [])
    if chain.is_erased(entry):
        return {**fields, "erased": True}
    body = frame.unpack(entry.data[chain.KEY_SIZE :])
    payload = parts(body)
    if payload is None:
        return {**fields, "bytes": len(body)}
    _show(shown, fields, _PAYLOAD, payload)
    operations = payload[record.OPS] if len(payload) > record.OPS else None
    if operations not in (None, [[SET, entry.name]]):  # what nearly every step does: its output goes under its name
        fields["changes"] = shown.show(list(map(_operation, operations)) if type(operations) is list else operations)
    error = payload[record.ERROR] if len(payload) > record.ERROR else None
    if error is not None:
        fields["error"] = shown.show(error[:2] if type(error) is list else error)  # its type and what it said
    return fields


def _show(shown: Readable, fields: dict[str, Any], names: dict[int, str], values: list[Any]) -> None:
    for place, name in names.items():
        if place < len(values) and values[place] is not None:
            fields[name] = shown.show(values[place])


def _operation(op: Any) -> Any:
    """A change of the state, with a word for what it does."""
    if type(op) is list and op and type(op[0]) is int:
        return [VERBS.get(op[0], op[0]), *op[1:]]
    return op
