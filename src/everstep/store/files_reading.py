"""Reading a trail of JSON files. What a fork shares stands in the folders of the runs that it came from.

A page of a run is replaced as a whole, and points at steps that do not change any more. So whoever reads needs no lock.
Only retention takes files away: what looks damaged is read again while nobody writes, and then it is certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from everstep import actual
from everstep.codec import chain
from everstep.codec.chain import Entry
from everstep.errors import DamagedError, DamageWarning, RebuiltWarning, RunNotFoundError
from everstep.model import FINISHED, KIND_NUMBER, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store import files_layout as layout
from everstep.store import files_pages as pages
from everstep.store.base import Keyframe, RunQuery, RunRow
from everstep.store.files_layout import BEGIN, RUN, Place
from everstep.store.files_pages import Facts, KeptFrame, Row

_END, _FAILED, _ACTIVE = KIND_NUMBER[Kind.END], STATUS_NUMBER[Status.FAILED], STATUS_NUMBER[Status.ACTIVE]

P = TypeVar("P", Row, KeptFrame)


class Stored(NamedTuple):
    """A run, and where it lies."""

    row: RunRow
    fork_key: int | None  # of the run that it shares rows with
    folder: Path
    rebuilt: bool = False  # whether it is told by its steps, because its page is damaged

    @property
    def first(self) -> int:
        """The seq of the first row in its own folder, pruned or not."""
        return 0 if self.fork_key is None or self.row.fork_seq is None else self.row.fork_seq + 1


class Stretch(NamedTuple):
    """Rows of one run that belong to the history of another, or to its own."""

    run: Stored
    first: int
    last: int


class Reading:
    """One look at a trail. Unless it is `certain`, somebody may write meanwhile."""

    def __init__(self, place: Place, *, certain: bool) -> None:
        self.place = place
        self.certain = certain
        self.rebuilt: list[DamageWarning] = []  # what was not as it was written, and was told otherwise or left out
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts:
        if self._facts is None:
            try:
                self._facts = self.place.facts()
            except DamagedError as damage:
                self._need_certainty(damage, self.place.marker)
                self._facts = layout.leap()
                told = "Its counts go on by the clock, and the next program that writes makes it anew"
                self.rebuilt.append(_lost(self.place.name(self.place.marker), damage, told))
        return self._facts

    def _need_certainty(self, damage: DamagedError, path: Path) -> None:
        if not self.certain:
            raise self._named(damage, path)

    def _named(
        self, damage: DamagedError, path: Path, run: RunRow | None = None, seq: int | None = None
    ) -> DamagedError:
        intact = seq - 1 if run is not None and seq is not None and seq > run.base else None
        what = f"{self.place.name(path)}: {damage.what}"
        return DamagedError(what, run_id=run and run.id, seq=seq, intact=intact)

    # Runs.

    def look(self, run_id: str) -> Stored | None:
        """The run with this id, or None. Raises DamagedError."""
        folder = self.place.run(run_id)
        if not folder.is_dir():
            return None
        return self.in_place(folder)

    def find(self, run_id: str) -> Stored:
        """The run with this id. Raises RunNotFoundError with the ids that look like it."""
        run = self.look(run_id)
        if run is not None:
            return run
        start = run_id[: max(1, len(run_id) // 2)]
        near = sorted((run.row.id for run in self.live() if run.row.id.startswith(start)), reverse=True)
        raise RunNotFoundError(run_id, tuple(near[:3]), str(self.place.root))

    def requests(self, run_ids: Iterable[str]) -> dict[str, str]:
        """The words that were left for the owners of these runs, by run. Raises DamagedError."""
        found = [run.row for run in map(self.look, run_ids) if run is not None]
        return {row.id: row.request for row in found if row.request is not None}

    def stored(self, folder: Path) -> Stored:
        """The run in a folder; told by its steps where its page is damaged. Raises DamagedError."""
        try:
            return Stored(*pages.read_run(folder / RUN, self.facts.generation), folder)
        except DamagedError as damage:
            self._need_certainty(damage, folder / RUN)
            return self._rebuild(folder, damage)

    def _rebuild(self, folder: Path, damage: DamagedError) -> Stored:
        try:
            begun = Stored(*pages.read_run(folder / BEGIN, self.facts.generation), folder)
        except DamagedError as other:
            raise self._named(DamagedError(f"{damage.what}, and {BEGIN} too: {other.what}"), folder / RUN) from None
        row = self._walk(begun)
        beyond = sum(seq > row.seq for seq in layout.numbers(folder / "steps"))
        told = f"Run {row.id!r} was read from its steps up to {row.seq}"
        told += f", and {beyond} files beyond that do not follow" if beyond else ""
        reclaim = f". In Python, everstep.open({str(self.place.root)!r}).reclaim() writes"  # there is no command for it
        told += reclaim if row.ended is not None else "; who owned it is lost. Resuming it writes"
        told += " the file anew; or take it from a backup"
        self.rebuilt.append(_lost(self.place.name(folder / RUN), damage, told))
        return begun._replace(row=row, rebuilt=True)

    def _walk(self, begun: Stored) -> RunRow:
        """A run as its steps tell it: up to the newest that is intact and follows those before."""
        row = begun.row
        for seq in layout.numbers(begun.folder / "keyframes"):
            kept = self._intact_frame(begun.folder, seq)
            if kept is not None and kept.base and seq >= row.base:
                row = row._replace(base=seq + 1)
                if seq > row.seq:
                    row = row._replace(seq=seq, hash=kept.frame.hash)
        # Greater than any that was given out, so that whoever wrote before has to claim it anew.
        row = row._replace(owner=None, lease=0.0, epoch=int(actual.time()), errors=0, status=_ACTIVE, request=None)
        while (entry := self._next(begun.folder, row)) is not None:
            ended = entry.kind == _END and STATUSES[entry.status] in FINISHED
            row = row._replace(
                seq=entry.seq, hash=entry.hash, errors=row.errors + failed(row, entry),
                status=entry.status if ended else _ACTIVE, ended=entry.started + entry.duration if ended else None,
            )  # fmt: skip
        return row

    def _intact_frame(self, folder: Path, seq: int) -> KeptFrame | None:
        try:
            return pages.read_frame(layout.frame_file(folder, seq))
        except DamagedError:
            return None

    def _next(self, folder: Path, row: RunRow) -> Entry | None:
        """The step behind those that are known, if it is intact."""
        try:
            found = pages.read_row(layout.step_file(folder, row.seq + 1))
        except DamagedError:
            return None
        sound = found.key == row.key and found.entry.seq == row.seq + 1 and chain.verified(row.hash, found.entry)
        return found.entry if sound else None

    def live(self) -> Iterator[Stored]:
        """All runs, in no order. One that cannot be told is left out, and that is said."""
        for folder in self.place.live():
            try:
                yield self.in_place(folder)
            except DamagedError as damage:
                if not self.certain:
                    raise
                self.rebuilt.append(DamageWarning(left_out(damage)))

    def in_place(self, folder: Path) -> Stored:
        """The run in a folder, if that is the folder of this run. Raises DamagedError."""
        run = self.stored(folder)
        if folder != self.place.run(run.row.id):
            raise DamagedError(f"{self.place.name(folder)} is not the folder of the run in it, {run.row.id!r}")
        return run

    def by_key(self) -> dict[int, Stored]:
        """All runs, those that were dropped and live on in their forks included. Raises DamagedError."""
        found = [self.in_place(folder) for folder in self.place.live()]
        found += [self.stored(folder) for folder in self.place.dropped()]
        runs: dict[int, Stored] = {}
        for run in found:
            other = runs.setdefault(run.row.key, run)
            if other is not run:
                raise DamagedError(f"{self.place.name(run.folder)} and {self.place.name(other.folder)} have one key")
        return runs

    def listed(self, query: RunQuery) -> list[RunRow]:
        """The runs that fit, newest first."""
        rows = sorted((run.row for run in self.live()), key=lambda row: -row.key)
        return [row for row in rows if query.fits(row)][: query.limit]

    def _source(self, run: Stored) -> Stored:
        """The run that one shares rows with."""
        known = self.place.run(run.row.forked_from or "")
        if known.is_dir():
            source = self.stored(known)
            if source.row.key == run.fork_key:
                return source
        gone = self.place.run_dropped(run.fork_key)
        if not gone.is_dir():
            raise DamagedError(
                f"the run that it was forked from, {run.row.forked_from!r}, is missing", run_id=run.row.id
            )
        return self.stored(gone)

    # Rows.

    def history(self, run: Stored) -> list[Stretch]:
        """The stretches of a run's history: its own first, then those that it shares with the runs it came from."""
        base, last = run.row.base, run.row.seq
        found: list[Stretch] = []
        while run.fork_key is not None and run.row.fork_seq is not None and run.row.fork_seq >= base:
            if run.row.fork_seq <= last:  # else it was cut below what that run has of its own
                found.append(Stretch(run, run.row.fork_seq + 1, last))
                last = run.row.fork_seq
            run = self._source(run)
        return [*found, Stretch(run, 0, last)]

    def row_at(self, whose: RunRow, holder: Stored, seq: int) -> Row:
        """A row in the folder of a run, read for a run that it belongs to. Raises DamagedError."""
        return self._at(layout.step_file(holder.folder, seq), pages.read_row, whose, holder, seq)

    def _at(self, path: Path, read: Callable[[Path], P], whose: RunRow, holder: Stored, seq: int) -> P:
        try:
            found = read(path)
        except DamagedError as damage:
            raise self._named(damage, path, whose, seq) from None
        if found.place != (holder.row.key, seq):
            raise self._named(DamagedError("it is another step's"), path, whose, seq)
        return found

    def require_all(self, run: Stored, last: int) -> None:
        """See that no row of a run's history is missing, up to one of them. Raises DamagedError with its seq."""
        for part in reversed(self.history(run)):
            there = set(layout.numbers(part.run.folder / "steps"))
            for seq in range(max(run.row.base, part.first), min(last, part.last) + 1):
                if seq not in there:
                    self.row_at(run.row, part.run, seq)  # which says so

    def rows(self, run: Stored, first: int, last: int) -> list[Row]:
        """Rows of a run's history, in order."""
        found: list[Row] = []
        for part in reversed(self.history(run)):
            seqs = range(max(first, part.first), min(last, part.last) + 1)
            found += [self.row_at(run.row, part.run, seq) for seq in seqs]
        return found

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        """Rows `first` to `last` of a run's history, in order."""
        run = self.find(run_id)
        if first > last:
            return []
        run.row.require(first, last)
        return [row.entry for row in self.rows(run, first, last)]

    def locate(self, run: Stored, seq: int) -> tuple[Stored, Row]:
        """A row of a run's history, with the run that holds it."""
        for part in self.history(run):
            if part.first <= seq <= part.last:
                return part.run, self.row_at(run.row, part.run, seq)
        raise DamagedError("a step's row is missing", run_id=run.row.id, seq=seq)

    def own(self, run: Stored) -> Iterator[Row]:
        """The rows that stand in a run's own folder and that it can still read, newest first."""
        for seq in range(run.row.seq, max(run.row.base, run.first) - 1, -1):
            yield self.row_at(run.row, run, seq)

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        """Rows of a kind, newest first."""
        if run_id is not None:
            run = self.find(run_id)
            rows = self.rows(run, run.row.base, run.row.seq)
            return [(run_id, row.entry) for row in reversed(rows) if row.entry.kind == kind][:limit]
        found = [(run.row.id, row) for run in self.live() for row in self.own(run) if row.entry.kind == kind]
        found.sort(key=lambda pair: -pair[1].mark)
        return [(owner, row.entry) for owner, row in found[:limit]]

    # Keyframes and pieces.

    def keyframe(self, run: Stored, at: int) -> Keyframe | None:
        """The newest keyframe of a run's history at or below `at`. Raises DamagedError with its seq."""
        best: Keyframe | None = None
        for part in self.history(run):
            for seq in reversed(layout.numbers(part.run.folder / "keyframes")):
                if not run.row.base - 1 <= seq <= min(at, part.last) or (best is not None and seq <= best.seq):
                    continue
                kept = self.frame_at(run.row, part.run, seq)
                if self._counts(kept, part, run):
                    best = kept.frame
                    break
        return best

    def frame_at(self, whose: RunRow, holder: Stored, seq: int) -> KeptFrame:
        """A keyframe in the folder of a run, read for a run that it belongs to. Raises DamagedError with its seq."""
        return self._at(layout.frame_file(holder.folder, seq), pages.read_frame, whose, holder, seq)

    def _counts(self, kept: KeptFrame, part: Stretch, run: Stored) -> bool:
        """Whether a keyframe is one of the run's history.

        One that is not shared is the base of a pruned run, and that run's alone: its forks may have erased what it
        tells. One of a step that was never acknowledged may have been left behind, where another step stands now.
        """
        if not kept.shared and part.run.folder != run.folder:
            return False
        seq = kept.frame.seq
        return seq < run.row.base or self.locate(run, seq)[1].entry.hash == kept.frame.hash

    def is_kept(self, run: Stored, frame: Keyframe) -> bool:
        """Whether this keyframe stands in the run's folder."""
        kept = self._intact_frame(run.folder, frame.seq)
        return kept is not None and kept.frame.hash == frame.hash

    def blob(self, blob_id: bytes) -> bytes:
        """A piece by its id. Raises DamagedError when it is missing."""
        try:
            return (self.place.pieces / blob_id.hex()).read_bytes()
        except FileNotFoundError:
            raise DamagedError(f"the stored piece {blob_id.hex()} is missing") from None


def failed(run: RunRow, entry: Entry) -> bool:
    """Whether a row counts among a run's errors. Its end says of the run what a step said before."""
    own = run.fork_seq is None or entry.seq > run.fork_seq
    return own and entry.status == _FAILED and entry.kind != _END


def left_out(damage: DamagedError) -> str:
    """What is said of a run that cannot be told by anything."""
    return f"a run was left out: {damage.what}. Take its folder from a backup."


def _lost(name: str, damage: DamagedError, what: str) -> RebuiltWarning:
    return RebuiltWarning(f"{name} was not as it was written: {damage.what}. {what}.")
