"""Letting go of history in SQLite: what is hidden at once is swept away in small transactions, and can be resumed.

Marking (a run dropped, a base raised) is one transaction and decides what can be read. Sweeping removes what nothing
reads any more: rows below every base that needs them, runs without rows, pieces without a keyframe or row. A crash
between two sweeps leaves work for the next `reclaim`, never a reference to what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from everstep.codec import frame
from everstep.codec.chain import Entry
from everstep.codec.keyframe import refs
from everstep.errors import PrunedError, StepNotFoundError
from everstep.store import reading, rows
from everstep.store.base import Counts, Keyframe
from everstep.store.rows import StoredRun

_ROWS_AT_ONCE = 2_000
_PAGES_AT_ONCE = 2_000


def generation(connection: apsw.Connection) -> int:
    """Rises whenever pieces were removed: a keyframe built on what was read before must not be kept."""
    value: int = connection.execute("select value from fact where name = 'generation'").fetchall()[0][0]
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
    put_keyframe(connection, run.key, base, None)
    connection.execute("update run set base = ? where key = ?", (base.seq + 1, run.key))
    connection.execute("delete from keyframe where run = ? and seq < ?", (run.key, _keyframes_from(connection, run.key, base.seq)))
    _next_generation(connection)
    rows.reseal(connection, run.key)
    return True


def _keyframes_from(connection: apsw.Connection, key: int, base: int) -> int:
    """From which seq a run's keyframes serve: its own base, or a fork's that still shares its rows."""
    needed = _needed(connection, key, None)
    return base if needed is None else min(base, needed - 1)


def erase(connection: apsw.Connection, run_id: str, entries: Sequence[Entry]) -> None:
    """Put erased rows in place, and drop every keyframe that was made after them, in the run and in its forks."""
    run = rows.find_run(connection, run_id)
    for entry in entries:
        row, _ = reading.locate(connection, run, entry.seq)
        connection.execute("update step set meta = ?, data = ? where id = ?", (entry.meta, entry.data, row))
        connection.execute("delete from ref where row = ?", (row,))
    _forget_keyframes(connection, run.row.key, min(entry.seq for entry in entries))
    for part in rows.history(connection, run)[1:]:
        _forget_keyframes(connection, part.run.row.key, min(entry.seq for entry in entries))
    _next_generation(connection)


def _forget_keyframes(connection: apsw.Connection, key: int, first: int) -> None:
    connection.execute("delete from keyframe where run = ? and seq >= ? and row is not null", (key, first))
    children = connection.execute("select key, fork_seq from run where fork_key = ?", (key,)).fetchall()
    for child, fork_seq in children:
        if fork_seq >= first:
            _forget_keyframes(connection, child, first)


def _needed(connection: apsw.Connection, key: int, last: int | None) -> int | None:
    """The lowest seq of a run's rows up to `last` that one of its forks still reads; None when none does."""
    lowest: int | None = None
    children = connection.execute("select key, id, base, fork_seq from run where fork_key = ?", (key,)).fetchall()
    for child, run_id, base, fork_seq in children:
        shared = fork_seq if last is None else min(last, fork_seq)
        wants = [base] if run_id is not None and base <= shared else []
        deeper = _needed(connection, child, shared)
        wants += [deeper] if deeper is not None else []
        lowest = min([*wants, *([lowest] if lowest is not None else [])], default=None)
    return lowest


def _sweep_target(connection: apsw.Connection, run: StoredRun) -> int:
    """How far a run's own rows can go: everything below this seq is read by nobody."""
    own = run.row.base if run.row.id is not None else run.row.seq + 1
    needed = _needed(connection, run.row.key, None)
    return own if needed is None else min(own, needed)


def sweep_rows(connection: apsw.Connection) -> Counts:
    """Remove up to a couple of thousand rows that nobody reads."""
    candidates = connection.execute("select key from run where (id is null or base > swept) and swept <= seq").fetchall()
    for (key,) in candidates:
        run = rows.run_by_key(connection, key)
        target = min(_sweep_target(connection, run), run.swept + _ROWS_AT_ONCE)
        if target <= run.swept:
            continue
        ids = reading.row_ids(connection, run, run.swept, target - 1)
        newest = connection.execute("select max(id) from step").fetchall()[0][0]
        # The newest row of all stays as a blank: row ids then never come again, and nothing mistakes a new for an old.
        connection.executemany("delete from step where id = ?", [(row,) for row in ids if row != newest])
        connection.execute("update step set run = 0, prev = null, meta = x'', data = x'' where id = ? and run = ?", (newest, key))
        connection.executemany("delete from ref where row = ?", [(row,) for row in ids])
        connection.execute("update run set swept = ? where key = ?", (target, key))
        return Counts(0, len(ids), 0, 0)
    return Counts(0, 0, 0, 0)


def sweep_runs(connection: apsw.Connection) -> Counts:
    """Remove dropped runs that no fork shares, with their keyframes."""
    gone = connection.execute(
        "select key from run where id is null and swept > seq and not exists(select 1 from run as child where child.fork_key = run.key)"
    ).fetchall()
    frames = 0
    for (key,) in gone:
        connection.execute("delete from keyframe where run = ?", (key,))
        frames += connection.changes()
        connection.execute("delete from run where key = ?", (key,))
    return Counts(len(gone), 0, frames, 0)


def sweep_blobs(connection: apsw.Connection) -> Counts:
    """Remove pieces that no keyframe and no row refers to. Marked and removed in one transaction."""
    live = {row[0] for row in connection.execute("select blob from ref")}
    for (data,) in connection.execute("select data from keyframe").fetchall():
        live.update(refs(frame.unpack(data), lambda piece: frame.unpack(reading.blob(connection, piece))))
    dead = [row for row in connection.execute("select id from blob") if row[0] not in live]
    if dead:
        connection.executemany("delete from blob where id = ?", dead)
        _next_generation(connection)
    return Counts(0, 0, 0, len(dead))


def give_back(connection: apsw.Connection) -> int:
    """Return some free pages to the file system; how many are left."""
    connection.execute(f"pragma incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
    left: int = connection.pragma("freelist_count")
    return left


SWEEPS = (sweep_rows, sweep_runs, sweep_blobs)
