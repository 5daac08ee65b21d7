"""Writing rows and runs, inside the transaction of whoever leads. What fails raises a typed error and adds nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import apsw
import ormsgpack

from everstep import actual
from everstep.codec.chain import Entry, genesis
from everstep.codec.record import blob_ids
from everstep.errors import ConflictError, DamagedError, RunExistsError, StaleWriterError
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Status
from everstep.store import reading, retention, rows
from everstep.store.base import Append, Claim, Keyframe, NewRun

_INSERT = (
    "insert into step(run, seq, kind, status, name, started, duration, hash, meta, data, prev) "
    "values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {prev})"
)
_INSERT_FIRST = _INSERT.format(prev="(select head from run where key = ?1)")
_INSERT_NEXT = _INSERT.format(prev="last_insert_rowid()")
_ADVANCE = (
    "update run set head = last_insert_rowid(), seq = ?, hash = ?, lease = max(lease, ?) "
    "where key = ? and hash = ? and epoch = ?"
)
_STANDS = "select seq, hash, epoch, head, base from run where key = ? and id is not null"
_BEFORE = (
    "select before.id, before.seq, before.hash from step join step as before on before.id = step.prev where step.id = ?"
)


def add_rows(connection: apsw.Connection, append: Append, execute: Callable[..., object] | None = None) -> bool:
    """Add rows to a run, or find that they are there. Raises ConflictError or StaleWriterError, with nothing added."""
    claim, entries, execute = append.claim, append.entries, execute or connection.execute
    sql = _INSERT_FIRST
    for entry in entries:
        execute(sql, (claim.key, *entry))
        sql = _INSERT_NEXT
    last = entries[-1]
    execute(_ADVANCE, (last.seq, last.hash, actual.time() + claim.lease, claim.key, claim.hash, claim.epoch))
    if connection.changes() != 1:
        connection.execute("delete from step where id > last_insert_rowid() - ?", (len(entries),))
        _explain(connection, append)
        return append.keyframe is None or _is_kept(connection, claim.key, append.keyframe.seq)
    row = connection.last_insert_rowid()
    if append.blobs:
        connection.executemany("insert or ignore into blob values(?, ?)", append.blobs.items())
        first = row + 1 - len(entries)
        named = [(first + place, blob) for place, entry in enumerate(entries) for blob in blob_ids(entry)]
        connection.executemany("insert into ref values(?, ?)", named)
    if append.status is not None:
        _set_status(connection, claim.key, append.status, last)
    kept = append.keyframe
    return kept is None or _keep(connection, claim, kept, row - (last.seq - kept.seq))


def _explain(connection: apsw.Connection, append: Append) -> None:
    """Why an append did not fit: nothing if its rows are there already (it was sent again), else a typed error."""
    claim, last = append.claim, append.entries[-1]
    found = rows.ask(connection, _STANDS, (claim.key,))
    if not found:
        raise ConflictError(claim.run_id, append.entries[0].seq, -1)
    seq, link, epoch, row, base = found[0]
    while seq > last.seq >= base:
        before = rows.ask(connection, _BEFORE, (row,))
        if not before:
            break
        row, seq, link = before[0]
    if (seq, link) == (last.seq, last.hash):
        return
    if epoch != claim.epoch:
        raise StaleWriterError(claim.run_id, claim.epoch, epoch)
    raise ConflictError(claim.run_id, append.entries[0].seq, found[0][0])


def _set_status(connection: apsw.Connection, key: int, status: int, last: Entry) -> None:
    ended = last.started + last.duration if STATUSES[status] in FINISHED else None
    connection.execute("update run set status = ?, ended = ? where key = ?", (status, ended, key))
    if ended is not None:
        connection.execute("update run set owner = null, request = null where key = ?", (key,))
    rows.reseal(connection, key)


def _is_kept(connection: apsw.Connection, key: int, seq: int) -> bool:
    return bool(rows.ask(connection, "select 1 from keyframe where run = ? and seq = ?", (key, seq)))


def _keep(connection: apsw.Connection, claim: Claim, frame: Keyframe, row: int) -> bool:
    """Store a keyframe, unless retention removed pieces it may share since the writer read them."""
    if retention.generation(connection) != claim.generation:
        return False
    retention.put_keyframe(connection, claim.key, frame, row)
    return True


def create_run(connection: apsw.Connection, new: NewRun) -> Claim:
    """Add a run with its first rows, owned; a fork begins at a row of its source. The same again finds it there."""
    known = rows.ask(connection, "select owner, epoch, key, seq, hash from run where id = ?", (new.id,))
    if known:
        owner, epoch, key, seq, link = known[0]
        if owner == new.owner and epoch == 1:  # sent again after an interrupt
            return Claim(new.id, owner, epoch, seq, link, key, retention.generation(connection), new.lease)
        raise RunExistsError(new.id)
    root = new.root or new.id
    start = _fork_point(connection, new) if new.fork is not None else _own_start(new, root)
    connection.execute(
        "insert into run(id, root, workflow, status, owner, lease, epoch, head, seq, hash, base, swept, created, "
        "parent, fork_key, fork_row, forked_from, fork_seq, retry_of, retry_index, tags, seal) "
        "values(?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'')",
        (new.id, start.root, new.workflow, STATUS_NUMBER[Status.ACTIVE], new.owner, actual.time() + new.lease,
         start.row, start.seq, start.hash, start.base, start.seq + 1, new.created, new.parent, start.fork_key,
         start.row, *(new.fork or new.came_from or (None, None)), new.retry_of, new.retry_index,
         ormsgpack.packb(new.tags)),
    )  # fmt: skip
    key = connection.last_insert_rowid()
    connection.executemany("insert into tag values(?, ?, ?)", [(name, text, key) for name, text in new.tags.items()])
    if start.base > 0 and new.fork is not None:
        kept = reading.keyframe(connection, new.fork[0], start.base - 1)
        if kept is None:
            raise DamagedError("the keyframe that a pruned run begins with is missing", run_id=new.fork[0])
        retention.put_keyframe(connection, key, kept, None)
    elif new.base is not None:
        retention.put_keyframe(connection, key, new.base, None)
    rows.reseal(connection, key)
    claim = Claim(new.id, new.owner, 1, start.seq, start.hash, key, retention.generation(connection), new.lease)
    if not new.entries:
        return claim
    add_rows(connection, Append(claim, new.entries, new.blobs, new.keyframe, new.status))
    return claim._replace(seq=new.entries[-1].seq, hash=new.entries[-1].hash)


class _Start(NamedTuple):
    """Where a new run begins: nowhere, or at a row of the run it was forked from."""

    row: int | None
    seq: int
    hash: bytes
    fork_key: int | None
    base: int
    root: str


def _own_start(new: NewRun, root: str) -> _Start:
    if new.base is None:
        return _Start(None, -1, genesis(root), None, 0, root)
    return _Start(None, new.base.seq, new.base.hash, None, new.base.seq + 1, root)


def _fork_point(connection: apsw.Connection, new: NewRun) -> _Start:
    source_id, seq = new.fork or ("", -1)
    source = rows.find_run(connection, source_id)
    source.row.require(seq)
    row, link = reading.locate(connection, source, seq)
    return _Start(row, seq, link, source.row.key, source.row.base, source.row.root)


def claim_run(connection: apsw.Connection, run_id: str, owner: str, lease: float) -> Claim:
    """Give a run to a new owner, unless it has completed or another still holds it."""
    run = rows.find_run(connection, run_id).row
    now, epoch = actual.time(), run.epoch
    run.require_claimable(owner, now)
    if run.owner != owner:  # the same owner asking again keeps its epoch
        epoch += 1
    connection.execute(
        "update run set owner = ?, lease = ?, epoch = ?, request = null where key = ?",
        (owner, now + lease, epoch, run.key),
    )
    rows.reseal(connection, run.key)
    return Claim(run_id, owner, epoch, run.seq, run.hash, run.key, retention.generation(connection), lease)


def leave_word(connection: apsw.Connection, run_id: str, word: str) -> None:
    """Leave a word for the owner of a run."""
    key = rows.find_run(connection, run_id).row.key
    connection.execute("update run set request = ? where key = ?", (word, key))
    rows.reseal(connection, key)


def renew_run(connection: apsw.Connection, claim: Claim, lease: float) -> None:
    """Hold a run for longer, or give it up."""
    run = rows.find_run(connection, claim.run_id).row
    if run.key != claim.key or run.epoch != claim.epoch:
        raise StaleWriterError(claim.run_id, claim.epoch, run.epoch)
    owner = claim.owner if lease > 0 else None
    connection.execute("update run set owner = ?, lease = ? where key = ?", (owner, actual.time() + lease, run.key))
    rows.reseal(connection, run.key)
