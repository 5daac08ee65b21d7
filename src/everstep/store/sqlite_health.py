"""How a trail in a file fares: its settings, its size, and its largest runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw

from everstep import actual
from everstep.store import schema
from everstep.store.health import (
    CANDIDATES,
    PIECES,
    SAMPLE,
    WEEK,
    Health,
    RunSize,
    facts_of_place,
    growth,
    largest,
    scaled,
    weaknesses_of_place,
)
from everstep.store.rows import ask

_BESIDE = {"file": "", "wal": "-wal", "search": "-search"}
_LONG_LOG = 64 << 20  # bytes; it is folded into the file when it has a megabyte
_SUMS = "select status, count(*) from run where id is not null group by status"
# Rows are spread over the time from a run's beginning to its end, or to when its owner last held it.
_GROWTH = """
with lived(rows, begun, ended) as (
  select seq + 1 - swept, created / 1e6, min(coalesce(ended / 1e6, lease), ?2) from run)
select coalesce(sum(rows), 0), min(begun), coalesce(sum(case
  when begun >= ?1 then rows
  when ended > ?1 then rows * (ended - ?1) / (ended - begun)
  else 0 end), 0)
from lived
"""
_MANY_ROWS = "select key from run where id is not null order by seq + 1 - swept desc limit ?"
_LARGE_PIECES = """
select s.run from (select row, blob from ref order by row desc limit ?) as r
join blob as b on b.id = r.blob join step as s on s.id = r.row group by s.run order by sum(length(b.data)) desc limit ?
"""
_NEWEST_ROWS = """
with recursive back(id, prev, number) as (
  select id, prev, 1 from step where id = (select head from run where key = ?1) and run = ?1
  union all
  select s.id, s.prev, number + 1 from back join step as s on s.id = back.prev where number < ?2 and s.run = ?1)
"""
_SAMPLE = f"{_NEWEST_ROWS} select count(*), sum(length(meta) + length(data)) from back join step using(id)"  # noqa: S608 - constants
_PIECES = f"{_NEWEST_ROWS} select sum(length(data)) from blob where id in (select blob from back join ref on row = id)"  # noqa: S608 - constants
_KEYFRAMES = "select sum(length(data)) from keyframe where run = ?"
_OF_RUN = "select id, seq + 1 - swept from run where key = ? and id is not null"


def health(connection: apsw.Connection, path: str) -> Health:
    """What can be told of a file."""
    kind, now = schema.file_system(str(Path(path).parent)), actual.time()
    mode, shrinks = _journal_mode(connection), connection.pragma("auto_vacuum") == 2
    sizes = {what: _size(path + end) for what, end in _BESIDE.items()}
    rows, first, recent = ask(connection, _GROWTH, (now - WEEK, now))[0]
    oldest = ask(connection, "select id from run where id is not null order by key limit 1")
    facts: dict[str, Any] = {
        "sqlite": apsw.sqlite_lib_version(), "schema": connection.pragma("user_version"), "journal_mode": mode,
        "auto_vacuum": shrinks, **facts_of_place(kind),
    }  # fmt: skip
    return Health(
        store="sqlite", facts=facts, sizes=sizes, rows=rows,
        dead=int(connection.pragma("freelist_count")) * int(connection.pragma("page_size")),
        runs=dict(ask(connection, _SUMS)), oldest=oldest[0][0] if oldest else None,
        growth=growth(first, recent, now),
        largest=largest(_measured(connection)),
        weaknesses=[*weaknesses_of_place(kind), *_weaknesses(mode, sizes, shrinks=shrinks)],
    )  # fmt: skip


def _journal_mode(connection: apsw.Connection) -> str:
    """As the file's head has it: a connection that takes the file as it is knows no log, and says so.

    Read by SQLite itself: to close another descriptor of the file would end this process' locks on it (POSIX), and then
    others may remove the log that is written to.
    """
    _, head = connection.read("main", 0, 0, 20)
    return "wal" if head[18:] == b"\x02\x02" else str(connection.pragma("journal_mode"))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are text here
    except FileNotFoundError:
        return 0


def _weaknesses(mode: str, sizes: dict[str, int], *, shrinks: bool) -> Iterator[str]:
    if mode != "wal":
        yield (
            f"the trail is not in WAL mode but in mode {mode!r}: something other than Everstep changed it, and whoever "
            "reads keeps others from writing. While nobody uses it, give it the SQL `pragma journal_mode = wal`."
        )
    if not shrinks:
        yield (
            "the file cannot shrink: something other than Everstep made it anew. While nobody uses it, give it the SQL "
            "`pragma auto_vacuum = incremental; vacuum`."
        )
    if sizes["wal"] > _LONG_LOG:
        yield (
            "the write-ahead log is long: some process reads without end, and keeps it from being folded into the "
            "file. Find who holds the file open, and end its reading."
        )


def _measured(connection: apsw.Connection) -> Iterator[RunSize]:
    keys = {key for (key,) in ask(connection, _MANY_ROWS, (CANDIDATES,))}
    keys |= {key for (key,) in ask(connection, _LARGE_PIECES, (PIECES, CANDIDATES))}
    for key in keys:
        for run_id, rows in ask(connection, _OF_RUN, (key,)):
            within = (key, SAMPLE)
            sampled, own = ask(connection, _SAMPLE, within)[0]
            (pieces,) = ask(connection, _PIECES, within)[0]
            (frames,) = ask(connection, _KEYFRAMES, (key,))[0]
            yield RunSize(run_id, rows, scaled(rows, sampled, (own or 0) + (pieces or 0)) + (frames or 0))
