"""Looking over a trail for damage: every row against the chain, every keyframe and piece against its digest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from everstep.codec import frame
from everstep.codec.keyframe import refs
from everstep.codec.shown import count
from everstep.errors import DamagedError, DamageWarning, PrunedError, RunNotFoundError
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import ALL, Inspects, Keyframe, RunQuery, RunRow, Store
from everstep.trail.reading import Reader

_CHECKPOINT, _END, _FAILED = KIND_NUMBER[Kind.CHECKPOINT], KIND_NUMBER[Kind.END], STATUS_NUMBER[Status.FAILED]
_PAGE = 1_000
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not what was written. `intact` is the newest step below it that can be read."""

    what: str
    run_id: str | None = None
    seq: int | None = None
    intact: int | None = None

    def __str__(self) -> str:
        where = f"{self.run_id}@{self.seq}: " if self.seq is not None else f"{self.run_id}: " if self.run_id else ""
        return f"{where}{self.what}" + (f" (intact up to {self.intact})" if self.intact is not None else "")


@dataclass(frozen=True, slots=True)
class Report:
    """What a look over the trail found."""

    runs: int
    entries: int
    damage: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        return not self.damage

    def __str__(self) -> str:
        head = f"{count(self.runs, 'run')}, {count(self.entries, 'entry')}: " + (
            "intact" if self.ok else f"{count(len(self.damage), 'place')} damaged"
        )
        return "\n".join([head, *(f"  {damage}" for damage in self.damage)])


def verify(store: Store, run_id: str | None) -> Report:
    """Check one run, or everything. Damage in one place does not stop the look at the rest."""
    runs, damage = _to_check(store, run_id)
    checked, entries = 0, 0
    for run in runs:
        try:
            seen, found = _as_it_stands(store, run)
        except RunNotFoundError:
            if run_id is not None or _is_listed(store, run):
                raise
            continue  # it was dropped meanwhile
        except DamagedError as error:
            seen, found = 0, [_damage(error, run.id)]
        checked += 1
        entries += seen
        damage += found
    if run_id is None and isinstance(store, Inspects):
        try:
            damage += [Damage(what) for what in store.inspect()]
        except DamagedError as error:
            damage.append(_damage(error))
    return Report(checked, entries, tuple(_each_once(damage)))


def _damage(error: DamagedError, run_id: str | None = None) -> Damage:
    return Damage(error.what, error.run_id or run_id, error.seq, error.intact)


def _each_once(damage: list[Damage]) -> Iterator[Damage]:
    """What is told of a place is not told of the trail again."""
    known = set[str]()
    for one in damage:
        if one.run_id is not None or one.what not in known:
            yield one
        known.add(one.what)


def _to_check(store: Store, run_id: str | None) -> tuple[list[RunRow], list[Damage]]:
    """The runs that can be looked at, and what is wrong with the others."""
    runs, damage = list[RunRow](), list[Damage]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamageWarning)
        try:
            for run in [store.run(run_id)] if run_id is not None else _all_runs(store):
                runs.append(run)  # those before a damaged one are kept
        except DamagedError as error:
            damage.append(_damage(error))
    told = dict.fromkeys(str(each.message) for each in caught if issubclass(each.category, DamageWarning))
    return runs, [*map(Damage, told), *damage]


def _all_runs(store: Store) -> Iterator[RunRow]:
    """All runs, newest first. Raises DamagedError behind the last that can be read."""
    last, size = None, _PAGE
    while True:
        try:
            page = store.runs(RunQuery(limit=size, before=last))
        except DamagedError:
            if size == 1:
                raise
            size = 1  # one by one, up to the place
            continue
        if not page:
            return
        if last is not None and page[0].key >= last:  # else it would never end
            raise DamagedError("the runs are not in order")
        yield from page
        last = page[-1].key


def _is_listed(store: Store, run: RunRow) -> bool:
    return run.key in {row.key for row in store.runs(RunQuery(limit=1, before=run.key + 1))}


def _as_it_stands(store: Store, run: RunRow) -> tuple[int, list[Damage]]:
    """What is found in a run, of which retention may take away meanwhile what was to be looked at: then again."""
    seen, found = 0, list[Damage]()
    for _ in range(_TRIES):
        try:
            seen, found = _verify_run(store, run)
            now = store.run(run.id) if found else run
        except PrunedError as error:
            found, now = [Damage(str(error), run.id)], store.run(run.id)
        if (now.key, now.base, now.generation) == (run.key, run.base, run.generation):
            break
        run = now
    return seen, found


def _verify_run(store: Store, run: RunRow) -> tuple[int, list[Damage]]:
    """How many rows of its history were seen, and what is wrong with them or with what belongs to them."""
    damage: list[Damage] = []
    keyframes = {kept.seq: kept.hash for kept in _intact_keyframes(store, run, damage)}
    seen, failed, last, marks = 0, 0, b"", list[int]()
    first_own = 0 if run.fork_seq is None else run.fork_seq + 1
    try:
        for rows in Reader(store).history(run):
            seen += len(rows)
            last = rows[-1].hash
            marks += [entry.seq for entry in rows if entry.kind == _CHECKPOINT]
            failed += sum(entry.seq >= first_own for entry in rows if entry.status == _FAILED and entry.kind != _END)
            damage += [
                Damage("a keyframe does not belong to its step", run.id, entry.seq)
                for entry in (rows[seq - rows[0].seq] for seq in keyframes if rows[0].seq <= seq <= rows[-1].seq)
                if keyframes[entry.seq] != entry.hash
            ]
    except DamagedError as found:
        return seen, [*damage, *_with_those_below(store, run, found)]
    if seen and last != run.hash:
        damage.append(Damage("the run does not point at its newest step", run.id, run.seq))
    if failed != run.errors:
        damage.append(Damage(f"its index counts {run.errors} failed steps; there are {failed}", run.id))
    if [entry.seq for _, entry in store.marked(run.id, _CHECKPOINT, ALL) if entry.seq <= run.seq] != marks[::-1]:
        damage.append(Damage("its index of checkpoints does not match its steps", run.id))
    return seen, damage


def _with_those_below(store: Store, run: RunRow, found: DamagedError) -> list[Damage]:
    """What was found, behind what is damaged before it: a missing row is seen before those below it are read."""
    below: list[Damage] = []
    intact = found.intact if found.intact is not None and found.intact < run.seq else None
    if intact is not None:
        try:
            for _ in Reader(store).history(run._replace(seq=intact)):
                pass
        except DamagedError as lower:
            if lower.intact is None or lower.intact < intact:  # else a row does not say where it stands
                below = _with_those_below(store, run, lower)
            intact = below[0].intact if below else None
    return [*below, Damage(found.what, run.id, found.seq, intact)]


def _intact_keyframes(store: Store, run: RunRow, damage: list[Damage]) -> Iterator[Keyframe]:
    """The keyframes that can be used; those that cannot are added to the damage. A piece is checked once."""
    reader, at, checked = Reader(store), run.seq, set[bytes]()
    while at >= 0:
        try:
            kept = store.keyframe(run.id, at)
            if kept is None:
                return
            at = kept.seq
            pieces = [piece for piece in refs(frame.unpack(kept.data), reader.fetch, checked) if piece not in checked]
            for piece in pieces:
                reader.piece(piece)
            checked.update(pieces)  # when all are sound, and all that they refer to
            yield kept
        except DamagedError as found:
            at = min(at, at if found.seq is None else found.seq)
            damage.append(Damage(f"a keyframe cannot be used: {found.what}", run.id, at))
        at -= 1
