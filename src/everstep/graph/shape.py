"""How the nodes of a graph hang together: who takes what from whom, what may run first, and what cannot work."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from everstep.errors import GraphError
from everstep.graph.nodes import Node
from everstep.model import END


class Edge(NamedTuple):
    """From one node to another: because of a value, or because the one chooses the other."""

    source: str
    target: str
    value: str | None  # None where it is a choice


class Shape:
    """The structure of a graph, derived from its nodes once, when it is built. Raises GraphError."""

    def __init__(
        self, graph: str, nodes: Iterable[Node], declared: Collection[str] | None, bound: Collection[str]
    ) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {}
        for each in nodes:
            if each.name in self.nodes:
                self._refuse(f"has two nodes named {each.name!r}", "Rename one with .renamed('...').")
            self.nodes[each.name] = each
        if not self.nodes:
            self._refuse("has no nodes", "Give it at least one.")
        self.producers: dict[str, list[str]] = {}
        self.consumers: dict[str, list[str]] = {}
        self.gates: dict[str, list[str]] = {}  # by node, who may choose it
        for name, each in self.nodes.items():
            for value in each.outputs:
                self.producers.setdefault(value, []).append(name)
            for value in dict.fromkeys(each.inputs.values()):
                self.consumers.setdefault(value, []).append(name)
            for target in dict.fromkeys(each.targets):
                self._check_target(each, target)
                if target != END:
                    self.gates.setdefault(target, []).append(name)
        self._below: dict[str, set[str]] = {name: set(self._followers(name)) for name in self.nodes}
        self._rings = list(_rings(self._below))
        several = [names for names in self.producers.values() if len(names) > 1]
        self.shared = frozenset(name for names in several for name in names)  # nodes that give what another gives too
        self.bound = frozenset(bound)
        self._check_bound()
        self.inputs, self.required = self._read_inputs(declared)
        self.open_first = self._find_open()
        self._check_reachable()
        self._check_producers()
        self._check_endless()
        self.repeated = self._find_repeated()
        self.ranks = self._rank()

    def _refuse(self, what: str, way_out: str) -> None:
        raise GraphError(f"graph {self.graph!r}", what, way_out)

    def _check_target(self, gate: Node, target: str) -> None:
        if target != END and target not in self.nodes:
            near = difflib.get_close_matches(target, self.nodes, 1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            self._refuse(
                f"has a {gate.kind} {gate.name!r} to {target!r}, which is none of its nodes",
                f"{hint}Its nodes are {', '.join(map(repr, self.nodes))}; END ends the run.",
            )

    def _check_bound(self) -> None:
        for name in sorted(self.bound):
            if name not in self.consumers:
                self._refuse(f"is bound to {name!r}, which none of its nodes takes", "Leave it out.")

    # What it is given.

    def _read_inputs(self, declared: Collection[str] | None) -> tuple[tuple[str, ...], frozenset[str]]:
        """The values a run may be given, and those it must be."""
        outside = [value for value in self.consumers if value not in self.producers and value not in self.bound]
        if declared is not None:
            self._check_declared(outside, declared)
        seeds: list[str] = []
        while declared is None:
            given = {*outside, *seeds}
            started = self._startable(given)
            missing = [
                value
                for name, each in self.nodes.items() if name not in started
                for value in self._missing(each, started, given) if value in each.outputs
            ]  # fmt: skip
            if not missing:
                break
            seeds.append(missing[0])  # a node that goes on from what it gave before needs something to begin with
        inputs = tuple(dict.fromkeys([*outside, *(declared or ()), *seeds]))
        return inputs, frozenset(value for value in inputs if value in seeds or self._is_needed(value, seeds, inputs))

    def _is_needed(self, value: str, seeds: list[str], inputs: tuple[str, ...]) -> bool:
        if value not in self.producers:
            return any(not self._has_default(name, value) for name in self.consumers.get(value, ()))
        others = {name for name in inputs if name != value} | set(seeds)
        return self._startable(others) != self._startable(others | {value})

    def _check_declared(self, outside: list[str], declared: Collection[str]) -> None:
        for value in outside:
            needing = [name for name in self.consumers[value] if not self._has_default(name, value)]
            if value not in declared and needing:
                near = difflib.get_close_matches(value, [*declared, *self.producers], 1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                self._refuse(
                    f"gives its node {needing[0]!r} no {value!r}: no node produces it and it is not among the inputs",
                    f"{hint}Add it to inputs=, bind it, or give the parameter a default.",
                )
        for value in declared:
            if value not in self.consumers:
                self._refuse(f"declares the input {value!r}, which none of its nodes takes", "Leave it out.")

    def _has_default(self, name: str, value: str) -> bool:
        each = self.nodes[name]
        return all(param in each.defaults for param, taken in each.inputs.items() if taken == value)

    # What can run.

    def _missing(self, each: Node, started: set[str], given: Collection[str]) -> list[str]:
        """The values that nobody gives this node while only these nodes have started."""
        return [
            value
            for param, value in each.inputs.items()
            if value not in given and value not in self.bound and param not in each.defaults
            and not any(name in started for name in self.producers.get(value, ()))
        ]  # fmt: skip

    def _startable(
        self, given: Collection[str], without: str | None = None, opened: Collection[str] | None = None
    ) -> set[str]:
        """The nodes that can start at some time. With `opened`, those that are chosen start only when they can be."""
        started: set[str] = set()
        looked_at = [name for name in reversed(self.nodes) if name != without]
        while looked_at:
            name = looked_at.pop()
            if name in started or self._missing(self.nodes[name], started, given):
                continue
            gates = self.gates.get(name)
            if opened is not None and gates and name not in opened and not any(gate in started for gate in gates):
                continue
            started.add(name)
            looked_at += [other for other in self._below[name] if other not in started and other != without]
        return started

    def _find_open(self) -> frozenset[str]:
        """The chosen nodes that may run once before anybody chose: whoever could choose them needs what they give."""
        ring = {name: number for number, ring in enumerate(self._rings) for name in ring}
        found = set()
        for name, gates in self.gates.items():
            if any(ring.get(gate, -1) != ring.get(name) for gate in gates):
                continue  # who does not come after it needs nothing of it
            others = self._startable(self.inputs, without=name)
            if all(gate not in others for gate in gates):
                found.add(name)
        return frozenset(found)

    def _check_reachable(self) -> None:
        free = self._startable(self.inputs)
        stuck = [name for name in self.nodes if name not in free]
        if stuck:
            needed = [value for name in stuck for value in self._missing(self.nodes[name], free, self.inputs)]
            self._refuse(
                f"has a cycle that nothing can enter: {', '.join(map(repr, stuck))} wait for each other",
                f"Give a parameter a default, or declare {' or '.join(map(repr, dict.fromkeys(needed)))} as an input "
                "with inputs=[...].",
            )
        reached = self._startable(self.inputs, opened=self.open_first)
        lost = next((name for name in self.nodes if name not in reached), None)
        if lost is not None:
            self._refuse(
                f"can never reach its node {lost!r}: {', '.join(map(repr, self.gates.get(lost, ())))} cannot choose it",
                "Let a node that runs choose it, or take it out.",
            )

    # Two nodes that give one value.

    def _check_producers(self) -> None:
        sides = self._sides() if self.shared else []
        for value, names in self.producers.items():
            for one, other in combinations(names, 2):
                if not any(_exclude_each_other(side.get(one, set()), side.get(other, set())) for side in sides):
                    self._refuse(
                        f"has two producers of {value!r} in one path: {one!r} and {other!r}",
                        "Give one of them another output, or let a route or gate choose between them.",
                    )

    def _sides(self) -> list[dict[str, set[str]]]:
        """For each route or gate that chooses one target: by node, the targets without which it does not run."""
        behind: dict[str, set[str]] = {}
        found = []
        for each in self.nodes.values():
            side: dict[str, set[str]] = {}
            for target in () if each.many else each.targets:
                if target not in behind and target != END:
                    behind[target] = self._behind(target)
                for name in behind.get(target, ()):
                    side.setdefault(name, set()).add(target)
            found += [side] if side else []
        return found

    def _behind(self, target: str) -> set[str]:
        """The nodes that run only if this one does."""
        return set(self.nodes) - self._startable(self.inputs, without=target, opened=self.open_first)

    # Cycles.

    def _followers(self, name: str) -> Iterator[str]:
        for value in self.nodes[name].outputs:
            yield from (other for other in self.consumers.get(value, ()) if other != name)
        yield from (target for target in self.nodes[name].targets if target != END)

    def _check_endless(self) -> None:
        """A cycle in which nobody chooses would never end."""
        free = {name for name, each in self.nodes.items() if not each.targets and name not in self.gates}
        ring = next(_rings({name: self._below[name] & free for name in free}), None)
        if ring is not None:
            self._refuse(
                f"has a cycle that never ends: {' -> '.join(name for name in self.nodes if name in ring)} -> ...",
                "Let a route or gate decide whether it goes round again.",
            )

    def _find_repeated(self) -> frozenset[str]:
        """The values that may be given more than once in a run: in a ring, or behind one."""
        found: set[str] = set()
        waiting = [name for ring in self._rings for name in ring]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._below[name]
        return frozenset(value for name in found for value in self.nodes[name].outputs)

    # What waits for what.

    def _rank(self) -> dict[str, int]:
        """By node that nobody chooses, the longest way to it from one that has nothing ahead. They form no ring."""
        ranks: dict[str, int] = {}
        for first in self.nodes:
            waiting = [first]
            while waiting:  # no recursion: a chain may be long
                name = waiting[-1]
                ahead = [other for other in self._ahead(name) if other not in ranks]
                if name in ranks or not ahead:
                    ranks.setdefault(name, 1 + max((ranks[other] for other in self._ahead(name)), default=-1))
                    waiting.pop()
                else:
                    waiting += ahead
        return ranks

    def _ahead(self, name: str) -> list[str]:
        """Who gives something to a node; nobody to one that is chosen, which runs when it is told to."""
        if name in self.gates:
            return []
        values = self.nodes[name].inputs.values()
        return [other for value in values for other in self.producers.get(value, ()) if other != name]

    def behind(self, due: Collection[str]) -> set[str]:
        """Those of some nodes that take what others of them change, directly or by nodes between."""
        limit = max(self.ranks[name] for name in due)
        seen: set[str] = set()
        waiting = list(due)
        while waiting:
            source = waiting.pop()
            for value in self.nodes[source].outputs:
                for name in self.consumers.get(value, ()):
                    later = name != source and name not in self.gates and self.ranks[name] <= limit
                    if later and name not in seen:
                        seen.add(name)
                        waiting.append(name)
        return seen & set(due)

    # For pictures.

    def edges(self) -> list[Edge]:
        """Who gives what to whom, and who chooses whom, in the order of the nodes."""
        found = [
            Edge(source, target, value)
            for value, sources in self.producers.items()
            for source in sources
            for target in self.consumers.get(value, ())
        ]
        found += [Edge(name, target, None) for name, each in self.nodes.items() for target in each.targets]
        place = {name: number for number, name in enumerate(self.nodes)}
        return sorted(
            found, key=lambda edge: (place[edge.source], place.get(edge.target, len(place)), edge.value or "")
        )


def _exclude_each_other(one: set[str], other: set[str]) -> bool:
    """Whether two nodes need different targets of one choice."""
    return bool(one - other and other - one)


def _rings(below: dict[str, set[str]]) -> Iterator[set[str]]:
    """The sets of nodes that can all be reached from each other, if they are more than one or a node chooses itself.

    By Tarjan, without recursion: a chain may be long.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root, first in below.items():
        if root in order:
            continue
        work = [(root, iter(sorted(first)))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == order[name]:
                    ring = set(stack[stack.index(name) :])
                    del stack[len(stack) - len(ring) :]
                    on_stack -= ring
                    if len(ring) > 1 or name in below[name]:
                        yield ring
            elif following not in order:
                order[following] = low[following] = len(order)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(below[following]))))
            elif following in on_stack:
                low[name] = min(low[name], order[following])
