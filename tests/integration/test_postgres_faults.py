"""Servers that fail while they are written to: full, replaced by a replica, out of connections, killed."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
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
from tests.postgres import own_server

PATIENCE = 30.0  # seconds

# What a server says when it has no room for a row. To fill a disk for real takes rights that tests do not have.
FULL = """
create function no_room() returns trigger language plpgsql as
  $$ begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
create trigger no_room before insert on everstep_step for each row when (new.name = 'large') execute function no_room()
"""


def test_a_full_disk_is_told_and_nothing_of_the_write_stays(postgres: str) -> None:
    """Promises 1 and 13: many wait for one statement, and none of it is there; with room it is all written."""
    store = PostgresStore(postgres)
    writer, other = begin(store, rows=2), begin(store, "other", rows=1)
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(FULL)
        large = writer.draft(writer.rows(2, name="large"))
        small = other.draft(other.rows())
        for wait in [store.post(large), store.post(small)]:  # one statement for both
            with pytest.raises(errors.DiskFullError, match="free some space and write again"):
                wait()
        assert [len(history(store, run)) for run in ("run", "other")] == [2, 1]
        server.execute("drop trigger no_room on everstep_step")
    for append in (large, small):
        assert store.append(append)
    assert [len(history(store, run)) for run in ("run", "other")] == [4, 2]
    assert store.inspect() == []
    store.close()


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
