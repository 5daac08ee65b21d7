"""Whether a value is of the type that a parameter declares, as far as that can be told at a glance."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

_NUMBERS = {float: (int, float), complex: (int, float, complex)}


def fits(value: Any, hint: Any) -> bool:
    """False only if the value is surely of another type. What is inside of lists and dicts is not looked at."""
    if hint is None:
        return value is None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, each) for each in get_args(hint))
    kind = origin or hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True  # Any, a type variable, a literal: nothing to compare with
    if isinstance(value, bool) and kind in (int, float, complex):
        return kind is int
    try:
        return isinstance(value, _NUMBERS.get(kind, kind))
    except TypeError:
        return True


def described(hint: Any) -> str:
    """A type as people write it."""
    return hint.__name__ if isinstance(hint, type) and get_origin(hint) is None else str(hint).replace("typing.", "")
