"""Connections to a PostgreSQL server: where it is, how it is asked, and what its errors mean here.

The driver is an extra, loaded when something of it is first used. A password crosses this module and leaves it in no
message: places are named without it, and what the driver says of a URL that it cannot read is not passed on.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple
from urllib.parse import quote

from everstep.errors import (
    DamagedError,
    DiskFullError,
    EverstepError,
    LoginRefusedError,
    MissingExtraError,
    OpenError,
    ServerUnreachableError,
    StoreError,
    UnreadableError,
    UnstorableError,
)

if TYPE_CHECKING:
    from psycopg import Connection

    Link = Connection[tuple[Any, ...]]
else:
    Link = Any

_SHOWN = ("host", "hostaddr", "port", "user", "dbname", "service", "options")
# What a URL may say otherwise: a server that is gone without a word is noticed within a minute.
_DEFAULTS = {
    "application_name": "everstep",
    "connect_timeout": "10",
    "keepalives_idle": "20",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "40000",
}
# What neither the server nor its role, database or URL limits; and acknowledged means durable, whatever they say.
_SETTINGS: LiteralString = ", ".join(
    f"case current_setting('{name}') when '{unset}' then set_config('{name}', '{value}', false) end"
    for name, unset, value in (
        ("statement_timeout", "0", "60s"),
        ("lock_timeout", "0", "20s"),
        ("idle_in_transaction_session_timeout", "0", "120s"),
        ("synchronous_commit", "off", "on"),
    )
)
_SET: LiteralString = f"select {_SETTINGS}"
_SET_READER: LiteralString = f"{_SET}, set_config('default_transaction_read_only', 'on', false)"
_STARTING = ("starting up", "shutting down", "in recovery mode", "not yet accepting connections")
_FULL = ("too many clients", "too many connections", "remaining connection slots")
_OPTION = re.compile(r"(invalid \w+ value: |bad value for |invalid integer value |invalid port number: ).*")
_AGAIN = frozenset({"40001", "40P01"})  # serialization failure, deadlock
_TOO_LONG = "54000"  # of what is looked up by an index
_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03"})  # ended by an administrator, a crash or a timeout


class _Driver:
    """psycopg, loaded when it is first used."""

    def __getattr__(self, name: str) -> Any:
        try:
            import psycopg  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtraError("PostgreSQL", "psycopg[binary]") from error
        value = getattr(psycopg, name)
        setattr(self, name, value)
        return value


driver: Any = _Driver()


class Address(NamedTuple):
    """Where a trail is: what the driver is told, and the name for messages."""

    parameters: dict[str, Any]
    where: str


def address(url: str) -> Address:
    """What a URL says. Raises OpenError, which repeats nothing of it: it may hold a password."""
    try:
        if "@" in url.partition("?")[0].partition("://")[2].partition("/")[2]:  # a slash in a password
            raise driver.ProgrammingError
        parameters: dict[str, Any] = driver.conninfo.conninfo_to_dict(url)
    except driver.Error:
        raise _unreadable(url) from None
    shown = {name: str(parameters[name]) for name in _SHOWN if parameters.get(name)}
    host, port = shown.pop("host", ""), shown.pop("port", "")
    if host.startswith("/"):  # a folder with a socket
        shown["host"], host = host, ""
    user = quote(shown.pop("user", ""))
    place = f"{user}@{host}" if user else host
    rest = "&".join(f"{name}={quote(value, safe='/')}" for name, value in shown.items() if name != "dbname")
    where = (
        f"postgresql://{place}{':' + port if port else ''}/{quote(shown.get('dbname', ''))}{'?' + rest if rest else ''}"
    )
    return Address({**_DEFAULTS, **parameters, "client_encoding": "utf8"}, where)


def _unreadable(url: str) -> OpenError:
    said = url.partition("?")[2]
    if "@" not in said:  # else a password may have the question mark
        known = ["ssl", *(option.keyword.decode() for option in driver.pq.Conninfo.get_defaults())]
        for name in (option.partition("=")[0] for option in said.split("&") if "=" in option):
            if name not in known:
                near = "".join(f", such as {other}" for other in get_close_matches(name, known, 1))
                return OpenError(
                    f"the URL of the PostgreSQL server has an option {name!r}, which libpq does not know. Leave it "
                    f"out, or write one that libpq has{near}."
                )
    return OpenError(
        "the URL of the PostgreSQL server cannot be read. Write it as "
        "postgresql://user:password@host:port/database?option=value; in a password, %40 stands for @, %3A for : and "
        "%2F for /."
    )


def connect(place: Address, *, read_only: bool) -> Link:
    """A connection with the settings every connection has. Raises an OpenError."""
    try:
        link: Link = _connection().connect(**place.parameters, autocommit=True)
    except driver.Error as error:
        raise _refused(place, error) from None  # what the driver was told stands in its frames
    try:
        for kind, oid in _ARRAYS.items():
            link.adapters.register_dumper(kind, _dumper(oid))
        link.execute(_SET_READER if read_only else _SET)
    except BaseException as error:  # an interrupt too: nobody else would close it
        link.close()
        if isinstance(error, driver.OperationalError):  # it went away in this moment
            raise ServerUnreachableError(place.where, " ".join(str(error).split()), starting=True) from None
        raise
    return link


@cache
def _connection() -> Any:
    """The driver's connection, closed with the trail that nobody closed: as with a file, that is no news to anybody."""

    class Connection(driver.Connection):  # type: ignore[misc]  # the driver is loaded late
        def __del__(self) -> None:
            with suppress(Exception):  # of one that was never made, or as Python ends
                self.close()

    return Connection


def _refused(place: Address, error: Exception) -> OpenError:
    """Why a connection was refused. Servers say it in words alone; what is not understood is passed on."""
    said = " ".join(str(error).split())
    name = str(place.parameters.get("dbname") or place.parameters.get("user") or "")
    if (option := _OPTION.search(said)) is not None:
        modes = ": disable, allow, prefer, require, verify-ca or verify-full" if "sslmode" in option[0] else ""
        return OpenError(
            f"the URL of {place.where!r}, or a variable PG... beside it, says what libpq cannot use: {option[0]}. Give "
            f"it one of the values that libpq knows{modes}."
        )
    if any(words in said for words in _FULL):  # first: some of these name roles
        return ServerUnreachableError(place.where, said, full=True)
    if "password" in said or "authentication" in said or "role" in said or "pg_hba.conf" in said:
        return LoginRefusedError(place.where, said)
    if "database" in said and "does not exist" in said:
        return UnreadableError(
            place.where, f"the server has no database {name!r}", "Check its name in the URL, or make it with createdb."
        )
    if "not permit" in said or "permission denied" in said:
        return LoginRefusedError(place.where, said)
    starting = any(words in said for words in _STARTING)
    return ServerUnreachableError(place.where, said, starting=starting)


def ask(link: Link, sql: LiteralString, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows that a query gives."""
    return link.execute(sql, values, binary=True).fetchall()


def do(link: Link, sql: LiteralString, values: Sequence[Any] = ()) -> int:
    """How many rows a statement changed."""
    return link.execute(sql, values).rowcount


# Arrays as the server reads them: the driver would look at each value anew, and send bytes as hexadecimal digits.


class Longs:
    """Whole numbers of 64 bits."""

    __slots__ = ("data",)

    def __init__(self, values: Sequence[int]) -> None:
        try:
            self.data = struct.pack(
                f">iiIii{'iq' * len(values)}" if values else ">iiI",
                *_head(20, len(values)),
                *chain.from_iterable(zip(repeat(8), values, strict=False)),
            )
        except struct.error as error:
            raise OverflowError("a number does not fit into 64 bits") from error


class Blobs:
    """Bytes."""

    __slots__ = ("data",)
    element = 17

    def __init__(self, values: Iterable[bytes]) -> None:
        parts = list(values)
        head = struct.pack(">iiIii" if parts else ">iiI", *_head(self.element, len(parts)))
        length = struct.Struct(">i").pack
        self.data = b"".join((head, *chain.from_iterable((length(len(part)), part) for part in parts)))


class Texts(Blobs):
    """Texts."""

    __slots__ = ()
    element = 25

    def __init__(self, values: Iterable[str]) -> None:
        super().__init__(value.encode() for value in values)


def _head(element: int, count: int) -> tuple[int, ...]:
    return (1, 0, element, count, 1) if count else (0, 0, element)


_ARRAYS: dict[type, int] = {Longs: 1016, Blobs: 1001, Texts: 1009}  # and how the server numbers their types
_dumpers: dict[int, type] = {}


def _dumper(number: int) -> type:
    """What hands an array to the driver."""
    if number not in _dumpers:

        class Ready(driver.adapt.Dumper):  # type: ignore[misc]  # the driver is loaded late
            format = driver.pq.Format.BINARY
            oid = number

            def dump(self, obj: Longs | Blobs) -> bytes:
                return obj.data

        _dumpers[number] = Ready
    return _dumpers[number]


# Errors.


def is_lost(error: BaseException, link: Link) -> bool:
    """Whether an error says that the connection is gone: what was sent over it may have been done or not."""
    state = getattr(error, "sqlstate", None) or ""
    return link.closed or state.startswith("08") or state in _LOST


def is_passing(error: BaseException) -> bool:
    """Whether an error goes away when the transaction is tried again."""
    return getattr(error, "sqlstate", None) in _AGAIN


def is_unfit(error: BaseException) -> bool:
    """Whether an error says that a value cannot be held: a number too large, half a character, a NUL, a long id."""
    wrong = isinstance(error, OverflowError | TypeError | ValueError | driver.DataError)
    return wrong or getattr(error, "sqlstate", None) == _TOO_LONG


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Give the driver's errors as ours."""
    try:
        yield
    except driver.Error as error:
        raise translate(error, where) from error


def translate(error: Exception, where: str) -> EverstepError:  # noqa: PLR0911 - a table, one row each
    """The typed error for what the server said."""
    state, said = getattr(error, "sqlstate", None) or "", " ".join(str(error).split())
    if state == "53100":
        return DiskFullError(where)
    if state == "25006":
        return StoreError(
            f"the server of {where!r} takes no writes now: it is a read-only replica, or was made one. Nothing was "
            "written; name the primary in the URL, or all hosts with target_session_attrs=read-write."
        )
    if state in {"57014", "55P03"}:
        return StoreError(
            f"{where!r} did not do it in time ({said}). Nothing was written; end what holds its locks, raise "
            "statement_timeout or lock_timeout of the role, and write again."
        )
    if state == "42501":
        return StoreError(
            f"the role may not do this in {where!r} ({said}). Nothing was written; grant it select, insert, update and "
            "delete on the tables everstep_*."
        )
    if state.startswith("42"):
        return DamagedError(f"the tables of {where!r} are not as they were made ({said})")
    if state == _TOO_LONG:
        return UnstorableError(
            "the row",
            f"PostgreSQL cannot hold it ({said.partition(' DETAIL: ')[0]})",
            "Shorten the id, the name of the workflow or the tag to 2,000 bytes.",
        )
    if state.startswith("22"):
        return UnstorableError(
            "the row", f"PostgreSQL cannot hold it ({said})", "Take NUL characters out of its texts."
        )
    return StoreError(
        f"the server of {where!r} failed ({said}). Nothing of this write was acknowledged; look at its log, then write "
        "again."
    )
