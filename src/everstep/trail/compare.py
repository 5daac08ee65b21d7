"""What differs between two states, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everstep.codec import delta
from everstep.codec.values import encode


class _Missing:
    """Stands where one side has nothing. There is one of it, also for copies and in other processes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "(nothing)"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
_PLAIN = frozenset({str, int, bool, bytes, type(None)})  # equal ones of one type have one encoding


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: the path to it, and what stands there on each side; MISSING where nothing does."""

    path: tuple[Any, ...]
    old: Any
    new: Any

    def __str__(self) -> str:
        where = delta.path_text(list(self.path))
        if self.old is MISSING:
            return f"+ {where}: {self.new!r}"
        if self.new is MISSING:
            return f"- {where}: {self.old!r}"
        return f"~ {where}: {self.old!r} -> {self.new!r}"


def changes(old: Any, new: Any, path: tuple[Any, ...] = ()) -> list[Change]:
    """The differences, by encoding: 1, True and 1.0 differ. Dicts and lists are entered, all else is compared whole."""
    if type(old) in _PLAIN and type(old) is type(new):  # most are, and encoding them takes ten times as long
        return [] if old == new else [Change(path, old, new)]
    if type(old) is dict and type(new) is dict:
        keys = [*old, *(key for key in new if key not in old)]
        pairs = [(key, old.get(key, MISSING), new.get(key, MISSING)) for key in keys]
    elif type(old) is list and type(new) is list:
        length = max(len(old), len(new))
        pairs = [
            (at, old[at] if at < len(old) else MISSING, new[at] if at < len(new) else MISSING) for at in range(length)
        ]
    else:
        return [] if encode(old) == encode(new) else [Change(path, old, new)]
    found: list[Change] = []
    for key, before, after in pairs:
        if before is MISSING or after is MISSING:
            found.append(Change((*path, key), before, after))
        else:
            found += changes(before, after, (*path, key))
    return found
