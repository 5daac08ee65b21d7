"""A trail in one SQLite file: an append-only log of steps, runs that point at their head, one writer at a time."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

import apsw

from everstep.codec.chain import Entry
from everstep.errors import (
    DamagedError,
    EverstepError,
    ReadOnlyError,
    StoreError,
)
from everstep.store import reading, retention, rows, schema, sqlite_health, writing
from everstep.store.base import LEASE_SECONDS, Append, Claim, Counts, Keyframe, NewRun, RunQuery, RunRow
from everstep.store.cache import ValueCache
from everstep.store.commit import GroupCommit, Job
from everstep.store.grouped import Grouped
from everstep.store.health import Health
from everstep.store.lock import LOCK_UN, flock, is_free, open_lock, take
from everstep.store.process_fork import at_work, watch
from everstep.store.schema import BUSY_SECONDS, translate, translated
from everstep.store.search import SearchIndex
from everstep.store.wal import lost_commits

T = TypeVar("T")

_LOOK_EVERY = 0.5  # seconds between two looks whether the file is still there: each costs as much as a lock

# A value that SQLite cannot hold: a number too large, half a character, what a column does not take.
_UNFIT = (OverflowError, TypeError, ValueError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


class SqliteStore(Grouped[apsw.Connection]):
    """A store in one file. `patience` bounds how long a write waits for other programs."""

    def __init__(self, path: str, *, read_only: bool = False, patience: float = BUSY_SECONDS) -> None:
        # Resolved once: a later chdir changes nothing, and what lies beside the file lies beside the real one.
        self.where = os.path.realpath(path)
        self.read_only = read_only
        self._patience = patience
        self._closed = False
        with at_work():
            first = schema.prepare(self.where, read_only=read_only, patience=patience)
        self._readers: list[apsw.Connection] = [first] if read_only else []
        self._writer: apsw.Connection | None = None if read_only else first
        self._lock_file = -1 if read_only else open_lock(self.where + "-lock")
        self._cache = ValueCache(beside=self.where)
        self._searching = threading.Lock()  # those who write to the index by turns and read it hold each other up
        self._look_at_log = 0  # how many pages the writer has written by then
        self._group = GroupCommit(self._commit, self.where, is_free=self._is_free)
        self._inode, self._next_look = os.stat(self.where).st_ino, 0.0  # noqa: PTH116 - paths are text here
        watch(self)

    # Writing: everything goes through the leader of the group commit, on the one connection that writes.

    def _creation(self, new: NewRun) -> Callable[[apsw.Connection], Claim]:
        return lambda connection: writing.create_run(connection, new)

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        return self._write(lambda connection: writing.claim_run(connection, run_id, owner, lease))

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        self._write(lambda connection: writing.renew_run(connection, claim, lease))

    def request(self, run_id: str, word: str) -> None:
        self._write(lambda connection: writing.leave_word(connection, run_id, word))

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Do the work of all jobs in one transaction. Runs under the group's lead."""
        now = time.monotonic()
        look = now >= self._next_look
        for job in jobs:  # also before a run is said to have ended
            look = look or (type(job.work) is Append and job.work.status is not None)
        if look:
            self._check_file(now)
        try:
            self._transact(jobs, guarded=False)
        except _UNFIT:  # whose it was is seen when each stands alone
            self._transact(jobs, guarded=True)

    def _is_free(self) -> bool:
        """Whether no other process writes at the moment. Only for who leads: the lock is the process's, no thread's."""
        return self._writer is not None and is_free(self._lock_file)

    def _transact(self, jobs: Sequence[Job], *, guarded: bool) -> None:
        connection = self._writing()
        try:
            take(self._lock_file, self.where, self._patience)
            if connection.in_transaction:  # a leader was interrupted here; its jobs are among these
                connection.execute("rollback")
            execute = connection.cursor().execute  # one for all: cheaper than one for each statement
            execute("begin immediate")
            for job in jobs:
                self._try(connection, execute, job, guarded=guarded)
            execute("commit")
            written = connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
            if written >= self._look_at_log:
                self._look_at_log = written + schema.fold_log(connection)
        except BaseException as error:  # an interrupt too: no transaction may stay open behind it
            with contextlib.suppress(apsw.Error):  # the disk fails here too: the next leader rolls it back first
                if connection.in_transaction:
                    connection.execute("rollback")
            if isinstance(error, apsw.Error) and not isinstance(error, _UNFIT):
                raise translate(error, self.where, self._patience) from error
            raise
        finally:
            flock(self._lock_file, LOCK_UN)

    @staticmethod
    def _try(connection: apsw.Connection, execute: Callable[..., object], job: Job, *, guarded: bool) -> None:
        """Do the work of one job, or set why it could not be done."""
        work, job.error = job.work, None
        try:
            if type(work) is Append and not guarded:
                job.result = writing.add_rows(connection, work, execute)
            else:
                with connection:  # a savepoint: what fails, fails alone
                    job.result = work(connection) if callable(work) else writing.add_rows(connection, work)
        except EverstepError as error:
            job.error = error
        except _UNFIT as error:
            if not guarded:
                raise
            job.error = error

    def _writing(self) -> apsw.Connection:
        self._check_open()
        if self._writer is None:  # after a fork
            self._writer = schema.connect(self.where, read_only=False, patience=self._patience)
            self._look_at_log = 0
            self._lock_file = open_lock(self.where + "-lock")
        return self._writer

    def _check_file(self, now: float) -> None:
        """See that the file is still where others will look for it: SQLite would write on to one that was removed."""
        self._next_look = now + _LOOK_EVERY
        try:
            there = os.stat(self.where).st_ino == self._inode  # noqa: PTH116 - paths are text here
        except OSError:
            there = False
        if not there:
            raise StoreError(
                f"{self.where!r} was moved or deleted while it was open. Nothing of this write was kept; "
                "put the file back with what lies beside it, or open it where it is now."
            )

    # Reading: any thread, each on a connection of its own while it reads, in one snapshot.

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[apsw.Connection]:
        self._check_open()
        with translated(self.where), at_work():
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
                # Others may have written since: the file is looked at again next time. A query that an error cut short
                # would go on seeing what it saw, and all who read here after it, for as long as somebody has the error.
                if isinstance(connection, schema.FixedConnection) or connection.txn_state() != apsw.SQLITE_TXN_NONE:
                    connection.close()
                else:
                    self._readers.append(connection)
                if self._closed:
                    self._close_readers()

    def run(self, run_id: str) -> RunRow:
        with self._snapshot() as connection:
            return rows.find_run(connection, run_id).row

    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        with self._snapshot() as connection:
            return rows.requests(connection, run_ids)

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

    def cache(self) -> ValueCache:
        self._check_writable()
        return self._cache

    # Letting go.

    def drop(self, run_id: str) -> Counts:
        self.cache().clear()
        self._write(lambda connection: retention.hide(connection, run_id))
        self._forget_words()
        return self.reclaim()

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        if not self._write(lambda connection: retention.raise_base(connection, run_id, base, generation)):
            return None
        self._forget_words()
        return self.reclaim()

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self.cache().clear()
        self._write(lambda connection: retention.erase(connection, run_id, entries))
        self._forget_words()

    def _forget_words(self) -> None:
        """What is gone from the log must not live on in the index of its words, which is made anew when needed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.where + "-search")  # noqa: PTH108 - paths are text here

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
        with translated(self.where), at_work(), closing(schema.connect(self.where, read_only=False)) as connection:
            rows.ask(connection, "pragma wal_checkpoint(truncate)")
        return total

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        path = ":memory:" if self.read_only else self.where + "-search"
        try:
            return self._search(path, words, limit)
        except ReadOnlyError:  # so SQLite calls an index that retention removed meanwhile
            return self._search(path, words, limit)
        except DamagedError:
            if path == ":memory:" or not os.path.exists(path):  # noqa: PTH110 - paths are text here
                raise
            os.unlink(path)  # noqa: PTH108 - as above; the index is a cache, and damaged it is made anew
            return self._search(path, words, limit)

    def _search(self, path: str, words: str, limit: int) -> list[tuple[str, Entry]]:
        with self._searching, self._snapshot() as connection, translated(path), closing(SearchIndex(path)) as index:
            return reading.search(connection, index, words, limit, retention.generation(connection))

    def inspect(self) -> list[str]:
        with self._snapshot() as connection:
            found = list(reading.inspect(connection))
        # On a connection of its own: inside a transaction SQLite does not tell how much of the log it can use.
        with translated(self.where), at_work(), closing(schema.connect(self.where, read_only=True)) as connection:
            lost = lost_commits(connection, self.where)
        return found if lost is None else [*found, lost]

    def health(self) -> Health:
        with self._snapshot() as connection:
            return sqlite_health.health(connection, self.where)

    def close(self) -> None:
        if self._closed:
            return
        if not self.read_only:
            self._group.close()
            self._writing()  # opened again after a fork: to close it folds the log into the file
        self._closed = True
        with translated(self.where):
            self._close_readers()  # first, so that the last to close folds the log into the file
            writer, self._writer = self._writer, None  # a fork later must find nothing here to part from
            if writer is not None:
                try:
                    writer.close()
                finally:
                    os.close(self._lock_file)

    def _close_readers(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._readers.pop().close()

    # Around a fork, see process_fork.py.

    def rest(self, patience: float) -> bool:
        return self._group.rest(patience)

    def wake(self) -> None:
        self._group.wake()

    def part(self) -> None:
        connections = [*self._readers, *([self._writer] if self._writer is not None else [])]
        for connection in connections:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a fork should not wait for that
            connection.close()
        if self._writer is not None:
            os.close(self._lock_file)
        self._readers, self._writer = [], None

    def born(self) -> None:
        import ctypes  # noqa: PLC0415 - a millisecond that only a fork pays

        for connection in (*self._readers, *([self._writer] if self._writer is not None else [])):
            # It did not come to rest in time. Left alone for good: to close it would disturb the parent's.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._readers, self._writer = [], None
        self._searching = threading.Lock()
        self._group.born()
