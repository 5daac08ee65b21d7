"""The values whose bytes are kept in `v1/values.json`: every later version must read them, and write them the same.

`python -m tests.corpus.make` adds the bytes of new values. What is there already is never written again.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
from pydantic import BaseModel, ConfigDict, PrivateAttr

from everstep.codec.registry import register
from everstep.codec.values import BlobRef, encode
from everstep.model import Redacted

FILE = Path(__file__).parent / "v1" / "values.json"


class Color(enum.Enum):
    RED = 1
    GREEN = "green"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Role(enum.StrEnum):
    USER = "user"
    TOOL = "tool"


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


@dataclasses.dataclass
class Note:
    text: str
    tags: list[Any] = dataclasses.field(default_factory=list)
    length: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.length = len(self.text)
        self.shout = self.text.upper()  # no field, and kept all the same


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = None


@dataclasses.dataclass(frozen=True)
class Point3(Point):
    z: Any = 0


class Pair(NamedTuple):
    left: Any
    right: Any = None


Old = collections.namedtuple("Old", ["a", "b"])  # noqa: PYI024 - the untyped form is one of the kinds kept


class Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: Role
    content: Any = None
    parent: Message | None = None
    _seen: int = PrivateAttr(default=0)


class Plain:
    """A class of no special kind: kept by its attributes because it is registered."""

    __slots__ = ("__dict__", "__hidden", "left")

    def __init__(self, left: Any, **others: Any) -> None:
        self.left = left
        self.__hidden = 1
        self.__dict__.update(others)


CLASSES: list[type] = [Color, Size, Role, Right, Note, Point, Point3, Pair, Old, Message, Plain]
for _cls in CLASSES:
    register(_cls, name=f"corpus:{_cls.__qualname__}")


def _message() -> Message:
    inner = Message.model_validate({"role": "tool", "score": 1.5})
    inner._seen = 7
    return Message(role=Role.USER, content=[1, (2,)], parent=inner)


EXPECTED: dict[str, Any] = {
    "none": None,
    "bools": [True, False],
    "ints": [0, -1, 127, 128, -(1 << 63), (1 << 64) - 1],
    "big ints": [1 << 64, -(1 << 63) - 1, 10**100],
    "floats": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan],
    "text": ["", "a", "ünïcode ✓ 😀", "\0"],
    "bytes": [b"", b"\0\xff", bytearray(b"\1\2")],
    "dict": {"b": 1, "a": {"": [None]}},
    "keys": {1: "int", None: 0, (1, "a"): 0, Color.RED: 0, Role.USER: 0, Point(1): 0, b"k": 0, "s": 0, 2.5: 0},
    "more keys": {UUID(int=1): 0, date(2024, 2, 29): 0, Decimal("1.50"): 0, frozenset([1]): 0, Redacted("r"): 0},
    "tuples": [(), (1,), (1, (2, [3]))],
    "sets": [set(), {3, 1, 2}, frozenset({"a", 1.5, None, (1,)})],
    "datetimes": [
        datetime(2024, 2, 29, 12, 30, 15, 123456),
        datetime(2024, 2, 29, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-5, microseconds=1))),
        datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=2), "CEST")),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
    "dates and times": [date(1, 1, 1), time(23, 59, 59, 999999), time(1, fold=1, tzinfo=UTC), timedelta(-1, 5, 7)],
    "decimals": [*map(Decimal, ("1.50", "-0", "1E+999999", "NaN", "sNaN1", "-Infinity"))],
    "uuid": UUID("12345678-1234-5678-1234-567812345678"),
    "complex": [1 + 2j, complex(-0.0, math.inf)],
    "ranges": [range(3), range(10, -(10**30), -3)],
    "paths": [PurePosixPath("/a/b"), PureWindowsPath("c:/x"), PurePosixPath()],
    "collections": [
        collections.OrderedDict([("b", 1), (2, 2)]),
        collections.defaultdict(list, {"a": [1]}),
        collections.defaultdict(None, {1: 2}),
        collections.Counter("abca"),
        collections.deque([1, (2,)], maxlen=3),
        collections.deque(),
    ],
    "arrays": [
        np.arange(6, dtype="<i4").reshape(2, 3),
        np.array([1.5, np.nan], dtype=">f8"),
        np.array(True),  # noqa: FBT003 - an array of no dimensions
        np.array(["a", "bc"]),
        np.array([b"x"]),
        np.array(["2024-01-01", "NaT"], dtype="<M8[ns]"),
        np.zeros((0, 3), dtype="<c16"),
    ],
    "numpy scalars": [np.float64(1.5), np.int8(-1), np.True_, np.str_("a\0"), np.bytes_(b""), np.timedelta64(5, "s")],
    "enums": [Color.RED, Color.GREEN, Size.LARGE, Role.TOOL, Right.READ, Right.READ | Right.RUN, Right(0)],
    "dataclasses": [Note("hi", [1]), Point(1, (2,)), Point3(1, 2, Point(3))],
    "named tuples": [Pair(1, {2}), Old("a", None)],
    "pydantic": _message(),
    "registered": Plain([1], extra=(2,)),
    "redacted": Redacted("[redacted:rule:0123]"),
    "blob": BlobRef(bytes(range(16)), 70_000),
}


def stored() -> dict[str, bytes]:
    """The bytes on file, by name."""
    return {name: bytes.fromhex(text) for name, text in json.loads(FILE.read_text("utf-8")).items()}


def main() -> None:
    """Add what is new to the file."""
    known = stored() if FILE.exists() else {}
    known |= {name: encode(value) for name, value in EXPECTED.items() if name not in known}
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps({name: data.hex() for name, data in known.items()}, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
