"""What stands in the files of a trail: JSON that people read, with all that is needed to see that nobody changed it.

A step is told in words, and beside them stands its row, byte for byte: the bytes decide, and an inspection makes the
words again and compares. The other pages say what they say in words alone, under a seal.
"""

from __future__ import annotations

import base64
import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import ormsgpack

from everstep.codec.chain import Entry
from everstep.codec.readable import json_line
from everstep.codec.told import told
from everstep.errors import DamagedError, EverstepError
from everstep.model import STATUS_NUMBER, STATUSES, Status, from_micros, to_micros
from everstep.store.base import Keyframe, RunRow

_ROW_TYPES = (int, int, int, int, int, str, int, int, bytes, bytes, bytes)
_SEAL = "seal"
_SEAL_SIZE = 32


class Row(NamedTuple):
    """A step as its file has it."""

    key: int  # of the run that wrote it
    mark: int  # counts the checkpoints of the trail, so that they have an order; 0 for other steps
    entry: Entry

    @property
    def place(self) -> tuple[int, int]:
        """Where it belongs: to a run, by its key, and a step."""
        return self.key, self.entry.seq


class Facts(NamedTuple):
    """What is known of the trail as a whole."""

    keys: int = 0  # the one of the newest run
    generation: int = 0
    marks: int = 0  # the one of the newest checkpoint


class KeptFrame(NamedTuple):
    """A keyframe as its file has it."""

    key: int
    frame: Keyframe
    shared: bool  # whether forks may use it
    base: bool  # whether a pruned run begins with it

    @property
    def place(self) -> tuple[int, int]:
        """As that of a step."""
        return self.key, self.frame.seq


def page(fields: dict[str, Any]) -> str:
    """The text of a file."""
    return json_line(fields, indent=2)


def sealed(fields: dict[str, Any]) -> str:
    """The text of a file in which nothing may be changed."""
    return page({**fields, _SEAL: _seal(json.dumps(fields, sort_keys=True).encode())})


def _seal(data: bytes) -> str:
    return sha256(data).hexdigest()[:_SEAL_SIZE]


def read(path: Path) -> dict[str, Any]:
    """What a file says. Raises DamagedError with its reason alone; whoever asked knows where."""
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DamagedError("it is missing") from None
    except (ValueError, RecursionError):
        raise DamagedError("it is not JSON") from None
    if type(fields) is not dict:
        raise DamagedError("it is not a JSON object")
    return fields


def unsealed(path: Path) -> dict[str, Any]:
    """What a sealed file says. Raises DamagedError."""
    fields = read(path)
    seal = fields.pop(_SEAL, None)
    if seal != _seal(json.dumps(fields, sort_keys=True).encode()):
        raise DamagedError("it was changed")
    return fields


# A step.


def row_page(row: Row) -> str:
    """The page of a step."""
    entry = row.entry
    data = ormsgpack.packb([row.key, row.mark, *entry])
    fields = {**_told(entry), "started": moment(entry.started), "duration_ms": entry.duration / 1000}
    return page({**fields, "row": base64.b64encode(data).decode(), _SEAL: _seal(data)})


def _told(entry: Entry) -> dict[str, Any]:
    try:
        return told(entry)
    except (EverstepError, LookupError):  # a store keeps bytes, whatever they mean
        return {"step": entry.seq, "name": entry.name, "bytes": len(entry.data)}


def read_row(path: Path) -> Row:
    """A step, by its bytes. Raises DamagedError."""
    fields = read(path)
    try:
        data = base64.b64decode(fields["row"], validate=True)
        if _seal(data) != fields.get(_SEAL):
            raise DamagedError("its row was changed")
        values = ormsgpack.unpackb(data)
    except (KeyError, TypeError, ValueError):
        raise DamagedError("it holds no row") from None
    if type(values) is not list or tuple(map(type, values)) != _ROW_TYPES:
        raise DamagedError("its row is none")
    return Row(values[0], values[1], Entry._make(values[2:]))


# A run.


def run_page(row: RunRow, fork_key: int | None) -> str:
    """The page of a run. Left out is what is not so."""
    fork = None if row.forked_from is None else {"run": row.forked_from, "seq": row.fork_seq, "key": fork_key}
    said = {
        "run": row.id, "workflow": row.workflow, "status": str(STATUSES[row.status]), "tags": row.tags or None,
        "created": moment(row.created), "ended": None if row.ended is None else moment(row.ended),
        "parent": row.parent, "retry_of": row.retry_of, "retry_index": row.retry_index, "forked_from": fork,
        "root": None if row.root == row.id else row.root, "request": row.request, "owner": row.owner,
        "lease": row.lease, "epoch": row.epoch, "key": row.key, "oldest": row.base or None, "errors": row.errors,
        "head": row.seq, "hash": row.hash.hex(),
    }  # fmt: skip
    return sealed({name: value for name, value in said.items() if value is not None})


def read_run(path: Path, generation: int) -> tuple[RunRow, int | None]:
    """A run, and the key of the one that it shares rows with. Raises DamagedError."""
    said = unsealed(path)
    try:
        fork, ended = said.get("forked_from", {}), said.get("ended")
        row = RunRow(
            key=said["key"], id=said["run"], root=said.get("root", said["run"]), workflow=said["workflow"],
            status=STATUS_NUMBER[Status(said["status"])], owner=said.get("owner"), lease=said["lease"],
            epoch=said["epoch"], seq=said["head"], hash=bytes.fromhex(said["hash"]), base=said.get("oldest", 0),
            created=micros(said["created"]), ended=None if ended is None else micros(ended),
            parent=said.get("parent"), forked_from=fork.get("run"), fork_seq=fork.get("seq"),
            retry_of=said.get("retry_of"), retry_index=said.get("retry_index"), tags=said.get("tags", {}),
            errors=said["errors"], generation=generation, request=said.get("request"),
        )  # fmt: skip
        # What the rest of the store reckons with is of the right kind, whoever made the seal.
        sound = all(type(number) is int for number in (row.key, row.epoch, row.seq, row.base, row.errors))
        sound = sound and type(row.lease) in (int, float) and type(row.id) is type(row.root) is str
        sound = sound and all(type(number) in (int, type(None)) for number in (row.fork_seq, fork.get("key")))
        sound = sound and type(row.tags) is dict
        if not sound:
            raise DamagedError("it is not the page of a run")
        return row, fork.get("key")
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DamagedError("it is not the page of a run") from None


# The state after a step, as a cache.


def frame_page(kept: KeptFrame) -> str:
    """The page of a keyframe."""
    frame = kept.frame
    said = {
        "after": frame.seq, "key": kept.key, "shared": kept.shared, "base": kept.base, "hash": frame.hash.hex(),
        "state": base64.b64encode(frame.data).decode(),
    }  # fmt: skip
    return sealed(said)


def read_frame(path: Path) -> KeptFrame:
    """A keyframe. Raises DamagedError."""
    said = unsealed(path)
    try:
        frame = Keyframe(int(said["after"]), bytes.fromhex(said["hash"]), base64.b64decode(said["state"]), {})
        return KeptFrame(int(said["key"]), frame, bool(said["shared"]), bool(said["base"]))
    except (KeyError, TypeError, ValueError):
        raise DamagedError("it is not the page of a keyframe") from None


# Times.


def moment(time: int) -> str | int:
    """A stored time as people read it, in UTC; one that no calendar has stays a number."""
    try:
        return from_micros(time).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return time


def micros(text: str | int) -> int:
    """A time as it is stored."""
    return text if isinstance(text, int) else to_micros(datetime.fromisoformat(text))
