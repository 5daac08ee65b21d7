"""Everything that can be wrong with a trail on a server: a typed error each, with the way out and without a secret."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import everstep
from everstep import errors
from everstep.store.postgres import PostgresStore
from everstep.testing.rows import begin, history, new_run
from tests.integration.cli_support import run as command
from tests.integration.support import output
from tests.postgres import place

SECRET = "hunter-2-hunter"
GUARDED, HUMBLE = f"guarded_{os.getpid()}", f"humble_{os.getpid()}"  # roles are of the whole server

WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None
import everstep
try:
    everstep.open(sys.argv[1])
except everstep.EverstepError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def server(postgres_server: str) -> Iterator[str]:
    """The server, with roles that may less: one with a password, one that may neither make tables nor write."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        groups = connection.execute("select 1 from pg_roles where rolname = 'guarded'").fetchall()
        connection.execute(f"create role {GUARDED} login password '{SECRET}' {'in role guarded' if groups else ''}")
        connection.execute(f"create role {HUMBLE} login")
    yield postgres_server
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for role in (GUARDED, HUMBLE):
            connection.execute(f"drop owned by {role}")
            connection.execute(f"drop role {role}")


def refusal(url: str, *, read_only: bool = False) -> everstep.EverstepError:
    """What opening raises; wherever it can be read, no password stands in it."""
    with pytest.raises(everstep.EverstepError) as caught:
        everstep.open(url, read_only=read_only)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(caught.value))
    assert SECRET not in told
    return caught.value


def as_role(url: str, login: str) -> str:
    return url.replace("postgres@", f"{login}@")


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (f"GUARDED:wrong-{SECRET}", "password authentication failed"),
        ("GUARDED", "no password supplied"),
        (f"nobody-known:{SECRET}", 'role "nobody-known" does not exist'),
    ],
)
def test_who_may_not_log_in_is_told_why(
    server: str, login: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Promises 10 and 13."""
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    error = refusal(as_role(server, login.replace("GUARDED", GUARDED)))
    assert isinstance(error, errors.LoginRefusedError)
    assert words in str(error)
    assert "Check the user and the password" in str(error)


def test_the_right_password_opens_it_and_is_shown_nowhere(server: str, postgres: str) -> None:
    """Promise 10."""
    name = postgres.rpartition("%3D")[2]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"grant create, usage on schema {name} to {GUARDED}")
    url = as_role(postgres, f"{GUARDED}:{SECRET}")
    with everstep.open(url) as trail:
        trail.record("r").finish(1)
        assert SECRET not in repr(trail) + trail.store.where
    shown = command("show", "r", "--trail", url)
    doctor = command("doctor", "--trail", url)
    missing = command("show", "none", "--trail", url)
    for done in (shown, doctor, missing):
        assert SECRET not in done.stdout + done.stderr
    assert shown.exit_code == doctor.exit_code == 0


@pytest.mark.parametrize(
    "host", ["does-not-exist.invalid", "127.0.0.1:1", "%2Fnowhere-at-all"], ids=["name", "port", "socket"]
)
def test_a_server_that_is_not_there_is_named(host: str) -> None:
    """Promise 13."""
    error = refusal(f"postgresql://me:{SECRET}@{host}/trails?connect_timeout=3")
    assert isinstance(error, errors.ServerUnreachableError)
    assert str(error).endswith(" Check host and port, that it runs, and that no firewall is in the way.")
    assert not re.search(r"[?.]\.", str(error)), "libpq may end with a question"
    assert "postgresql://me@" in str(error)


def test_a_database_that_is_not_there_is_named(server: str) -> None:
    error = refusal(server.replace("/postgres?", "/none?"))
    assert isinstance(error, errors.UnreadableError)
    assert "no database 'none'" in str(error)
    assert "createdb" in str(error)


def test_a_schema_that_is_not_there_is_to_be_made(server: str) -> None:
    error = refusal(f"{server}&options=-csearch_path%3Dnowhere")
    assert isinstance(error, errors.UnreadableError)
    assert "create schema" in str(error)


def test_a_database_that_cannot_hold_every_text_is_refused_before_anything_is_made(server: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database latin encoding 'LATIN1' locale 'C' template template0")
        try:
            error = refusal(server.replace("/postgres?", "/latin?"))
            assert isinstance(error, errors.UnreadableError)
            assert "--encoding UTF8" in str(error)
            with psycopg.connect(server.replace("/postgres?", "/latin?")) as there:
                assert there.execute("select 1 from pg_tables where tablename like 'everstep%'").fetchall() == []
        finally:
            connection.execute("drop database latin with (force)")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{SECRET}@[host/db",
        f"postgresql://me:{SECRET}%zz@host/db",
        f"postgresql://host/db?nonsense=1&password={SECRET}",
        f"postgresql://me:{SECRET}/more@host/db",
        f"postgresql://me:{SECRET}/@/db?host=/tmp",
        f"host=localhost user=me password={SECRET} dbname=db",
        f"postgresql://me:{SECRET}@host/db?connect_timeout=soon",
        f"postgresql+asyncpg://me:{SECRET}@host/db",
        f"mysql://me:{SECRET}/@host/db?password={SECRET}",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated_with_its_password(url: str) -> None:
    """Promise 10."""
    assert isinstance(refusal(url), errors.OpenError)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("sslmod=require", "option 'sslmod', which libpq does not know.*such as sslmode"),
        ("sslmode=on", 'invalid sslmode value: "on".*disable, allow, prefer, require'),
        ("connect_timeout=soon", "connect_timeout.*values that libpq knows"),
    ],
)
def test_an_option_of_a_url_that_cannot_be_used_is_named(postgres: str, option: str, told: str) -> None:
    """Promise 13."""
    assert re.search(told, str(refusal(f"{postgres}&{option}")))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_later_schema_is_refused_and_left_as_it_is(postgres: str, *, read_only: bool) -> None:
    everstep.open(postgres).close()
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("update everstep_fact set value = 99 where name = 'schema'")
    error = refusal(postgres, read_only=read_only)
    assert isinstance(error, errors.NewerSchemaError)
    assert "schema 99" in str(error)
    assert "upgrade" in str(error)


@pytest.mark.parametrize("columns", ["name text, value bigint", "other text"])
def test_the_table_of_another_program_is_left_alone(postgres: str, columns: str) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"create table everstep_fact({columns})")
    assert isinstance(refusal(postgres), errors.NotATrailError)
    with psycopg.connect(postgres) as connection:
        found = connection.execute("select tablename from pg_tables where schemaname = current_schema()").fetchall()
        assert found == [("everstep_fact",)]


def test_a_place_without_a_trail_has_nothing_to_read(postgres: str) -> None:
    error = refusal(postgres, read_only=True)
    assert "makes no new trail" in str(error)


def test_a_server_that_takes_no_writes_can_be_read(postgres: str) -> None:
    """Promise 12: as a replica that follows, and one that a writer was moved to in the midst of its work."""
    replica = f"{postgres}%20-cdefault_transaction_read_only%3Don"
    assert "takes no writes" in str(refusal(replica))
    store = PostgresStore(postgres)
    writer = begin(store, rows=2)
    assert "target_session_attrs=read-write" in str(refusal(replica))
    with everstep.open(replica, read_only=True) as trail:
        assert len(history(trail.store)) == 2
    assert store._writer is not None
    store._writer.execute("set default_transaction_read_only = on")
    with pytest.raises(errors.StoreError, match="read-only replica"):
        writer.write()
    assert len(history(store)) == 2
    store.close()


def test_a_role_that_may_not_make_tables_or_write_is_told_so(server: str, postgres: str) -> None:
    humble = as_role(postgres, HUMBLE)
    assert "may not make tables" in str(refusal(humble))
    everstep.open(postgres).close()
    with psycopg.connect(server, autocommit=True) as connection:
        name = postgres.rpartition("%3D")[2]
        connection.execute(f"grant usage on schema {name} to {HUMBLE}")
        assert "Grant it select" in str(refusal(humble, read_only=True))
        connection.execute(f"grant select on all tables in schema {name} to {HUMBLE}")
    with everstep.open(humble, read_only=True) as trail:
        assert trail.runs() == []
    with everstep.open(humble) as trail, pytest.raises(errors.StoreError, match="grant it select, insert"):
        trail.record("r")


def test_what_the_server_cannot_hold_is_refused_and_names_it(postgres: str) -> None:
    """Promise 7."""
    store = PostgresStore(postgres)
    writer, other = begin(store, rows=1), begin(store, "other", rows=1)
    with pytest.raises(errors.UnstorableError, match="NUL"):
        writer.write(name="a\0b")
    with pytest.raises(errors.RunNotFoundError):
        store.run("a\0b")
    with pytest.raises(errors.RunNotFoundError):
        store.claim("a\0b", "me")
    other.write()
    assert (len(history(store)), len(history(store, "other"))) == (1, 2)
    store.close()


def test_a_run_with_a_name_that_is_too_long_is_refused_alone(postgres: str) -> None:
    """Promise 7: beside others in one commit, and in a copy, which names it."""
    long = "".join(map(str, range(5_000)))
    with everstep.open(":memory:") as source, everstep.open(postgres) as trail:
        for number in range(3):
            source.record(f"r-{number}", tags={"note": long} if number == 1 else {}).release()
        copied = source.copy(trail)
        assert [refusal.run_id for refusal in copied.refused] == ["r-1"]
        assert "not copied: run 'r-1': cannot store" in str(copied)
        assert [run.id for run in trail.runs()] == ["r-2", "r-0"]
        for detail in ({"tags": {"note": long}}, {"workflow": long}, {"parent": long}):
            with pytest.raises(errors.UnstorableError, match="Shorten the id") as caught:
                trail.record("r", **detail)
            assert "DETAIL" not in str(caught.value)
        made = [trail.store.post_create(new_run(name)) for name in ("first", long, "last")]  # type: ignore[attr-defined] # of stores with a group commit
        with pytest.raises(errors.UnstorableError, match="Shorten the id"):
            made[1]()
        assert [made[0]().run_id, made[2]().run_id] == ["first", "last"]


def test_a_statement_that_takes_too_long_is_given_up(postgres: str) -> None:
    """Promise 13."""
    store = PostgresStore(f"{postgres}%20-clock_timeout%3D50ms")
    writer = begin(store, rows=1)
    with psycopg.connect(postgres) as rival:
        rival.execute("select 1 from everstep_run for update")
        draft = writer.draft(writer.rows())
        with pytest.raises(errors.StoreError, match="did not do it in time"):
            store.append(draft)
    assert store.append(draft)
    assert len(history(store)) == 2
    store.close()


def test_a_missing_extra_is_named_with_what_installs_it() -> None:
    """Promise 13."""
    told = output(WITHOUT_DRIVER, f"postgresql://me:{SECRET}@host/db")
    assert told.startswith("MissingExtraError")
    assert "pip install 'psycopg[binary]'" in told
    assert SECRET not in told


def test_two_trails_on_one_server_are_apart(server: str) -> None:
    with place(server) as one, place(server) as two, everstep.open(one) as first, everstep.open(two) as second:
        first.record("r").finish(1)
        assert [run.id for run in first.runs()] == ["r"]
        assert second.runs() == []
        assert first.store.where != second.store.where
