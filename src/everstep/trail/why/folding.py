"""The values of a graph after each node, so that each version can be held: what changes is copied along its path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everstep.codec.delta import APPEND, SET, Op, apply
from everstep.errors import StateError

_LONG = 200  # items from which on a list is not copied for each version
_END = 8  # of its items that a node is seen to take


class Values:
    """The values of a run of a graph as they stand."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        self._values = inputs
        self._ours: set[str] = set()  # lists that are long, copied once and extended in place

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        """A value, all of it; it changes with the next `take`."""
        return self._values[name]

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """What a node takes; of a long list its end."""
        return {
            name: self._values[name][-_END:] if name in self._ours else self._values[name]
            for name in names
            if name in self._values
        }

    def take(self, ops: list[Op]) -> dict[str, Any]:
        """Fold in what a node gave. What that is, by name; of a long list, what was added to it or changed in it."""
        found: dict[str, Any] = {}
        for op in ops:
            path = op[1] if type(op[1]) is list else [op[1]]
            try:
                found[path[0]] = self._fold(op, path)
            except StateError:
                found[path[0]] = op[-1]  # the run was pruned, and what this builds on is not known
        return found

    def _fold(self, op: Op, path: list[Any]) -> Any:
        name = path[0]
        if op[0] == SET and len(path) == 1:
            self._values[name] = op[2]
            self._ours.discard(name)
            return op[2]
        value = self._values.get(name)
        if type(value) is list and len(value) >= _LONG:
            if name not in self._ours:
                self._values[name] = value.copy()
                self._ours.add(name)
            apply(self._values, [op])
            return op[-1] if op[0] == APPEND else [op[-1]]
        holder = {name: value} if name in self._values else {}
        _copy_along(holder, path)
        apply(holder, [op])
        if name in holder:
            self._values[name] = holder[name]
        return holder.get(name)


def _copy_along(holder: dict[str, Any], path: list[Any]) -> None:
    """Copy what a change at a path will touch, so that who holds the version before still has it."""
    node: Any = holder
    for part in path:
        try:
            child = node[part]
        except (KeyError, IndexError, TypeError):
            return
        if type(child) not in {dict, list}:
            return
        node[part] = child = child.copy()
        node = child
