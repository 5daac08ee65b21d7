"""A trail in memory: the plain model of what a store does, for tests and for runs that need not outlive the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from everstep import actual
from everstep.codec import frame
from everstep.codec.chain import Entry, genesis
from everstep.codec.keyframe import refs
from everstep.codec.record import blob_ids
from everstep.errors import (
    ClosedError,
    ConflictError,
    DamagedError,
    PrunedError,
    RunExistsError,
    RunNotFoundError,
    StaleWriterError,
    StepNotFoundError,
)
from everstep.model import FINISHED, KIND_NUMBER, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store.base import LEASE_SECONDS, Append, Claim, Counts, Keyframe, NewRun, RunQuery, RunRow, Settled
from everstep.store.cache import ValueCache
from everstep.store.health import Counted, Health, counted
from everstep.store.search import found_among

if TYPE_CHECKING:
    import asyncio


@dataclass(eq=False)
class _Run:
    """One run, its whole history with it: entries are shared between forks, the list is not."""

    key: int
    new: NewRun
    history: list[Entry]
    root: str
    start: bytes  # what its first entry is chained to
    status: int = STATUS_NUMBER[Status.ACTIVE]
    owner: str | None = None
    lease: float = 0.0
    epoch: int = 1
    base: int = 0
    ended: int | None = None
    request: str | None = None
    keyframes: dict[int, Keyframe] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)  # its own rows, by seq: which of all rows they were

    @property
    def seq(self) -> int:
        return self.base + len(self.history) - 1

    @property
    def hash(self) -> bytes:
        return self.history[-1].hash if self.history else self.start

    def at(self, seq: int) -> Entry:
        return self.history[seq - self.base]

    def require(self, seq: int) -> None:
        """See that there is a step. Raises StepNotFoundError or PrunedError."""
        if not 0 <= seq <= self.seq:
            raise StepNotFoundError(self.new.id, seq, self.seq)
        if seq < self.base:
            raise PrunedError(self.new.id, seq, self.base)


class MemoryStore:
    """A store that forgets everything when the process ends."""

    where = ":memory:"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._blobs: dict[bytes, bytes] = {}
        self._generation = 0
        self._keys = 0
        self._arrivals = count()
        self._cache = ValueCache()
        self._closed = False

    def create(self, new: NewRun) -> Claim:
        with self._lock:
            self._check_open()
            known = self._runs.get(new.id)
            if known is not None:
                if (known.owner, known.epoch) == (new.owner, 1):
                    return self._claim_of(known, new.owner, new.lease)
                raise RunExistsError(new.id)
            new = replace(new, tags=dict(new.tags))
            root, lease = new.root or new.id, actual.time() + new.lease
            run = _Run(self._keys + 1, new, [], root, genesis(root), owner=new.owner, lease=lease)
            if new.fork is not None:
                self._share(run, *new.fork)
            elif new.base is not None:
                run.base, run.start = new.base.seq + 1, new.base.hash
                self._keep(run, new.base)
            self._runs[new.id] = run
            self._keys = run.key
            if new.entries:
                claim = self._claim_of(run, new.owner, new.lease)
                self._append(Append(claim, new.entries, dict(new.blobs), new.keyframe, new.status))
            return self._claim_of(run, new.owner, new.lease)

    def _share(self, run: _Run, source_id: str, seq: int) -> None:
        source = self._find(source_id)
        source.require(seq)
        run.base, run.root, run.start = source.base, source.root, source.start
        run.history = source.history[: seq - source.base + 1]
        run.keyframes = {at: kept for at, kept in source.keyframes.items() if at <= seq}

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        with self._lock:
            self._check_open()
            run, now = self._find(run_id), actual.time()
            self._row(run).require_claimable(owner, now)
            if run.owner != owner:
                run.epoch += 1
            run.owner, run.lease, run.request = owner, now + lease, None
            return self._claim_of(run, owner, lease)

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        with self._lock:
            self._check_open()
            run = self._find(claim.run_id)
            if (run.key, run.epoch) != (claim.key, claim.epoch):
                raise StaleWriterError(claim.run_id, claim.epoch, run.epoch)
            run.owner, run.lease = (claim.owner if lease > 0 else None), actual.time() + lease

    def request(self, run_id: str, word: str) -> None:
        with self._lock:
            self._check_open()
            self._find(run_id).request = word

    def append(self, append: Append) -> bool:
        with self._lock:
            self._check_open()
            return self._append(append)

    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        kept, failure = False, None
        try:
            kept = self.append(append)
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiter gets it
            failure = error
        if settled is not None:
            settled(failure, kept)

        def wait() -> bool:
            if failure is not None:
                raise failure
            return kept

        return wait

    def submit_create(self, new: NewRun, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Claim]:
        future = loop.create_future()
        try:
            future.set_result(self.create(new))
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiter gets it
            future.set_exception(error)
        return future

    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        future, kept, failure = loop.create_future(), False, None
        try:
            kept = self.append(append)
            future.set_result(kept)
        except Exception as error:  # noqa: BLE001 - whatever it is, the waiter gets it
            failure = error
            future.set_exception(error)
        if settled is not None:
            settled(failure, kept)
        return future

    def _append(self, append: Append) -> bool:
        claim, entries = append.claim, append.entries
        run, last = self._runs.get(claim.run_id), entries[-1]
        if run is None or run.key != claim.key:
            raise ConflictError(claim.run_id, entries[0].seq, -1)
        if run.epoch != claim.epoch or run.hash != claim.hash:
            if run.base <= last.seq <= run.seq and run.at(last.seq).hash == last.hash:
                return append.keyframe is None or append.keyframe.seq in run.keyframes
            if run.epoch != claim.epoch:
                raise StaleWriterError(claim.run_id, claim.epoch, run.epoch)
            raise ConflictError(claim.run_id, entries[0].seq, run.seq)
        run.history.extend(entries)
        run.arrived.update((entry.seq, next(self._arrivals)) for entry in entries)
        run.lease = max(run.lease, actual.time() + claim.lease)
        self._blobs.update(append.blobs or {})
        if append.status is not None:
            run.status = append.status
            run.ended = last.started + last.duration if STATUSES[append.status] in FINISHED else None
            if run.ended is not None:
                run.owner = run.request = None
        if append.keyframe is None:
            return True
        if claim.generation != self._generation:
            return False
        self._keep(run, append.keyframe)
        return True

    def _keep(self, run: _Run, kept: Keyframe) -> None:
        self._blobs.update(kept.blobs)
        run.keyframes[kept.seq] = kept._replace(blobs={})

    def run(self, run_id: str) -> RunRow:
        with self._lock:
            self._check_open()
            return self._row(self._find(run_id))

    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        with self._lock:
            self._check_open()
            found = {run_id: self._runs[run_id].request for run_id in run_ids if run_id in self._runs}
            return {run_id: word for run_id, word in found.items() if word is not None}

    def runs(self, query: RunQuery) -> list[RunRow]:
        with self._lock:
            self._check_open()
            newest = sorted(self._runs.values(), key=lambda run: -run.key)
            return [row for row in map(self._row, newest) if query.fits(row)][: query.limit]

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        with self._lock:
            self._check_open()
            run = self._find(run_id)
            if first > last:
                return []
            run.require(last if last > run.seq and first >= 0 else first)
            return run.history[first - run.base : last - run.base + 1]

    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        with self._lock:
            self._check_open()
            kept = self._find(run_id).keyframes
            best = max((seq for seq in kept if seq <= at), default=None)
            return None if best is None else kept[best]._replace(blobs={})

    def blob(self, blob_id: bytes) -> bytes:
        with self._lock:
            self._check_open()
            try:
                return self._blobs[blob_id]
            except KeyError:
                raise DamagedError(f"the stored piece {blob_id.hex()} is missing") from None

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        with self._lock:
            self._check_open()
            if run_id is not None:
                rows = [(run_id, entry) for entry in _backwards(self._find(run_id), own_only=False)]
            else:
                own = [(run, entry) for run in self._runs.values() for entry in _backwards(run, own_only=True)]
                own.sort(key=lambda pair: -pair[0].arrived[pair[1].seq])
                rows = [(run.new.id, entry) for run, entry in own]
            return [(owner, entry) for owner, entry in rows if entry.kind == kind][:limit]

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        with self._lock:
            self._check_open()
            rows = [(run.new.id, entry) for run in self._runs.values() for entry in _backwards(run, own_only=True)]
        return found_among(rows, words, limit)

    def health(self) -> Health:
        with self._lock:
            self._check_open()
            now = actual.time()
            pieces = sum(map(len, self._blobs.values()))
            runs = [_counted(run, now) for run in self._runs.values()]
            sizes = {"steps": sum(run.bytes for run in runs), "pieces": pieces}
            gone = "the trail is in memory: it is gone when its program ends. Open one in a file."
            return counted(runs, now, store="memory", facts={}, sizes=sizes, dead=0, weaknesses=[gone])

    def cache(self) -> ValueCache:
        return self._cache

    def drop(self, run_id: str) -> Counts:
        self._cache.clear()
        with self._lock:
            self._check_open()
            run = self._find(run_id)
            del self._runs[run_id]
            shared = {entry.hash for other in self._runs.values() for entry in other.history}
            gone = [entry for entry in run.history if entry.hash not in shared]
            return Counts(1, len(gone), len(run.keyframes), self._sweep())

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        with self._lock:
            self._check_open()
            run = self._find(run_id)
            if generation != self._generation:
                return None
            if base.seq >= run.seq:
                raise StepNotFoundError(run_id, base.seq + 1, run.seq)
            if base.seq < run.base:
                raise PrunedError(run_id, base.seq, run.base)
            gone = base.seq + 1 - run.base
            run.history, run.base, run.start = run.history[gone:], base.seq + 1, base.hash
            older = [seq for seq in run.keyframes if seq < base.seq]
            for seq in older:
                del run.keyframes[seq]
            self._keep(run, base)
            self._generation += 1
            return Counts(0, gone, len(older), self._sweep())

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        self._cache.clear()
        with self._lock:
            self._check_open()
            named = self._find(run_id)
            for entry in entries:
                named.require(entry.seq)
            if not entries:
                return
            by_hash = {entry.hash: entry for entry in entries}
            first = min(entry.seq for entry in entries)
            for run in self._runs.values():
                changed = [by_hash.get(entry.hash, entry) for entry in run.history]
                if any(entry.hash in by_hash for entry in run.history):
                    run.keyframes = {seq: kept for seq, kept in run.keyframes.items() if seq < max(first, run.base)}
                run.history = changed
            self._generation += 1

    def reclaim(self) -> Counts:
        with self._lock:
            self._check_open()
            return Counts(0, 0, 0, self._sweep())

    def close(self) -> None:
        self._closed = True

    def _sweep(self) -> int:
        live: set[bytes] = set()
        for run in self._runs.values():
            for kept in run.keyframes.values():
                live.update(refs(frame.unpack(kept.data), lambda blob: frame.unpack(self._blobs[blob])))
            for entry in run.history:
                live.update(blob_ids(entry))
        dead = [blob for blob in self._blobs if blob not in live]
        for blob in dead:
            del self._blobs[blob]
        self._generation += bool(dead)
        return len(dead)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(self.where)

    def _find(self, run_id: str) -> _Run:
        try:
            return self._runs[run_id]
        except KeyError:
            start = run_id[: max(1, len(run_id) // 2)]
            near = tuple(sorted((known for known in self._runs if known.startswith(start)), reverse=True)[:3])
            raise RunNotFoundError(run_id, near, self.where) from None

    def _claim_of(self, run: _Run, owner: str, lease: float) -> Claim:
        return Claim(run.new.id, owner, run.epoch, run.seq, run.hash, run.key, self._generation, lease)

    def _row(self, run: _Run) -> RunRow:
        new, failed = run.new, STATUS_NUMBER[Status.FAILED]
        forked_from, fork_seq = new.fork or new.came_from or (None, None)
        end = KIND_NUMBER[Kind.END]  # says of the run what a step said before
        own = [entry for entry in _backwards(run, own_only=True) if fork_seq is None or entry.seq > fork_seq]
        errors = sum(entry.status == failed and entry.kind != end for entry in own)
        return RunRow(
            run.key, new.id, run.root, new.workflow, run.status, run.owner, run.lease, run.epoch, run.seq, run.hash,
            run.base, new.created, run.ended, new.parent, forked_from, fork_seq, new.retry_of, new.retry_index,
            dict(new.tags), errors, self._generation, run.request,
        )  # fmt: skip


def _backwards(run: _Run, *, own_only: bool) -> Iterator[Entry]:
    first = run.new.fork[1] + 1 if own_only and run.new.fork is not None else 0
    return (entry for entry in reversed(run.history) if entry.seq >= first)


def _counted(run: _Run, now: float) -> Counted:
    rows = list(_backwards(run, own_only=True))
    ended = min(now, run.lease if run.ended is None else run.ended / 1e6)
    size = sum(len(entry.meta) + len(entry.data) for entry in rows)
    return Counted(run.new.id, run.status, len(rows), size, run.new.created / 1e6, ended)
