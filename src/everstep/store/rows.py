"""Run rows in and out of SQLite, each sealed so that a flipped bit in one is seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import apsw
import ormsgpack

from everstep.errors import DamagedError, DamageWarning, RunNotFoundError
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import ANY, RunQuery, RunRow

# In the order of RunRow, but for `errors`, which is counted, and with what only this store needs at the end.
_FAILED_ROWS = (
    f"select count(*) from step where run = run.key and status = {STATUS_NUMBER[Status.FAILED]} "  # noqa: S608 - constant
    f"and kind != {KIND_NUMBER[Kind.END]}"  # which says of the run what a step said before
)
COLUMNS = ", ".join([
    "key, id, root, workflow, status, owner, lease, epoch, seq, hash, base, created, ended, parent, forked_from",
    "fork_seq, retry_of, retry_index, tags",
    f"({_FAILED_ROWS} and seq >= run.base and seq > coalesce(run.fork_seq, -1))",
    "(select value from fact where name = 'generation')",
    "request, fork_key, fork_row, swept, head, seal",
])  # fmt: skip
_ID, _LEASE, _SEQ, _HASH, _TAGS = 1, 6, 8, 9, 18
_ERRORS, _GENERATION, _REQUEST, _FORK_KEY, _FORK_ROW, _SWEPT, _HEAD, _SEAL = range(19, 27)
# Not under the seal: what every append moves (the step row itself vouches for it), and what is counted.
_MOVING = frozenset({_LEASE, _SEQ, _HASH, _ERRORS, _GENERATION, _SWEPT, _HEAD, _SEAL})
_MOVING_TYPES = (float, int, bytes, int)


def ask(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows that a query gives."""
    return connection.execute(sql, values).fetchall()


_NEAR = "select id from run where id between ? and ? order by id desc limit 3"  # by its index: a miss is no rarity


class StoredRun:
    """A run row with what only SQLite knows of it: row ids, and how far its pruned rows are gone."""

    __slots__ = ("fork_key", "fork_row", "head", "row", "swept")

    def __init__(self, columns: tuple[Any, ...]) -> None:
        moving = tuple(type(columns[place]) for place in (_LEASE, _SEQ, _HASH, _SWEPT))
        if seal_of(columns) != columns[_SEAL] or moving != _MOVING_TYPES:
            raise DamagedError("the run's own row was changed", run_id=str(columns[_ID]))
        tags = ormsgpack.unpackb(columns[_TAGS])
        self.row = RunRow._make((*columns[:_TAGS], tags, *columns[_ERRORS : _REQUEST + 1]))
        self.fork_key: int | None = columns[_FORK_KEY]
        self.fork_row: int | None = columns[_FORK_ROW]
        self.swept: int = columns[_SWEPT]
        self.head: int | None = columns[_HEAD]


def seal_of(columns: tuple[Any, ...]) -> bytes:
    """The digest of everything in a run row that an append does not move."""
    still = [value for place, value in enumerate(columns) if place not in _MOVING]
    return sha256(ormsgpack.packb(still)).digest()[:16]


def reseal(connection: apsw.Connection, key: int) -> None:
    """Seal a run row again after changing it, in the same transaction."""
    columns = ask(connection, f"select {COLUMNS} from run where key = ?", (key,))[0]  # noqa: S608 - constant
    connection.execute("update run set seal = ? where key = ?", (seal_of(columns), key))


def find_run(connection: apsw.Connection, run_id: str) -> StoredRun:
    """The run with this id. Raises RunNotFoundError with the ids that look like it."""
    found = ask(connection, f"select {COLUMNS} from run where id = ?", (run_id,))  # noqa: S608 - constant
    if not found:
        start = run_id[: max(1, len(run_id) // 2)]
        near = ask(connection, _NEAR, (start, start + chr(0x10FFFF)))
        raise RunNotFoundError(run_id, tuple(row[0] for row in near), connection.filename)
    return StoredRun(found[0])


def requests(connection: apsw.Connection, run_ids: Iterable[str]) -> dict[str, str]:
    """The words that were left for the owners of these runs, by run."""
    words: dict[str, str] = {}
    for run_id in run_ids:
        for columns in ask(connection, f"select {COLUMNS} from run where id = ? and request is not null", (run_id,)):  # noqa: S608 - constant
            words[run_id] = str(StoredRun(columns).row.request)  # the whole row is read, because its seal is of all
    return words


def run_by_key(connection: apsw.Connection, key: int) -> StoredRun:
    """A run by its row id: also one that was dropped and lives on in its forks."""
    found = ask(connection, f"select {COLUMNS} from run where key = ?", (key,))  # noqa: S608 - constant
    if not found:
        raise DamagedError(f"the row of run number {key} is missing")
    return StoredRun(found[0])


def list_runs(connection: apsw.Connection, query: RunQuery) -> list[RunRow]:
    """The runs that fit, newest first. One whose row is damaged is left out, with a DamageWarning that names it."""
    where, values = ["id is not null"], list[Any]()
    for clause, value in _clauses(query):
        where.append(clause)
        values.append(value)
    for name, text in query.tags.items():
        where.append("exists(select 1 from tag where name = ? and value = ? and run = run.key)")
        values += [name, text]
    sql = f"select {COLUMNS} from run where {' and '.join(where)} order by key desc limit ?"  # noqa: S608 - constants
    return list(_readable(connection.execute(sql, (*values, query.limit))))


def _clauses(query: RunQuery) -> Iterator[tuple[str, Any]]:
    if query.status is not None:
        yield "status = ?", query.status
    if query.workflow is not None:
        yield "workflow = ?", query.workflow
    if query.since is not None:
        yield "created >= ?", query.since
    if query.before is not None:
        yield "key < ?", query.before
    if query.forked_from is not None:
        yield "forked_from = ?", query.forked_from
    if query.parent is not ANY:  # `=` where there is one: by its index, which has no runs without a parent
        yield "parent is ?" if query.parent is None else "parent = ?", query.parent


def _readable(found: Iterable[tuple[Any, ...]]) -> Iterator[RunRow]:
    for columns in found:
        try:
            run = StoredRun(columns)
        except DamagedError as damage:
            warnings.warn(str(damage), DamageWarning, stacklevel=5)
        else:
            yield run.row


class Part(NamedTuple):
    """A stretch of a run's history: whose rows, up to which seq, and the row that stands there."""

    run: StoredRun
    last: int
    row: int | None


def history(connection: apsw.Connection, run: StoredRun) -> list[Part]:
    """The stretches that make up a run's history, its own first, then those it shares with the runs it came from."""
    base = run.row.base
    parts = [Part(run, run.row.seq, run.head)]
    while run.fork_key is not None and run.row.fork_seq is not None and run.row.fork_seq >= base:
        source = run_by_key(connection, run.fork_key)
        if run.row.fork_seq <= parts[-1].last:  # else the stretch above was cut lower down already
            parts.append(Part(source, run.row.fork_seq, run.fork_row))
        else:
            parts[-1] = Part(source, parts[-1].last, parts[-1].row)
        run = source
    return parts


def keyframe_seal(run: int, seq: int, link: bytes, data: bytes) -> bytes:
    """The digest of a keyframe row."""
    return sha256(ormsgpack.packb([run, seq, link, data])).digest()[:16]
