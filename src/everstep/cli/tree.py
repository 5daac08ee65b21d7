"""Which lines of a run's tree are printed: all of a short one; of a long one the ends, and what did not go well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from everstep.cli.style import refused_with
from everstep.model import Kind, Status
from everstep.trail.outline import Node, Outline

_SHORT = 60  # steps of a run that is shown whole
_ENDS = (3, 1)  # steps at both ends of a fold, by depth
_OPENED = 1  # depth down to which the inside of a step that went well is shown
_WORTH = 3  # steps that are worth a fold


@dataclass(frozen=True, slots=True)
class Line:
    """A step, and how many inside it are not shown."""

    depth: int
    node: Node
    inside: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """Steps beside one another that all went well."""

    depth: int
    nodes: list[Node]
    inside: int  # steps inside them

    @property
    def names(self) -> list[tuple[str, int]]:
        """What they are called and how many of each there are, the most common first."""
        return Counter(node.name for node in self.nodes).most_common()

    @property
    def duration_ms(self) -> float:
        """How long they took together: it stands among durations, and a span would hold what lies between two lives."""
        return sum(node.duration_ms or 0.0 for node in self.nodes)


def lines(tree: Outline, *, everything: bool) -> Iterator[Line | Fold]:
    """The lines to print, parents before children. What failed, is open or waits is never folded away."""
    sizes, restless = _look_over(tree)
    if everything or sum(sizes[node] for node in tree.steps) <= _SHORT:
        yield from (Line(depth, node) for depth, node in tree.walk())
        return
    waiting: list[Line | Fold] = list(reversed(_siblings(tree.steps, 0, sizes, restless)))
    while waiting:
        line = waiting.pop()
        if isinstance(line, Line) and line.node.children:
            if line.node in restless or line.depth < _OPENED:
                waiting += reversed(_siblings(line.node.children, line.depth + 1, sizes, restless))
            else:
                line = Line(line.depth, line.node, sizes[line.node] - 1)
        yield line


def _look_over(tree: Outline) -> tuple[dict[Node, int], set[Node]]:
    """How many steps each one is with those inside it, and which are not well or hold one that is not."""
    nodes = [node for _, node in tree.walk()]
    sizes, restless = dict.fromkeys(nodes, 1), set[Node]()
    for node in reversed(nodes):
        well = node.status is Status.COMPLETED and refused_with(node.record) is None
        if not well or node.kind in {Kind.END, Kind.FORK} or node in restless:
            restless.add(node)
            if node.parent is not None:
                restless.add(node.parent)
        if node.parent is not None:
            sizes[node.parent] += sizes[node]
    return sizes, restless


def _siblings(nodes: Sequence[Node], depth: int, sizes: dict[Node, int], restless: set[Node]) -> list[Line | Fold]:
    """The lines of steps beside one another."""
    found: list[Line | Fold] = []
    stretches = [(rest, list(group)) for rest, group in groupby(nodes, key=restless.__contains__)]
    ends = _ENDS[min(depth, len(_ENDS) - 1)]
    for place, (rest, group) in enumerate(stretches):
        first = ends if place == 0 else 1
        last = ends if place == len(stretches) - 1 else 1
        hidden = group[first : len(group) - last]
        if rest or len(hidden) < _WORTH:
            found += [Line(depth, node) for node in group]
            continue
        found += [Line(depth, node) for node in group[:first]]
        found.append(Fold(depth, hidden, sum(sizes[node] - 1 for node in hidden)))
        found += [Line(depth, node) for node in group[len(group) - last :]]
    return found
