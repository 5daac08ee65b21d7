"""What stores tell of themselves: the same of the same runs, whichever store, and what weakens the promises there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import time

import apsw
import psycopg
import pytest

import everstep
from everstep.errors import ReadOnlyError
from everstep.model import STATUS_NUMBER, Status
from everstep.store import sqlite_health
from everstep.store.base import Measures, Store
from everstep.store.files import FilesStore
from everstep.store.health import Health
from everstep.store.memory import MemoryStore
from everstep.store.postgres import PostgresStore
from everstep.store.schema import FixedConnection
from everstep.store.sqlite import SqliteStore
from everstep.testing.rows import begin, history, new_run, pieces
from tests.postgres import Server, own_server

DAY = 86_400.0
COMPLETED, ACTIVE = STATUS_NUMBER[Status.COMPLETED], STATUS_NUMBER[Status.ACTIVE]


ALL, TABLES = ("memory", "files", "sqlite", "postgres"), ("sqlite", "postgres")


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    match request.param:
        case "memory":
            made = MemoryStore()
        case "files":
            made = FilesStore(str(tmp_path / "trail"))
        case "sqlite":
            made = SqliteStore(str(tmp_path / "trail.db"))
        case _:
            made = PostgresStore(request.getfixturevalue("postgres"))
    with closing(made):
        yield made


def health(store: Store) -> Health:
    assert isinstance(store, Measures)
    return store.health()


def micros(days_ago: float) -> int:
    return int((time() - days_ago * DAY) * 1e6)


def finished(store: Store, run_id: str, begun: float, ended: float, rows: int) -> None:
    """A run that began and ended so many days ago."""
    writer = begin(store, run_id, created=micros(begun))
    made = writer.rows(rows, started=micros(ended))
    assert store.append(writer.draft(made, status=COMPLETED))


@pytest.mark.parametrize("store", ALL, indirect=True)
class TestEveryStore:
    def test_an_empty_one_has_nothing_to_tell(self, store: Store) -> None:
        found = health(store)
        assert (found.runs, found.rows, found.oldest, found.growth, list(found.largest)) == ({}, 0, None, None, [])

    def test_runs_rows_and_the_oldest_are_counted(self, store: Store) -> None:
        finished(store, "first", 2, 1, rows=3)
        begin(store, "second", rows=4, created=micros(0))
        store.create(new_run("fork", fork=("second", 1)))
        found = health(store)
        assert found.runs == {COMPLETED: 1, ACTIVE: 2}
        assert (found.rows, found.oldest) == (7, "first")

    def test_growth_is_that_of_the_last_week_and_a_run_is_spread_over_its_time(self, store: Store) -> None:
        finished(store, "before", 30, 20, rows=50)
        finished(store, "across", 10.5, 3.5, rows=100)
        finished(store, "within", 2, 1, rows=20)
        found = health(store).growth
        assert found is not None
        assert found.seconds == pytest.approx(7 * DAY)
        assert found.rows == 50 + 20

    def test_growth_of_a_young_one_is_since_its_first_run(self, store: Store) -> None:
        finished(store, "run", 2, 1, rows=20)
        found = health(store).growth
        assert found is not None
        assert found.seconds == pytest.approx(2 * DAY, rel=0.01)
        assert found.rows == 20

    def test_the_largest_runs_are_told_and_no_others(self, store: Store) -> None:
        for number in range(8):
            begin(store, f"run {number}", rows=10 * number + 1)
        found = health(store).largest
        assert [(run.run_id, run.rows) for run in found] == [(f"run {n}", 10 * n + 1) for n in (7, 6, 5, 4, 3)]
        assert [run.bytes for run in found] == sorted((run.bytes for run in found), reverse=True)
        assert found[-1].bytes > 31 * 5


@pytest.mark.parametrize("store", TABLES, indirect=True)
class TestStoresOfTables:
    def test_a_run_with_large_pieces_is_found_among_many_with_more_rows(self, store: Store) -> None:
        for number in range(15):
            begin(store, f"small {number}", rows=2)
        heavy = begin(store, "heavy")
        large = pieces(os.urandom(200_000).hex())
        assert store.append(heavy.draft(heavy.rows(1, blobs=large), blobs=large))
        first = health(store).largest[0]
        assert (first.run_id, first.rows) == ("heavy", 1)
        assert first.bytes > 200_000

    def test_of_a_long_run_the_newest_rows_tell_how_large_it_is(self, store: Store) -> None:
        begin(store, "long", rows=2_500)
        begin(store, "short", rows=250)
        long, short = health(store).largest
        assert (long.run_id, long.rows) == ("long", 2_500)
        assert long.bytes == pytest.approx(10 * short.bytes, rel=0.1)


class TestMemory:
    def test_that_it_is_gone_with_its_program_is_said(self) -> None:
        [said] = MemoryStore().health().weaknesses
        assert "gone when its program ends" in said


class TestFiles:
    @pytest.mark.parametrize(("kind", "words"), [("nfs4", "network file system (nfs4)"), ("tmpfs", "in memory")])
    def test_a_file_system_that_breaks_promises_is_named(
        self, tmp_path: Path, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Promise 1: where an acknowledged step is not durable, that is said."""
        FilesStore(str(tmp_path / "trail")).close()
        monkeypatch.setattr("everstep.store.schema.file_system", lambda folder: kind)
        with closing(FilesStore(str(tmp_path / "trail"), read_only=True)) as store:
            [said] = store.health().weaknesses
        assert words in said


class TestSqlite:
    @pytest.fixture(autouse=True)
    def disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("everstep.store.schema.file_system", lambda folder: "ext4")

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "trail.db"
        with closing(SqliteStore(str(path))) as store:
            begin(store, rows=200)
        return path

    def told(self, path: Path) -> Health:
        with closing(SqliteStore(str(path), read_only=True)) as store:
            return store.health()

    def test_one_that_is_well_has_no_weakness(self, path: Path) -> None:
        found = self.told(path)
        assert list(found.weaknesses) == []
        assert (found.facts["journal_mode"], found.facts["auto_vacuum"]) == ("wal", True)
        assert found.sizes["file"] == path.stat().st_size

    def test_asking_takes_nothing_from_a_writer(self, path: Path) -> None:
        """Promise 1. Whoever closes a file ends the locks of its process: another would then remove the log."""
        with closing(SqliteStore(str(path))) as store:
            writer = begin(store, "mine", rows=1)
            store.health()
            reading = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('select 1 from run'); c.close()"
            subprocess.run([sys.executable, "-c", reading, str(path)], check=True)
            written = writer.write(2)
            with closing(SqliteStore(str(path), read_only=True)) as other:
                assert history(other, "mine")[-2:] == written

    def test_another_journal_mode_is_named(self, path: Path) -> None:
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("journal_mode", "delete")
        [said] = self.told(path).weaknesses
        assert "in mode 'delete'" in said
        assert "pragma journal_mode = wal" in said

    def test_a_file_that_is_read_as_it_is_has_the_mode_that_its_head_says(self, path: Path) -> None:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI  # as where neither it nor its folder can be written
        with closing(FixedConnection(f"{path.as_uri()}?mode=ro&immutable=1", flags=flags)) as connection:
            found = sqlite_health.health(connection, str(path))
        assert (found.facts["journal_mode"], list(found.weaknesses)) == ("wal", [])

    def test_a_file_that_cannot_shrink_is_named(self, path: Path) -> None:
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("pragma journal_mode = delete; pragma auto_vacuum = none; vacuum").fetchall()
            connection.pragma("journal_mode", "wal")
        [said] = self.told(path).weaknesses
        assert "cannot shrink" in said

    @pytest.mark.parametrize(("kind", "words"), [("nfs4", "network file system (nfs4)"), ("tmpfs", "in memory")])
    def test_a_file_system_that_breaks_promises_is_named(
        self, path: Path, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Promise 1: where an acknowledged step is not durable, that is said."""
        monkeypatch.setattr("everstep.store.schema.file_system", lambda folder: kind)
        found = self.told(path)
        [said] = found.weaknesses
        assert words in said
        assert found.facts["network"] == (kind == "nfs4")

    def test_a_log_that_a_reader_keeps_from_being_folded_is_named(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_health, "_LONG_LOG", 4 << 20)
        with closing(apsw.Connection(str(path))) as reader, everstep.open(path) as trail:
            reader.execute("begin; select count(*) from run").fetchall()
            run = trail.record("much")
            for _ in range(5):
                run.step("chunk", output=os.urandom(1 << 20))
            [said] = self.told(path).weaknesses
        assert "write-ahead log is long" in said

    def test_pages_that_nothing_uses_are_dead_space(self, path: Path) -> None:
        assert self.told(path).dead == 0
        with closing(apsw.Connection(str(path))) as connection:
            connection.execute("delete from step")
        dead = self.told(path).dead
        assert dead is not None
        assert 4096 <= dead < path.stat().st_size


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that is set as servers come, but for its size."""
    with own_server() as server:
        server.stop()
        server.start("-c fsync=on")
        with closing(PostgresStore(server.url)) as store:
            begin(store, rows=20)
        yield server


class TestPostgres:
    """On a server of its own, with the settings that servers come with, and then with worse ones."""

    @staticmethod
    def told(url: str) -> Health:
        with closing(PostgresStore(url, read_only=True)) as store:
            return store.health()

    @staticmethod
    def say(server: Server, *statements: str) -> None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def restarted(self, server: Server, settings: str) -> Health:
        server.stop("fast")
        server.start(settings)
        return self.told(server.url)

    def test_one_that_is_well_has_no_weakness(self, server: Server) -> None:
        found = self.told(server.url)
        assert list(found.weaknesses) == []
        assert str(found.facts["server"]).startswith("18.")
        assert (found.facts["fsync"], found.facts["data_checksums"], found.facts["replica"]) == ("on", "on", False)
        assert found.sizes["step"] > 0

    def test_a_role_that_may_only_read_is_told_the_same(self, server: Server) -> None:
        self.say(
            server, "create role reader login", "grant usage on schema public to reader",
            "grant select on all tables in schema public to reader",
        )  # fmt: skip
        found = self.told(server.url.replace("//postgres@", "//reader@"))
        assert found.facts.keys() == self.told(server.url).facts.keys()
        assert None not in found.facts.values()
        assert (found.rows, list(found.weaknesses)) == (20, [])

    def test_synchronous_commit_off_is_named_for_the_role_that_has_it_off(self, server: Server) -> None:
        """Promise 1: what would acknowledge too early is named, though our own connections switch it on."""
        self.say(server, "create role hasty login superuser", "alter role hasty set synchronous_commit = off")
        [said] = self.told(server.url.replace("//postgres@", "//hasty@")).weaknesses
        assert said.startswith("synchronous_commit is off for this role")
        assert list(self.told(server.url).weaknesses) == []

    def test_settings_that_break_promises_are_named_each_with_the_way_out(self, server: Server) -> None:
        """Promises 1 and 9: where steps are not durable, or damage is not seen, that is said."""
        broken = ("fsync=off", "full_page_writes=off", "autovacuum=off")
        open_ = ("zero_damaged_pages=on", "ignore_checksum_failure=on", "synchronous_commit=off")
        found = self.restarted(server, " ".join(f"-c {setting}" for setting in (*broken, *open_)))
        assert sorted(said.split(":")[0].split(" for ")[0] for said in found.weaknesses) == sorted(
            setting.replace("=", " is ") for setting in (*broken, *open_)
        )
        assert list(self.restarted(server, "-c fsync=on").weaknesses) == []

    def test_pages_without_checksums_are_named(self, server: Server) -> None:
        """Promise 9: damage that would not be seen is named."""
        server.stop("fast")
        server.run("pg_checksums", "--disable", "--no-sync")
        server.start("-c fsync=on")
        [said] = self.told(server.url).weaknesses
        assert said.startswith("data_checksums is off")
        server.stop("fast")
        server.run("pg_checksums", "--enable", "--no-sync")
        server.start("-c fsync=on")

    def test_tables_that_a_crash_empties_or_nothing_vacuums_are_named(self, server: Server) -> None:
        """Promise 1: rows of a table that is not logged are not durable."""
        self.say(server, "alter table everstep_step set unlogged")
        self.say(server, "alter table everstep_run set (autovacuum_enabled = false)")
        first, second = sorted(self.told(server.url).weaknesses)
        assert first.startswith("autovacuum is off for the table everstep_run")
        assert second.startswith("the table everstep_step is unlogged")
        self.say(
            server, "alter table everstep_step set logged", "alter table everstep_run reset (autovacuum_enabled)"
        )  # fmt: skip
        assert list(self.told(server.url).weaknesses) == []

    def test_rows_that_nobody_vacuums_are_dead_space(self, server: Server) -> None:
        found = self.restarted(server, "-c fsync=on -c autovacuum=off")
        before = found.dead
        self.say(
            server, "insert into everstep_tag select 'name', number::text, 1 from generate_series(1, 20000) as number",
            "delete from everstep_tag", "select pg_stat_force_next_flush()",
        )  # fmt: skip
        found = self.told(server.url)
        assert before is not None
        assert found.dead is not None
        assert found.dead > before + 500_000
        assert any("most rows of the table everstep_tag are dead" in said for said in found.weaknesses)
        self.say(server, "vacuum everstep_tag")
        assert list(self.restarted(server, "-c fsync=on").weaknesses) == []

    def test_a_server_with_hardly_a_connection_left_is_named(self, server: Server) -> None:
        found = self.restarted(server, "-c fsync=on -c max_connections=8 -c superuser_reserved_connections=3")
        assert list(found.weaknesses) == []
        with psycopg.connect(server.url), psycopg.connect(server.url), psycopg.connect(server.url):
            [said] = self.told(server.url).weaknesses
        assert " of 5 connections are taken" in said

    def test_a_replica_is_named(self, server: Server) -> None:
        server.stop("fast")
        signal = server.folder / "data" / "standby.signal"
        signal.touch()
        server.start("-c fsync=on")
        found = self.told(server.url)
        assert found.facts["replica"] is True
        [said] = found.weaknesses
        assert "the server is a replica" in said
        server.stop("fast")
        signal.unlink()
        server.start("-c fsync=on")

    def test_a_table_that_was_cut_into_partitions_is_as_large_as_these(self, server: Server) -> None:
        before = self.told(server.url).sizes["tag"]
        self.say(
            server, "drop table everstep_tag",
            "create table everstep_tag(name text, value text, run bigint, primary key(name, value, run)) "
            "partition by hash (run)",
            "create table tag_0 partition of everstep_tag for values with (modulus 2, remainder 0)",
            "create table tag_1 partition of everstep_tag for values with (modulus 2, remainder 1)",
            "insert into everstep_tag select 'name', number::text, number from generate_series(1, 20000) as number",
        )  # fmt: skip
        assert self.told(server.url).sizes["tag"] > before + 1_000_000
        self.say(server, "alter table tag_1 set unlogged")
        assert ["the table everstep_tag is unlogged" in said for said in self.told(server.url).weaknesses] == [True]
        self.say(server, "alter table tag_1 set logged")

    def test_telling_writes_nothing(self, server: Server) -> None:
        """Promise 12: reads need no write permission."""
        with closing(PostgresStore(server.url, read_only=True)) as store:
            store.health()
            with pytest.raises(ReadOnlyError):
                store.cache()
