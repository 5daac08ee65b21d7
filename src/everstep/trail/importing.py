"""An exported run read into a trail. Nothing in the file is believed: every line is checked before anything is written.

A row must follow the one before it in the hash chain, what people read of it must be what its bytes say, and a piece
must have the name that its bytes give it. The file decides no path and no code.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import ormsgpack

from everstep.codec import chain, frame, record
from everstep.codec.blobs import blob_id
from everstep.codec.chain import Entry
from everstep.codec.readable import parts, raw
from everstep.codec.record import blob_ids
from everstep.errors import (
    DamagedError,
    DamagedFileError,
    EverstepError,
    NewerFormatError,
    RunExistsError,
    RunNotFoundError,
    UnreadableError,
)
from everstep.model import FINISHED, KIND_NUMBER, KINDS, STATUS_NUMBER, STATUSES, Kind, Status, to_micros
from everstep.policy.redaction import Gate
from everstep.store.base import NewRun, Store
from everstep.trail.beginning import gated_tags, id_of
from everstep.trail.detail import text
from everstep.trail.exporting import FILE_MAX, FORMAT, Exported, header, moment, row_line, run_line, step_line
from everstep.trail.owner import new_owner

_ROW = re.compile(rb'\{"row": "([A-Za-z0-9+/]+=*)"\}\n')
_PIECE = re.compile(rb'\{"piece": "([0-9a-f]{32})", "data": "([A-Za-z0-9+/]+=*)"\}\n')
_WORDS = 1 << 20  # bytes that a line with the words of a run may have
_FREE = 1 << 28  # that rows may unpack to, whatever the file's size
_RATIO = 100  # and for each byte of the file
_BITS = 1 << 63
_FIRST, _LAST = to_micros(datetime(1, 1, 1, tzinfo=UTC)), to_micros(datetime(9999, 12, 31, tzinfo=UTC))
_META_MAX = 1 << 24  # bytes of it: it is not compressed, and taken apart it takes many times as much
_START = KIND_NUMBER[Kind.START]
_TEXT = (str, slice)  # as it is, or redacted
_COLUMNS = (int, int, int, str, int, int, bytes, bytes, bytes)
_WRITTEN: dict[int, tuple[type, ...]] = {  # what stands in a row's meta, beside nothing; slice is any other value
    record.PARENT: (int,), record.LANE: (str,), record.INDEX: (int,), record.ATTEMPT: (int,), record.FLAGS: (int,),
    record.DIGEST: (bytes,), record.SUPERSTEP: (int,), record.CHILD: (str,), record.VERSIONS: (dict, slice),
    record.METADATA: (dict, slice), record.BLOBS: (bytes,),
}  # fmt: skip
_STATUSES = {str(status): STATUS_NUMBER[status] for status in (Status.ACTIVE, Status.PAUSED, *FINISHED)}


def import_run(store: Store, gate: Gate, path: str | os.PathLike[str], run_id: str | None) -> str:
    """Read a file into the store: the id of the run. Raises DamagedFileError, NewerFormatError, RunExistsError."""
    runs, pieces = _File(path).read()
    top = id_of(gate, runs[0].id if run_id is None else run_id)
    if _there(store, top) is not None:
        raise RunExistsError(top)
    # Children first: the run itself is there when all of it is. What an interrupt leaves is found by the next try.
    for run in [*reversed(runs[1:]), runs[0]]:
        new_id = top if run is runs[0] else run.id
        if run is not runs[0] and (known := _there(store, run.id)) is not None:
            if known != run.head:
                raise RunExistsError(run.id)
            continue
        wanted = [name for entry in run.entries for name in _pieces_of(entry)]
        new = NewRun(
            id=new_id, owner=new_owner(), created=run.created, workflow=text(gate, "workflow", run.workflow),
            tags=gated_tags(gate, run.tags), parent=top if run.parent == runs[0].id else run.parent,
            retry_of=run.retry_of, retry_index=run.retry_index, entries=run.entries,
            blobs={name: pieces[name] for name in wanted}, status=run.status, root=run.root, lease=0.0,
        )  # fmt: skip
        claim = store.create(new)
        if STATUSES[run.status] not in FINISHED:
            store.renew(claim, 0)
    return top


def _there(store: Store, run_id: str) -> bytes | None:
    try:
        return store.run(run_id).hash
    except RunNotFoundError:
        return None


class _File:
    """An exported run while it is read, line by line."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._at = 0
        try:
            with Path(path).open("rb") as file:
                data = file.read(FILE_MAX + 1)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise UnreadableError(str(self._path), reason, "Give the path of a file that `export` wrote.") from None
        if len(data) > FILE_MAX:
            raise self._damaged(f"the file has more than {FILE_MAX:,} bytes")
        self._lines = data.replace(b"\r\n", b"\n").splitlines(keepends=True)  # a checkout may change the ends of lines
        self._left = _FREE + _RATIO * len(data)

    def _damaged(self, what: str) -> DamagedFileError:
        return DamagedFileError(str(self._path), max(1, self._at), what)

    def _next(self) -> bytes:
        if self._at >= len(self._lines):
            self._at += 1
            raise self._damaged("the file ends before it is whole")
        self._at += 1
        return self._lines[self._at - 1]

    def read(self) -> tuple[list[Exported], dict[bytes, bytes]]:
        """The runs in the file and the pieces that they refer to, all of them checked."""
        first = self._next()
        said = self._header(first)
        runs, shown = [], []
        for _ in range(said["runs"]):
            runs.append(self._run())
            count = runs[-1][1]
            shown.append((self._at, [self._next() for _ in range(count)]))
        whole = [
            run._replace(entries=self._rows(run, count, *lines))
            for (run, count), lines in zip(runs, shown, strict=True)
        ]
        pieces = self._pieces(whole)
        if self._at < len(self._lines):
            self._at += 1
            raise self._damaged("the file goes on behind its end")
        if header(whole, pieces).encode() != first:
            self._at = 1
            raise self._damaged("the line does not tell what is in the file")
        self._check_family(whole)
        return whole, pieces

    def _words(self, line: bytes) -> dict[str, Any]:
        """What a line of JSON says."""
        if len(line) > _WORDS:
            raise self._damaged(f"the line has more than {_WORDS:,} bytes")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            raise self._damaged("the line cannot be read") from None
        if type(said) is not dict:
            raise self._damaged("the line cannot be read")
        return said

    def _header(self, line: bytes) -> dict[str, Any]:
        said = self._words(line)
        if said.get("everstep") != "run" or type(said.get("format")) is not int:
            raise self._damaged("this is no exported run")
        if said["format"] != FORMAT:
            raise NewerFormatError(said["format"])
        runs = said.get("runs")
        if type(runs) is not int or not 1 <= runs <= len(self._lines):
            raise self._damaged("the line does not tell what is in the file")
        return said

    def _run(self) -> tuple[Exported, int]:
        """A run without its rows, and how many it has."""
        line = self._next()
        said = self._words(line)
        try:
            run, count = _told(said)
            same = run_line(run._replace(entries=range(count))).encode() == line  # type: ignore[arg-type] # it counts them
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            same = False
        if not same:
            raise self._damaged("the line of a run is not what was written")
        return run, count

    def _rows(self, run: Exported, count: int, first: int, shown: list[bytes]) -> list[Entry]:
        """The rows of a run: each follows the one before, and says what people read of it."""
        before, entries = chain.genesis(run.root), list[Entry]()
        for seq in range(count):
            line = self._next()
            entry = self._row(line)
            if entry.seq != seq or not chain.verified(before, entry):
                raise self._damaged("a row is not what was written")
            before = entry.hash
            entries.append(entry)
            self._checked(partial(_check_parts, entry))
            if self._checked(partial(step_line, entry)).encode() != shown[seq]:
                self._at = first + seq + 1
                raise self._damaged("the line does not tell what the step's row holds")
        if before != run.head:
            self._at = first
            raise self._damaged("the run does not end with its last row")
        return entries

    def _row(self, line: bytes) -> Entry:
        found = _ROW.fullmatch(line)
        columns = None if found is None else self._unpacked(self._decoded(found[1]))
        if type(columns) is not list or tuple(map(type, columns)) != _COLUMNS:
            raise self._damaged("a row is not what was written")
        entry = Entry._make(columns)
        if not _fits(entry) or row_line(entry).encode() != line:
            raise self._damaged("a row is not what was written")
        if not chain.is_erased(entry):
            self._left -= len(self._checked(partial(frame.unpack, entry.data[chain.KEY_SIZE :])))
            if self._left < 0:
                raise self._damaged("the rows unpack to more than a file of this size may hold")
        return entry

    def _checked(self, look: Callable[[], Any]) -> Any:
        """What `look` gives; what it finds wrong is told with the line. A later format stays what it is."""
        try:
            return look()
        except NewerFormatError:
            raise
        except EverstepError as error:
            raise self._damaged(error.what if isinstance(error, DamagedError) else str(error)) from None

    def _decoded(self, encoded: bytes) -> bytes:
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise self._damaged("the line cannot be read") from None

    def _unpacked(self, data: bytes) -> Any:
        try:
            return ormsgpack.unpackb(data)
        except ValueError:
            raise self._damaged("a row is not what was written") from None

    def _pieces(self, runs: list[Exported]) -> dict[bytes, bytes]:
        """The pieces that rows refer to, each once, in the order in which they do."""
        pieces: dict[bytes, bytes] = {}
        names = (self._checked(partial(_pieces_of, entry)) for run in runs for entry in run.entries)
        for name in dict.fromkeys(name for some in names for name in some):
            line = self._next()
            found = _PIECE.fullmatch(line)
            data = b"" if found is None else self._decoded(found[2])
            if found is None or bytes.fromhex(found[1].decode()) != name or blob_id(data) != name:
                raise self._damaged("a piece is not what was written")
            pieces[name] = data
        return pieces

    def _check_family(self, runs: list[Exported]) -> None:
        ids = [run.id for run in runs]
        if len(set(ids)) != len(ids):
            self._at = 1
            raise self._damaged("two runs in the file have the same id")


def _told(said: dict[str, Any]) -> tuple[Exported, int]:
    """The run that a line tells of. Raises when it is none; what is left out or added shows in the line made of it."""
    tags, index, count = said.get("tags", {}), said.get("retry_index"), said["rows"]
    texts = [said["run"], said["workflow"], said.get("root", said["run"]), *tags, *tags.values()]
    others = [said.get("parent"), said.get("retry_of")]
    for word in [*texts, *(other for other in others if other is not None)]:
        if type(word) is not str or "\0" in word:
            raise ValueError("no text")
        word.encode()
    if (
        type(count) is not int
        or not 0 < count < _BITS
        or not (index is None or (type(index) is int and 0 <= index < _BITS))
    ):
        raise ValueError("no number")
    created = to_micros(datetime.fromisoformat(said["created"]))
    if moment(created) != said["created"]:
        raise ValueError("no time")
    return Exported(
        texts[0], texts[2], texts[1], _STATUSES[said["status"]], bytes.fromhex(said["head"]), created, others[0],
        others[1], index, tags, (),
    ), count  # fmt: skip


def _fits(entry: Entry) -> bool:
    """Whether the columns of a row have values that they can have."""
    words = 0 <= entry.kind < len(KINDS) and 0 <= entry.status < len(STATUSES) and "\0" not in entry.name
    return words and _FIRST <= entry.started <= entry.started + entry.duration <= _LAST


def _check_parts(entry: Entry) -> None:
    """See that a row has the parts that whoever reads it counts on. Raises DamagedError."""
    meta: Any = raw(entry.meta) if len(entry.meta) <= _META_MAX else None
    sound = (
        type(meta) is list and bool(meta) and type(meta[record.ID]) is int and (entry.seq > 0 or entry.kind == _START)
    )
    for place, kinds in _WRITTEN.items():
        sound = sound and (len(meta) <= place or meta[place] is None or type(meta[place]) in kinds)
    if sound and not chain.is_erased(entry):
        payload = parts(frame.unpack(entry.data[chain.KEY_SIZE :])) or []
        operations, error = ([*payload, *[None] * 5][place] for place in (record.OPS, record.ERROR))
        sound = operations is None or (type(operations) is list and all(map(_is_operation, operations)))
        sound = sound and (error is None or (type(error) is list and len(error) > 1 and type(error[0]) in _TEXT))
    if not sound:
        raise DamagedError("what a row says of itself is not what was written")


def _is_operation(op: Any) -> bool:
    return type(op) is list and len(op) > 1 and type(op[0]) is int and type(op[1]) in {str, list}


def _pieces_of(entry: Entry) -> list[bytes]:
    """The ids of the pieces that a row refers to. Raises DamagedError."""
    names = blob_ids(entry)
    if names and len(names[-1]) != 16:
        raise DamagedError("what a row says of itself is not what was written")
    return names
