"""What is measured on a PostgreSQL server: raw commits, the peer's saver, runs of ours, claims, looking back.

Every case gets the URL of an empty place on one server, which has the settings that servers come with: fsync and
synchronous_commit are on, and that is checked.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import ormsgpack
import psycopg
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

import everstep
from benchmarks import ours, runners, workloads
from benchmarks.peers import Change, Thread
from benchmarks.report import set_apart
from everstep.codec import chain
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import Append, NewRun, RunQuery
from everstep.store.postgres import PostgresStore
from tests.postgres import Server

WRITERS = 100
CLIENTS = 4
POOL = 8
_SETTINGS = "-c listen_addresses= -c max_connections=200"  # the others as they come
_SIZE = """
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
where c.relkind = 'r' and c.relnamespace = %s::regnamespace
"""
_numbers = count(1)


@dataclass(frozen=True)
class Case:
    """Something to measure. `run(url, steps)` gives the seconds of each step, and leaves nothing open."""

    name: str
    run: Callable[[str, int], list[float]]
    writers: int


@dataclass(frozen=True)
class Measured:
    """One repeat of one case."""

    case: str
    repeat: int
    steps: int
    seconds: float
    bytes: int  # of its tables and their indexes
    log_bytes: int  # of the server's write-ahead log
    commits: int

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """The URL of a server on a new folder."""
    made = Server(folder, _SETTINGS)
    made.make()
    try:
        with psycopg.connect(made.url) as connection:
            found = [connection.execute(f"show {name}").fetchone() for name in ("fsync", "synchronous_commit")]
            if found != [("on",), ("on",)]:
                raise RuntimeError(f"expected fsync and synchronous_commit to be on, found {found}: nothing to compare")
        yield made.url
    finally:
        made.stop("fast")


@contextmanager
def place(url: str) -> Iterator[tuple[str, str]]:
    """A schema of its own: its name, and the URL that leads there."""
    name = f"bench_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create schema {name}")
        try:
            yield name, f"{url}&options=-csearch_path%3D{name}"
        finally:
            connection.execute(f"drop schema {name} cascade")


def measure(url: str, case: Case, steps: int, repeat: int) -> Measured:
    """One case in a place of its own, once."""
    with place(url) as (schema, inside), psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")  # so that every case begins with the same part of the log before it
        log, commits = _counters(connection)
        set_apart()
        seconds = case.run(inside, steps)
        log_after, commits_after = _counters(connection)
        size = connection.execute(_SIZE, (schema,)).fetchone()
    assert size is not None
    taken = (sum(seconds), size[0], log_after - log, commits_after - commits)
    return Measured(case.name, repeat, len(seconds), *taken)


def _counters(connection: psycopg.Connection[Any]) -> tuple[int, int]:
    """How far the log is, and how many transactions there were: a connection tells of its own when it is closed."""
    found = connection.execute(
        "select (pg_current_wal_insert_lsn() - '0/0')::bigint, xact_commit from pg_stat_database "
        "where datname = current_database()"
    ).fetchone()
    assert found is not None
    return found[0], found[1]


# The floor.


def _blobs(steps: int) -> list[bytes]:
    return [ormsgpack.packb(change) for change in workloads.w1(steps)]


_TABLE = "create table if not exists log (id bigint generated always as identity primary key, data bytea not null)"
_INSERT = "insert into log (data) values (%b)"


def raw_commits(url: str, steps: int) -> list[float]:
    """One row, one commit, one after the other."""
    seconds = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLE)
        for blob in _blobs(steps):
            start = perf_counter()
            connection.execute(_INSERT, (blob,))
            seconds.append(perf_counter() - start)
    return seconds


def raw_commits_at_once(url: str, steps: int) -> list[float]:
    """The same by 100 connections at once, whose commits the server syncs together."""

    async def main() -> list[float]:
        blobs = _blobs(WRITERS * steps)
        connections = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(WRITERS)]
        await connections[0].execute(_TABLE)

        async def write(number: int, done: Callable[[], None]) -> None:
            for blob in blobs[number::WRITERS]:
                await connections[number].execute(_INSERT, (blob,))
                done()

        try:
            return await _together(write)
        finally:
            for connection in connections:
                await connection.close()

    return asyncio.run(main())


async def _together(write: Callable[[int, Callable[[], None]], Any]) -> list[float]:
    """Seconds from each acknowledged step to the next, whoever took it: they add up to the time of the whole."""
    marks = [perf_counter()]
    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(write(number, lambda: marks.append(perf_counter())))
    return [after - before for before, after in pairwise(marks)]


# The peer, with the pool that its pages show, through its storage interface alone: `put_writes`, then `put`.


@asynccontextmanager
async def _savers(url: str, number: int) -> AsyncIterator[Sequence[Any]]:
    options: dict[str, Any] = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=POOL, max_size=POOL, kwargs=options, open=False) as pool:
        savers = [AsyncPostgresSaver(pool) for _ in range(number)]
        await savers[0].setup()
        yield savers


async def _step(saver: Any, thread: Thread, change: Change) -> None:
    writes, then = thread.take(change)
    await saver.aput_writes(*writes)
    thread.config = await saver.aput(*then())


def _peer_fleet(number: int) -> Callable[[str, int], list[float]]:
    """W2 through so many savers on one pool. One has a lock, so that its threads take turns."""

    def run(url: str, steps: int) -> list[float]:
        async def main() -> list[float]:
            changes = list(workloads.w1(WRITERS * steps))
            threads = [Thread(f"w2-{number}", None) for number in range(WRITERS)]
            async with _savers(url, number) as savers:
                for thread in threads:
                    thread.config = await savers[0].aput(*thread.first())

                async def write(place: int, done: Callable[[], None]) -> None:
                    for change in changes[place::WRITERS]:
                        await _step(savers[place % number], threads[place], change)
                        done()

                return await _together(write)

        return asyncio.run(main())

    return run


def peer_w1(url: str, steps: int) -> list[float]:
    """W1 through one saver: its document is a string, as the state of W1 has it."""

    async def main() -> list[float]:
        seconds = []
        async with _savers(url, 1) as [saver]:
            thread = Thread("w1", workloads.document())
            thread.config = await saver.aput(*thread.first())
            for change in workloads.w1(steps):
                start = perf_counter()
                await _step(saver, thread, change)
                seconds.append(perf_counter() - start)
        return seconds

    return asyncio.run(main())


# Ours.


def bare_store(url: str, steps: int) -> list[float]:
    """100 runs through the store alone: rows that were made beforehand, with bodies of the size of a change."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        with closing(PostgresStore(url)) as store:
            drafts = [list(_drafts(store, number, steps)) for number in range(WRITERS)]

            async def write(number: int, done: Callable[[], None]) -> None:
                for draft in drafts[number]:
                    await store.submit(draft, loop)
                    done()

            return await _together(write)

    return asyncio.run(main())


def _drafts(store: PostgresStore, number: int, steps: int) -> Iterator[Append]:
    """Appends to a new run, each behind the one before."""
    claim = store.create(NewRun(id=f"w2-{number}", owner="bench", created=0))
    kind, status = KIND_NUMBER[Kind.STEP], STATUS_NUMBER[Status.COMPLETED]
    for seq in range(steps):
        body = workloads.content(number * steps + seq).encode()
        entry = chain.seal(claim.hash, seq, kind, status, "agent", 0, 0, b"", body)
        yield Append(claim, [entry])
        claim = claim._replace(seq=seq, hash=entry.hash)


RAW = Case("raw commits, one client", raw_commits, 1)
RAW_AT_ONCE = Case("raw commits, 100 clients", raw_commits_at_once, WRITERS)
PEER = Case("AsyncPostgresSaver", _peer_fleet(1), WRITERS)
PEERS = Case("8 AsyncPostgresSavers", _peer_fleet(POOL), WRITERS)
STORE = Case("everstep, the bare store", bare_store, WRITERS)
RECORDED = Case("everstep, 100 recorders", ours.fleet_on, WRITERS)
WORKFLOWS = Case("everstep, 100 workflows", runners.fleet_on, WRITERS)
OURS_W1 = Case("everstep, W1", ours.fill, 1)
PEER_W1 = Case("AsyncPostgresSaver, W1", peer_w1, 1)


def looking_back(url: str, steps: int) -> dict[str, float]:
    """What looking back into W1 costs, in milliseconds."""
    with place(url) as (_, inside):
        ours.fill(inside, steps)
        with everstep.open(inside) as trail:
            middle = steps // 2
            return {
                "newest state": ours.median_of(lambda: trail.state("w1")) * 1e3,
                f"state at {middle}": ours.median_of(lambda: trail.state("w1", at=middle)) * 1e3,
            }


# Claims among runs that are parked. The runs are copies of one, made by the server: to make each would take longer.

_COPIES = """
insert into everstep_run select %(first)s + n, %(prefix)s || n, root, workflow, {status}, null, lease, epoch, seq, hash,
  base, swept, created, ended, parent, fork_key, forked_from, fork_seq, retry_of, retry_index, tags, request
from everstep_run cross join generate_series(1, %(number)s) as n where id = 'model'
"""
_STEPS = """
insert into everstep_step select %(first)s + n, seq, kind, status, name, started, duration, hash, mark, meta, data
from everstep_step cross join generate_series(1, %(number)s) as n where run = 1
"""
_PAUSED, _ACTIVE = STATUS_NUMBER[Status.PAUSED], STATUS_NUMBER[Status.ACTIVE]


@contextmanager
def parked(url: str, number: int, waiting: int) -> Iterator[str]:
    """A place with so many paused runs, and some that wait for an owner."""
    with place(url) as (_, inside):
        with everstep.open(inside) as trail:
            run = trail.record("model")
            for step in range(3):
                run.step("agent", output=workloads.content(step))
            run.release()
        with psycopg.connect(inside, autocommit=True) as connection:
            for prefix, copies, status in (("parked-", number, _PAUSED), ("waiting-", waiting, _ACTIVE)):
                values = {"first": 1_000_000 * (status + 1), "prefix": prefix, "number": copies}
                connection.execute(_COPIES.format(status=status), values)
                connection.execute(_STEPS, values)
            for table in ("run", "step"):
                connection.execute(f"vacuum analyze everstep_{table}")
        yield inside


def claims(url: str, each: int) -> float:
    """Claims a second by four processes at once, each of which claims runs one after the other."""
    return _at_once(_client, url, each)


def raw_claims(url: str, each: int) -> float:
    """The floor of that: rows that are updated, each in a commit of its own."""
    return _at_once(_raw_client, url, each)


def _at_once(client: Callable[..., None], url: str, each: int) -> float:
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(CLIENTS), context.Queue()
    clients = [context.Process(target=client, args=(url, n, each, ready, answers)) for n in range(CLIENTS)]
    for process in clients:
        process.start()
    spans = [answers.get(timeout=120) for _ in clients]
    for process in clients:
        process.join()
    starts, ends = zip(*spans, strict=True)
    return CLIENTS * each / float(max(ends) - min(starts))


def _client(url: str, number: int, each: int, ready: Any, answers: Any) -> None:
    with closing(PostgresStore(url)) as store:
        ready.wait()
        start = perf_counter()
        for run in range(number * each + 1, (number + 1) * each + 1):
            store.claim(f"waiting-{run}", f"client {number}")
        answers.put((start, perf_counter()))


def _raw_client(url: str, number: int, each: int, ready: Any, answers: Any) -> None:
    update = "update everstep_run set request = null where id = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        ready.wait()
        start = perf_counter()
        for run in range(number * each + 1, (number + 1) * each + 1):
            connection.execute(update, (f"waiting-{run}",))
        answers.put((start, perf_counter()))


def finding(url: str) -> float:
    """Milliseconds to find a hundred runs that wait for an owner."""
    asked = RunQuery(status=_ACTIVE, limit=100)
    with closing(PostgresStore(url, read_only=True)) as store:
        return ours.median_of(lambda: store.runs(asked)) * 1e3


def row_bytes(url: str) -> float:
    """Bytes that a run takes in the table of runs and its indexes."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select pg_total_relation_size('everstep_run')::float8 / count(*) from everstep_run"
        ).fetchone()
    assert found is not None
    return float(found[0])


def looked_after(url: str) -> float:
    """Milliseconds that the doctor takes for what it asks the store."""
    with closing(PostgresStore(url, read_only=True)) as store:
        return ours.median_of(store.health, 3) * 1e3
