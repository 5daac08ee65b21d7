"""A trail of JSON files in a folder: one for each step, to be read by people, compared and kept in git.

For small runs. Processes take turns at writing, by a lock on the folder itself, which goes with whoever held it.
"""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_SH
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from everstep.codec.chain import Entry
from everstep.errors import (
    DamagedError,
    DamageWarning,
    EverstepError,
    StoreError,
    UnreadableError,
)
from everstep.store import files_checking, files_layout, files_retention, files_writing
from everstep.store.base import LEASE_SECONDS, Append, Claim, Counts, Keyframe, NewRun, RunQuery, RunRow
from everstep.store.cache import ValueCache
from everstep.store.commit import GroupCommit, Job
from everstep.store.files_layout import Place, translated
from everstep.store.files_pages import Facts
from everstep.store.files_reading import Reading
from everstep.store.files_writing import Batch
from everstep.store.grouped import Grouped
from everstep.store.health import Health
from everstep.store.lock import LOCK_EX, LOCK_UN, flock, take
from everstep.store.process_fork import at_work, watch
from everstep.store.schema import BUSY_SECONDS
from everstep.store.search import found_among

T = TypeVar("T")

# What cannot be put into a file: half a character, a number that no row holds.
_UNFIT = (OverflowError, TypeError, ValueError)


class FilesStore(Grouped[Reading]):
    """A store in a folder. `patience` bounds how long a call waits for other programs."""

    def __init__(self, path: str, *, read_only: bool = False, patience: float = BUSY_SECONDS) -> None:
        # Resolved once: a later chdir changes nothing.
        self._place = Place(Path(os.path.realpath(path)))
        self.where = str(self._place.root)
        self.read_only = read_only
        self._patience = patience
        self._closed = False
        self._folder = -1  # open while this process writes: what it locks
        self._told: deque[DamageWarning] = deque()  # what whoever writes has to be told
        self._cache = ValueCache()
        self._group = GroupCommit(self._commit, self.where)
        with translated(self.where), at_work():
            try:
                self._open()
            except PermissionError as error:
                reason = f"you may not use {error.filename!r}"
                raise UnreadableError(self.where, reason, "Ask its owner for the right to all files in it.") from error
        watch(self)

    def _open(self) -> None:
        files_layout.check_access(self._place, read_only=self.read_only)
        with self._locked(LOCK_SH if self.read_only else LOCK_EX):  # one process makes it
            found = files_layout.identify(self._place)
            if self.read_only and not found:
                way_out = "Check the path; opening for reading makes no new trail."
                raise UnreadableError(self.where, "there is no trail in it", way_out)
            reading = Reading(self._place, certain=True)
            facts = reading.facts if found else Facts()
            if not self.read_only:
                if not found or reading.rebuilt:
                    self._place.write_facts(facts)  # first: folders alone would be somebody else's
                self._place.make_folders()
        _tell(deque(reading.rebuilt))

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold the lock of the folder for a while."""
        folder = os.open(self.where, os.O_RDONLY | os.O_CLOEXEC)
        try:
            take(folder, self.where, self._patience, how)
            yield
        finally:
            os.close(folder)  # lets go of it too

    # Writing: everything goes through the leader of the group commit.

    def create(self, new: NewRun) -> Claim:
        return self._write(self._creation(new))

    def _creation(self, new: NewRun) -> Callable[[Reading], Claim]:
        return lambda reading: files_writing.create_run(reading, new)

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        return self._write(lambda reading: files_writing.claim_run(reading, run_id, owner, lease))

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        self._write(lambda reading: files_writing.renew_run(reading, claim, lease))

    def request(self, run_id: str, word: str) -> None:
        self._write(lambda reading: files_writing.leave_word(reading, run_id, word))

    def _write(self, work: Callable[[Reading], T]) -> T:
        result = super()._write(work)
        _tell(self._told)
        return result

    def _check_writable(self) -> None:
        super()._check_writable()
        _tell(self._told)  # of the write before: nobody may have waited for that

    def _commit(self, jobs: Sequence[Job]) -> None:
        """Do the work of all jobs durably. Runs under the group's lead."""
        self._check_open()
        with translated(self.where):
            folder = self._writing()
        try:
            take(folder, self.where, self._patience)
            self._check_folder(folder)
            for appends, some in groupby(jobs, lambda job: type(job.work) is Append):
                together = list(some)
                if appends:
                    self._append(together)
                else:
                    for job in together:
                        self._try(job)
        finally:
            flock(folder, LOCK_UN)

    def _append(self, jobs: Sequence[Job]) -> None:
        """Add the rows of many appends. One that does not fit fails alone; a disk that fails, fails all of them."""
        with translated(self.where):
            batch = Batch(Reading(self._place, certain=True))
        try:
            for job in jobs:
                job.error = None
                try:
                    job.result = batch.add(job.work)
                except (EverstepError, *_UNFIT) as error:
                    job.error = error
            batch.commit()
        except OSError as error:
            batch.undo()
            for job in jobs:
                job.error = files_layout.translate(error, self.where)
        self._told += batch.reading.rebuilt

    def _try(self, job: Job) -> None:
        job.error = None
        try:
            with translated(self.where):
                reading = Reading(self._place, certain=True)
                job.result = job.work(reading)
                self._told += reading.rebuilt
        except (EverstepError, *_UNFIT) as error:
            job.error = error

    def _writing(self) -> int:
        if self._folder < 0:
            self._folder = os.open(self.where, os.O_RDONLY | os.O_CLOEXEC)
        return self._folder

    def _check_folder(self, folder: int) -> None:
        """See that the folder is still where others will look for it."""
        try:
            there = os.path.samestat(os.stat(self.where), os.fstat(folder))  # noqa: PTH116 - one of two alike
        except OSError:
            there = False
        if not there:
            raise StoreError(
                f"{self.where!r} was moved or deleted while it was open. Nothing of this write was kept; "
                "put the folder back, or open it where it is now."
            )

    # Reading: any thread, without a lock as long as nothing looks damaged.

    def _read(self, work: Callable[[Reading], T]) -> T:
        self._check_open()
        with translated(self.where), at_work():
            try:
                return work(Reading(self._place, certain=False))
            except DamagedError:
                pass  # or somebody let go of it meanwhile: looked at again while nobody writes
            with self._locked(LOCK_SH):
                reading = Reading(self._place, certain=True)
                result = work(reading)
        _tell(deque(reading.rebuilt))
        return result

    def run(self, run_id: str) -> RunRow:
        return self._read(lambda reading: reading.find(run_id).row)

    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        return self._read(lambda reading: reading.requests(run_ids))

    def runs(self, query: RunQuery) -> list[RunRow]:
        return self._read(lambda reading: reading.listed(query))

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        return self._read(lambda reading: reading.entries(run_id, first, last))

    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        return self._read(lambda reading: reading.keyframe(reading.find(run_id), at))

    def blob(self, blob_id: bytes) -> bytes:
        return self._read(lambda reading: reading.blob(blob_id))

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        return self._read(lambda reading: reading.marked(run_id, kind, limit))

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        def rows_of(reading: Reading) -> list[tuple[str, Entry]]:
            return [(run.row.id, row.entry) for run in reading.live() for row in reading.own(run)]

        return found_among(self._read(rows_of), words, limit)

    def inspect(self) -> list[str]:
        self._check_open()
        with translated(self.where):
            found = [text for look in files_checking.parts(self._place) for text in self._looked(look)]
        return list(dict.fromkeys(found))  # what is damaged in all parts is said once

    def _looked(self, look: files_checking.Look) -> list[str]:
        """What is found in a part of the trail. Looked for without a lock first, as by whoever reads."""
        with at_work():
            with suppress(DamagedError):
                if not list(look(Reading(self._place, certain=False))):
                    return []
            with self._locked(LOCK_SH):
                return list(look(Reading(self._place, certain=True)))

    def health(self) -> Health:
        return self._read(files_checking.health)

    def cache(self) -> ValueCache:
        self._check_writable()
        return self._cache

    # Letting go.

    def drop(self, run_id: str) -> Counts:
        self.cache().clear()
        key = self.run(run_id).key
        self._write(lambda reading: files_retention.hide(reading, run_id, key))
        return self.reclaim()

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        if not self._write(lambda reading: files_retention.raise_base(reading, run_id, base, generation)):
            return None
        return self.reclaim()

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self.cache().clear()
        self._write(lambda reading: files_retention.erase(reading, run_id, entries))

    def reclaim(self) -> Counts:
        return self._write(files_retention.sweep)

    def close(self) -> None:
        if self._closed:
            return
        if not self.read_only:
            self._group.close()
        self._closed = True
        self._let_go()
        _tell(self._told)

    def _let_go(self) -> None:
        folder, self._folder = self._folder, -1
        if folder >= 0:
            os.close(folder)

    # Around a fork, see process_fork.py: whoever inherits the open folder would hold its lock too.

    def rest(self, patience: float) -> bool:
        return self._group.rest(patience)

    def wake(self) -> None:
        self._group.wake()

    def part(self) -> None:
        self._let_go()

    def born(self) -> None:
        self._let_go()
        self._group.born()


def _tell(told: deque[DamageWarning]) -> None:
    with suppress(IndexError):  # there is no more; each is told once, by whoever takes it
        while True:
            warnings.warn(told.popleft(), stacklevel=5)
