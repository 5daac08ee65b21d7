"""The SQLite file: its tables, its versions, and whether it can be opened at all."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from everstep.codec.dictionary import DICTIONARY
from everstep.codec.frame import SHORT_FORMAT
from everstep.errors import (
    DamagedError,
    DamageWarning,
    DiskFullError,
    EverstepError,
    LockedError,
    NetworkFileSystemError,
    NewerSchemaError,
    NotATrailError,
    OldSqliteError,
    ReadOnlyError,
    StoreError,
    UnreadableError,
)
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.health import NETWORK
from everstep.store.lock import open_lock, take
from everstep.store.wal import lost_commits

APPLICATION_ID = 0x65765374  # "evSt": tells a trail from any other SQLite file
BUSY_SECONDS = 10.0
_LOG_PAGES = 250  # after which the log is folded into the file: writing over it is cheaper than letting it grow
_FIXED = (3, 51, 3)
_BACKPORTS = {(3, 44): 6, (3, 50): 7}

_V1 = f"""
create table run(
  key integer primary key autoincrement, id text unique, root text not null, workflow text not null,
  status integer not null, owner text, lease real not null, epoch integer not null,
  head integer, seq integer not null, hash blob not null, base integer not null,
  created integer not null, ended integer, parent text, fork_key integer, fork_row integer,
  forked_from text, fork_seq integer, swept integer not null,
  retry_of text, retry_index integer, tags blob not null, request text, seal blob not null);
create index run_status on run(status, key);
create index run_workflow on run(workflow, key);
create index run_parent on run(parent, key) where parent is not null;
create index run_fork on run(fork_key) where fork_key is not null;
create table tag(name text, value text, run integer, primary key(name, value, run)) without rowid;
create table step(
  id integer primary key, run integer not null, seq integer not null, prev integer,
  kind integer not null, status integer not null, name text not null, started integer not null,
  duration integer not null, hash blob not null, meta blob not null, data blob not null);
create index step_failed on step(run) where status = {STATUS_NUMBER[Status.FAILED]};
create index step_checkpoint on step(run, seq) where kind = {KIND_NUMBER[Kind.CHECKPOINT]};
create table keyframe(
  run integer not null, seq integer not null, row integer, hash blob not null, data blob not null, seal blob not null,
  primary key(run, seq)) without rowid;
create table blob(id blob primary key, data blob not null) without rowid;
create table ref(row integer not null, blob blob not null, primary key(row, blob)) without rowid;
create table fact(name text primary key, value integer not null) without rowid;
insert into fact values('generation', 0);
create table dictionary(format integer primary key, data blob not null);
insert into dictionary values({SHORT_FORMAT}, x'{DICTIONARY.hex()}');
"""

MIGRATIONS = (_V1,)  # one entry lifts the schema by one; never edit one that was released


class FixedConnection(apsw.Connection):
    """A connection that takes the file as it is, and does not see what others write to it later."""


def connect(path: str, *, read_only: bool, patience: float = BUSY_SECONDS) -> apsw.Connection:
    """A connection with the settings every connection has."""
    if read_only:
        return _connect_to_read(path)
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    connection.set_busy_timeout(int(patience * 1000))
    connection.wal_autocheckpoint(0)  # who writes folds the log: SQLite would leave an error of that with the commit
    connection.execute("pragma synchronous = full; pragma secure_delete = on")  # what is let go of is overwritten
    return connection


def fold_log(connection: apsw.Connection) -> int:
    """After a commit: fold the log into the file, if it has become long. After how many pages to look again.

    Folded, it is written over from its beginning, unless somebody still reads it: the next commit looks whether it was.
    """
    try:
        pages = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]
        if pages >= _LOG_PAGES:
            connection.wal_checkpoint()
    except apsw.Error:  # the commit stands, whatever comes of this; the next one tries again
        return 1
    return max(1, _LOG_PAGES - pages)


def _connect_to_read(path: str) -> apsw.Connection:
    """A connection that needs no write permission, on the file or on its folder.

    SQLite reads a WAL file through a shared index beside it. Where that can be neither found nor made, a trail
    without a WAL is complete in itself and is read as the fixed file it is.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    address = "file://" + quote(os.fsencode(Path(path).absolute()))  # `as_uri` loads all of HTTP on newer Pythons
    connection = apsw.Connection(f"{address}?mode=ro", flags=flags)
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    try:
        connection.execute("select 1 from sqlite_schema").fetchall()
    except (apsw.CantOpenError, apsw.ReadOnlyError):
        connection.close()
        log = Path(path + "-wal")
        if log.exists() and log.stat().st_size > 0:
            raise UnreadableError(
                path,
                "its log holds commits that cannot be read without writing beside it",
                "Copy the file and its -wal to a folder you may write to and open them there.",
            ) from None
        connection = FixedConnection(f"{address}?mode=ro&immutable=1", flags=flags)
    return connection


def prepare(path: str, *, read_only: bool, patience: float = BUSY_SECONDS) -> apsw.Connection:
    """Open the file as a trail, made or lifted to the newest schema where it may be. Raises an OpenError."""
    check_library(apsw.sqlite_lib_version())
    _check_place(path, read_only=read_only)
    with translated(path), explained(path):
        connection = connect(path, read_only=read_only, patience=patience)
        try:
            _look_at_log(connection, path)
            lift(connection, path, read_only=read_only)
        except BaseException:  # an interrupt too: nobody else would close it
            connection.close()
            raise
    return connection


def _look_at_log(connection: apsw.Connection, path: str) -> None:
    """Warn of commits that a damaged log hides. Where it hides all, refuse: a new trail would be written over them."""
    lost = lost_commits(connection, path)
    if lost is None:
        return
    if _identify(connection, path) == 0:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # closing would remove the log
        raise DamagedError(lost)
    warnings.warn(lost, DamageWarning, stacklevel=6)


def lift(connection: apsw.Connection, path: str, *, read_only: bool) -> None:
    """Check that the file is ours, and bring its schema up to date in one transaction."""
    found, known = _identify(connection, path), len(MIGRATIONS)
    if found > known:
        raise NewerSchemaError(path, found, known)
    if found == known:
        return
    if read_only:
        raise UnreadableError(path, f"it has schema {found}", "Open it once for writing to bring it up to date.")
    # One process at a time: SQLite does not wait for another when it changes how a file is written.
    lock = open_lock(path + "-lock")
    try:
        take(lock, path, BUSY_SECONDS)
        _migrate(connection, path)
    finally:
        os.close(lock)  # lets go of it too


def _migrate(connection: apsw.Connection, path: str) -> None:
    if _identify(connection, path) == 0:
        # Only a file without tables can learn to shrink.
        connection.execute("pragma auto_vacuum = incremental; pragma journal_mode = wal")
    connection.execute("begin immediate")
    try:
        for migration in MIGRATIONS[_identify(connection, path) :]:  # asked again: another process may have been first
            connection.execute(migration)
        connection.execute(f"pragma application_id = {APPLICATION_ID}; pragma user_version = {len(MIGRATIONS)}")
        connection.execute("commit")
    except BaseException:  # an interrupt too: no transaction may stay open behind it
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _identify(connection: apsw.Connection, path: str) -> int:
    """The schema version of a trail; 0 for a file with nothing in it yet."""
    with connection:  # one look at all: another process may be making the trail at this moment
        application = connection.pragma("application_id")
        version = int(connection.pragma("user_version"))
        tables = connection.execute("select count(*) from sqlite_schema").fetchall()[0][0]
    if application == APPLICATION_ID:
        return version
    if application or tables:
        raise NotATrailError(path, "another program's SQLite database")
    return 0


def check_library(version: str) -> None:
    """Refuse a SQLite that can corrupt a WAL file."""
    major, minor, patch, *_ = (int(part) for part in f"{version}.0.0".split("."))
    backport = _BACKPORTS.get((major, minor))
    if (major, minor, patch) < _FIXED and not (backport is not None and patch >= backport):
        raise OldSqliteError(version)


_NO_FILES = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
)  # fmt: skip


def _check_place(path: str, *, read_only: bool) -> None:
    file, folder = Path(path), Path(path).absolute().parent
    if not folder.is_dir():
        _make_folder(path, folder, read_only=read_only)
    if file.exists() and not file.is_file():  # a pipe would be waited for
        mode = file.stat().st_mode
        raise NotATrailError(path, next((what for is_one, what in _NO_FILES if is_one(mode)), "no file"))
    if read_only and not file.exists():
        raise UnreadableError(path, "it does not exist", "Check the path; opening for reading makes no new trail.")
    if file.exists() and not os.access(path, os.R_OK):
        raise UnreadableError(path, "you may not read it", "Ask its owner for read permission.")
    if not read_only:
        _check_writable(path, file, folder)
        kind = file_system(str(folder))
        if NETWORK.fullmatch(kind):
            raise NetworkFileSystemError(path, kind)


def _make_folder(path: str, folder: Path, *, read_only: bool) -> None:
    """A new trail gets the folder that it is to lie in; who only reads makes nothing."""
    if read_only:
        raise UnreadableError(path, "its folder does not exist", "Check the path; opening for reading makes nothing.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"its folder does not exist and cannot be made ({error.strerror})"
        raise UnreadableError(path, reason, f"Make it: mkdir -p {str(folder)!r}.") from error


def _check_writable(path: str, file: Path, folder: Path) -> None:
    if (file.exists() and not os.access(path, os.W_OK)) or not os.access(folder, os.W_OK):
        raise UnreadableError(path, "you may not write to it or its folder", "Open it with read_only=True to read it.")


def file_system(folder: str, mounts: str | None = None) -> str:
    """The kind of file system that holds a folder; "" where the system does not tell."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    real, best, kind = os.path.realpath(folder), -1, ""
    for line in mounts.splitlines():
        _, point, found, *_ = line.split(" ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), point)
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # a later mount on the same point hides the earlier one
            best, kind = len(point), found
    return kind


@contextmanager
def explained(path: str) -> Iterator[None]:
    """While opening: what is not a database is somebody else's file, not damage."""
    try:
        yield
    except apsw.NotADBError:
        raise NotATrailError(path, "a file of another kind") from None


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Give SQLite's errors as ours."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, where) from error
    except UnicodeDecodeError as error:
        raise DamagedError(f"a text in {where!r} is not what was written ({error})") from error


def translate(error: apsw.Error, where: str, patience: float = BUSY_SECONDS) -> EverstepError:  # noqa: PLR0911 - a table, one row each
    """The typed error for what SQLite said."""
    match error:
        case apsw.FullError():
            return DiskFullError(where)
        case apsw.BusyError() | apsw.LockedError():
            return LockedError(where, patience)
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return DamagedError(f"SQLite cannot read {where!r} ({error})")
        case apsw.CantOpenError():
            return UnreadableError(where, str(error), "Check that the path and its folder can be read and written.")
        case apsw.ReadOnlyError():
            return ReadOnlyError(where)
        case apsw.SQLError():
            return DamagedError(f"the tables of {where!r} are not as they were made ({error})")
        case _:
            return StoreError(
                f"the file system failed under {where!r} ({error}). Nothing of this write was acknowledged; "
                "check the disk, then write again."
            )
