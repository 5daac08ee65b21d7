"""Sameness that sees what `==` does not: types, NaN, the sign of zero, time zones, the order of keys."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
from datetime import datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any

import numpy as np
from pydantic import BaseModel

from everstep.model import Secret


def same(a: Any, b: Any) -> bool:  # noqa: C901, PLR0911, PLR0912 - a table of cases, one line each
    """Whether two values are the same in every respect that is kept."""
    if type(a) is not type(b):
        return False
    match a:
        case enum.Enum():
            return a is b
        case float():
            return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
        case complex():
            return same(a.real, b.real) and same(a.imag, b.imag)
        case Decimal():
            return str(a) == str(b)
        case datetime() | time():
            zone = (type(a.tzinfo), repr(a.tzinfo), a.fold)  # two ZoneInfo of one key need not be equal
            apart = zone != (type(b.tzinfo), repr(b.tzinfo), b.fold)
            return not apart and a.replace(tzinfo=None) == b.replace(tzinfo=None)
        case np.ndarray() | np.generic():
            return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
        case dict():
            extra = getattr(a, "default_factory", None) is getattr(b, "default_factory", None)
            return extra and _all_same([*a.items()], [*b.items()])
        case set() | frozenset():
            return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
        case collections.deque():
            return a.maxlen == b.maxlen and _all_same([*a], [*b])
        case list() | tuple():
            return _all_same(a, b) and same(getattr(a, "__dict__", None), getattr(b, "__dict__", None))
        case PurePath():
            return str(a) == str(b)
        case Secret():
            return same(a.reveal(), b.reveal())
        case BaseModel():
            return all(same(getattr(a, part), getattr(b, part)) for part in _MODEL)
    return _same_instance(a, b)


_MODEL = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")


def _all_same(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def _same_instance(a: Any, b: Any) -> bool:
    slots = {name for base in type(a).__mro__ for name in vars(base).get("__slots__", ())} if _has_slots(a) else set()
    names = sorted(slots - {"__dict__", "__weakref__"})
    names = [f"_{type(a).__name__}{name}" if name.startswith("__") else name for name in names]
    if names or hasattr(a, "__dict__") or dataclasses.is_dataclass(a):
        others = vars(a) if hasattr(a, "__dict__") else {}
        return same(others, vars(b) if others else {}) and all(same(getattr(a, n), getattr(b, n)) for n in names)
    return bool(a == b)


def _has_slots(value: Any) -> bool:
    return type(value).__module__ not in {"builtins", "datetime", "uuid", "everstep.model"}
