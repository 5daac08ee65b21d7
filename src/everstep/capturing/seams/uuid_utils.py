"""The uuid_utils package, which LangChain names everything with: it asks the system for time and chance in Rust.

In captured code its identifiers by time and chance are made here instead, of the clock and the chance of the run. Those
by time rise in each lane, as theirs do, however many are made at one time; between lanes which came first is chance.
"""

from __future__ import annotations

import time
import uuid
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from everstep.capturing.entropy import source
from everstep.capturing.layout import checked
from everstep.run.lanes import Lane, here

_A_MILLISECOND = 1 << 12  # as many rise in one
_CHANCE = 0x8000_0000_0000_0000, 0x3FFF_FFFF_FFFF_FFFF  # how the second half begins, and what of it is by chance
_newest: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()


def patch(module: ModuleType) -> None:
    """Wrap what makes identifiers. Raises UnknownLayoutError."""
    kind: Any = checked(module, "UUID", None)
    for name, drawn in (("uuid4", _fourth), ("uuid7", _seventh)):
        plain = checked(module, name, None)
        setattr(module, name, _wrapped(plain, drawn, lambda number: kind(int=number)))
        if hasattr(module, f"_{name}_int"):  # what its `compat` is made of, where it is there
            setattr(module, f"_{name}_int", _wrapped(getattr(module, f"_{name}_int"), drawn, int))


def _wrapped(plain: Any, drawn: Any, made: Any) -> Any:
    def wrapped(*given: Any, **named: Any) -> Any:
        draw = source()
        return plain(*given, **named) if draw is None else made(drawn(draw, *given, **named))

    return wrapped


def _fourth(draw: Any) -> int:
    return uuid.UUID(bytes=draw(16), version=4).int


def _seventh(draw: Any, timestamp: int | None = None, nanos: int | None = None) -> int:
    """Time, version 7, and chance; `timestamp` is in seconds."""
    if timestamp is not None:
        milliseconds = timestamp * 1000 + (nanos or 0) // 1_000_000
        count = milliseconds * _A_MILLISECOND + int.from_bytes(draw(2), "big") % _A_MILLISECOND
    else:
        lane = here()
        assert lane is not None  # noqa: S101 - there is chance in lanes only
        count = time.time_ns() // 1_000_000 * _A_MILLISECOND
        count = _newest[lane] = max(count, _newest.get(lane, 0) + 1)
    milliseconds, within = divmod(count, _A_MILLISECOND)
    begins, by_chance = _CHANCE
    return milliseconds << 80 | 7 << 76 | within << 64 | begins | int.from_bytes(draw(8), "big") & by_chance
