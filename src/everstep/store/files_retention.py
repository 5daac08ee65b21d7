"""Letting go of history in a trail of JSON files. As in SQLite: what is hidden at once is swept away afterwards.

A dropped run is moved out of sight, a pruned one says where it begins now. Sweeping removes what nobody reads any more.
A kill in between leaves files for the next `reclaim`, never a reference to what is gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Container, Sequence
from functools import partial
from pathlib import Path

from everstep.codec import frame
from everstep.codec.chain import Entry
from everstep.codec.keyframe import refs
from everstep.codec.record import blob_ids
from everstep.errors import DamagedError, PrunedError, StepNotFoundError
from everstep.store import files_layout as layout
from everstep.store import files_pages as pages
from everstep.store.base import Counts, Keyframe
from everstep.store.files_layout import RUN, Place, is_dropped
from everstep.store.files_reading import Reading, Stored, failed
from everstep.store.files_writing import Batch, save
from everstep.store.sharing import descendants, read_by_somebody

Runs = dict[int, Stored]


def _next_generation(reading: Reading) -> None:
    """No keyframe that was made of what was read before is kept from here on."""
    reading.place.write_facts(reading.facts._replace(generation=layout.after(reading.facts.generation)))


def hide(reading: Reading, run_id: str, key: int) -> None:
    """Drop a run: its id is free again, and nobody may write to it. Again, it changes nothing."""
    place, run = reading.place, reading.look(run_id)
    if run is not None and run.row.key == key:
        run.folder.rename(place.run_dropped(key))
        layout.sync(place.runs)


def raise_base(reading: Reading, run_id: str, base: Keyframe, since: int) -> bool:
    """Make `base` the oldest state of a run, unless pieces were removed since it was made."""
    run = reading.find(run_id)
    row = run.row
    if reading.facts.generation != since:
        return False
    if run.rebuilt:  # what lies beyond its newest intact step would be lost with it
        raise DamagedError(f"{RUN} is damaged: resume the run before it is pruned", run_id=run_id)
    if base.seq >= row.seq:
        raise StepNotFoundError(run_id, base.seq + 1, row.seq)
    if base.seq < row.base:
        raise PrunedError(run_id, base.seq, row.base)
    _next_generation(reading)
    # One that stood there before is in the forks' history too, and stays so.
    stood = layout.frame_file(run.folder, base.seq).exists() and reading.frame_at(row, run, base.seq).shared
    row = row._replace(base=base.seq + 1)
    row = row._replace(errors=sum(failed(row, found.entry) for found in reading.own(run._replace(row=row))))
    batch = Batch(Reading(reading.place, certain=True))
    batch.begin(run._replace(row=row))
    batch.put_frame(run, base, shared=stood, base=True)
    batch.commit()
    return True


def erase(reading: Reading, run_id: str, entries: Sequence[Entry]) -> None:
    """Put erased rows in place, and drop every keyframe that was made after them, in the run and in its forks."""
    run = reading.find(run_id)
    if not entries:
        return
    for entry in entries:
        run.row.require(entry.seq)
    rows = [reading.locate(run, entry.seq) for entry in entries]
    _next_generation(reading)
    runs, first = reading.by_key(), min(entry.seq for entry in entries)
    for part in reading.history(run):
        if part.last >= first:
            _forget_frames(reading, runs, part.run.row.key, first)
    for entry, (holder, row) in zip(entries, rows, strict=True):
        layout.replace(layout.step_file(holder.folder, entry.seq), pages.row_page(row._replace(entry=entry)))
    for folder in {holder.folder for holder, _ in rows}:
        layout.sync(folder / "steps")


def _forget_frames(reading: Reading, runs: Runs, key: int, first: int) -> None:
    for member, last in descendants(key, partial(_forks, runs)):
        if last is not None and last < first:
            continue
        run = runs[member]
        there = [seq for seq in layout.numbers(run.folder / "keyframes") if seq >= first]
        for seq in there:
            path = layout.frame_file(run.folder, seq)
            if seq >= run.row.base:
                path.unlink()
            else:  # the base of a pruned run, which cannot do without it; no fork may look at it any more
                kept = reading.frame_at(run.row, run, seq)
                layout.replace(path, pages.frame_page(kept._replace(shared=False)))
        if there:
            layout.sync(run.folder / "keyframes")


def _forks(runs: Runs, key: int) -> list[tuple[int, int]]:
    forks = (run.row for run in runs.values() if run.fork_key == key)
    return [(fork.key, -1 if fork.fork_seq is None else fork.fork_seq) for fork in forks]


def _base(runs: Runs, key: int) -> int | None:
    return None if is_dropped(runs[key].folder) else runs[key].row.base


def sweep(reading: Reading) -> Counts:
    """Remove what nobody reads: rows, keyframes, dropped runs without forks, pieces that nothing refers to."""
    place = reading.place
    shutil.rmtree(place.making, ignore_errors=True)
    runs, gone, rows, frames = reading.by_key(), 0, 0, 0
    for run in runs.values():
        if run.rebuilt and run.row.ended is not None:  # nothing is beyond its end, and nobody will resume it
            save(run)
    while True:
        for run in runs.values():
            if run.rebuilt and not is_dropped(run.folder):
                continue  # what lies beyond the step that is damaged may be all that is left of it
            read = read_by_somebody(run.row, partial(_forks, runs), partial(_base, runs))
            rows += _sweep_files(run.folder / "steps", range(read.start, read.stop), run.row.seq)
            frames += _sweep_files(run.folder / "keyframes", _frames_read(reading, run, read), run.row.seq)
        forked = {run.fork_key for run in runs.values()}
        done = [
            run for run in runs.values()
            if is_dropped(run.folder) and run.row.key not in forked and not layout.numbers(run.folder / "steps")
        ]  # fmt: skip
        for run in done:
            frames += len(layout.numbers(run.folder / "keyframes"))
            _remove_folder(place, run.folder)
            del runs[run.row.key]
        gone += len(done)
        if not done:
            return Counts(gone, rows, frames, _sweep_pieces(place, reading, runs))


def _frames_read(reading: Reading, run: Stored, read: range) -> Container[int]:
    """Which of a run's keyframes somebody may look at; of a dropped one, those that are its forks' too."""
    near = range(read.start - 1, read.stop)
    if not is_dropped(run.folder):
        return near
    there = (seq for seq in layout.numbers(run.folder / "keyframes") if seq in near)
    return {seq for seq in there if reading.frame_at(run.row, run, seq).shared}


def _sweep_files(folder: Path, keep: Container[int], last: int) -> int:
    """Remove the files whose numbers are not among those to keep. How many of them had been acknowledged."""
    dead = [seq for seq in layout.numbers(folder) if seq not in keep]
    layout.remove([*layout.leftovers(folder), *(folder / f"{seq:06}.json" for seq in dead)])
    if dead:
        layout.sync(folder)
    return sum(seq <= last for seq in dead)


def _remove_folder(place: Place, folder: Path) -> None:
    """Remove a dropped run: out of its place first, so that nobody finds half of it."""
    place.making.mkdir(exist_ok=True)
    last = folder.rename(place.making / f"{folder.name}")
    layout.sync(place.runs)
    shutil.rmtree(last)


def _sweep_pieces(place: Place, reading: Reading, runs: Runs) -> int:
    layout.remove(layout.leftovers(place.pieces))
    try:
        there = {bytes.fromhex(path.name): path for path in place.pieces.iterdir() if layout.is_piece(path.name)}
    except FileNotFoundError:
        return 0
    if not there:  # as in most trails of small runs: no need to read them
        return 0
    live: set[bytes] = set()
    for run in runs.values():
        for seq in layout.numbers(run.folder / "keyframes"):
            kept = reading.frame_at(run.row, run, seq).frame
            live.update(refs(frame.unpack(kept.data), lambda piece: frame.unpack(reading.blob(piece))))
        for seq in layout.numbers(run.folder / "steps"):
            live.update(blob_ids(reading.row_at(run.row, run, seq).entry))
    dead = [path for name, path in there.items() if name not in live]
    if dead:
        _next_generation(reading)
        layout.remove(dead)
        layout.sync(place.pieces)
    return len(dead)
