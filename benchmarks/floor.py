"""The raw floor: one durable SQLite commit per step and nothing else. No store that is durable can be faster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from time import perf_counter

import apsw
import ormsgpack

from benchmarks import workloads
from benchmarks.report import Case


def commit_each(path: Path, blobs: Iterable[bytes]) -> list[float]:
    """Store each blob in a transaction of its own, WAL and FULL, and give the seconds of each."""
    connection = apsw.Connection(str(path))
    seconds = []
    try:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("create table log (id integer primary key, data blob not null)")
        require_wal_full(connection.execute("pragma journal_mode").get, connection.execute("pragma synchronous").get)
        for blob in blobs:
            start = perf_counter()
            connection.execute("begin immediate")
            connection.execute("insert into log (data) values (?)", (blob,))
            connection.execute("commit")
            seconds.append(perf_counter() - start)
    finally:
        connection.close()
    return seconds


def require_wal_full(journal_mode: object, synchronous: object) -> None:
    """Stop the benchmark when a connection is not as durable as the report says."""
    if (journal_mode, synchronous) != ("wal", 2):
        raise RuntimeError(f"expected WAL and FULL (2), found {journal_mode} and {synchronous}: nothing to compare")


def w1(directory: Path, steps: int) -> list[float]:
    """The bare changes of W1, a message and a scratchpad per commit, and the document in the first."""
    blobs = [ormsgpack.packb(change) for change in workloads.w1(steps)]
    if blobs:
        blobs[0] += ormsgpack.packb(workloads.document())
    return commit_each(directory / "floor.db", blobs)


W1 = Case("raw floor", w1, "WAL, FULL, 1 commit per step")
