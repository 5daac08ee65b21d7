"""The values of a run of a graph: held here, or read from the record when a node needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from everstep.codec import delta
from everstep.codec.delta import SET, Saved
from everstep.codec.values import encode
from everstep.errors import RedactedValueWarning, UnstorableError
from everstep.graph.calls import NodeCall, saved
from everstep.graph.nodes import Node
from everstep.graph.progress import Progress
from everstep.run import faults
from everstep.run.execution import Execution
from everstep.trail.reading import Reader


class _Stored:
    """In the place of a value: the row after which the state has it."""

    __slots__ = ("seq",)

    def __init__(self, seq: int) -> None:
        self.seq = seq


class Values:
    """Keeps the values of one run in step with its record."""

    def __init__(self, run: Execution, progress: Progress, newest: dict[str, int]) -> None:
        self.repeated = progress.shape.repeated if run.pen is not None else frozenset()
        self._run = run
        self._progress = progress
        self._newest = newest  # by name, the last row that gave it when the run was taken up
        self._saved: dict[str, tuple[int, Saved | None]] = {}  # by name, its version and what it was then

    def take(self, call: NodeCall) -> None:
        """What a node gave is a value from now on."""
        progress, seq = self._progress, call.stored_at
        if call.decision is not None:
            progress.decided(call.call, call.decision)
        elif seq is None:
            progress.produced(call.result)
        else:
            progress.produced({name: _Stored(seq) for name in call.call.node.outputs})

    def load(self, names: Iterable[str] | None = None) -> None:
        """Read what is not held here; of all names, or of these."""
        values = self._progress.values
        wanted = {
            name: value.seq
            for name in (list(values) if names is None else names)
            if isinstance(value := values.get(name), _Stored)
        }
        head = max(self._newest.values(), default=0)
        places: dict[int, list[str]] = {}
        for name, seq in wanted.items():
            places.setdefault(head if self._newest.get(name) == seq else seq, []).append(name)
        for seq, here in places.items():
            state = self._state(seq)
            for name in here:
                values[name] = state[name]
                self._warn_of_redaction(name, state[name])

    def _state(self, seq: int) -> dict[str, Any]:
        trail, run = self._run.trail, self._run
        assert trail is not None  # noqa: S101 - a run without a store has no record
        reader = Reader(trail.store)
        reader.decode = run.reach.decode
        return reader.state(run.run_id, seq)

    def _warn_of_redaction(self, name: str, value: Any) -> None:
        if b"[redacted:" in encode(value):
            faults.warn(
                f"the value {name!r} of run {self._run.run_id!r} holds a secret, which was not stored: the resumed run "
                "goes on with a placeholder in its place. Read a secret in the node that uses it, not in one that "
                "returns it.",
                RedactedValueWarning,
            )

    def load_for(self, node: Node) -> None:
        """Read what a node takes, and what it will change, where that is not held here."""
        self.load([*node.inputs.values(), *(name for name in node.outputs if name in self.repeated)])

    # Changes.

    def encoding(self, name: str, value: Any) -> bytes | None:
        """The bytes of a value as it is now, None of one that has none."""
        known = self._known(name, value)
        return None if known is None else known.data

    def _known(self, name: str, value: Any) -> Saved | None:
        version = self._progress.versions.get(name, 0)
        known = self._saved.get(name)
        if known is None or known[0] != version:
            known = self._saved[name] = version, saved(name, value)
        return known[1]

    def changes(self, name: str, value: Any) -> list[Any]:
        """The operations that make this the value of a name. It is the next version then."""
        progress, before = self._progress, None
        if name in progress.given:
            self.load([name])
            before = self._known(name, progress.values[name])
        version = progress.versions.get(name, 0) + 1
        try:
            if before is None:
                ops, after = [[SET, name, value]], delta.saved(name, value)
            else:
                ops, after = delta.changed(name, before, value)
        except UnstorableError:  # named properly by whoever writes the row
            return [[SET, name, value]]
        self._saved[name] = version, after
        return ops
