"""Finding rows in the log. A row points at the one before it; a run points at its newest; keyframes are way marks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw
import ormsgpack

from everstep.codec.blobs import blob_id as blob_id_of
from everstep.codec.chain import Entry
from everstep.codec.dictionary import DICTIONARY
from everstep.codec.frame import SHORT_FORMAT
from everstep.errors import DamagedError
from everstep.store import rows
from everstep.store.base import Keyframe
from everstep.store.rows import StoredRun
from everstep.store.search import SearchIndex

_ROW = "step.seq, step.kind, step.status, step.name, step.started, step.duration, step.hash, step.meta, step.data"
# From row ?1, which should stand at seq ?2, back to seq ?3; given out from seq ?4 down. Where a row is missing it
# ends: a damaged seq must not make it count down from far above.
_WALK = """
with recursive walk(id, seq) as (
  select ?1, ?2 union all select (select prev from step where id = walk.id), walk.seq - 1
  from walk where walk.seq > ?3 and walk.id is not null)
select {columns} from walk cross join step on step.id = walk.id where walk.seq <= ?4
"""
_NEXT_KEYFRAME = (
    "select seq, row from keyframe where run = ? and seq between ? and ? and row is not null order by seq limit 1"
)
# One without a row is the base of a pruned run, and that run's (?4) alone: its forks may have erased what it tells.
_LAST_KEYFRAME = (
    "select seq, hash, data, seal from keyframe "
    "where run = ?1 and seq between ?2 and ?3 and (row is not null or run = ?4) order by seq desc limit 1"
)
# With the run a row stands in, unless that was dropped, or pruned above it and a fork alone still reads it.
_FOUND = (
    f"select run.id, {_ROW} from step join run on run.key = step.run "  # noqa: S608 - constants
    "where run.id is not null and step.seq >= run.base and"
)
_WALK_ROWS = _WALK.format(columns=_ROW)
_WALK_IDS = _WALK.format(columns="step.id, step.seq, step.hash")


def entries(connection: apsw.Connection, run_id: str, first: int, last: int) -> list[Entry]:
    """Rows `first` to `last` of a run's history, in order."""
    run = rows.find_run(connection, run_id)
    if first > last:
        return []
    run.row.require(first, last)
    mark, row = anchor(connection, run, last)
    found = rows.ask(connection, _WALK_ROWS, (row, mark, first, last))
    found.reverse()
    make = Entry._make
    result = [make(columns) for columns in found]
    if len(result) != last - first + 1 or result[-1].seq != last:
        lowest = result[0].seq if result else last + 1
        raise DamagedError("a step's row is missing", run_id=run_id, seq=lowest - 1)
    return result


def anchor(connection: apsw.Connection, run: StoredRun, last: int) -> tuple[int, int | None]:
    """A known row of the run's history at or shortly above `last`: its seq and row id."""
    best, row = run.row.seq, run.head
    for part in rows.history(connection, run):
        if part.last < last:
            break
        best, row = part.last, part.row
        mark = rows.ask(
            connection,
            _NEXT_KEYFRAME,
            (part.run.row.key, last, part.last),
        )
        if mark:
            best, row = mark[0]
    return best, row


def locate(connection: apsw.Connection, run: StoredRun, seq: int) -> tuple[int, bytes]:
    """The row id and hash of one step."""
    mark, row = anchor(connection, run, seq)
    found = rows.ask(connection, _WALK_IDS, (row, mark, seq, seq))
    if not found or found[0][1] != seq:
        raise DamagedError("a step's row is missing", run_id=run.row.id, seq=seq)
    return found[0][0], found[0][2]


def row_ids(connection: apsw.Connection, run: StoredRun, first: int, last: int) -> list[int]:
    """The row ids of steps `first` to `last` that are there, lowest first."""
    mark, row = anchor(connection, run, last)
    found = rows.ask(connection, _WALK_IDS, (row, mark, first, last))
    return [columns[0] for columns in reversed(found)]


def keyframe(connection: apsw.Connection, run_id: str, at: int) -> Keyframe | None:
    """The newest keyframe of the run's history at or below `at`. Raises DamagedError with its seq if it was changed."""
    run = rows.find_run(connection, run_id)
    best: tuple[Any, ...] | None = None
    for part in rows.history(connection, run):
        key = part.run.row.key
        within = (key, run.row.base - 1, min(at, part.last), run.row.key)
        for found in rows.ask(connection, _LAST_KEYFRAME, within):
            if best is None or found[0] > best[1]:  # the base of a pruned fork may be older than what it shares
                best = (key, *found)
    if best is None:
        return None
    key, seq, link, data, seal = best
    if rows.keyframe_seal(key, seq, link, data) != seal:
        raise DamagedError("a keyframe was changed", run_id=run_id, seq=seq)
    return Keyframe(seq, link, data, {})


def blob(connection: apsw.Connection, blob_id: bytes) -> bytes:
    """A piece by its id."""
    found = rows.ask(connection, "select data from blob where id = ?", (blob_id,))
    if not found:
        raise DamagedError(f"the stored piece {blob_id.hex()} is missing")
    data: bytes = found[0][0]
    return data


def search(
    connection: apsw.Connection, index: SearchIndex, words: str, limit: int, generation: int
) -> list[tuple[str, Entry]]:
    """Rows that hold all the words, best first, after taking in what is new since the last search."""
    since = index.seen(generation)
    make = Entry._make
    new = connection.execute(f"select id, {_ROW} from step where id > ? and run > 0 order by id", (since,))  # noqa: S608 - constant
    index.add(((columns[0], make(columns[1:])) for columns in new), since, generation)
    sql = f"{_FOUND} step.id = ?"
    found: list[tuple[str, Entry]] = []
    for row in index.find(words):
        found += [(columns[0], make(columns[1:])) for columns in connection.execute(sql, (row,))]
        if len(found) >= limit:
            break
    return found


def inspect(connection: apsw.Connection) -> Iterator[str]:
    """What does not add up between the tables: indexes, rows without a run, a wrong number of them, changed pieces."""
    for (said,) in rows.ask(connection, "pragma integrity_check"):
        if said != "ok":
            yield f"SQLite found: {said}"
    yield from _inspect_tags(connection)
    counted = dict(rows.ask(connection, "select run, count(*) from step where run > 0 group by run"))
    for key, run_id, expected in rows.ask(connection, "select key, id, seq + 1 - swept from run"):
        rows_there = counted.pop(key, 0)
        if rows_there != expected:
            yield f"run {run_id or key!r} should have {expected} rows of its own and has {rows_there}"
    for key, rows_there in counted.items():
        yield f"{rows_there} rows belong to run number {key}, which is missing"
    if rows.ask(connection, "select format, data from dictionary") != [(SHORT_FORMAT, DICTIONARY)]:
        yield "the copy of the dictionary that short rows are compressed against was changed"
    for blob_id, data in connection.execute("select id, data from blob"):
        if type(data) is not bytes or blob_id_of(data) != blob_id:
            yield f"the stored piece {blob_id!r} was changed"


def _inspect_tags(connection: apsw.Connection) -> Iterator[str]:
    """Runs that a search by tags would miss, or find under tags that they do not have."""
    indexed: dict[int, dict[str, str]] = {}
    for name, value, key in rows.ask(connection, "select name, value, run from tag"):
        indexed.setdefault(key, {})[name] = value
    for key, run_id, packed in rows.ask(connection, "select key, id, tags from run where id is not null"):
        try:
            same = indexed.pop(key, {}) == ormsgpack.unpackb(packed)
        except (TypeError, ValueError):  # no bytes, or not what was packed
            same = False
        if not same:
            yield f"the index of tags does not match those of run {run_id!r}"
    if indexed:
        yield f"the index of tags has runs that are missing: {sorted(indexed)}"


def marked(connection: apsw.Connection, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
    """Rows of a kind that has its own index, newest first."""
    make = Entry._make
    # The kind as a constant, and no order that the table has anyway: or SQLite looks at every row instead of the index.
    if run_id is None:
        sql = f"{_FOUND} kind = {kind:d} order by +step.id desc limit ?"
        return [(columns[0], make(columns[1:])) for columns in connection.execute(sql, (limit,))]
    run = rows.find_run(connection, run_id)
    result: list[tuple[str, Entry]] = []
    sql = f"select {_ROW} from step where run = ? and kind = {kind:d} and seq between ? and ? order by seq desc limit ?"  # noqa: S608 - constants
    for part in rows.history(connection, run):
        bounds = (part.run.row.key, run.row.base, part.last, limit - len(result))
        result += [(run_id, make(columns)) for columns in connection.execute(sql, bounds)]
    return result
