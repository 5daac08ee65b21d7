"""Letting go of history in SQLite: what is hidden at once is swept away in small transactions, and can be resumed.

Marking (a run dropped, a base raised) is one transaction and decides what can be read. Sweeping removes what nothing
reads any more: rows below every base that needs them, runs without rows, pieces without a keyframe or row. A crash
between two sweeps leaves work for the next `reclaim`, never a reference to what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import apsw

from everstep.codec import frame
from everstep.codec.chain import Entry
from everstep.codec.keyframe import refs
from everstep.errors import PrunedError, StepNotFoundError
from everstep.store import reading, rows
from everstep.store.base import Counts, Keyframe, RunRow
from everstep.store.rows import StoredRun
from everstep.store.sharing import descendants, read_by_somebody

_BLANK = "update step set run = 0, prev = null, meta = x'', data = x'' where id = ?"
_UNSHARED = "not exists(select 1 from run as child where child.fork_key = run.key)"
_ROWS_AT_ONCE = 2_000
_PAGES_AT_ONCE = 2_000


def generation(connection: apsw.Connection) -> int:
    """Rises whenever pieces were removed: a keyframe built on what was read before must not be kept."""
    value: int = rows.ask(connection, "select value from fact where name = 'generation'")[0][0]
    return value


def _next_generation(connection: apsw.Connection) -> None:
    connection.execute("update fact set value = value + 1 where name = 'generation'")


def put_keyframe(connection: apsw.Connection, key: int, kept: Keyframe, row: int | None) -> None:
    """Store a keyframe and the pieces that are new with it."""
    connection.executemany("insert or ignore into blob values(?, ?)", kept.blobs.items())
    seal = rows.keyframe_seal(key, kept.seq, kept.hash, kept.data)
    connection.execute(
        "insert or replace into keyframe values(?, ?, ?, ?, ?, ?)", (key, kept.seq, row, kept.hash, kept.data, seal)
    )


def hide(connection: apsw.Connection, run_id: str) -> None:
    """Drop a run: its id is free again, and nobody may write to it."""
    run = rows.find_run(connection, run_id).row
    connection.execute("update run set id = null, owner = null, epoch = epoch + 1 where key = ?", (run.key,))
    rows.reseal(connection, run.key)
    connection.executemany(
        "delete from tag where name = ? and value = ? and run = ?", [(*tag, run.key) for tag in run.tags.items()]
    )


def raise_base(connection: apsw.Connection, run_id: str, base: Keyframe, since: int) -> bool:
    """Make `base` the oldest state of a run, unless pieces were removed since it was made."""
    run = rows.find_run(connection, run_id).row
    if generation(connection) != since:
        return False
    if base.seq >= run.seq:
        raise StepNotFoundError(run_id, base.seq + 1, run.seq)
    if base.seq < run.base:
        raise PrunedError(run_id, base.seq, run.base)
    # One that stood there before is in the forks' history too, and stays so.
    stood = rows.ask(connection, "select row from keyframe where run = ? and seq = ?", (run.key, base.seq))
    put_keyframe(connection, run.key, base, stood[0][0] if stood else None)
    connection.execute("update run set base = ? where key = ?", (base.seq + 1, run.key))
    _next_generation(connection)
    rows.reseal(connection, run.key)
    return True


def erase(connection: apsw.Connection, run_id: str, entries: Sequence[Entry]) -> None:
    """Put erased rows in place, and drop every keyframe that was made after them, in the run and in its forks."""
    run = rows.find_run(connection, run_id)
    if not entries:
        return
    for entry in entries:
        run.row.require(entry.seq)
        row, _ = reading.locate(connection, run, entry.seq)
        connection.execute("update step set meta = ?, data = ? where id = ?", (entry.meta, entry.data, row))
        connection.execute("delete from ref where row = ?", (row,))
    first = min(entry.seq for entry in entries)
    for part in rows.history(connection, run):
        if part.last >= first:
            _forget_keyframes(connection, part.run.row.key, first)
    _next_generation(connection)


def _forget_keyframes(connection: apsw.Connection, key: int, first: int) -> None:
    for run, last in descendants(key, partial(_forks, connection)):
        if last is not None and last < first:
            continue
        connection.execute(
            "delete from keyframe where run = ?1 and seq >= ?2 and seq >= (select base from run where key = ?1)",
            (run, first),
        )
        # What is left there is the base of a pruned run, which cannot do without it; no fork may look at it any more.
        connection.execute("update keyframe set row = null where run = ? and seq >= ?", (run, first))


def _forks(connection: apsw.Connection, key: int) -> list[tuple[Any, ...]]:
    return rows.ask(connection, "select key, fork_seq from run where fork_key = ?", (key,))


def _base(connection: apsw.Connection, key: int) -> int | None:
    alive, base = rows.ask(connection, "select id is not null, base from run where key = ?", (key,))[0]
    return base if alive else None


def _read_by_somebody(connection: apsw.Connection, run: RunRow) -> range:
    return read_by_somebody(run, partial(_forks, connection), partial(_base, connection))


def sweep_rows(connection: apsw.Connection) -> Counts:
    """Remove up to a couple of thousand rows that nobody reads."""
    candidates = rows.ask(connection, "select key from run where (id is null or base > swept) and swept <= seq")
    for (key,) in candidates:
        run = rows.run_by_key(connection, key)
        read, end = _read_by_somebody(connection, run.row), run.row.seq + 1
        oldest = read.start if read.stop > run.swept else end  # what is read may all be below its own rows
        target = min(oldest, run.swept + _ROWS_AT_ONCE)
        if target > run.swept:
            removed = _remove_rows(connection, run, run.swept, target - 1)
            connection.execute("update run set swept = ? where key = ?", (target, key))
            return Counts(0, removed, 0, 0)
        if read.stop < end:
            return Counts(0, _cut(connection, run, max(read.stop, end - _ROWS_AT_ONCE) - 1), 0, 0)
    return Counts(0, 0, 0, 0)


def _cut(connection: apsw.Connection, run: StoredRun, last: int) -> int:
    """Shorten a dropped run, of which its forks share no more."""
    row, link = reading.locate(connection, run, last)
    removed = _remove_rows(connection, run, last + 1, run.row.seq)
    connection.execute("update run set seq = ?, hash = ?, head = ? where key = ?", (last, link, row, run.row.key))
    return removed


def _remove_rows(connection: apsw.Connection, run: StoredRun, first: int, last: int) -> int:
    ids = reading.row_ids(connection, run, first, last)
    newest = rows.ask(connection, "select max(id) from step")[0][0]
    # The newest row of all stays as a blank: row ids then never come again, and nothing mistakes a new for an old.
    connection.executemany("delete from step where id = ?", [(row,) for row in ids if row != newest])
    connection.executemany("delete from ref where row = ?", [(row,) for row in ids])
    if newest in ids:
        connection.execute(_BLANK, (newest,))
    return len(ids)


def sweep_keyframes(connection: apsw.Connection) -> Counts:
    """Remove keyframes that stand where nobody reads."""
    removed = 0
    for (key,) in rows.ask(
        connection,
        "select distinct key from run join keyframe on keyframe.run = key where id is null or keyframe.seq < base - 1",
    ):
        read = _read_by_somebody(connection, rows.run_by_key(connection, key).row)
        connection.execute(
            "delete from keyframe where run = ?1 and (seq not between ?2 and ?3 "
            "or row is null and (select id from run where key = ?1) is null)",  # no fork looks at such a one
            (key, read.start - 1, read.stop - 1),
        )
        removed += connection.changes()
    return Counts(0, 0, removed, 0)


def sweep_runs(connection: apsw.Connection) -> Counts:
    """Remove dropped runs that no fork shares, with their keyframes."""
    gone = rows.ask(
        connection,
        f"select key from run where id is null and swept > seq and {_UNSHARED}",  # noqa: S608 - a constant
    )
    frames = 0
    for (key,) in gone:
        connection.execute("delete from keyframe where run = ?", (key,))
        frames += connection.changes()
        connection.execute("delete from run where key = ?", (key,))
    return Counts(len(gone), 0, frames, 0)


def sweep_blobs(connection: apsw.Connection) -> Counts:
    """Remove pieces that no keyframe and no row refers to. Marked and removed in one transaction."""
    if not rows.ask(connection, "select 1 from blob limit 1"):  # as in most trails of small runs: no need to read them
        return Counts(0, 0, 0, 0)
    live = {row[0] for row in connection.execute("select blob from ref")}
    for (data,) in rows.ask(connection, "select data from keyframe"):
        live.update(refs(frame.unpack(data), lambda piece: frame.unpack(reading.blob(connection, piece))))
    dead = [row for row in connection.execute("select id from blob") if row[0] not in live]
    if dead:
        connection.executemany("delete from blob where id = ?", dead)
        _next_generation(connection)
    return Counts(0, 0, 0, len(dead))


def give_back(connection: apsw.Connection) -> int:
    """Return some free pages to the file system; how many are left."""
    rows.ask(connection, f"pragma incremental_vacuum({_PAGES_AT_ONCE})")
    left: int = connection.pragma("freelist_count")
    return left


SWEEPS = (sweep_rows, sweep_keyframes, sweep_runs, sweep_blobs)
