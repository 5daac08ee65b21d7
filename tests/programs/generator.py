"""Random programs: what the code of a workflow may look like, as data.

A program is a list of nodes. A leaf asks the world; a step has nodes inside; the others are plain control flow, tasks
and threads. The same seed gives the same program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SYNC, ASYNC, COMPLETED, RACY = "sync", "async", "completed", "racy"
FAMILIES = (SYNC, ASYNC, COMPLETED, RACY)

_DEEPEST = 3
_THREADS = ("pool", "map", "explicit", "thread")  # ways to start threads from plain code
_THREADS_OF_TASKS = ("to_thread", "executor")


@dataclass(slots=True)
class Node:
    """One piece of a program. `uid` tells it from every other, whatever it looks like."""

    kind: str
    uid: int
    name: str = ""
    constant: int = 0
    depends: bool = False  # whether what was computed so far is an argument
    plain: bool = False  # a plain step, in async code too
    fails: str = ""  # "once" in its first attempt, or "always"
    attempts: int = 1
    times: int = 1
    caught: bool = True  # whether a branch keeps its own failure
    body: list[Node] = field(default_factory=list)
    other: list[Node] = field(default_factory=list)  # what is done when the body fails, or at last
    branches: list[list[Node]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `seed` and `family` make it again."""

    family: str
    seed: int
    nodes: list[Node]

    @property
    def is_async(self) -> bool:
        return self.family != SYNC

    @property
    def is_settled(self) -> bool:
        """Whether its result is the same however long each step takes."""
        return self.family != COMPLETED


@dataclass(frozen=True, slots=True)
class _Where:
    """What may stand at a place of a program."""

    family: str
    depth: int = 0
    is_async: bool = False
    in_thread: bool = False

    def inside(self, *, plain: bool = False, in_thread: bool = False) -> _Where:
        leaves_tasks = plain or in_thread
        return _Where(
            self.family, self.depth + 1, self.is_async and not leaves_tasks, in_thread=self.in_thread or in_thread
        )

    def kinds(self) -> list[str]:
        kinds = ["leaf"] * 5
        if self.depth >= _DEEPEST:
            return kinds
        kinds += ["step", "step", "loop", "try", "finally"]
        if self.is_async:
            kinds += ["gather", "gather", "tasks", "group"]
            if self.family == COMPLETED:
                kinds += ["completed", "completed"]
        # Threads have no order among each other and cannot be cancelled: where that matters there are none.
        if not self.in_thread and self.family not in {COMPLETED, RACY}:
            kinds += list(_THREADS_OF_TASKS if self.is_async else ("pool", "map", "explicit", "thread"))
        return kinds


def program(family: str, seed: int) -> Program:
    """The program with this number."""
    chance = Random(f"{family} {seed}")
    return Program(family, seed, _nodes(chance, _Where(family, is_async=family != SYNC)))


def _nodes(chance: Random, where: _Where) -> list[Node]:
    return [_node(chance, where) for _ in range(chance.randint(1, 3 if where.depth else 4))]


def _node(chance: Random, where: _Where) -> Node:
    node = Node(chance.choice(where.kinds()), chance.getrandbits(40))
    if node.kind == "leaf":
        _leaf(chance, node)
        node.plain = not where.is_async or chance.random() < 0.15
    elif node.kind == "step":
        node.name, node.constant = chance.choice("XY"), chance.randint(0, 1)
        node.depends = chance.random() < 0.3
        node.attempts = chance.choice([1, 1, 1, 2])
        node.plain = not where.is_async or chance.random() < 0.1
        node.body = _nodes(chance, where.inside(plain=node.plain))
    elif node.kind in {"loop", "try", "finally"}:
        node.times = chance.randint(0, 3)
        node.body = _nodes(chance, where.inside())
        if node.kind != "loop":
            node.other = _nodes(chance, where.inside())
    else:
        _branches(chance, node, where)
    return node


def _leaf(chance: Random, node: Node) -> None:
    node.name, node.constant = chance.choice("pqr"), chance.randint(0, 1)
    node.depends = chance.random() < 0.4
    node.fails = chance.choice(["", "", "", "", "", "", "always", "once"])
    node.attempts = 2 if node.fails == "once" else chance.choice([1, 1, 2])


def _branches(chance: Random, node: Node, where: _Where) -> None:
    threads = node.kind in _THREADS + _THREADS_OF_TASKS
    node.branches = [_nodes(chance, where.inside(in_thread=threads)) for _ in range(chance.randint(2, 4))]
    if chance.random() < 0.4:
        node.branches = [node.branches[0]] * len(node.branches)
    if node.kind == "completed":
        # A branch without a step ends without an order that could be recorded: each begins with one.
        for branch in {id(branch): branch for branch in node.branches}.values():
            first = Node("leaf", chance.getrandbits(40))
            _leaf(chance, first)
            branch.insert(0, first)
    node.caught = where.family != RACY or node.kind not in {"gather", "tasks", "group"} or chance.random() < 0.5
