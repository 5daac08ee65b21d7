"""What went into the nodes of a graph. A row names the versions that a node took; folding what all gave tells them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from everstep.cli.plain import size_of
from everstep.codec.delta import APPEND, SET, Op
from everstep.codec.record import StepRecord
from everstep.errors import DamagedError, ErasedError
from everstep.model import Kind, Run, Status
from everstep.trail.outline import Node, Outline, outline
from everstep.trail.trail import Trail
from everstep.trail.why.folding import Values

_UNREAD = (ErasedError, DamagedError)  # told elsewhere


class Held:
    """The values of a graph as they stand at some point, and how large each is."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = Values(dict(values))
        self._sizes: dict[str, int] = {}  # of those that were measured, and followed since
        self._lost = False  # what something gave was erased: from there on nothing is known

    def values(self, names: Iterable[str]) -> dict[str, Any]:
        """What a node that takes these names takes. Decisions are no values."""
        wanted = () if self._lost else [name for name in names if name in self._values]
        return {name: self._values[name] for name in wanted}

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """How many bytes each of them has."""
        for name, value in self.values(name for name in names if name not in self._sizes).items():
            self._sizes[name] = size_of(value)
        return {} if self._lost else {name: self._sizes[name] for name in names if name in self._values}

    def give(self, row: StepRecord) -> None:
        """Fold in what a row gave. Inputs that a fork changed count from it on."""
        try:
            inputs = row.inputs if row.kind is Kind.FORK and isinstance(row.inputs, dict) else {}
            for op in [*([SET, name, value] for name, value in inputs.items()), *row.ops]:
                self._follow(op)
                self._values.take([op])
        except (*_UNREAD, LookupError, TypeError):  # the latter where a row is not what we write
            self._lost = True

    def _follow(self, op: Op) -> None:
        """Keep a size right where that costs no more than the change; else have it measured when it is asked for."""
        name, *inner = op[1] if type(op[1]) is list else [op[1]]
        size = self._sizes.pop(name, None)
        if size is None:
            return
        if op[0] == APPEND and not inner and self._values[name]:
            self._sizes[name] = size + (size_of(op[2]) if op[2] else 0)
        elif op[0] == SET and inner and type(inner[-1]) is str:
            holder: Any = self._values[name]
            for part in inner[:-1]:
                holder = holder[part]
            if type(holder) is not dict:
                return
            known = size_of(holder[inner[-1]]) if inner[-1] in holder else None
            around = len(json.dumps(inner[-1])) + len(": ") + len(", ") * bool(holder)
            self._sizes[name] = size + size_of(op[2]) + (around if known is None else -known)


def taken(trail: Trail, run: Run, tree: Outline) -> Iterator[tuple[Node, Held]]:
    """Each node of a graph's run in the order of the record, with the values as they stood when it took its own."""
    held = Held(trail.state(run.id, run.oldest, view=True) if run.oldest else _inputs(tree))
    superstep, given = -1, list[StepRecord]()
    for node in sorted(tree.steps, key=lambda node: node.seq):
        row = node.record
        if row.seq <= run.oldest:
            continue
        if row.superstep is None or row.superstep > superstep:
            for each in given:
                held.give(each)
            given, superstep = [], superstep if row.superstep is None else row.superstep
        if row.input_versions is not None:
            yield node, held
        if node.status is Status.COMPLETED or node.kind is Kind.FORK:
            given.append(row)


def sizes_taken(trail: Trail, run: Run, tree: Outline) -> dict[Node, dict[str, int]]:
    """How large what each node of a graph took was; nothing for runs that are of no graph."""
    if not any(node.record.input_versions for node in tree.steps):
        return {}
    return {node: held.sizes(_names(node.record)) for node, held in taken(trail, run, tree)}


def values_taken(trail: Trail, row: StepRecord) -> dict[str, Any] | None:
    """What a node of a graph took; None for another row, or where that is not known any more."""
    if not row.input_versions:
        return None
    run = trail.run(row.run_id)
    for node, held in taken(trail, run, outline(trail.steps(run.id, last=row.seq, view=True))):
        if row.seq in {node.begun.seq, node.record.seq, *(each.seq for each in node.earlier)}:
            return held.values(_names(row)) or None
    return None


def _names(row: StepRecord) -> list[str]:
    return [name for name in row.input_versions or () if not name.startswith("_")]


def _inputs(tree: Outline) -> dict[str, Any]:
    try:
        found = None if tree.start is None else tree.start.inputs
    except _UNREAD:
        return {}
    return found if isinstance(found, dict) else {}
