"""Servers that fail while they are written to: full, replaced by a replica, out of connections, killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

import everstep
from everstep import errors
from everstep.store.postgres import PostgresStore
from everstep.testing.rows import begin, history
from tests.integration import test_kill
from tests.integration.support import Nursery
from tests.integration.writers import KINDS
from tests.postgres import Server, own_server

PATIENCE = 30.0  # seconds

LARGE = random.Random(1).randbytes(9_000)  # a row of its size is kept in a file of its own


@contextmanager
def full(file: Path) -> Iterator[None]:
    """The disk under a file is full: it is a device that refuses every write as such a disk does."""
    kept = file.with_name("kept")
    if file.exists():
        file.rename(kept)
    file.symlink_to("/dev/full")
    try:
        yield
    finally:
        file.unlink()
        if kept.exists():
            kept.rename(file)


async def fill(server: Server, connection: psycopg.Connection) -> None:
    """Two runs whose steps share a statement, for which there is no room, and then there is."""
    async with await everstep.AsyncTrail.open(server.url) as trail:
        [(path,)] = connection.execute(
            "select pg_relation_filepath(reltoastrelid) from pg_class where relname = 'everstep_step'"
        ).fetchall()
        large, small = [await trail.record(name) for name in ("large", "small")]
        for run in (large, small):
            await run.step("first", output=1, append_to="done")
        with full(server.data / path):
            steps = [large.step("fill", output=LARGE, append_to="done"), small.step("fill", output=2, append_to="done")]
            for error in await asyncio.gather(*steps, return_exceptions=True):
                assert isinstance(error, errors.DiskFullError)
                assert "free some space and write again" in str(error)
            await small.step("small", output=3, append_to="done")  # there is room for this
            assert [await trail.state(run) for run in ("large", "small")] == [{"done": [1]}, {"done": [1, 3]}]
        connection.execute("create database other")
        connection.execute("drop database other")  # for which everybody lets go of files
        await large.step("fill", output=LARGE, append_to="done")
        assert await trail.state("large") == {"done": [1, LARGE]}
        assert str(await trail.verify()) == "2 runs, 6 entries: intact"


def test_a_full_disk_is_told_and_nothing_of_the_write_stays() -> None:
    """Promises 1 and 13: many wait for one statement, and none of it is there; with room the same runs go on."""
    with own_server() as server, psycopg.connect(server.url, autocommit=True) as connection:
        asyncio.run(fill(server, connection))


def test_a_server_that_dies_because_its_log_has_no_room_is_told_and_gone_on_with() -> None:
    """Promises 1 and 13: it takes itself down, and finds no rest before there is room and it is started again."""
    with own_server() as server:
        trail = everstep.Trail(PostgresStore(server.url, patience=1.0))
        run = trail.record("run")
        run.step("first", output=1, append_to="done")
        with psycopg.connect(server.url, autocommit=True) as connection:
            [(end,)] = connection.execute(
                "select pg_walfile_name(pg_current_wal_lsn() + setting::bigint) from pg_settings "
                "where name = 'wal_segment_size'"
            ).fetchall()
            with full(server.data / "pg_wal" / end):
                connection.execute("select pg_switch_wal()")
                with pytest.raises(errors.ServerLostError, match=r"No space left|crash of another") as lost:
                    run.step("second", output=2, append_to="done")
                assert "All acknowledged steps are kept" in str(lost.value)
                server.stop()
        server.start()
        run.step("third", output=3, append_to="done")
        assert trail.state("run") == {"done": [1, 3]}
        assert str(trail.verify()) == "1 run, 3 entries: intact"
        trail.close()


def opened_when_there(url: str, end: float) -> everstep.Trail:
    """The trail on a replica, which follows in its own time."""
    while True:
        try:
            return everstep.open(url, read_only=True)
        except errors.UnreadableError:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_a_replica_is_read_and_becomes_the_server_when_the_first_is_gone() -> None:
    """Promises 1, 12 and 13: what it has seen is there, and a writer that knows both goes on with it."""
    with own_server() as primary, own_server(follows=primary) as replica:
        both = (
            f"postgresql://postgres@/postgres?host={quote(f'{primary.folder},{replica.folder}')}"
            "&target_session_attrs=read-write"
        )
        store = PostgresStore(both, patience=PATIENCE)
        writer = begin(store)
        written = writer.write(3)
        with pytest.raises(errors.OpenError, match="target_session_attrs=read-write"):
            everstep.open(replica.url)
        end = time.monotonic() + PATIENCE
        with opened_when_there(replica.url, end) as trail:
            while [run.head for run in trail.runs()] != [2]:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert history(trail.store) == written
            with pytest.raises(errors.ReadOnlyError):
                trail.record("new")
        primary.stop("immediate")
        replica.promote()
        written += writer.write(2)
        assert history(store) == written
        assert store.inspect() == []
        store.close()
        primary.start()  # for whoever removes it


def test_a_server_without_a_free_connection_is_told_as_one(postgres_server: str, postgres: str) -> None:
    """Promise 13."""
    everstep.open(postgres).close()
    name, schema = f"few_{id(postgres)}", postgres.rpartition("%3D")[2]
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f"create role {name} login connection limit 1")
        try:
            server.execute(f"grant usage on schema {schema} to {name}")
            server.execute(f"grant all on all tables in schema {schema} to {name}")
            url = postgres.replace("postgres@", f"{name}@")
            with everstep.open(url):
                with pytest.raises(errors.ServerUnreachableError, match="too many connections") as refusal:
                    everstep.open(url)
                assert "Check host and port" not in str(refusal.value)
        finally:
            server.execute(f"drop owned by {name}")
            server.execute(f"drop role {name}")


def test_tables_of_another_program_under_our_names_are_left_alone(postgres: str) -> None:
    """Promise 13: no trail is made among them, and none is said to be there."""
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("create table everstep_run(lap integer)")
        for _ in range(2):
            with pytest.raises(errors.NotATrailError, match="everstep_run"):
                everstep.open(postgres)
        found = server.execute("select tablename from pg_tables where schemaname = current_schema()").fetchall()
        assert found == [("everstep_run",)]


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    with Nursery() as writers:
        yield writers


def restarted(nursery: Nursery, folder: Path, seed: int, deaths: int) -> int:
    """Processes that write, while their server dies again and again. How much was acknowledged, and is there."""
    chance = random.Random(seed)
    with own_server() as server:
        acks = {kind: folder / f"acks-{kind}" for kind in sorted(KINDS)}
        at_work = [nursery.start(kind, server.url, kind, file) for kind, file in acks.items()]
        for _ in range(deaths):
            for file in acks.values():
                test_kill.until(file, len(test_kill.lines(file)) + chance.choice([1, 5, 20]))
            server.stop("immediate")
            server.start()
        for file in acks.values():  # all of them go on
            test_kill.until(file, len(test_kill.lines(file)) + 5)
        for process in at_work:
            nursery.kill(process)
        return test_kill.check(server.url, folder)


def test_processes_outlive_the_death_of_their_server(nursery: Nursery, tmp_path: Path) -> None:
    """Promise 1: what was acknowledged is there, once, whichever process it was acknowledged to."""
    assert restarted(nursery, tmp_path, 1, 2) > 20


@pytest.mark.torture
def test_processes_outlive_many_deaths_of_their_server(nursery: Nursery, tmp_path: Path) -> None:
    """Promise 1."""
    assert restarted(nursery, tmp_path, 2, 40) > 400
