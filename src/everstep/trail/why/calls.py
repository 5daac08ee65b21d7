"""The steps of a run as what they took and what they gave, in the order in which they ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from everstep.errors import ErasedError, EverstepError
from everstep.model import Kind, Run, Status, StepError
from everstep.trail.outline import Node, Outline, outline
from everstep.trail.versions import CAPTURED, CODE
from everstep.trail.why.folding import Values
from everstep.trail.why.heard import asked, said
from everstep.trail.why.values import Profile, profile

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_CALLS = frozenset({Kind.STEP, Kind.PAUSE})
_CHOOSE = frozenset({"route", "gate"})


class Call:
    """One step of a run, failed attempts and outcome in one."""

    def __init__(self, node: Node, feeds: dict[str, Call | None], given: dict[str, Any] | None) -> None:
        self.node = node
        self.run_id = node.record.run_id
        self.seq = node.seq
        self.begun = node.begun.seq
        self.name = node.name
        self.failed = node.status is Status.FAILED
        self.completed = node.status is Status.COMPLETED
        self.superstep = node.record.superstep
        self.chooses = node.record.node_type in _CHOOSE
        self.feeds = feeds  # of a node of a graph: who gave each value it took; None for the run's inputs
        self.place = 0  # among all calls of the story
        self.parent: Call | None = None
        self._gave: Any = None  # of a node of a graph: the values it gave, whole where they are small
        self._given = given  # of a node of a graph: the values it took, as far as they are known

    @cached_property
    def gives(self) -> Profile:
        """What came of it: a value, what it set in the state, or what a route chose."""
        row = self.node.record
        if self.chooses:
            return profile(row.decision)
        if self._gave is not None:
            return profile(self._gave)
        return profile(_readable(lambda: said(row) if row.output is not None else _set(row.values)))

    @cached_property
    def takes(self) -> Profile:
        """What went in, by name where names are known."""
        row = self.node.begun
        if self._given is not None:
            return profile(self._given)
        inputs, words = asked(self.node.record, _readable(lambda: row.inputs))
        found = profile(inputs)
        found.words |= words
        return found

    @property
    def output(self) -> Any:
        """What it gave."""
        return self.gives.value

    @property
    def inputs(self) -> Any:
        """What it was given."""
        return self.takes.value

    @cached_property
    def new(self) -> set[str]:
        """The words that it brought into the run: given, and not taken."""
        return self.gives.words - self.takes.words

    @property
    def error(self) -> StepError | None:
        """What it failed with."""
        return self.node.error

    def give(self, values: dict[str, Any]) -> None:
        """Set what a node of a graph gave: the record may hold only what changed in it."""
        self._gave = next(iter(values.values())) if len(values) == 1 else values or None

    def take(self, given: dict[str, Any]) -> None:
        """Set what it was given, where the whole of it was read."""
        self._given = given
        self.__dict__.pop("takes", None)
        self.__dict__.pop("new", None)

    def __repr__(self) -> str:
        return f"<Call {self.run_id}@{self.seq} {self.name!r}>"


def _set(values: dict[str, Any]) -> dict[str, Any] | None:
    """What a step set in the state; None if that is only that it gave nothing."""
    return values if any(value is not None for value in values.values()) else None


def _readable(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ErasedError:
        return None


@dataclass(slots=True)
class Story:
    """One run, read once."""

    run: Run
    tree: Outline
    calls: list[Call] = field(default_factory=list)
    marks: list[Node] = field(default_factory=list)  # checkpoints
    by_node: dict[int, Call] = field(default_factory=dict)

    @property
    def inputs(self) -> Any:
        """What the run began with."""
        start = self.tree.start
        return None if start is None else _readable(lambda: start.inputs)

    @property
    def is_of_a_workflow(self) -> bool:
        """Whether a runner began it, which notes the code; what was recorded by hand goes on by hand."""
        return self.tree.start is not None and CODE in self.tree.start.metadata

    @property
    def is_of_a_program(self) -> bool:
        """Whether it was captured: then it has calls, and no state before its end."""
        return self.tree.start is not None and CAPTURED in self.tree.start.metadata

    def call(self, node: Node) -> Call | None:
        """The call of a node of the outline."""
        return self.by_node.get(id(node))


def read(trail: Trail, run_id: str) -> Story:
    """All that a run's record tells, its values not looked at yet."""
    run = trail.run(run_id)
    tree = outline(trail.steps(run.id, view=True))
    story = Story(run, tree)
    nodes = [node for _, node in tree.walk() if not node.superseded]
    story.marks = [node for node in nodes if node.kind in {Kind.CHECKPOINT, Kind.SAVE}]
    steps = sorted((node for node in nodes if node.kind in _CALLS), key=lambda node: node.seq)
    graph = _Graph(story.inputs)
    for node in steps:
        story.calls.append(graph.call(node))
        story.by_node[id(node)] = story.calls[-1]
    graph.done()
    for place, call in enumerate(story.calls):
        call.place = place
        call.parent = None if call.node.parent is None else story.call(call.node.parent)
    return story


class _Graph:
    """Which call gave the values of a graph, superstep by superstep. Nothing is known of them in other runs."""

    def __init__(self, inputs: Any) -> None:
        self._values = Values(dict(inputs) if isinstance(inputs, dict) else {})
        self._from: dict[str, Call] = {}
        self._next: list[Call] = []
        self._superstep = -1

    def call(self, node: Node) -> Call:
        row = node.record
        versions = row.input_versions
        if versions is None or row.superstep is None:
            return Call(node, {}, None)
        if row.superstep > self._superstep:
            self._step(row.superstep)
        made = Call(node, {name: self._from.get(name) for name in versions}, self._values.given(versions))
        if made.completed:
            self._next.append(made)
        return made

    def done(self) -> None:
        """There is no further superstep."""
        self._step(self._superstep)

    def _step(self, superstep: int) -> None:
        """What the superstep before gave can be taken from now on."""
        for call in self._next:
            if call.chooses:
                self._from[f"_{call.name}"] = call
                continue
            row = call.node.record
            new = self._values.take(_readable(lambda row=row: row.ops) or [])  # type: ignore[misc] # mypy knows no lambda with a default
            self._from.update(dict.fromkeys(new, call))
            call.give(new)
        self._next, self._superstep = [], superstep


def others(trail: Trail, run: Run, names: set[str], runs: int, rows: int) -> Iterator[Call]:
    """The steps of these names in other runs of the same workflow, which completed."""
    if not run.workflow or not names:
        return
    found = trail.runs(workflow=run.workflow, status=Status.COMPLETED, limit=runs + 1)
    for one in [one for one in found if one.id != run.id and one.step_count <= rows][:runs]:
        try:
            story = read(trail, one.id)
        except EverstepError:
            continue  # that run is damaged; this question is about another
        for call in story.calls:
            if call.name in names and call.completed:
                yield call
