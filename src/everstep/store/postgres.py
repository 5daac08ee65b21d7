"""A trail on a PostgreSQL server: the same log, for many processes and machines.

One connection writes, and whoever leads the group commit sends the appends of all who wait as one statement. When the
connection is lost it is not known whether that was done: it is made anew, and what waits is sent again. Nothing is
written twice by that, because every write finds what it wrote.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any, TypeVar

from everstep.codec.chain import Entry
from everstep.errors import (
    EverstepError,
    ServerLostError,
    ServerUnreachableError,
)
from everstep.store import (
    postgres_creating,
    postgres_link,
    postgres_reading,
    postgres_retention,
    postgres_schema,
    postgres_writing,
)
from everstep.store.base import LEASE_SECONDS, Claim, Counts, Keyframe, NewRun, RunQuery, RunRow
from everstep.store.cache import ValueCache
from everstep.store.commit import GroupCommit, Job
from everstep.store.grouped import Grouped
from everstep.store.health import Health
from everstep.store.postgres_batch import transact
from everstep.store.postgres_health import health
from everstep.store.postgres_link import Link, driver
from everstep.store.postgres_writing import Single
from everstep.store.process_fork import at_work, watch
from everstep.store.search import SearchIndex

T = TypeVar("T")

PATIENCE = 60.0  # seconds that a call waits for a server that went away
_STARTING = 10.0  # seconds that opening waits for one that says that it is starting
_READERS = 8  # connections that read at once; further threads wait for one
_TRIES = 50  # of a transaction that others were in the way of
_NAPS = (0.0, 0.002, 0.01, 0.05, 0.1, 0.25)  # seconds between two tries; the last one again and again
_SNAPSHOT = "begin transaction isolation level repeatable read, read only"


class PostgresStore(Grouped[Link]):
    """A store on a server. `patience` bounds how long a call waits for the server to come back."""

    def __init__(self, url: str, *, read_only: bool = False, patience: float = PATIENCE) -> None:
        self._place = postgres_link.address(url)
        self.where = self._place.where
        self.read_only = read_only
        self._patience = patience
        self._closed = False
        self._idle: list[Link] = []
        self._turns = threading.BoundedSemaphore(_READERS)
        self._writer: Link | None = None
        self._cache = ValueCache()
        self._group = GroupCommit(self._commit, self.where)
        with at_work(), postgres_link.translated(self.where):
            first = self._first()
            try:
                postgres_schema.lift(first, self.where, read_only=read_only)
            except BaseException:  # an interrupt too: nobody else would close it
                first.close()
                raise
        if read_only:
            self._idle.append(first)
        else:
            self._writer = first
        watch(self)

    def _first(self) -> Link:
        end = time.monotonic() + min(_STARTING, self._patience)
        while True:
            try:
                return postgres_link.connect(self._place, read_only=self.read_only)
            except ServerUnreachableError as error:
                if not error.starting or time.monotonic() > end:
                    raise
                time.sleep(_NAPS[-1])

    # Writing: everything goes through the leader of the group commit, on the one connection that writes.

    def _creation(self, new: NewRun) -> NewRun | Callable[[Link], Claim]:
        return new if postgres_creating.is_plain(new) else lambda link: postgres_creating.create_run(link, new)

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        return self._write(Single(lambda link: postgres_writing.claim_run(link, run_id, owner, lease)))

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        self._write(Single(lambda link: postgres_writing.renew_run(link, claim, lease)))

    def request(self, run_id: str, word: str) -> None:
        self._write(lambda link: postgres_writing.leave_word(link, run_id, word))

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Do the work of all jobs durably. Runs under the group's lead."""
        try:
            self._persist(jobs)
        except Exception as error:  # of the driver, or of the work itself: all but the unfit go on
            if not postgres_link.is_unfit(error):
                raise
            for job in jobs:  # whose it was is seen when each stands alone
                self._persist_alone(job)

    def _persist_alone(self, job: Job) -> None:
        try:
            self._persist([job])
        except Exception as error:  # as above
            if not postgres_link.is_unfit(error):
                raise
            failure = postgres_link.translate(error, self.where) if isinstance(error, driver.Error) else error
            job.error = failure

    def _persist(self, jobs: Sequence[Job]) -> None:
        """Do the work of all jobs, again if others were in the way or the server went away meanwhile."""
        end, tries, said = time.monotonic() + self._patience, 0, ""
        while True:
            link = self._writing(end, said)
            try:
                transact(link, jobs)
            except driver.Error as error:
                lost, tries = postgres_link.is_lost(error, link), tries + 1
                self._settle(link)
                if lost:
                    said = said or _words(error)
                    if time.monotonic() > end:
                        raise ServerLostError(self.where, self._patience, said) from error
                if not lost and (tries > _TRIES or not postgres_link.is_passing(error)):
                    if postgres_link.is_unfit(error):
                        raise
                    raise postgres_link.translate(error, self.where) from error
            except BaseException:  # an interrupt too: what it left half done goes with the connection
                self._settle(link)
                raise
            else:
                return
            time.sleep(_NAPS[min(tries - 1, len(_NAPS) - 1)])

    def _settle(self, link: Link) -> None:
        """After a failure: let go of what was begun, or of the connection."""
        with suppress(driver.Error):
            if not link.closed and link.info.transaction_status != driver.pq.TransactionStatus.IDLE:
                link.execute("rollback")
        if link.closed or link.info.transaction_status != driver.pq.TransactionStatus.IDLE:
            self._writer = None
            link.close()

    def _writing(self, end: float, said: str = "") -> Link:
        """The connection that writes, made anew if it was lost. Raises ServerLostError when no server comes back.

        What the server said before it went tells more than that it is gone: that its disk is full, as the case may be.
        """
        self._check_open()
        naps = iter(_NAPS)
        while self._writer is None or self._writer.closed:
            try:
                self._writer = postgres_link.connect(self._place, read_only=False)
            except ServerUnreachableError as error:
                if time.monotonic() > end:
                    reason = f"{said}; then {error.reason}" if said else error.reason
                    raise ServerLostError(self.where, self._patience, reason) from error
                time.sleep(next(naps, _NAPS[-1]))
        return self._writer

    # Reading: any thread, each on a connection of its own while it reads.

    def _read(self, work: Callable[[Link], T], *, snapshot: bool = True) -> T:
        """What the work gives, in one snapshot; asked again if the connection was lost."""
        self._check_open()
        end, naps = time.monotonic() + self._patience, iter(_NAPS)
        while True:
            with self._turns, postgres_link.translated(self.where), at_work():
                try:
                    return self._read_once(work, snapshot=snapshot)
                except (_GoneError, ServerUnreachableError) as gone:
                    if time.monotonic() > end:
                        raise ServerLostError(self.where, self._patience, str(gone)) from gone
            time.sleep(next(naps, _NAPS[-1]))
            self._check_open()

    def _read_once(self, work: Callable[[Link], T], *, snapshot: bool) -> T:
        link = self._reader()
        try:
            if snapshot:
                link.execute(_SNAPSHOT)
            result = work(link)
            if snapshot:
                link.execute("commit")
        except EverstepError:
            if snapshot:
                with suppress(driver.Error):
                    link.execute("rollback")
            self._give_back(link)
            raise
        except BaseException as error:  # an interrupt too: nobody else would close it
            # A replica also ends what is in the way of what it has to follow.
            lost = isinstance(error, driver.Error) and (
                postgres_link.is_lost(error, link) or postgres_link.is_passing(error)
            )
            link.close()
            if lost:
                raise _GoneError(_words(error)) from error
            raise
        self._give_back(link)
        return result

    def _reader(self) -> Link:
        while True:
            try:
                link = self._idle.pop()
            except IndexError:
                return postgres_link.connect(self._place, read_only=True)
            if not link.closed:
                return link

    def _give_back(self, link: Link) -> None:
        if link.closed or link.info.transaction_status != driver.pq.TransactionStatus.IDLE:
            link.close()
            return
        self._idle.append(link)
        if self._closed:
            self._close_readers()

    def run(self, run_id: str) -> RunRow:
        return self._read(lambda link: postgres_reading.find_run(link, run_id).row, snapshot=False)

    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        return self._read(lambda link: postgres_reading.requests(link, run_ids), snapshot=False)

    def runs(self, query: RunQuery) -> list[RunRow]:
        return self._read(lambda link: postgres_reading.list_runs(link, query), snapshot=False)

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        found = self._read(lambda link: postgres_reading.entries(link, run_id, first, last), snapshot=False)
        if found and len(found) == last - first + 1:
            return found
        return self._read(lambda link: postgres_reading.require_entries(link, run_id, first, last))

    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        return self._read(lambda link: postgres_reading.keyframe(link, run_id, at), snapshot=False)

    def blob(self, blob_id: bytes) -> bytes:
        return self._read(lambda link: postgres_reading.blob(link, blob_id), snapshot=False)

    def blobs(self, blob_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return self._read(lambda link: postgres_reading.blobs(link, blob_ids), snapshot=False)

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        return self._read(lambda link: postgres_reading.marked(link, run_id, kind, limit))

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        def work(link: Link) -> list[tuple[str, Entry]]:
            with closing(SearchIndex(":memory:")) as index:
                return postgres_reading.search(link, index, words, limit)

        return self._read(work)

    def inspect(self) -> list[str]:
        return self._read(lambda link: list(postgres_reading.inspect(link)))

    def health(self) -> Health:
        return self._read(health)

    def cache(self) -> ValueCache:
        self._check_writable()
        return self._cache

    # Letting go.

    def drop(self, run_id: str) -> Counts:
        self.cache().clear()
        key = self.run(run_id).key
        self._write(lambda link: postgres_retention.hide(link, key))
        return self.reclaim()

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        if not self._write(lambda link: postgres_retention.raise_base(link, run_id, base, generation)):
            return None
        return self.reclaim()

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self.cache().clear()
        self._write(lambda link: postgres_retention.erase(link, run_id, entries))

    def reclaim(self) -> Counts:
        total = Counts(0, 0, 0, 0)
        for sweep in postgres_retention.SWEEPS:
            while True:
                swept = self._write(sweep)
                total = Counts(*(a + b for a, b in zip(total, swept, strict=True)))
                if not any(swept):
                    break
        return total

    def close(self) -> None:
        if self._closed:
            return
        if not self.read_only:
            self._group.close()
        self._closed = True
        self.part()

    def _close_readers(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    # Around a fork, see process_fork.py: a connection is of the process that made it.

    def rest(self, patience: float) -> bool:
        return self._group.rest(patience)

    def wake(self) -> None:
        self._group.wake()

    def part(self) -> None:
        self._close_readers()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def born(self) -> None:
        _inherited.extend([*self._idle, *([self._writer] if self._writer is not None else [])])
        self._idle, self._writer = [], None
        self._turns = threading.BoundedSemaphore(_READERS)
        self._group.born()


_inherited: list[Any] = []  # that did not come to rest in time: to close one in the child would end the parent's


class _GoneError(Exception):
    """The connection was lost."""


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())
