"""Where a run of a graph stands: which values there are, in which version, and what can run next. No I/O.

A value has version 1 when the run was given it, and one more each time a node produces it. A decision is a value too,
named after its gate with an underscore. A node runs when all it takes is there, and

- nobody chooses it: if it never ran, or what it took has another version since. What it gives itself does not count.
- it is chosen: once for each decision that names it. Before the first one it may run once if the decision needs what
  it gives.

A node that nobody chooses waits while one runs that changes, itself or by others, what it takes: it never sees one new
value beside an old one that was made from the same.

What runs at the same time is a superstep. It sees the values as they were when the superstep began.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ormsgpack

from everstep.graph.nodes import Decision, Node
from everstep.graph.shape import Shape
from everstep.model import END

_UNSEEN: Any = object()


class Call:
    """A node that is to run: how often it did before, and the versions of what it takes."""

    __slots__ = ("digest", "index", "node", "versions")

    def __init__(self, node: Node, index: int, versions: dict[str, int], chosen_by: Iterable[str] = ()) -> None:
        self.node = node
        self.index = index
        self.versions = versions
        # With the node's name no two calls of a run agree.
        self.digest = ormsgpack.packb([*versions.values(), *chosen_by])


class Progress:
    """The values of one run and what follows from them."""

    def __init__(self, shape: Shape, bound: dict[str, Any], inputs: dict[str, Any]) -> None:
        self.shape = shape
        self.values: dict[str, Any] = {**bound, **inputs}
        self.versions: dict[str, int] = dict.fromkeys(self.values, 1)
        self.given: dict[str, None] = {}  # the values that nodes have produced, in this order
        self.ended = False
        self.superstep = 0
        self._taken: dict[str, tuple[int, ...]] = {}  # by node, the versions that it took last
        self._ran: dict[str, int] = {}
        self._chosen: dict[str, dict[str, int]] = {}  # by node, the decisions that let it run and were not used yet
        self._decided: set[str] = set()
        self._look_at: set[str] = set(shape.nodes)
        self._place = {name: number for number, name in enumerate(shape.nodes)}

    def next(self) -> list[Call]:
        """What runs now, in the order of the graph's nodes. Empty when the run is over."""
        if self.ended:
            return []
        due = [name for name in self._look_at if self._is_due(name)]
        if len(due) < 2:  # nobody has to wait for anybody
            self._look_at = set()
            self.superstep += len(due)
            return [self._call(name) for name in due]
        self._look_at = set(self.shape.behind(due))  # what they take is about to change: they wait for it
        calls: list[Call] = []
        given: set[str] = set()
        for name in sorted(set(due) - self._look_at, key=self._place.__getitem__):
            outputs = self.shape.nodes[name].outputs if name in self.shape.shared else ()
            if not given.isdisjoint(outputs):
                self._look_at.add(name)  # of two that give one value, the second runs in the next superstep
            else:
                calls.append(self._call(name))
                given.update(outputs)
        self.superstep += bool(calls)
        return calls

    def _is_due(self, name: str) -> bool:
        """Whether a node can run, and has a reason to."""
        node, versions = self.shape.nodes[name], self.versions
        for param, value in node.inputs.items():
            if value not in versions and param not in node.defaults:
                return False
        if name not in self.shape.gates:
            return bool(self._taken.get(name, _UNSEEN) != self._marks(node))
        if self._chosen.get(name):
            return True
        return name in self.shape.open_first and name not in self._ran and not self._is_decided(name)

    def _marks(self, node: Node) -> tuple[int, ...]:
        """The versions of what a node takes, but for what it gives itself."""
        versions, own = self.versions, node.outputs
        return tuple([versions[value] for value in node.inputs.values() if value in versions and value not in own])

    def _call(self, name: str) -> Call:
        node, versions = self.shape.nodes[name], self.versions
        taken = {value: versions[value] for value in node.inputs.values() if value in versions}
        chosen_by: Iterable[str] = ()
        if name in self.shape.gates:
            chosen = self._chosen.get(name) or {}
            taken.update(chosen)
            chosen_by = chosen if len(self.shape.gates[name]) > 1 else ()
            self._chosen[name] = {}
        else:
            self._taken[name] = self._marks(node)
        index = self._ran.get(name, 0)
        self._ran[name] = index + 1
        return Call(node, index, taken, chosen_by)

    def _is_decided(self, name: str) -> bool:
        return any(gate in self._decided for gate in self.shape.gates[name])

    def produced(self, values: dict[str, Any]) -> None:
        """A node gave these values."""
        self.changed(values)
        for name in values:
            self.given.pop(name, None)
            self.given[name] = None

    def changed(self, values: dict[str, Any]) -> None:
        """These are the values now: a node gave them, or a fork changed them between two supersteps."""
        for name, value in values.items():
            self.values[name] = value
            self.versions[name] = self.versions.get(name, 0) + 1
            self._look_at.update(self.shape.consumers.get(name, ()))

    def decided(self, call: Call, decision: Decision) -> None:
        """A route or gate chose."""
        gate = call.node
        key = f"_{gate.name}"
        version = self.versions[key] = self.versions.get(key, 0) + 1
        self._decided.add(gate.name)
        chosen = decision.target if isinstance(decision.target, list) else [decision.target]
        for target in gate.targets:
            if target == END:
                self.ended = self.ended or END in chosen
            elif target in chosen:
                self._chosen.setdefault(target, {})[key] = version
                self._look_at.add(target)
            else:
                self._chosen.get(target, {}).pop(key, None)

    def arguments(self, call: Call) -> dict[str, Any]:
        """What the function of a node is given, by parameter."""
        values = self.values
        return {
            param: values[value] if value in values else call.node.defaults[param]
            for param, value in call.node.inputs.items()
        }

    def results(self) -> dict[str, Any]:
        """What the nodes have given so far."""
        return {name: self.values[name] for name in self.given}
