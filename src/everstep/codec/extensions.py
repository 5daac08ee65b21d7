"""The well-known types beside plain data: for each a tag, what it is stored as, and the way back.

Every extension is a tag and a content, and the content is a value like any other. Tags are part of the format:
they are never given a second meaning.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from math import prod
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from everstep.codec.registry import Refused
from everstep.errors import DamagedError, EverstepError, UnknownClassError
from everstep.model import Redacted, Secret

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

BIG_INT: Final = 1
TUPLE: Final = 2
SET: Final = 3
FROZENSET: Final = 4
PAIRS: Final = 5
BYTEARRAY: Final = 6
DATETIME: Final = 7
DATE: Final = 8
TIME: Final = 9
TIMEDELTA: Final = 10
DECIMAL: Final = 11
UUID_: Final = 12
COMPLEX: Final = 13
RANGE: Final = 14
PATH: Final = 15
ORDERED: Final = 16
DEFAULT: Final = 17
COUNTER: Final = 18
DEQUE: Final = 19
NDARRAY: Final = 20
NUMBER: Final = 21
REDACTED: Final = 22
SECRET: Final = 23
BLOB: Final = 24
KINDS: Final = {32: "enum", 33: "dataclass", 34: "namedtuple", 35: "pydantic", 36: "object"}


class Record(list[Any]):
    """A content whose positions mean nothing to people: they do not appear in the path of a refused value."""


class Pairs(list[Any]):
    """Keys and values in turn: a dict whose keys are not all strings."""


class Items(list[Any]):
    """The items of a set: stored in the order of their encodings, so that equal sets have equal bytes."""


class UnbuildableError(Exception):
    """The real value cannot be made here; `error` says why. A view shows its content instead."""

    def __init__(self, error: EverstepError) -> None:
        super().__init__(str(error))
        self.error = error


# -- times ------------------------------------------------------------------------------------------------------------

_MICROSECOND = timedelta(microseconds=1)
# A zone key becomes a file name: no dots, so no way out of the zone directory.
_ZONE_KEY = re.compile(r"[A-Za-z0-9_+-]{1,40}(/[A-Za-z0-9_+-]{1,40}){0,3}")


def _zone(key: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - a millisecond or two that only a program with time zones pays

    if not _ZONE_KEY.fullmatch(key):
        raise ValueError("no time zone has such a name")
    return ZoneInfo(key)


def _dump_zone(zone: tzinfo | None) -> Any:
    """None, the offset in microseconds, [offset, name], or the key of a zone from the zone database."""
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # missing in the stubs
        micros = offset // _MICROSECOND
        return [micros, *name] if name else micros
    loaded = sys.modules.get("zoneinfo")  # where it is not, nobody has such a zone
    key = getattr(zone, "key", None) if loaded is not None and type(zone) is loaded.ZoneInfo else None
    if key is not None:
        try:
            _zone(key)
        except (ValueError, KeyError, OSError) as error:
            raise Refused(f"its time zone {key!r} is not in the zone database ({error})") from None
        return key
    raise Refused(
        f"its time zone is a {type(zone).__qualname__}", "Use datetime.timezone or zoneinfo.ZoneInfo with a key."
    )


def _load_zone(content: Any) -> tzinfo | None:
    match content:
        case None:
            return None
        case int(micros):
            return timezone(timedelta(microseconds=micros))
        case [int(micros), str(name)]:
            return timezone(timedelta(microseconds=micros), name)
        case str(key):
            return _zone(key)
    raise ValueError("no time zone is stored like that")


def _dump_datetime(x: datetime) -> list[Any]:
    parts = [x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond, x.fold]
    return Record([*parts, _dump_zone(x.tzinfo)])


def _load_datetime(content: list[Any]) -> datetime:
    year, month, day, hour, minute, second, micro, fold, zone = content
    return datetime(year, month, day, hour, minute, second, micro, _load_zone(zone), fold=fold)


def _dump_time(x: time) -> list[Any]:
    return Record([x.hour, x.minute, x.second, x.microsecond, x.fold, _dump_zone(x.tzinfo)])


def _load_time(content: list[Any]) -> time:
    hour, minute, second, micro, fold, zone = content
    return time(hour, minute, second, micro, _load_zone(zone), fold=fold)


# -- containers -------------------------------------------------------------------------------------------------------

_FACTORIES: dict[str, Any] = {
    kind.__name__: kind for kind in (list, dict, set, tuple, frozenset, int, float, str, bool, bytes)
}
_SAME_HASH = 1000


def check_hashes(keys: Iterable[Any], count: int) -> None:
    """Refuse keys of which very many share one hash: building a dict or set of them takes quadratic time."""
    if count > _SAME_HASH and max(Counter(map(hash, keys)).values()) > _SAME_HASH:
        raise Refused(f"more than {_SAME_HASH} of its keys have the same hash", "Keep them in a list.")


def dump_pairs(x: dict[Any, Any]) -> Pairs:
    """Keys and values in turn."""
    check_hashes(x, len(x))
    return Pairs(part for pair in x.items() for part in pair)


def _load_pairs(content: list[Any]) -> dict[Any, Any]:
    keys = content[::2]
    check_hashes(keys, len(keys))
    made = dict(zip(keys, content[1::2], strict=True))
    _check_whole(len(made), len(keys))
    return made


def _dump_items(x: Any) -> Items:
    check_hashes(x, len(x))
    return Items(x)


def _load_items(kind: type[Any]) -> Callable[[list[Any]], Any]:
    def load(content: list[Any]) -> Any:
        check_hashes(content, len(content))
        made = kind(content)
        _check_whole(len(made), len(content))
        return made

    return load


def _listed(part: Any) -> list[Any]:
    # Anything else that can be iterated might never end: a stored range(10**18) takes ten bytes.
    if type(part) is not list:
        raise TypeError("a list is stored here")
    return part


def _check_whole(made: int, stored: int) -> None:
    # Distinct objects can be equal once their classes are views; losing one in silence is not an option.
    if made != stored:
        raise UnbuildableError(DamagedError(f"{stored} stored items or keys make only {made} different ones"))


def _dump_default(x: defaultdict[Any, Any]) -> Record:
    factory: Any = x.default_factory
    name = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(str(name)) is not factory:
        raise Refused(f"its default factory {factory!r} is code", "Use a built-in type such as list, or a dict.")
    return Record([name, dump_pairs(x)])


def _load_default(content: list[Any]) -> defaultdict[Any, Any]:
    name, pairs = content
    return defaultdict(None if name is None else _FACTORIES[name], _load_pairs(_listed(pairs)))


def _load_deque(content: list[Any]) -> deque[Any]:
    maxlen, items = content
    made = deque(_listed(items), maxlen)
    _check_whole(len(made), len(items))
    return made


# -- paths ------------------------------------------------------------------------------------------------------------

_PATHS = {kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)}


def _load_path(content: list[Any]) -> Any:
    name, text = content
    try:
        return _PATHS[name](text)
    except NotImplementedError:
        raise UnbuildableError(UnknownClassError(f"pathlib.{name} (of another operating system)")) from None


# -- numpy: looked up and never imported, because stored bytes must not decide what is imported -----------------------

_DIMENSIONS = 64
_DTYPE = re.compile(
    r"[<>|](b1|[iu][1248]|f[248]|c8|c16|[SU][1-9][0-9]{0,8}"
    r"|[mM]8(\[[0-9]{0,9}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?)"
)


def dump_numpy(x: Any) -> tuple[int, Any] | None:
    """The tag and content of a numpy array or scalar; None if `x` is something else."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(x, (numpy.ndarray, numpy.generic)):
        return None
    if type(x) is numpy.str_:
        return NUMBER, Record(["U", str.__str__(x)])  # str(x) would drop trailing NULs
    if type(x) is numpy.bytes_:
        return NUMBER, Record(["S", bytes(x)])
    code = x.dtype.str
    if type(x) not in (numpy.ndarray, x.dtype.type) or x.dtype.names or not _DTYPE.fullmatch(code):
        raise Refused(
            f"it is a numpy {type(x).__qualname__} of dtype {x.dtype}",
            "Kept are plain arrays and scalars of bool, int, float (to 64 bits), complex, text, bytes and times.",
        )
    if isinstance(x, numpy.ndarray):
        return NDARRAY, Record([code, list(x.shape), x.tobytes()])
    return NUMBER, Record([code, x.tobytes()])


def _dtype(numpy: Any, code: str) -> Any:
    if not _DTYPE.fullmatch(code):
        raise ValueError("no such dtype is stored")
    return numpy.dtype(code)


def _numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise UnbuildableError(UnknownClassError("numpy value (import numpy first)"))
    return numpy


def _load_array(content: list[Any]) -> Any:
    numpy = _numpy()
    code, shape, data = content
    dtype = _dtype(numpy, code)
    if len(_listed(shape)) > _DIMENSIONS or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError("no array has such a shape")
    if type(data) is not bytes or prod(shape) * dtype.itemsize != len(data):
        raise ValueError("the shape does not fit the size")
    if dtype.kind == "b" and data.strip(b"\0\1"):
        raise ValueError("a bool is neither 0 nor 1")
    if dtype.kind == "U" and numpy.frombuffer(data, code[0] + "u4").max(initial=0) > sys.maxunicode:
        raise ValueError("a character is beyond Unicode")
    if not data:
        return numpy.empty(shape, dtype)
    return numpy.frombuffer(data, dtype).reshape(shape).copy()


def _load_number(content: list[Any]) -> Any:
    numpy = _numpy()
    match content:
        case ["U", str(text)]:
            return numpy.str_(text)
        case ["S", bytes(data)]:
            return numpy.bytes_(data)
    code, data = content
    return _load_array([code, [], data])[()]


# -- the tables -------------------------------------------------------------------------------------------------------

DUMPERS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    int: (BIG_INT, lambda x: x.to_bytes((x.bit_length() + 8) // 8, "big", signed=True)),
    tuple: (TUPLE, list),
    set: (SET, _dump_items),
    frozenset: (FROZENSET, _dump_items),
    dict: (PAIRS, dump_pairs),
    bytearray: (BYTEARRAY, bytes),
    datetime: (DATETIME, _dump_datetime),
    date: (DATE, lambda x: [x.year, x.month, x.day]),
    time: (TIME, _dump_time),
    timedelta: (TIMEDELTA, lambda x: [x.days, x.seconds, x.microseconds]),
    Decimal: (DECIMAL, lambda x: str(x).replace("e", "E")),  # which of the two depends on the decimal context
    UUID: (UUID_, lambda x: x.bytes),
    complex: (COMPLEX, lambda x: [x.real, x.imag]),
    range: (RANGE, lambda x: [x.start, x.stop, x.step]),
    OrderedDict: (ORDERED, dump_pairs),
    defaultdict: (DEFAULT, _dump_default),
    Counter: (COUNTER, dump_pairs),
    deque: (DEQUE, lambda x: Record([x.maxlen, list(x)])),
    Redacted: (REDACTED, str),
    **{kind: (PATH, lambda x: Record([type(x).__name__, str(x)])) for kind in _PATHS.values()},
}
"""By exact type: the tag, and the function that gives the content."""

LOADERS: dict[int, tuple[str, type, Callable[[Any], Any]]] = {
    BIG_INT: ("int", bytes, lambda x: int.from_bytes(x, "big", signed=True)),
    TUPLE: ("tuple", list, tuple),
    SET: ("set", list, _load_items(set)),
    FROZENSET: ("frozenset", list, _load_items(frozenset)),
    PAIRS: ("dict", list, _load_pairs),
    BYTEARRAY: ("bytearray", bytes, bytearray),
    DATETIME: ("datetime", list, _load_datetime),
    DATE: ("date", list, lambda x: date(*x)),
    TIME: ("time", list, _load_time),
    TIMEDELTA: ("timedelta", list, lambda x: timedelta(*x)),
    DECIMAL: ("Decimal", str, Decimal),
    UUID_: ("UUID", bytes, lambda x: UUID(bytes=x)),
    COMPLEX: ("complex", list, lambda x: complex(*x)),
    RANGE: ("range", list, lambda x: range(*x)),
    PATH: ("path", list, _load_path),
    ORDERED: ("OrderedDict", list, lambda x: OrderedDict(_load_pairs(x))),
    DEFAULT: ("defaultdict", list, _load_default),
    COUNTER: ("Counter", list, lambda x: Counter(_load_pairs(x))),
    DEQUE: ("deque", list, _load_deque),
    NDARRAY: ("ndarray", list, _load_array),
    NUMBER: ("numpy scalar", list, _load_number),
    REDACTED: ("Redacted", str, Redacted),
    SECRET: ("Secret", object, Secret),
}
"""By tag: the name people see, the type the content must have, and the function that makes the value."""
