"""A trail in one SQLite file: an append-only log of steps, runs that point at their head, one writer at a time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import apsw
import ormsgpack

from everstep.codec.chain import Entry, genesis
from everstep.codec.record import blob_ids
from everstep.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    EverstepError,
    OwnedError,
    ReadOnlyError,
    RunExistsError,
    StaleWriterError,
)
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Status
from everstep.store import reading, retention, rows, schema
from everstep.store.base import LEASE_SECONDS, Append, Claim, Counts, Keyframe, NewRun, RunQuery, RunRow
from everstep.store.commit import GroupCommit, Job
from everstep.store.lock import LOCK_UN, flock, open_lock, take
from everstep.store.schema import BUSY_SECONDS, translate, translated
from everstep.store.search import SearchIndex
from everstep.store.wal import lost_commits

T = TypeVar("T")

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
_UNFIT = (OverflowError, TypeError, ValueError)  # a value that SQLite cannot hold: a number too large, half a character
_open_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


class SqliteStore:
    """A store in one file. `patience` bounds how long a write waits for other programs."""

    def __init__(self, path: str, *, read_only: bool = False, patience: float = BUSY_SECONDS) -> None:
        self.where = os.path.abspath(path)  # noqa: PTH100 - resolved once: a later chdir changes nothing
        self.read_only = read_only
        self._patience = patience
        self._closed = False
        first = schema.prepare(self.where, read_only=read_only)
        self._readers: list[apsw.Connection] = [first] if read_only else []
        self._writer: apsw.Connection | None = None if read_only else first
        self._lock_file = -1 if read_only else open_lock(self.where + "-lock")
        self._group = GroupCommit(self._commit, self.where)
        _open_stores.add(self)

    # Writing: everything goes through the leader of the group commit, on the one connection that writes.

    def create(self, new: NewRun) -> Claim:
        return self._write(lambda connection: _create(connection, new))

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        return self._write(lambda connection: _claim(connection, run_id, owner, lease))

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        self._write(lambda connection: _renew(connection, claim, lease))

    def append(self, append: Append) -> bool:
        if self.read_only:
            raise ReadOnlyError(self.where)
        kept: bool = self._group.do(append)
        return kept

    def submit(self, append: Append, loop: asyncio.AbstractEventLoop) -> asyncio.Future[bool]:
        if self.read_only:
            raise ReadOnlyError(self.where)
        return self._group.submit(append, loop)

    def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        if self.read_only:
            raise ReadOnlyError(self.where)
        result: T = self._group.do(work)
        return result

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Do the work of all jobs in one transaction. Runs under the group's lead."""
        try:
            self._transact(jobs, guarded=False)
        except _UNFIT:  # whose it was is seen when each stands alone
            self._transact(jobs, guarded=True)

    def _transact(self, jobs: Sequence[Job], *, guarded: bool) -> None:
        connection = self._writing()
        try:
            take(self._lock_file, self.where, self._patience)
            if connection.in_transaction:  # a leader was interrupted here; its jobs are among these
                connection.execute("rollback")
            cursor = connection.cursor()  # one for all: cheaper than one for each statement
            cursor.execute("begin immediate")
            for job in jobs:
                work, job.error = job.work, None
                try:
                    if type(work) is Append and not guarded:
                        job.result = _append(connection, work, cursor.execute)
                    else:
                        with connection:  # a savepoint: what fails, fails alone
                            job.result = work(connection) if callable(work) else _append(connection, work)
                except EverstepError as error:
                    job.error = error
                except _UNFIT as error:
                    if not guarded:
                        raise
                    job.error = error
            cursor.execute("commit")
        except apsw.Error as error:
            raise translate(error, self.where) from error
        finally:
            if connection.in_transaction:
                connection.execute("rollback")
            flock(self._lock_file, LOCK_UN)

    def _writing(self) -> apsw.Connection:
        self._check_open()
        if self._writer is None:  # after a fork
            self._writer = schema.connect(self.where, read_only=False)
            self._lock_file = open_lock(self.where + "-lock")
        return self._writer

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self.where)

    # Reading: any thread, each on a connection of its own while it reads, in one snapshot.

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[apsw.Connection]:
        self._check_open()
        with translated(self.where):
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = schema.connect(self.where, read_only=True)
            try:
                connection.execute("begin")
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("commit")
                self._readers.append(connection)
                if self._closed:
                    self._close_readers()

    def run(self, run_id: str) -> RunRow:
        with self._snapshot() as connection:
            return rows.find_run(connection, run_id).row

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._snapshot() as connection:
            return rows.list_runs(connection, query)

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        with self._snapshot() as connection:
            return reading.entries(connection, run_id, first, last)

    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        with self._snapshot() as connection:
            return reading.keyframe(connection, run_id, at)

    def blob(self, blob_id: bytes) -> bytes:
        with self._snapshot() as connection:
            return reading.blob(connection, blob_id)

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        with self._snapshot() as connection:
            return reading.marked(connection, run_id, kind, limit)

    # Letting go.

    def drop(self, run_id: str) -> Counts:
        self._write(lambda connection: retention.hide(connection, run_id))
        return self.reclaim()

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        if not self._write(lambda connection: retention.raise_base(connection, run_id, base, generation)):
            return None
        return self.reclaim()

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._write(lambda connection: retention.erase(connection, run_id, entries))

    def reclaim(self) -> Counts:
        total = Counts(0, 0, 0, 0)
        for sweep in retention.SWEEPS:
            while True:
                swept = self._write(sweep)
                total = Counts(*(a + b for a, b in zip(total, swept, strict=True)))
                if not any(swept):
                    break
        while self._write(retention.give_back):
            pass
        # On a connection of its own: the writer's is inside a transaction whenever somebody leads.
        with translated(self.where), contextlib.closing(schema.connect(self.where, read_only=False)) as connection:
            rows.ask(connection, "pragma wal_checkpoint(truncate)")
        return total

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        with self._snapshot() as connection:
            index = SearchIndex(":memory:" if self.read_only else self.where + "-search")
            try:
                return reading.search(connection, index, words, limit, retention.generation(connection))
            finally:
                index.close()

    def inspect(self) -> list[str]:
        with self._snapshot() as connection:
            found = list(reading.inspect(connection))
        # On a connection of its own: inside a transaction SQLite does not tell how much of the log it can use.
        with translated(self.where), contextlib.closing(schema.connect(self.where, read_only=True)) as connection:
            lost = lost_commits(connection, self.where)
        return found if lost is None else [*found, lost]

    def close(self) -> None:
        if self._closed:
            return
        if not self.read_only:
            self._group.close()
        self._closed = True
        if self._writer is not None:
            self._close_readers()  # first, so that the last to close folds the log into the file
            self._writer.close()
            os.close(self._lock_file)
        self._close_readers()

    def _close_readers(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._readers.pop().close()

    def _after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone for good, and start anew when asked.

        Closing them, even when the child ends, would let go of locks and files that are the parent's.
        """
        inherited = [*self._readers, *([self._writer] if self._writer is not None else [])]
        for connection in inherited:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        if self._writer is not None:
            os.close(self._lock_file)
        self._readers, self._writer = [], None
        self._group.after_fork()


def _stores_after_fork() -> None:
    for store in list(_open_stores):
        store._after_fork()  # noqa: SLF001 - the same module


os.register_at_fork(after_in_child=_stores_after_fork)


def _append(connection: apsw.Connection, append: Append, execute: Callable[..., object] | None = None) -> bool:
    """Add rows to a run, or find that they are there. Raises ConflictError or StaleWriterError, with nothing added."""
    claim, entries, execute = append.claim, append.entries, execute or connection.execute
    sql = _INSERT_FIRST
    for entry in entries:
        execute(sql, (claim.key, *entry))
        sql = _INSERT_NEXT
    last = entries[-1]
    execute(_ADVANCE, (last.seq, last.hash, time.time() + claim.lease, claim.key, claim.hash, claim.epoch))
    if connection.changes() != 1:
        connection.execute("delete from step where id > last_insert_rowid() - ?", (len(entries),))
        _explain(connection, append)
        return True
    row = connection.last_insert_rowid()
    if append.blobs:
        connection.executemany("insert or ignore into blob values(?, ?)", append.blobs.items())
        first = row + 1 - len(entries)
        named = [(first + place, blob) for place, entry in enumerate(entries) for blob in blob_ids(entry)]
        connection.executemany("insert into ref values(?, ?)", named)
    if append.status is not None:
        _set_status(connection, claim.key, append.status, last)
    return append.keyframe is None or _keep(connection, claim, append.keyframe, row)


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
    rows.reseal(connection, key)


def _keep(connection: apsw.Connection, claim: Claim, frame: Keyframe, row: int) -> bool:
    """Store a keyframe, unless retention removed pieces it may share since the writer read them."""
    if retention.generation(connection) != claim.generation:
        return False
    retention.put_keyframe(connection, claim.key, frame, row)
    return True


def _create(connection: apsw.Connection, new: NewRun) -> Claim:
    known = rows.ask(connection, "select owner, epoch, key, seq, hash from run where id = ?", (new.id,))
    if known:
        owner, epoch, key, seq, link = known[0]
        if owner == new.owner and epoch == 1:  # sent again after an interrupt
            return Claim(new.id, owner, epoch, seq, link, key, retention.generation(connection), new.lease)
        raise RunExistsError(new.id)
    start = _fork_point(connection, new) if new.fork is not None else _Start(None, -1, genesis(new.id), None, 0, None)
    connection.execute(
        "insert into run(id, root, workflow, status, owner, lease, epoch, head, seq, hash, base, swept, created, "
        "parent, fork_key, fork_row, forked_from, fork_seq, retry_of, retry_index, tags, seal) "
        "values(?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, x'')",
        (new.id, start.root or new.id, new.workflow, STATUS_NUMBER[Status.ACTIVE], new.owner, time.time() + new.lease,
         start.row, start.seq, start.hash, start.base, start.seq + 1, new.created, new.parent, start.fork_key,
         start.row, *(new.fork or (None, None)), new.retry_of, new.retry_index, ormsgpack.packb(new.tags)),
    )  # fmt: skip
    key = connection.last_insert_rowid()
    connection.executemany("insert into tag values(?, ?, ?)", [(name, text, key) for name, text in new.tags.items()])
    if start.base > 0 and new.fork is not None:
        kept = reading.keyframe(connection, new.fork[0], start.base - 1)
        if kept is None:
            raise DamagedError("the keyframe that a pruned run begins with is missing", run_id=new.fork[0])
        retention.put_keyframe(connection, key, kept, None)
    rows.reseal(connection, key)
    claim = Claim(new.id, new.owner, 1, start.seq, start.hash, key, retention.generation(connection), new.lease)
    if not new.entries:
        return claim
    _append(connection, Append(claim, new.entries, new.blobs))
    return claim._replace(seq=new.entries[-1].seq, hash=new.entries[-1].hash)


class _Start(NamedTuple):
    """Where a new run begins: nowhere, or at a row of the run it was forked from."""

    row: int | None
    seq: int
    hash: bytes
    fork_key: int | None
    base: int
    root: str | None


def _fork_point(connection: apsw.Connection, new: NewRun) -> _Start:
    source_id, seq = new.fork or ("", -1)
    source = rows.find_run(connection, source_id)
    reading.require(source.row, seq)
    row, link = reading.locate(connection, source, seq)
    return _Start(row, seq, link, source.row.key, source.row.base, source.row.root)


def _claim(connection: apsw.Connection, run_id: str, owner: str, lease: float) -> Claim:
    run = rows.find_run(connection, run_id).row
    now, epoch = time.time(), run.epoch
    if run.owner is not None and run.owner != owner and run.lease > now:
        raise OwnedError(run_id, run.owner, run.lease - now)
    if run.owner != owner:  # the same owner asking again keeps its epoch
        epoch += 1
    connection.execute(
        "update run set owner = ?, lease = ?, epoch = ? where key = ?", (owner, now + lease, epoch, run.key)
    )
    rows.reseal(connection, run.key)
    return Claim(run_id, owner, epoch, run.seq, run.hash, run.key, retention.generation(connection), lease)


def _renew(connection: apsw.Connection, claim: Claim, lease: float) -> None:
    run = rows.find_run(connection, claim.run_id).row
    if run.key != claim.key or run.epoch != claim.epoch:
        raise StaleWriterError(claim.run_id, claim.epoch, run.epoch)
    owner = claim.owner if lease > 0 else None
    connection.execute("update run set owner = ?, lease = ? where key = ?", (owner, time.time() + lease, run.key))
    rows.reseal(connection, run.key)
