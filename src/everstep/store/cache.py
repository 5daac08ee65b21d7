"""Values that can be had again by computing them: by key, in a file of its own beside a trail, or in memory.

Losing it harms nothing, so it is never waited for to reach the disk. What matters is that no wrong value comes out: an
entry carries a digest of its key, its time and its bytes, which is checked before anybody decodes them. A file that
SQLite cannot read is emptied and filled anew. It is opened for each use: no connection is left for a fork to meet.
"""

from __future__ import annotations

import os
import struct
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import apsw

from everstep.codec import frame
from everstep.errors import DamagedError, DamageWarning, StoreError
from everstep.store.process_fork import at_work
from everstep.store.schema import BUSY_SECONDS, translated

_APPLICATION_ID = 0x65765363  # "evSc": tells a cache from any other SQLite file
_SETTINGS = "pragma synchronous = off; pragma secure_delete = on"  # what is let go of is overwritten
_TABLES = """
create table kept(
  id integer primary key, key blob not null unique, shelf blob not null, made real not null, used integer not null,
  digest blob not null, data blob not null);
create index kept_used on kept(shelf, used);
create index kept_made on kept(shelf, made);
create table total(shelf blob primary key, items integer not null, bytes integer not null) without rowid;
create trigger kept_in after insert on kept begin
  insert into total values(new.shelf, 1, length(new.data))
  on conflict(shelf) do update set items = items + 1, bytes = bytes + length(new.data);
end;
create trigger kept_out after delete on kept begin
  update total set items = items - 1, bytes = bytes - length(old.data) where shelf = old.shelf;
end;
"""


class Limits(NamedTuple):
    """What may be used again at the time `now`, and how much is kept on one shelf. None is no limit."""

    now: float  # seconds since 1970
    max_age: float | None = None
    max_items: int | None = None
    max_bytes: int | None = None


class ValueCache:
    """Bytes by key. Safe from any thread and process; without `beside` it is in memory, and of this process alone.

    Raises a StoreError or an OpenError where the file cannot be used: then nothing is cached, and nothing else is lost.
    """

    def __init__(self, beside: str | None = None) -> None:
        self._beside = beside
        self.where = ":memory:" if beside is None else f"{beside}-cache"
        self._lock = threading.Lock()
        self._held: apsw.Connection | None = None

    def get(self, key: bytes, limits: Limits) -> bytes | None:
        """What was put there, None if nothing is, it is too old, or it is not what was put there."""
        if self._is_missing():
            return None
        try:
            with self._connected() as connection:
                return self._get(connection, key, limits)
        except DamagedError:
            self._begin_anew()
            return None

    def put(self, key: bytes, data: bytes, shelf: bytes, limits: Limits) -> bool:
        """Keep bytes, and let go of what exceeds the limits of the shelf: what was used longest ago goes first.

        False if they are larger than all that may be kept.
        """
        packed = frame.pack(data)
        if limits.max_bytes is not None and len(packed) > limits.max_bytes:
            return False
        try:
            with self._connected() as connection:
                self._put(connection, key, packed, shelf, limits)
        except DamagedError:
            self._begin_anew()
            with self._connected() as connection:
                self._put(connection, key, packed, shelf, limits)
        return True

    def clear(self) -> None:
        """Let go of everything."""
        if self._is_missing():
            return
        try:
            with self._connected() as connection:
                if connection.pragma("application_id") == _APPLICATION_ID:  # in another's file is nothing of ours
                    connection.execute("delete from kept; delete from total; vacuum")
        except DamagedError:
            self._empty()

    def _is_missing(self) -> bool:
        return self._beside is not None and not os.path.exists(self.where)  # noqa: PTH110 - paths are text here

    # One use of the file.

    @contextmanager
    def _connected(self) -> Iterator[apsw.Connection]:
        with translated(self.where), at_work():
            if self._beside is None:
                with self._lock:
                    yield self._in_memory()
                return
            connection = self._open()
            try:
                connection.execute(_SETTINGS)
                yield connection
            finally:
                connection.close()

    def _in_memory(self) -> apsw.Connection:
        if self._held is None:
            self._held = apsw.Connection(":memory:")
        return self._held

    def _open(self) -> apsw.Connection:
        assert self._beside is not None  # noqa: S101 - one in memory is not opened
        # Made by SQLite itself, with the rights of the trail: to close a file of one's own lets go of its locks.
        address = f"{Path(self.where).as_uri()}?modeof={quote(self._beside)}"
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(address, flags=flags)
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        return connection

    def _identify(self, connection: apsw.Connection) -> None:
        """Make the tables of a file without any. What is not ours is left alone."""
        if connection.pragma("application_id") == _APPLICATION_ID:
            return
        with _transaction(connection):  # one look at all: another process may be making the tables at this moment
            application = connection.pragma("application_id")
            if application == _APPLICATION_ID:
                return
            if application or connection.execute("select count(*) from sqlite_schema").fetchall()[0][0]:
                raise StoreError(
                    f"{self.where!r} is another program's database, and was not touched. Move it out of the way: that "
                    "is where values are cached."
                )
            connection.execute(_TABLES)
            connection.pragma("application_id", _APPLICATION_ID)

    def _get(self, connection: apsw.Connection, key: bytes, limits: Limits) -> bytes | None:
        self._identify(connection)
        found: list[tuple[Any, ...]] = connection.execute(
            "select id, shelf, made, used, digest, data from kept where key = ?", (key,)
        ).fetchall()
        if not found:
            return None
        row, shelf, made, used, digest, data = found[0]
        if type(made) is not float or type(data) is not bytes or _digest(key, made, data) != digest:
            _warn(f"an entry of {self.where!r} is not what was written")
            return None
        # One of the future was made under a clock that was wrong: nobody knows how old it is.
        if limits.max_age is not None and not 0 <= limits.now - made < limits.max_age:
            return None
        if connection.execute("select max(used) from kept where shelf = ?", (shelf,)).fetchall() != [(used,)]:
            with suppress(apsw.BusyError):  # then it may have to go earlier than others
                connection.execute(
                    "update kept set used = (select max(used) + 1 from kept where shelf = ?) where id = ?", (shelf, row)
                )
        return frame.unpack(data)

    def _put(self, connection: apsw.Connection, key: bytes, data: bytes, shelf: bytes, limits: Limits) -> None:
        self._identify(connection)
        with _transaction(connection):
            self._add(connection, key, data, shelf, limits)
            self._evict(connection, shelf, limits)

    @staticmethod
    def _add(connection: apsw.Connection, key: bytes, data: bytes, shelf: bytes, limits: Limits) -> None:
        execute, now = connection.execute, float(limits.now)
        execute("delete from kept where key = ?", (key,))
        if limits.max_age is not None:
            execute("delete from kept where shelf = ? and made <= ?", (shelf, now - limits.max_age))
        execute(
            "insert into kept(key, shelf, made, used, digest, data) values(?1, ?2, ?3, "
            "(select coalesce(max(used), 0) + 1 from kept where shelf = ?2), ?4, ?5)",
            (key, shelf, now, _digest(key, now, data), data),
        )

    def _evict(self, connection: apsw.Connection, shelf: bytes, limits: Limits) -> None:
        execute = connection.execute
        while True:
            exceeds = execute(
                "select coalesce(items > ?, 0) or coalesce(bytes > ?, 0) from total where shelf = ?",
                (limits.max_items, limits.max_bytes, shelf),
            ).fetchall()
            if exceeds == [(0,)]:
                return
            execute("delete from kept where id = (select id from kept where shelf = ? order by used limit 1)", (shelf,))
            if connection.changes() == 0:
                raise DamagedError(f"{self.where!r} counts entries that it does not have")

    # Damage.

    def _begin_anew(self) -> None:
        self._empty()
        _warn(f"the cache {self.where!r} was damaged, and was emptied")

    def _empty(self) -> None:
        """Make it an empty file, under the locks of SQLite: others may be using it."""
        with translated(self.where), at_work():
            connection = self._open()
            try:
                connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 1)
                connection.execute("vacuum")
                connection.config(apsw.SQLITE_DBCONFIG_RESET_DATABASE, 0)
            finally:
                connection.close()


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """All of it or nothing. Begun by a statement: `with connection` would hold up all threads while it waits."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    except BaseException:  # an interrupt too: one in memory is used again
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _digest(key: bytes, made: float, data: bytes) -> bytes:
    return blake2b(key + struct.pack(">d", made) + data, digest_size=16).digest()


def _warn(text: str) -> None:
    warnings.warn(f"{text}. What it held is computed again.", DamageWarning, stacklevel=2)
