"""The call of a node as a step of its run: what its rows say, what it gave, what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from everstep.codec import delta, record
from everstep.codec.chain import Entry
from everstep.codec.delta import SET, Saved
from everstep.errors import UnstorableError
from everstep.graph.nodes import Decision, Node
from everstep.graph.progress import Call
from everstep.journal.track import metadata_of
from everstep.model import STATUSES, Status
from everstep.run.arguments import IMMUTABLE
from everstep.run.retry import ONCE

if TYPE_CHECKING:
    from everstep.graph.values import Values

# In the metadata of a row.
REASON = "reason"  # of a decision
GIVEN = "given"  # by a graph that did not give all of its outputs: those it gave
_BOXES = (list, dict)
_QUICK = 1.0  # milliseconds: what takes longer may have cost something, and is not done again


class Taken:
    """What a node takes. No value is stored for it: their versions tell which they are, and what they were."""

    __slots__ = ("_mutable", "_values", "data", "digest", "fixed")

    def __init__(self, digest: bytes) -> None:
        self.digest = digest
        self.data: bytes | None = None
        self.fixed = True
        self._values: dict[str, Any] = {}
        self._mutable: dict[str, Saved] = {}

    def watch(self, given: dict[str, Any], values: Values, *, outlives_failures: bool) -> None:
        """Remember what could be changed in place, as it is now.

        Not what will be given again: to find out what changed then tells this too, and costs no further look at it.
        But where a run goes on past failures, or tries again, a node that fails may have changed it first.
        """
        for name, value in given.items():
            given_again = name in values.repeated and type(value) in _BOXES
            if type(value) in IMMUTABLE or (given_again and not outlives_failures):
                continue
            known = values.saved(name, value)
            if known is not None and not given_again:
                self._values[name], self._mutable[name] = value, known
        self.fixed = not self._mutable

    def changed(self, _: Any) -> str | None:
        """The name of a value that was changed since, None if all are as they were."""
        return next((name for name, before in self._mutable.items() if not is_as(before, self._values[name])), None)


class NodeCall:
    """One call of a node, on its way from the request to its outcome."""

    __slots__ = (
        "arguments", "cached", "call", "child", "decision", "entry", "names", "result", "stored_at", "superstep",
        "taken", "values",
    )  # fmt: skip

    def __init__(self, call: Call, values: Values) -> None:
        self.call = call
        self.values = values
        self.taken = Taken(call.digest)
        self.arguments: dict[str, Any] = {}  # of its function
        self.superstep = 0
        self.result: dict[str, Any] = {}
        self.names: Sequence[str] = call.node.outputs  # of what it gave
        self.decision: Decision | None = None
        self.cached = False
        self.stored_at: int | None = None  # where its values are read, if they are not known
        self.child: str | None = None
        self.entry: Entry | None = None  # the row of its outcome, if it was on record

    def about(self) -> dict[str, Any]:
        """What every row of it says beside the usual."""
        kind = self.call.node.kind
        return {
            "superstep": self.superstep,
            "input_versions": self.call.versions,
            "node_type": None if kind == "node" else kind,
        }

    def outcome(self, value: Any) -> tuple[list[Any], Any, dict[str, Any]]:
        """The operations for what the node gave, the output to store, and what the row says beside the usual."""
        node, about = self.call.node, self.about()
        if node.targets:
            self.decision = node.choose(value)
            about["decision"], about["metadata"] = self.decision.target, {REASON: self.decision.reason}
            return [], None, about | {"cached": self.cached}
        about["cached"] = self.cached
        result = self.result = node.by_name(value)
        if len(result) < len(node.outputs):
            self.names = tuple(result)
            about["metadata"] = {GIVEN: list(result)}
        ops: list[Any] = []
        output = None
        for name, given in result.items():
            if type(given) in _BOXES and name in self.values.repeated:
                ops += self.values.changes(name, given, node.name)
            elif len(result) == 1:
                ops.append([SET, name])
                output = given
            else:
                ops.append([SET, name, given])
        return ops, output, about

    def give(self, arguments: dict[str, Any]) -> None:
        """Let these be the arguments of its function, and remember what they are."""
        node, values = self.call.node, self.values
        self.arguments.update(arguments)
        if values.are_recorded:
            tries = values.outlive_failures or node.step.retry is not ONCE
            given = {node.inputs[param]: value for param, value in arguments.items()}
            self.taken.watch(given, values, outlives_failures=tries)

    def begin_again(self) -> None:
        """Have the next attempt given what the one that failed was given, whatever that made of it."""
        self.values.take_back(self.call.node)
        self.give(self.values.arguments(self.call))

    def rides_along(self, duration: float) -> bool:
        """Whether its row may be written with the next one: that of a decision which took no time to speak of."""
        return bool(self.call.node.targets) and duration < _QUICK

    def restore(self, entry: Entry) -> None:
        """Take what the row of its outcome says. The values are read when a node needs them."""
        meta = record.read_meta(entry)
        self.superstep = meta[record.SUPERSTEP] or 0
        self.cached = bool((meta[record.FLAGS] or 0) & record.CACHED)
        self.child = meta[record.CHILD]
        if STATUSES[entry.status] is Status.FAILED:
            return
        self.stored_at, self.entry = entry.seq, entry
        self.names = given_by(self.call.node, entry)
        if self.call.node.targets:
            reason = (meta[record.METADATA] or {}).get(REASON, "")
            self.decision = Decision(meta[record.DECISION], reason)

    def given(self, value: Any) -> Any:
        """What a value that its function returned comes to: the decision, or values by name."""
        node = self.call.node
        return node.choose(value).target if node.targets else node.by_name(value)

    def recorded(self, entry: Entry) -> Any:
        """The same, of what is on record."""
        self.restore(entry)
        return self.decision.target if self.decision is not None else self.values.following(self)

    def stored_before(self, seq: int) -> bool:
        """Whether its outcome was on record there."""
        return self.stored_at is not None and self.stored_at < seq

    def logged(self) -> tuple[Any, ...]:
        """What the run log says of it: superstep, cached, decision."""
        return self.superstep, self.cached, None if self.decision is None else self.decision.target


def given_by(node: Node, entry: Entry) -> Sequence[str]:
    """The names of what a call gave, by the row of its outcome."""
    if node.kind != "graph":
        return node.outputs  # all of them
    return metadata_of(entry).get(GIVEN, node.outputs)  # type: ignore[no-any-return] # written as a list of names


def saved(name: str, value: Any) -> Saved | None:
    """What is kept of a value to see later whether it changed; None of one that cannot be encoded."""
    try:
        return delta.saved(name, value)
    except UnstorableError:
        return None


def is_as(before: Saved, value: Any) -> bool:
    """Whether a value is what was kept of it."""
    try:
        return delta.is_as_saved(before, value)
    except UnstorableError:
        return False
