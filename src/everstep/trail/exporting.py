"""A run as a file of its own: text that can be reviewed and kept beside the code, and that an import can verify.

First what people read: a line for the file, and for each run one that seals what its row says, then one line per step,
without times, so that a run that was recorded again differs where it did something else. Behind that the rows
themselves, byte for byte, and the pieces they refer to. Everything was in the trail: nothing is added.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import ormsgpack

from everstep import actual
from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.readable import json_line
from everstep.codec.record import blob_ids, read_meta
from everstep.codec.told import told
from everstep.errors import OwnedError, PrunedError, RunNotFoundError, StoreError, UnreadableError
from everstep.model import STATUSES, from_micros
from everstep.store.base import ALL, RunQuery, RunRow, Store
from everstep.trail.owner import HELD, is_copy
from everstep.trail.reading import Reader

FORMAT = 1
FILE_MAX = 1 << 28
"""No file is larger than this, so none that is gets read."""


class Exported(NamedTuple):
    """A run as a file tells of it."""

    id: str
    root: str
    workflow: str
    status: int
    head: bytes
    created: int
    parent: str | None
    retry_of: str | None
    retry_index: int | None
    tags: dict[str, str]
    entries: Sequence[Entry]


def export(store: Store, run_id: str, path: str | os.PathLike[str]) -> Path:
    """Write a run, with its children, to a file. Raises PrunedError: what is no longer whole cannot stand alone."""
    runs = list(_family(store, store.run(run_id)))
    names = dict.fromkeys(name for run in runs for entry in run.entries for name in blob_ids(entry))
    place, size, found = Path(path), 0, list[bytes]()
    for line in lines(runs, {name: store.blob(name) for name in names}):
        found.append(line.encode())
        size += len(found[-1])
        if size > FILE_MAX:
            raise StoreError(f"run {run_id!r} makes a file of more than {FILE_MAX:,} bytes. Keep the trail itself.")
    _write(place, b"".join(found))
    return place


def _family(store: Store, top: RunRow) -> Iterator[Exported]:
    """The run, and all that are below it: those that its rows name, and those that say they are its children."""
    if top.base > 0:
        raise PrunedError(top.id, 0, top.base, way_out="A run is exported whole: export one that is.")
    if is_copy(top.owner):
        raise OwnedError(top.id, top.owner, HELD)
    known, waiting = {top.id}, [top]
    while waiting:
        run = waiting.pop(0)
        entries = Reader(store).entries(run, 0, run.seq)
        yield Exported(
            run.id, run.root, run.workflow, run.status, run.hash, run.created, None if run is top else run.parent,
            run.retry_of, run.retry_index, dict(sorted(run.tags.items())), entries,
        )  # fmt: skip
        below = [child for entry in entries if (child := read_meta(entry)[record.CHILD]) is not None]
        ours = store.runs(RunQuery(parent=run.id, limit=ALL))
        below += [row.id for row in reversed(ours) if row.forked_from is None]
        for name in below:
            with suppress(RunNotFoundError):  # it was dropped: the step tells what it gave
                if name not in known and store.run(name).base == 0:
                    known.add(name)
                    waiting.append(store.run(name))


def lines(runs: Sequence[Exported], pieces: dict[bytes, bytes]) -> Iterator[str]:
    """The whole file."""
    yield header(runs, pieces)
    for run in runs:
        yield run_line(run)
        for entry in run.entries:
            yield step_line(entry)
    for run in runs:
        for entry in run.entries:
            yield row_line(entry)
    for name, data in pieces.items():
        yield piece_line(name, data)


def header(runs: Sequence[Exported], pieces: dict[bytes, bytes]) -> str:
    """The first line: what this is, and how much of it there is."""
    top = runs[0]
    return json_line({
        "everstep": "run", "format": FORMAT, "run": top.id, "workflow": top.workflow,
        "status": str(STATUSES[top.status]), "runs": len(runs), "rows": sum(len(run.entries) for run in runs),
        "pieces": len(pieces),
    })  # fmt: skip


def run_line(run: Exported) -> str:
    """What the row of a run says, sealed."""
    said = {
        "run": run.id, "workflow": run.workflow, "status": str(STATUSES[run.status]), "rows": len(run.entries),
        "root": None if run.root == run.id else run.root, "parent": run.parent, "retry_of": run.retry_of,
        "retry_index": run.retry_index, "tags": run.tags or None, "created": moment(run.created),
        "head": run.head.hex(),
    }  # fmt: skip
    fields = {name: value for name, value in said.items() if value is not None}
    return json_line({**fields, "seal": sha256(json_line(fields).encode()).hexdigest()[:32]})


def moment(micros: int) -> str:
    """A time, in UTC, to the microsecond."""
    return f"{from_micros(micros):%Y-%m-%dT%H:%M:%S.%f}Z"


def step_line(entry: Entry) -> str:
    """What people read of a row. Made of the row alone, so that an import can see that it tells the truth."""
    return json_line(told(entry))


def row_line(entry: Entry) -> str:
    """A row, byte for byte."""
    return f'{{"row": "{base64.b64encode(ormsgpack.packb(list(entry))).decode()}"}}\n'


def piece_line(name: bytes, data: bytes) -> str:
    """A piece that rows refer to."""
    return f'{{"piece": "{name.hex()}", "data": "{base64.b64encode(data).decode()}"}}\n'


def _write(place: Path, data: bytes) -> None:
    """Put the file there whole, or not at all."""
    beside = place.with_name(f".{place.name}.{actual.token(4)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise UnreadableError(str(place), reason, "Give the path of a file that can be written.") from error
    except BaseException:  # an interrupt too: nothing half written stays behind
        beside.unlink(missing_ok=True)
        raise
