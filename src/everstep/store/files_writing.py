"""Writing to a trail of JSON files, under its lock: first what is new, then the page that points at it.

A run moves when its page is replaced. Steps that lie beyond what that points at were never acknowledged: they are
read by nobody, and the next writer writes over them.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from everstep import actual
from everstep.codec.chain import genesis
from everstep.errors import ConflictError, DamagedError, RunExistsError, StaleWriterError
from everstep.model import FINISHED, KIND_NUMBER, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store import files_layout as layout
from everstep.store import files_pages as pages
from everstep.store.base import Append, Claim, Keyframe, NewRun, RunRow
from everstep.store.files_layout import BEGIN, RUN
from everstep.store.files_pages import KeptFrame, Row
from everstep.store.files_reading import Reading, Stored, failed

_CHECKPOINT = KIND_NUMBER[Kind.CHECKPOINT]
_LONGEST = 1e11  # seconds: the longest lease, some three thousand years


def until(lease: float) -> float:
    """When a lease ends."""
    return actual.time() + min(lease, _LONGEST)


class Batch:
    """Appends that become durable together: each file is synced once, and each run's page replaced once."""

    def __init__(self, reading: Reading) -> None:
        self.place, self.reading = reading.place, reading
        self._facts = reading.facts
        self._runs: dict[int, Stored] = {}  # that move, by key
        self._files: dict[Path, None] = {}  # that are new
        self._folders: dict[Path, None] = {}  # whose names have to be on disk before a page is replaced

    def begin(self, run: Stored) -> None:
        """Take a run in that is being made."""
        self._runs[run.row.key] = run

    def add(self, append: Append) -> bool:
        """Add rows to a run, or find that they are there. Raises ConflictError or StaleWriterError, nothing added."""
        claim = append.claim
        run = self._runs.get(claim.key) or self.reading.look(claim.run_id)
        if run is None or run.row.key != claim.key:
            raise ConflictError(claim.run_id, append.entries[0].seq, -1)
        if (run.row.epoch, run.row.hash) != (claim.epoch, claim.hash):
            return self._explain(run, append)
        made, marks = [], self._facts.marks
        for entry in append.entries:
            if entry.kind == _CHECKPOINT:
                marks = layout.after(marks)
            row = Row(claim.key, marks if entry.kind == _CHECKPOINT else 0, entry)
            made.append((layout.step_file(run.folder, entry.seq), pages.row_page(row)))
        self._runs[claim.key] = run._replace(row=_moved(run.row, append))
        self._facts = self._facts._replace(marks=marks)
        for path, text in made:
            self._write(path, text)
        # Where they stand now, a writer that was killed may have left keyframes of steps that never were.
        layout.remove([layout.frame_file(run.folder, entry.seq) for entry in append.entries])
        self._put_pieces(append.blobs or {})
        return append.keyframe is None or self._keep(run, append.keyframe, claim.generation)

    def _explain(self, run: Stored, append: Append) -> bool:
        """Why an append did not fit: nothing if its rows are there already (it was sent again), else a typed error."""
        claim, last, row = append.claim, append.entries[-1], run.row
        if row.base <= last.seq <= row.seq and self.reading.locate(run, last.seq)[1].entry.hash == last.hash:
            if not run.rebuilt:
                self._runs.setdefault(row.key, run)  # whoever wrote it may have been killed before it was on disk
            return append.keyframe is None or self.reading.is_kept(run, append.keyframe)
        if row.epoch != claim.epoch:
            raise StaleWriterError(claim.run_id, claim.epoch, row.epoch)
        raise ConflictError(claim.run_id, append.entries[0].seq, row.seq)

    def _write(self, path: Path, text: str) -> None:
        self._files[path] = self._folders[path.parent] = None  # first: what is written in part is removed too
        layout.write(path, text)

    def _put_pieces(self, blobs: dict[bytes, bytes]) -> None:
        for name, data in blobs.items():
            path = self.place.pieces / name.hex()
            self._folders[path.parent] = None
            if not path.exists():
                layout.replace(path, data)

    def _keep(self, run: Stored, frame: Keyframe, generation: int) -> bool:
        """Store a keyframe, unless retention removed pieces it may share since the writer read them."""
        if generation != self._facts.generation:
            return False
        self.put_frame(run, frame, shared=True, base=False)
        return True

    def put_frame(self, run: Stored, frame: Keyframe, *, shared: bool, base: bool) -> None:
        """Store a keyframe and the pieces that are new with it."""
        self._put_pieces(frame.blobs)
        path = layout.frame_file(run.folder, frame.seq)
        self._folders[path.parent] = None
        layout.replace(path, pages.frame_page(KeptFrame(run.row.key, frame, shared, base)))

    def commit(self) -> None:
        """Make all of it durable."""
        for path in (*self._files, *self._folders):
            layout.sync(path)
        if self._facts != self.reading.facts or self.reading.rebuilt:
            self.place.write_facts(self._facts)
        ready: list[tuple[Path, Path]] = []
        for run in self._runs.values():
            path = run.folder / RUN
            ready.append((layout.prepare(path, pages.run_page(run.row, run.fork_key)), path))
        self._files.clear()  # from here on something may refer to them
        for beside, path in ready:
            beside.replace(path)
        for run in self._runs.values():
            layout.sync(run.folder)

    def undo(self) -> None:
        """After a failure: remove what is new, unless something refers to it."""
        with suppress(OSError):  # what stays is read by nobody
            layout.remove([*self._files])


def _moved(row: RunRow, append: Append) -> RunRow:
    """A run as it stands with the rows of an append."""
    last = append.entries[-1]
    row = row._replace(
        seq=last.seq, hash=last.hash, lease=max(row.lease, until(append.claim.lease)),
        errors=row.errors + sum(failed(row, entry) for entry in append.entries),
    )  # fmt: skip
    if append.status is None:
        return row
    if STATUSES[append.status] not in FINISHED:
        return row._replace(status=append.status, ended=None)
    ended = last.started + last.duration
    return row._replace(status=append.status, ended=ended, owner=None, request=None)


def save(run: Stored) -> None:
    """Replace the page of a run. Durable on return."""
    layout.replace(run.folder / RUN, pages.run_page(run.row, run.fork_key))
    layout.sync(run.folder)


# Runs.


class _Start(NamedTuple):
    """Where a new run begins: nowhere, at a row of the run it was forked from, or behind what was pruned elsewhere."""

    seq: int
    hash: bytes
    root: str
    fork_key: int | None = None
    base: Keyframe | None = None


def create_run(reading: Reading, new: NewRun) -> Claim:
    """Add a run with its first rows, owned; a fork begins at a row of its source. The same again finds it there."""
    place, known, facts = reading.place, reading.look(new.id), reading.facts
    if known is not None:
        if (known.row.owner, known.row.epoch) != (new.owner, 1):
            raise RunExistsError(new.id)
        layout.sync(place.runs)  # sent again after an interrupt, which may have come before this
        return _claim(known.row, new.owner, new.lease)
    start = _start(reading, new)
    row = _first_row(new, start, facts._replace(keys=layout.after(facts.keys)))
    place.write_facts(facts._replace(keys=row.key))
    folder = place.making / str(row.key)
    shutil.rmtree(folder, ignore_errors=True)
    run, batch = Stored(row, start.fork_key, folder), Batch(Reading(place, certain=True))
    begun = row._replace(owner=None, lease=0.0)  # which nobody could rely on
    layout.write(folder / BEGIN, pages.run_page(begun, start.fork_key))
    layout.sync(folder / BEGIN)
    batch.begin(run)
    if start.base is not None:
        batch.put_frame(run, start.base, shared=False, base=True)
    claim = _claim(row, new.owner, new.lease)
    if new.entries:
        batch.add(Append(claim, new.entries, new.blobs, new.keyframe, new.status))
        claim = claim._replace(seq=new.entries[-1].seq, hash=new.entries[-1].hash)
    batch.commit()
    folder.rename(place.run(new.id))
    layout.sync(place.runs)
    return claim


def _start(reading: Reading, new: NewRun) -> _Start:
    root = new.root or new.id
    if new.fork is not None:
        return _fork_point(reading, *new.fork)
    if new.base is not None:
        return _Start(new.base.seq, new.base.hash, root, None, new.base)
    return _Start(-1, genesis(root), root)


def _fork_point(reading: Reading, source_id: str, seq: int) -> _Start:
    source = reading.find(source_id)
    source.row.require(seq)
    reading.require_all(source, seq)  # it would be made of what nobody can read
    link, kept = reading.locate(source, seq)[1].entry.hash, None
    if source.row.base > 0:
        kept = reading.keyframe(source, source.row.base - 1)
        if kept is None:
            raise DamagedError("the keyframe that a pruned run begins with is missing", run_id=source_id)
    return _Start(seq, link, source.row.root, source.row.key, kept)


def _first_row(new: NewRun, start: _Start, facts: pages.Facts) -> RunRow:
    forked_from, fork_seq = new.fork or new.came_from or (None, None)
    return RunRow(
        key=facts.keys, id=new.id, root=start.root, workflow=new.workflow, status=STATUS_NUMBER[Status.ACTIVE],
        owner=new.owner, lease=until(new.lease), epoch=1, seq=start.seq, hash=start.hash,
        base=0 if start.base is None else start.base.seq + 1, created=new.created, ended=None, parent=new.parent,
        forked_from=forked_from, fork_seq=fork_seq, retry_of=new.retry_of, retry_index=new.retry_index,
        tags=dict(new.tags), errors=0, generation=facts.generation,
    )  # fmt: skip


def _claim(row: RunRow, owner: str, lease: float) -> Claim:
    return Claim(row.id, owner, row.epoch, row.seq, row.hash, row.key, row.generation, lease)


def claim_run(reading: Reading, run_id: str, owner: str, lease: float) -> Claim:
    """Give a run to a new owner, unless it has completed or another still holds it."""
    run = reading.find(run_id)
    row, now = run.row, actual.time()
    row.require_claimable(owner, now)
    epoch = row.epoch if row.owner == owner else row.epoch + 1  # the same owner asking again keeps its own
    row = row._replace(owner=owner, lease=until(lease), epoch=epoch, request=None)
    save(run._replace(row=row))
    return _claim(row, owner, lease)


def renew_run(reading: Reading, claim: Claim, lease: float) -> None:
    """Hold a run for longer, or give it up."""
    run = reading.find(claim.run_id)
    if (run.row.key, run.row.epoch) != (claim.key, claim.epoch):
        raise StaleWriterError(claim.run_id, claim.epoch, run.row.epoch)
    owner = claim.owner if lease > 0 else None
    save(run._replace(row=run.row._replace(owner=owner, lease=until(lease))))


def leave_word(reading: Reading, run_id: str, word: str) -> None:
    """Leave a word for the owner of a run."""
    run = reading.find(run_id)
    if not run.rebuilt:  # else nobody owns it
        save(run._replace(row=run.row._replace(request=word)))
