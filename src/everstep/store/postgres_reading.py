"""Reading from PostgreSQL. A row stands at (run, seq); what a fork shares stands in the runs that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, LiteralString, NamedTuple

import ormsgpack

from everstep.codec.blobs import blob_id as blob_id_of
from everstep.codec.chain import Entry
from everstep.codec.dictionary import DICTIONARY
from everstep.codec.frame import SHORT_FORMAT
from everstep.errors import DamagedError, RunNotFoundError
from everstep.store.base import ANY, Keyframe, RunQuery, RunRow
from everstep.store.postgres_link import Blobs, Link, Texts, address, ask
from everstep.store.rows import keyframe_seal
from everstep.store.search import SearchIndex

# In the order of RunRow, with what only this store needs at the end. Status 2 is failed, kind 1 the end of a run,
# which says of the run what a step said before.
COLUMNS: LiteralString = (
    "r.key, r.id, r.root, r.workflow, r.status, r.owner, r.lease, r.epoch, r.seq, r.hash, r.base, r.created, r.ended, "
    "r.parent, r.forked_from, r.fork_seq, r.retry_of, r.retry_index, r.tags, "
    "(select count(*) from everstep_step s where s.run = r.key and s.status = 2 and s.kind <> 1 and s.seq >= r.base "
    "and s.seq > coalesce(r.fork_seq, -1)), "
    "(select value from everstep_fact where name = 'generation'), r.request, r.fork_key, r.swept"
)
_TAGS = 18
_ROW: LiteralString = "s.seq, s.kind, s.status, s.name, s.started, s.duration, s.hash, s.meta, s.data"
_ROWS: LiteralString = f"select {_ROW} from everstep_step s where s.run = %s and s.seq between %s and %s order by s.seq"
# The runs that hold a run's history, itself first, each with where its part ends: `history`, asked in one statement.
_PARTS: LiteralString = """
with recursive part(key, last, fork_key, fork_seq, own, base, depth) as (
  select r.key, r.seq, r.fork_key, r.fork_seq, r.key, r.base, 0 from everstep_run r where r.id = %s
  union all
  select r.key, least(p.last, p.fork_seq), r.fork_key, r.fork_seq, p.own, p.base, p.depth + 1
  from part p join everstep_run r on r.key = p.fork_key where p.fork_seq >= p.base)
"""
_HISTORY: LiteralString = f"""{_PARTS}
select f.* from part p cross join lateral (
  select {_ROW} from everstep_step s
  where s.run = p.key and s.seq between greatest(%s, p.base) and least(%s, p.last)
    and (p.fork_key is null or p.fork_seq < p.base or s.seq > p.fork_seq)
  offset 0) as f
order by f.seq
"""
# One that is not shared is the base of a pruned run, and that run's alone: its forks may have erased what it tells. It
# may be older than what the run shares.
_KEYFRAME: LiteralString = f"""{_PARTS}
select p.key, f.* from part p left join lateral (
  select k.seq, k.hash, k.data, k.seal from everstep_keyframe k
  where k.run = p.key and k.seq between p.base - 1 and least(%s, p.last) and (k.shared or k.run = p.own)
  order by k.seq desc limit 1) as f on true
order by f.seq desc nulls last, p.depth limit 1
"""
# With the run a row stands in, unless that was dropped, or pruned above it and a fork alone still reads it.
_FOUND: LiteralString = (
    f"select r.id, {_ROW} from everstep_step s join everstep_run r on r.key = s.run "
    "where r.id is not null and s.seq >= r.base"
)
_ALL: LiteralString = (
    f"select r.id, s.run, {_ROW} from everstep_step s join everstep_run r on r.key = s.run "
    "where r.id is not null and s.seq >= r.base order by s.run, s.seq"
)


class StoredRun(NamedTuple):
    """A run with what only this store knows of it."""

    row: RunRow
    fork_key: int | None
    swept: int


def _stored(columns: tuple[Any, ...]) -> StoredRun:
    tags = ormsgpack.unpackb(columns[_TAGS])
    return StoredRun(RunRow._make((*columns[:_TAGS], tags, *columns[_TAGS + 1 : -2])), *columns[-2:])


_BY_ID: LiteralString = f"select {COLUMNS} from everstep_run r where r.id = %s"
_BY_KEY: LiteralString = f"select {COLUMNS} from everstep_run r where r.key = %s"


def find_run(link: Link, run_id: str, *, lock: LiteralString = "") -> StoredRun:
    """The run with this id. Raises RunNotFoundError with the ids that look like it."""
    plain = run_id.replace("\0", "")  # which no text of the server holds
    found = ask(link, _BY_ID + lock, (run_id,)) if plain == run_id else []
    if not found:
        start = plain[: max(1, len(plain) // 2)]
        near = ask(
            link,
            "select id from everstep_run where id between %s and %s order by id desc limit 3",
            (start, start + chr(0x10FFFF)),
        )
        raise RunNotFoundError(run_id, tuple(row[0] for row in near), address(link.info.dsn).where)
    return _stored(found[0])


def requests(link: Link, run_ids: Iterable[str]) -> dict[str, str]:
    """The words that were left for the owners of these runs, by run."""
    known = Texts(run_id for run_id in run_ids if "\0" not in run_id)  # which no text of the server holds
    return dict(ask(link, "select id, request from everstep_run where id = any(%b) and request is not null", (known,)))


def run_by_key(link: Link, key: int) -> StoredRun:
    """A run by its key: also one that was dropped and lives on in its forks."""
    found = ask(link, _BY_KEY, (key,))
    if not found:
        raise DamagedError(f"the row of run number {key} is missing")
    return _stored(found[0])


def list_runs(link: Link, query: RunQuery) -> list[RunRow]:
    """The runs that fit, newest first."""
    where: list[LiteralString] = ["r.id is not null"]
    values: list[Any] = []
    for clause, value in _clauses(query):
        where.append(clause)
        values += value
    for tag in query.tags.items():
        where.append("exists(select 1 from everstep_tag t where t.name = %s and t.value = %s and t.run = r.key)")
        values += tag
    sql: LiteralString = (
        f"select {COLUMNS} from everstep_run r where {' and '.join(where)} order by r.key desc limit %s"
    )
    return [_stored(columns).row for columns in ask(link, sql, (*values, query.limit))]


def _clauses(query: RunQuery) -> Iterator[tuple[LiteralString, list[Any]]]:
    if query.status is not None:
        yield "r.status = %s", [query.status]
    if query.workflow is not None:
        yield "r.workflow = %s", [query.workflow]
    if query.since is not None:
        yield "r.created >= %s", [query.since]
    if query.before is not None:
        yield "r.key < %s", [query.before]
    if query.forked_from is not None:
        yield "r.forked_from = %s", [query.forked_from]
    if query.parent is None:
        yield "r.parent is null", []
    elif query.parent is not ANY:
        yield "r.parent = %s", [query.parent]


class Stretch(NamedTuple):
    """Rows of one run that belong to the history of another, or to its own."""

    key: int
    first: int
    last: int


def history(link: Link, run: StoredRun) -> list[Stretch]:
    """The stretches that make up a run's history, its own first, then those it shares with the runs it came from."""
    base, key, last = run.row.base, run.row.key, run.row.seq
    found: list[Stretch] = []
    while run.fork_key is not None and run.row.fork_seq is not None and run.row.fork_seq >= base:
        source = run_by_key(link, run.fork_key)
        if run.row.fork_seq <= last:  # else it was cut below what that run has of its own
            found.append(Stretch(key, run.row.fork_seq + 1, last))
            last = run.row.fork_seq
        run, key = source, source.row.key
    return [*found, Stretch(key, 0, last)]


def entries(link: Link, run_id: str, first: int, last: int) -> list[Entry]:
    """Rows `first` to `last` of a run's history, in order, as far as they are there."""
    found = ask(link, _HISTORY, (run_id, first, last)) if "\0" not in run_id else []
    return list(map(Entry._make, found))


def require_entries(link: Link, run_id: str, first: int, last: int) -> list[Entry]:
    """All of them. Raises what keeps them from being there."""
    run = find_run(link, run_id)
    if first > last:
        return []
    run.row.require(first, last)
    found = entries(link, run_id, first, last)
    if len(found) != last - first + 1:
        history(link, run)  # which misses a run that it came from
        there = {entry.seq for entry in found}
        missing = min(seq for seq in range(first, last + 1) if seq not in there)
        intact = missing - 1 if missing > run.row.base else None
        raise DamagedError("a step's row is missing", run_id=run_id, seq=missing, intact=intact)
    return found


def locate(link: Link, run: StoredRun, seq: int) -> tuple[int, bytes]:
    """The run that holds a step of a run's history, and the hash of its row."""
    for part in history(link, run):
        if part.first <= seq <= part.last:
            found = ask(link, "select hash from everstep_step where run = %s and seq = %s", (part.key, seq))
            if found:
                return part.key, found[0][0]
    raise DamagedError("a step's row is missing", run_id=run.row.id, seq=seq)


def keyframe(link: Link, run_id: str, at: int) -> Keyframe | None:
    """The newest keyframe of the run's history at or below `at`. Raises DamagedError with its seq if it was changed."""
    found = ask(link, _KEYFRAME, (run_id, at)) if "\0" not in run_id else []
    if not found:
        find_run(link, run_id)  # which says that it is not there
        return None  # or it was made in this moment
    key, seq, link_hash, data, seal = found[0]
    if seq is None:
        return None
    if keyframe_seal(key, seq, link_hash, data) != seal:
        raise DamagedError("a keyframe was changed", run_id=run_id, seq=seq)
    return Keyframe(seq, link_hash, data, {})


def blob(link: Link, blob_id: bytes) -> bytes:
    """A piece by its id."""
    found = ask(link, "select data from everstep_blob where id = %b", (blob_id,))
    if not found:
        raise DamagedError(f"the stored piece {blob_id.hex()} is missing")
    data: bytes = found[0][0]
    return data


def blobs(link: Link, blob_ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """Those of the pieces that are there, by their ids."""
    return dict(ask(link, "select id, data from everstep_blob where id = any(%b)", (Blobs(blob_ids),)))


def marked(link: Link, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
    """Rows of a kind, newest first."""
    make = Entry._make
    if run_id is None:
        found = ask(
            link, f"{_FOUND} and s.mark is not null and s.kind = %s order by s.mark desc limit %s", (kind, limit)
        )
        return [(columns[0], make(columns[1:])) for columns in found]
    run = find_run(link, run_id)
    result: list[tuple[str, Entry]] = []
    sql: LiteralString = (
        f"select {_ROW} from everstep_step s where s.run = %s and s.kind = %s and s.seq between %s and %s "
        "order by s.seq desc limit %s"
    )
    for part in history(link, run):
        bounds = (part.key, kind, max(run.row.base, part.first), part.last, limit - len(result))
        result += [(run_id, make(columns)) for columns in ask(link, sql, bounds)]
    return result


def search(link: Link, index: SearchIndex, words: str, limit: int) -> list[tuple[str, Entry]]:
    """Rows that hold all the words, best first. Those of all rows are gathered anew: the server cannot read them."""
    places: list[tuple[str, int, int]] = []

    def rows() -> Iterator[tuple[int, Entry]]:
        with link.cursor(binary=True) as cursor:
            for columns in cursor.stream(_ALL):
                places.append((columns[0], columns[1], columns[2]))
                yield len(places), Entry._make(columns[2:])

    index.add(rows(), 0, 0)
    found: list[tuple[str, Entry]] = []
    for row in index.find(words):
        run_id, key, seq = places[row - 1]
        found += [(run_id, Entry._make(columns)) for columns in ask(link, _ROWS, (key, seq, seq))]
        if len(found) >= limit:
            break
    return found


def inspect(link: Link) -> Iterator[str]:
    """What does not add up between the tables: rows without a run, a wrong number of them, changed pieces."""
    yield from _inspect_tags(link)
    counted = dict(ask(link, "select run, count(*) from everstep_step group by run"))
    for key, run_id, expected in ask(link, "select key, id, seq + 1 - swept from everstep_run"):
        there = counted.pop(key, 0)
        if there != expected:
            yield f"run {run_id or key!r} should have {expected} rows of its own and has {there}"
    for key, there in counted.items():
        yield f"{there} rows belong to run number {key}, which is missing"
    if ask(link, "select format, data from everstep_dictionary") != [(SHORT_FORMAT, DICTIONARY)]:
        yield "the copy of the dictionary that short rows are compressed against was changed"
    names = [row[0] for row in ask(link, "select id from everstep_blob")]
    for name in names:
        if blob_id_of(blob(link, name)) != name:
            yield f"the stored piece {name!r} was changed"


def _inspect_tags(link: Link) -> Iterator[str]:
    """Runs that a search by tags would miss, or find under tags that they do not have."""
    indexed: dict[int, dict[str, str]] = {}
    for name, value, key in ask(link, "select name, value, run from everstep_tag"):
        indexed.setdefault(key, {})[name] = value
    for key, run_id, packed in ask(link, "select key, id, tags from everstep_run where id is not null"):
        try:
            same = indexed.pop(key, {}) == ormsgpack.unpackb(packed)
        except (TypeError, ValueError):  # not what was packed
            same = False
        if not same:
            yield f"the index of tags does not match those of run {run_id!r}"
    if indexed:
        yield f"the index of tags has runs that are missing: {sorted(indexed)}"
