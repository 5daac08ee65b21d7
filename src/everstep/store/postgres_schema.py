"""The tables of a trail in PostgreSQL, their versions, and whether a database can be opened as one.

Plain tables and indexes in the first schema of the search path: no triggers, no functions, no sequences, no locks but
those of rows. Two processes that make them at once: the second is told that they are there, and looks again.
"""

from __future__ import annotations

from typing import LiteralString

from everstep.codec.dictionary import DICTIONARY
from everstep.codec.frame import SHORT_FORMAT
from everstep.errors import NewerSchemaError, NotATrailError, UnreadableError
from everstep.store.postgres_link import Link, ask, do, driver, translate

# Kinds and statuses as numbers: a schema is written down once, and its conditions must not move with the code.
_V1: tuple[LiteralString, ...] = (
    """create table everstep_run(
  key bigint primary key, id text collate "C" unique, root text not null, workflow text not null,
  status smallint not null, owner text, lease double precision not null, epoch bigint not null,
  seq bigint not null, hash bytea not null, base bigint not null, swept bigint not null,
  created bigint not null, ended bigint, parent text, fork_key bigint, forked_from text, fork_seq bigint,
  retry_of text, retry_index bigint, tags bytea not null, request text) with (fillfactor = 50)""",
    "create index everstep_run_status on everstep_run(status, key)",
    "create index everstep_run_workflow on everstep_run(workflow, key)",
    "create index everstep_run_parent on everstep_run(parent, key) where parent is not null",
    "create index everstep_run_fork on everstep_run(fork_key) where fork_key is not null",
    "create table everstep_tag(name text, value text, run bigint, primary key(name, value, run))",
    """create table everstep_step(
  run bigint not null, seq bigint not null, kind smallint not null, status smallint not null, name text not null,
  started bigint not null, duration bigint not null, hash bytea not null, mark bigint,
  meta bytea not null, data bytea not null, primary key(run, seq))""",
    "alter table everstep_step alter column data set storage external",
    "create index everstep_step_failed on everstep_step(run) where status = 2",
    "create index everstep_step_mark on everstep_step(mark) where mark is not null",
    """create table everstep_keyframe(
  run bigint not null, seq bigint not null, shared boolean not null, hash bytea not null, data bytea not null,
  seal bytea not null, primary key(run, seq))""",
    "create table everstep_blob(id bytea primary key, data bytea not null)",
    "alter table everstep_blob alter column data set storage external",
    """create table everstep_ref(run bigint not null, seq bigint not null, blob bytea not null,
  primary key(run, seq, blob))""",
    "create table everstep_dictionary(format integer primary key, data bytea not null)",
)
_FACTS = "create table everstep_fact(name text primary key, value bigint not null)"
MIGRATIONS = (_V1,)  # one entry lifts the schema by one; never edit one that was released
_MADE = frozenset({"42P07", "23505", "42710"})  # another process was first
_TRIES = 20


def lift(link: Link, where: str, *, read_only: bool) -> None:
    """Check that the database holds a trail, or make one. Raises an OpenError."""
    in_the_way, known = "", len(MIGRATIONS)
    for _ in range(_TRIES):
        found = _version(link, where)
        if found > known:
            raise NewerSchemaError(where, found, known)
        if found == known:
            break
        if read_only:
            raise (
                UnreadableError(where, "there is no trail", "Check the URL; opening for reading makes no new trail.")
                if found == 0
                else UnreadableError(
                    where, f"it has schema {found}", "Open it once for writing to bring it up to date."
                )
            )
        _check_encoding(link, where)
        in_the_way = _migrate(link, where)
    else:  # nobody else makes them: they are no tables of ours
        raise NotATrailError(where, f"a database in which another program has our names ({in_the_way})")
    if not read_only and ask(link, "show transaction_read_only") != [("off",)]:
        raise UnreadableError(
            where,
            "its server takes no writes (it is a read-only replica, or set to be)",
            "Name the primary, or all hosts with target_session_attrs=read-write; or open it with read_only=True.",
        )


def _check_encoding(link: Link, where: str) -> None:
    """Raise UnreadableError, before anything is made, in a database that cannot hold every text."""
    [(encoding,)] = ask(link, "show server_encoding")
    if encoding not in {"UTF8", "SQL_ASCII"}:
        raise UnreadableError(
            where,
            f"its texts are in {encoding}, which not every text can be",
            "Make the database with encoding UTF8: createdb --encoding UTF8 --template template0 NAME.",
        )


def _version(link: Link, where: str) -> int:
    """The schema version of a trail; 0 for a place without one."""
    try:
        found = ask(link, "select value from everstep_fact where name = 'schema'")
    except driver.errors.UndefinedTable:
        return 0
    except driver.errors.InsufficientPrivilege:
        reason = "its role may not read the tables of the trail that is there"
        raise UnreadableError(where, reason, "Grant it select on the tables everstep_*.") from None
    except driver.errors.UndefinedColumn:
        found = []
    if not found:
        raise NotATrailError(where, "a database with another program's table everstep_fact")
    version: int = found[0][0]
    return version


def _migrate(link: Link, where: str) -> str:
    """Bring the schema up to date in one transaction, unless another process does; then what was there already."""
    try:
        with link.transaction():
            found = _begin(link)
            for migration in MIGRATIONS[found:]:
                for statement in migration:
                    link.execute(statement)
            if found == 0:
                do(link, "insert into everstep_dictionary values(%s, %b)", (SHORT_FORMAT, DICTIONARY))
            do(link, "update everstep_fact set value = %s where name = 'schema'", (len(MIGRATIONS),))
    except driver.Error as error:
        if error.sqlstate in _MADE:
            return error.diag.message_primary or ""
        if error.sqlstate == "25006":
            raise UnreadableError(
                where,
                "there is no trail, and its server takes no writes (it is a read-only replica, or set to be)",
                "Name the primary, or all hosts with target_session_attrs=read-write.",
            ) from None
        if error.sqlstate == "3F000":
            raise UnreadableError(
                where,
                "there is no trail, and its role may not make tables: no schema in its search_path is there for it",
                "Make one (create schema agents), or grant it usage and create on one.",
            ) from None
        if error.sqlstate == "42501":
            raise UnreadableError(
                where,
                "there is no trail, and its role may not make tables",
                "Grant it create on the schema, or open it once as a role that may.",
            ) from None
        raise translate(error, where) from error
    return ""


def _begin(link: Link) -> int:
    """The version to lift from, locked against others."""
    try:
        with link.transaction():  # a savepoint: what is not there must not end the transaction around it
            found = ask(link, "select value from everstep_fact where name = 'schema' for update")
    except driver.errors.UndefinedTable:
        link.execute(_FACTS)
        link.execute(
            "insert into everstep_fact values('schema', 0), ('generation', 0), ('run', 0), ('mark', 0), ('sweep', 0)"
        )
        return 0
    version: int = found[0][0]
    return version
