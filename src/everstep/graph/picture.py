"""What a picture of a graph shows, whatever it is drawn with: boxes, the wires between them, and a run over both."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from everstep.errors import GraphError
from everstep.graph.layers import layers
from everstep.graph.nested import GraphNode
from everstep.graph.nodes import Node, NodeKind
from everstep.model import END, Status
from everstep.run.log import NodeRecord, RunLog
from everstep.run.result import RunResult

if TYPE_CHECKING:
    from everstep.graph.graph import Graph

BoxKind = NodeKind | Literal["input", "end"]
WireKind = Literal["input", "value", "choice"]
LogOrResult = RunLog | RunResult[Any]
Steps = list[dict[str, list[NodeRecord]]]  # for each log, its steps by the name of their node

TIMES = "\N{MULTIPLICATION SIGN}"
NOT_REACHED = "not reached"
_SIDES = ("yes", "no")  # of a gate
_OPENED = 3  # graphs inside one another that are drawn open; what is deeper is a closed box
_RAN = frozenset({Status.COMPLETED, Status.FAILED, Status.RESTORED})
# Of the items that a node ran for, the one that stands worst tells how it stands.
_WORST = {status: place for place, status in enumerate((Status.FAILED, Status.PAUSED, Status.UNKNOWN, Status.ACTIVE))}


@dataclass(frozen=True, slots=True)
class Visits:
    """What a run did at one node."""

    status: str
    runs: int = 0
    restored: int = 0
    cached: int = 0
    ms: float = 0.0

    def __str__(self) -> str:
        parts = [] if self.status == Status.COMPLETED else [self.status]
        parts += [f"{self.runs}{TIMES}"] * bool(self.runs)
        parts += [f"{self.restored} restored"] * (0 < self.restored < self.runs)
        parts += [f"{self.cached} cached"] * (0 < self.cached < self.runs)
        parts += [_took(self.ms)] * (self.runs > self.restored)
        return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class Box:
    """A node, an input, or the end."""

    kind: BoxKind
    name: str
    node: Node | None = None
    optional: bool = False  # of an input: a run may do without it
    results: tuple[str, ...] = ()  # what it gives that no node takes
    visits: Visits | None = None  # None where no run is shown, and of what is no node
    inside: Picture | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """From one box to others: a value that they take, or a choice of them. The boxes are told by their places."""

    kind: WireKind
    source: int
    targets: tuple[int, ...]
    label: str = ""
    taken: int | None = None  # of a choice, how often the run took it; None where no run is shown

    def __str__(self) -> str:
        return " ".join(filter(None, [self.label, f"{TIMES}{self.taken}" if self.taken else ""]))


@dataclass(frozen=True)
class Picture:
    """A graph as it is drawn."""

    name: str
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    bound: tuple[str, ...]
    logs: tuple[RunLog, ...] | None

    @property
    def summary(self) -> str:
        """The run in a line; empty where none is shown."""
        return ": ".join(filter(None, [self.logs[0].run_id, self.logs[0].summary()])) if self.logs else ""

    @cached_property
    def layers(self) -> list[int]:
        """How deep each box lies: below all that it waits for, but for what comes round again."""
        arrows = [(wire.source, target) for wire in self.wires for target in wire.targets]
        found = layers(len(self.boxes), arrows)
        for wire in self.wires:
            if wire.kind == "input":  # it stands right above the first that takes it
                found[wire.source] = min(found[target] for target in wire.targets) - 1
        return found


def picture(graph: Graph, run: LogOrResult | None = None) -> Picture:
    """What is to be drawn of a graph, and of a run over it. Raises GraphError if the run is one of another graph."""
    log = run.log if isinstance(run, RunResult) else run
    if log is not None and log.workflow != graph.name:
        raise GraphError(
            f"graph {graph.name!r}", f"was given the log of a run of {log.workflow!r} to draw",
            "Draw a run over the graph that it is a run of.",
        )  # fmt: skip
    return _picture(graph, None if log is None else (log,), 1)


def _picture(graph: Graph, logs: tuple[RunLog, ...] | None, depth: int) -> Picture:
    shape = graph.shape
    steps = None if logs is None else [_by_name(log) for log in logs]
    boxes = [Box("input", name, optional=name not in shape.required) for name in shape.inputs]
    for name, node in shape.nodes.items():
        inside = None
        if isinstance(node, GraphNode) and depth < _OPENED:
            inner = None if logs is None or steps is None else tuple(_inside(logs, steps, name))
            inside = _picture(node.graph, inner, depth + 1)
        results = tuple(value for value in node.outputs if value not in shape.consumers)
        visits = None if steps is None else _visits([one[name] for one in steps if name in one])
        boxes.append(Box(node.kind, name, node, results=results, visits=visits, inside=inside))
    if any(END in node.targets for node in graph.nodes):
        boxes.append(Box("end", "END"))
    return Picture(graph.name, tuple(boxes), tuple(_wires(graph, steps)), tuple(sorted(shape.bound)), logs)


def _wires(graph: Graph, steps: Steps | None) -> Iterator[Wire]:
    shape = graph.shape
    places = {name: len(shape.inputs) + number for number, name in enumerate(shape.nodes)}
    places[END] = len(shape.inputs) + len(shape.nodes)
    for place, name in enumerate(shape.inputs):
        yield Wire("input", place, tuple(places[each] for each in shape.consumers[name]))
    taken = None if steps is None else Counter(_choices(steps))
    for name, node in shape.nodes.items():
        together: dict[tuple[int, ...], list[str]] = {}  # values that the same nodes take are one wire
        for value in node.outputs:
            takers = tuple(places[each] for each in shape.consumers.get(value, ()))
            if takers:
                together.setdefault(takers, []).append(value)
        yield from (Wire("value", places[name], takers, ", ".join(values)) for takers, values in together.items())
        for target in dict.fromkeys(node.targets):
            sides = [side for side, each in zip(_SIDES, node.targets, strict=False) if each == target]
            label = " or ".join(sides) if node.kind == "gate" else ""
            yield Wire("choice", places[name], (places[target],), label, None if taken is None else taken[name, target])


# A run.


def _by_name(log: RunLog) -> dict[str, list[NodeRecord]]:
    """The steps that are nodes; what ran inside of nodes is none."""
    found: dict[str, list[NodeRecord]] = {}
    for step in log.steps:
        if step.parent_span_id is None:
            found.setdefault(step.node_name, []).append(step)
    return found


def _inside(logs: Iterable[RunLog], steps: Steps, name: str) -> Iterator[RunLog]:
    """The logs of the runs inside a node: its own, or one for each item that it went over."""
    for log, named in zip(logs, steps, strict=True):
        spans = {step.span_id for step in named.get(name, ())}
        of = (step for step in log.steps if step.span_id in spans or step.parent_span_id in spans)
        yield from (step.log for step in of if step.log is not None)


def _choices(steps: Steps) -> Iterator[tuple[str, str]]:
    for step in (step for named in steps for each in named.values() for step in each):
        chosen = step.decision if isinstance(step.decision, list | tuple) else [step.decision]
        yield from ((step.node_name, target) for target in chosen if isinstance(target, str))


def _visits(logs: Sequence[Sequence[NodeRecord]]) -> Visits:
    """What the records of one node come to, by the log that they stand in."""
    steps = [step for log in logs for step in log]
    if not steps:
        return Visits(NOT_REACHED)
    last = min((log[-1] for log in logs), key=lambda step: _WORST.get(step.status, len(_WORST)))
    ran = [step for step in steps if step.status in _RAN]
    return Visits(
        "cached" if last.cached and last.status is Status.COMPLETED else str(last.status),
        len(ran),
        sum(step.status is Status.RESTORED for step in ran),
        sum(step.cached and step.status is Status.COMPLETED for step in ran),
        sum(step.duration_ms for step in ran if step.status is not Status.RESTORED),
    )


def _took(ms: float) -> str:
    if ms >= 999.5:
        return f"{ms / 1000:,.1f} s"
    return f"{ms:.3f} ms" if ms < 1 else f"{ms:.1f} ms" if ms < 99.95 else f"{ms:.0f} ms"


# Texts.


def shown(text: str, limit: int) -> str:
    """A name as it can be drawn: no sign that cannot be seen or that steers a terminal, and not too long."""
    clean = "".join(sign if sign.isprintable() else "�" for sign in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def width(text: str) -> int:
    """How many columns a text takes."""
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text
    )


def signature(box: Box) -> str:
    """What a node takes and gives. A question mark behind what it has a default for."""
    node = box.node
    if node is None:
        return ""
    taken = dict[str, bool]()
    for param, value in node.inputs.items():
        taken[value] = taken.get(value, True) and param in node.defaults
    takes = ", ".join(shown(value, 40) + "?" * optional for value, optional in taken.items())
    gives = ", ".join(node.outputs)
    return f"({takes})" + (f" → {gives}" if gives else "")
