"""A refused value under the name that the caller gave it, not under its place in a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from everstep.codec.delta import path_text
from everstep.errors import UnstorableError

PAYLOAD = ("inputs", "output", "state", "error", "pause")
META = (
    "id", "parent", "lane", "index", "attempt", "flags", "input_digest", "superstep", "decision", "usage",
    "child_run_id", "input_versions", "fingerprint", "node_type", "attempt_series_id", "metadata",
)  # fmt: skip
_FIELD = re.compile(r"value\[(\d+)\]")
_OPERATION = re.compile(r"\[(\d+)\](?:\[\d\])?")


def named(refused: UnstorableError, fields: Sequence[str], ops: Sequence[Sequence[Any]] = ()) -> UnstorableError:
    """The same error, its path as the caller knows it: `output.when`, `state.pages[2]`."""
    found = _FIELD.match(refused.path)
    if found is None:
        return refused
    name, rest = fields[int(found[1])], refused.path[found.end() :]
    operation = _OPERATION.match(rest) if name == "state" else None
    if operation is not None:
        name, rest = path_text(ops[int(operation[1])][1]), rest[operation.end() :]
    return UnstorableError(name + rest, refused.reason, refused.way_out)
