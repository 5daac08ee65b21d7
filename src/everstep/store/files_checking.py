"""Looking over the files of a trail: whether the words of every page are what its bytes tell, and how it fares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from everstep import actual
from everstep.codec.blobs import blob_id
from everstep.codec.record import blob_ids
from everstep.errors import DamagedError
from everstep.store import files_layout as layout
from everstep.store import files_pages as pages
from everstep.store import schema
from everstep.store.files_layout import BEGIN, FORMAT, RUN, Place
from everstep.store.files_reading import Reading, Stored, left_out
from everstep.store.health import Counted, Health, counted, facts_of_place, weaknesses_of_place

Look = Callable[[Reading], Iterator[str]]


def parts(place: Place) -> Iterator[Look]:
    """Looks that find what is damaged, missing, or says in words what its bytes do not. Many, so that nobody waits."""
    keys: dict[int, Path] = {}
    yield _marker
    for folder in (*place.live(), *place.dropped()):
        yield partial(_folder, folder, keys)
    yield _pieces


def _marker(reading: Reading) -> Iterator[str]:
    facts, path = reading.facts, reading.place.marker
    yield from map(str, reading.rebuilt) if reading.rebuilt else _words(reading, path, lambda: layout.facts_page(facts))


def _folder(folder: Path, keys: dict[int, Path], reading: Reading) -> Iterator[str]:
    """What is to be said of the folder of a run, whose keys are gathered."""
    place, gone = reading.place, layout.is_dropped(folder)
    if not folder.is_dir():  # it was let go of meanwhile
        return
    try:
        run = reading.stored(folder) if gone else reading.in_place(folder)
    except DamagedError as damage:
        yield left_out(damage)
        return
    other = folder if gone else keys.setdefault(run.row.key, folder)
    if other != folder:
        yield f"{place.name(folder)} and {place.name(other)} have one key, as if trails had been put together"
    yield from _run(reading, run)
    yield from map(str, reading.rebuilt)


def _pieces(reading: Reading) -> Iterator[str]:
    there = reading.place.pieces
    for path in sorted(there.iterdir()) if there.is_dir() else ():
        if layout.is_piece(path.name) and not _is_whole(path):
            yield f"the stored piece {path.name} was changed"


def _is_whole(piece: Path) -> bool:
    try:
        return blob_id(piece.read_bytes()).hex() == piece.name
    except FileNotFoundError:  # it was let go of meanwhile: who refers to it is told with that
        return True


def _run(reading: Reading, run: Stored) -> Iterator[str]:
    page, begin = run.folder / RUN, run.folder / BEGIN
    if not run.rebuilt:
        yield from _words(reading, page, lambda: pages.run_page(run.row, run.fork_key))
    yield from _words(reading, begin, lambda: _again(begin))
    there = layout.numbers(run.folder / "steps")
    gone = layout.is_dropped(run.folder)  # of which there is what forks share
    expected = range(0 if gone else max(run.row.base, run.first), 0 if gone else run.row.seq + 1)
    for seq in sorted({*expected, *(seq for seq in there if seq <= run.row.seq)}):
        yield from _step(reading, run.folder, seq)
    base = {run.row.base - 1} if run.row.base and not gone else set()  # which a pruned run begins with
    for seq in sorted({*layout.numbers(run.folder / "keyframes"), *base}):
        if seq <= run.row.seq:
            yield from _frame(reading, run.folder, seq)


def _again(path: Path) -> str:
    return pages.run_page(*pages.read_run(path, 0))


def _words(reading: Reading, path: Path, make: Callable[[], str]) -> Iterator[str]:
    """What is wrong with a page, by the text that its bytes give."""
    try:
        if make().encode() != path.read_bytes():
            yield f"the text of {reading.place.name(path)} was changed; what counts is what was written"
    except FileNotFoundError:  # between the two
        yield f"{reading.place.name(path)}: it is missing"
    except DamagedError as damage:
        yield f"{reading.place.name(path)}: {damage.what}"


def _step(reading: Reading, folder: Path, seq: int) -> Iterator[str]:
    path = layout.step_file(folder, seq)
    found = list(_words(reading, path, lambda: pages.row_page(pages.read_row(path))))
    yield from found
    for piece in [] if found else blob_ids(pages.read_row(path).entry):
        if not (reading.place.pieces / piece.hex()).exists():
            yield f"{reading.place.name(path)}: the piece {piece.hex()} is missing"


def _frame(reading: Reading, folder: Path, seq: int) -> Iterator[str]:
    path = layout.frame_file(folder, seq)
    yield from _words(reading, path, lambda: pages.frame_page(pages.read_frame(path)))


def health(reading: Reading) -> Health:
    """How large the trail is, and what weakens its promises."""
    place, now = reading.place, actual.time()
    runs = [_counted(run, now) for run in sorted(reading.live(), key=lambda run: run.row.key)]
    sizes = {"runs": _size(place.runs), "pieces": _size(place.pieces)}
    kind = schema.file_system(str(place.root))
    facts = {"format": FORMAT, **facts_of_place(kind)}
    dead = sum(map(_size, (*place.dropped(), place.making)))
    return counted(runs, now, store="files", facts=facts, sizes=sizes, dead=dead, weaknesses=weaknesses_of_place(kind))


def _counted(run: Stored, now: float) -> Counted:
    row = run.row
    ended = min(now, row.lease if row.ended is None else row.ended / 1e6)
    rows = max(0, row.seq + 1 - max(row.base, run.first))
    return Counted(row.id, row.status, rows, _size(run.folder), row.created / 1e6, ended)


def _size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    found = (os.path.join(path, name) for path, _, names in os.walk(folder) for name in names)  # noqa: PTH118 - quicker
    return sum(map(_size_of, found))


def _size_of(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:  # its writer was quicker
        return 0
