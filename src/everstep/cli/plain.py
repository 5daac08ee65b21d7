"""What is printed with --json: plain data with stable names. A change of meaning raises VERSION."""

from __future__ import annotations

import base64
import json
import math
from collections import deque
from datetime import UTC, datetime
from typing import Any

from everstep.cli.text import path_text
from everstep.codec.delta import APPEND, SET, SPLICE, VERBS
from everstep.codec.encoding import Generic
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, ErasedError
from everstep.model import Checkpoint, Run, Status, StepError
from everstep.trail.compare import MISSING, Change
from everstep.trail.owner import is_copy

VERSION = 1
TYPE, VALUE = "$type", "value"
_PUTS = frozenset({SET, APPEND, SPLICE})
_EXACT = 1 << 53  # beyond it, other readers of JSON round


def plain(value: Any) -> Any:
    """A value as JSON has it. What JSON does not know is {"$type": what it is, "value": its content}."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return _dict(value)
    return value if value is None or (type(value) in {bool, int, float} and _fits(value)) else _typed(value)


def _fits(number: float) -> bool:
    """Whether every reader of JSON gets the same number."""
    return -_EXACT <= number <= _EXACT if type(number) is int else math.isfinite(number)


def _dict(value: dict[Any, Any]) -> Any:
    if all(isinstance(key, str) for key in value) and TYPE not in value:
        return {str.__str__(key): plain(item) for key, item in value.items()}
    return {TYPE: "dict", VALUE: [[plain(key), plain(item)] for key, item in value.items()]}


def _typed(value: Any) -> dict[str, Any]:
    if isinstance(value, Generic):
        fields = {str(name): plain(item) for name, item in value.fields.items()}
        return {TYPE: value.kind, "class": value.name, VALUE: fields}
    return {TYPE: type(value).__name__, VALUE: _content(value)}


def _content(value: Any) -> Any:
    if isinstance(value, tuple | set | frozenset | deque):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat()
    return (
        plain(value.tolist()) if hasattr(value, "tolist") else str(value)
    )  # the former in arrays and numbers of numpy


def moment(when: datetime | None) -> str | None:
    """A time, in UTC, to the microsecond."""
    return None if when is None else f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def run(found: Run, *, interrupted: bool) -> dict[str, Any]:
    """A run."""
    return {
        "id": found.id, "workflow": found.workflow, "status": str(found.status), "interrupted": interrupted,
        "half_copied": is_copy(found.owner),
        "entries": found.step_count, "oldest": found.oldest, "errors": errors(found), "tags": found.tags,
        "created_at": moment(found.created_at), "ended_at": moment(found.ended_at), "duration_ms": found.duration_ms,
        "owner": found.owner, "parent_run_id": found.parent_run_id, "forked_from": found.forked_from,
        "fork_seq": found.fork_seq, "retry_of": found.retry_of, "retry_index": found.retry_index,
    }  # fmt: skip


def errors(found: Run) -> int:
    """How many steps failed; 1 where only the code between them did, and the run with it."""
    return found.error_count or int(found.status is Status.FAILED)


def step(record: StepRecord) -> dict[str, Any]:
    """A row of the log with all it holds. What was erased is null."""
    light = {
        "run": record.run_id, "seq": record.seq, "kind": str(record.kind), "name": record.name,
        "status": str(record.status), "started_at": moment(record.started_at), "duration_ms": record.duration_ms,
        "id": record.id, "parent": record.parent, "lane": record.lane, "index": record.index,
        "attempt": record.attempt, "external": record.external, "partial": record.partial,
        **node(record), "usage": plain(record.usage), "metadata": plain(record.metadata), "erased": record.erased,
    }  # fmt: skip
    try:
        heavy = {
            "inputs": plain(record.inputs), "output": plain(record.output),
            "changes": [operation(op) for op in record.ops], "error": error(record.error), "pause": plain(record.pause),
        }  # fmt: skip
    except ErasedError:
        heavy = dict.fromkeys(("inputs", "output", "changes", "error", "pause"))
    return light | heavy


def node(record: StepRecord) -> dict[str, Any]:
    """What a row says of a graph's node, and how large what it gave is."""
    return {
        "superstep": record.superstep, "node_type": record.node_type, "decision": plain(record.decision),
        "reason": reason_of(record), "input_versions": plain(record.input_versions),
        "cached": record.cached, "child_run_id": record.child_run_id, "sizes": sizes(record),
    }  # fmt: skip


def reason_of(record: StepRecord) -> Any:
    """Why a route or gate chose what it did; None for any other row."""
    about = record.metadata
    return plain(about.get("reason")) if isinstance(about, dict) else None


def sizes(record: StepRecord) -> dict[str, int]:
    """By name, the bytes of each value that a step put into the state; else those of its output."""
    try:
        values = {path_text(op[1]): op[-1] for op in record.ops if op[0] in _PUTS}
        values = values or ({} if record.output is None else {"output": record.output})
    except (ErasedError, DamagedError):  # told elsewhere
        return {}
    return {name: size_of(value) for name, value in values.items()}


def size_of(value: Any) -> int:
    """How many bytes a value takes here: what is printed of it with --json."""
    return len(json.dumps(plain(value), ensure_ascii=True))


def operation(op: list[Any]) -> dict[str, Any]:
    """A change of the state."""
    code, path, *rest = op
    found = {"op": VERBS.get(code, str(code)), "path": plain(path if type(path) is list else [path])}
    names = {SET: ("value",), APPEND: ("items",), SPLICE: ("index", "count", "items")}.get(code, ())
    return found | {name: plain(value) for name, value in zip(names, rest, strict=False)}


def error(found: StepError | None) -> dict[str, Any] | None:
    """What something failed with."""
    return None if found is None else {"type": found.type, "message": found.message, "traceback": found.traceback}


def change(found: Change) -> dict[str, Any]:
    """A difference between two states."""
    word = "added" if found.old is MISSING else "removed" if found.new is MISSING else "changed"
    sides = {"old": found.old, "new": found.new}
    present = {side: plain(value) for side, value in sides.items() if value is not MISSING}
    return {"path": plain(list(found.path)), "change": word} | present


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    """A named point of a run."""
    return {
        "id": found.id, "run": found.run_id, "seq": found.seq, "name": found.name, "kind": str(found.kind),
        "created_at": moment(found.created_at), "metadata": plain(found.metadata),
    }  # fmt: skip
