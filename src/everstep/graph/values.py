"""The values of a run of a graph: held here, or read from the record when a node needs them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from everstep.codec import delta
from everstep.codec.delta import APPEND, SET, Saved
from everstep.codec.record import ops_of
from everstep.codec.values import encode
from everstep.errors import MutatedArgumentError, RedactedValueWarning, UnstorableError
from everstep.graph.calls import NodeCall, is_as, saved
from everstep.graph.nodes import Node
from everstep.graph.progress import Call, Progress
from everstep.policy.redaction import PLACEHOLDER
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
        self.are_recorded = run.pen is not None
        self.outlive_failures = run.goes_on
        self._run = run
        self._progress = progress
        self._newest = newest  # by name, the last row that gave it when the run was taken up
        self._follows = run.flow is not None  # a replay needs every value on the way, not those at its end alone
        self._unread = False  # some values are not held here
        self._saved: dict[str, tuple[int, Saved | None]] = {}  # by name, its version and what it was then
        self._stale: set[str] = set()  # names whose value is not the one that the state on record has

    def take(self, call: NodeCall) -> None:
        """What a node gave is a value from now on."""
        progress, seq = self._progress, call.stored_at
        if call.decision is not None:
            progress.decided(call.call, call.decision)
        elif seq is None:
            progress.produced(call.result)
            self._newest.update(dict.fromkeys(call.names, 0))
            self._stale.difference_update(call.names)
        else:
            self._unread = self._unread or not self._follows
            progress.produced(self.following(call) if self._follows else {name: _Stored(seq) for name in call.names})
            self._stale.difference_update(call.names)
            self._stale.update(name for name in call.names if self._newest.get(name) != seq)

    def changing(self, names: Iterable[str]) -> None:
        """The state on record has other values under these names than the code at work was given."""
        self._stale.update(names)

    def were_changed(self, names: Iterable[str]) -> None:
        """The code has them too now."""
        self._stale.difference_update(names)
        for name in names:
            self._note(name)

    def _note(self, name: str) -> None:
        """Keep what a value is that comes from the record, before a node can change it in place."""
        if name in self.repeated:
            self.saved(name, self._progress.values[name])

    def following(self, call: NodeCall) -> dict[str, Any]:
        """What a call on record gave, from the values as they are and the row of its outcome."""
        assert call.entry is not None  # noqa: S101 - it was restored from it
        values = self._progress.values
        held = {name: copy.copy(values[name]) for name in call.names if name in self._progress.given}
        delta.apply(held, ops_of(self._run.payload(call.entry)))
        return {name: held[name] for name in call.names}

    def load(self, names: Iterable[str] | None = None) -> None:
        """Read what is not held here; of all names, or of these."""
        if not self._unread:
            return
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
                self._note(name)
                self._warn_of_redaction(name, state[name])

    def _state(self, seq: int) -> dict[str, Any]:
        trail, run = self._run.trail, self._run
        assert trail is not None  # noqa: S101 - a run without a store has no record
        return Reader(trail.store, decode=run.reach.decode).state(run.run_id, seq)

    def _warn_of_redaction(self, name: str, value: Any) -> None:
        if PLACEHOLDER in encode(value):
            faults.warn(
                f"the value {name!r} of run {self._run.run_id!r} holds a secret, which was not stored: the resumed run "
                "goes on with a placeholder in its place. Read a secret in the node that uses it, not in one that "
                "returns it.",
                RedactedValueWarning,
            )

    def load_for(self, node: Node) -> None:
        """Read what a node takes, and what it will change, where that is not held here."""
        if self._unread:
            self.load([*node.inputs.values(), *(name for name in node.outputs if name in self.repeated)])

    # Changes.

    def saved(self, name: str, value: Any) -> Saved | None:
        """What a value is in this version, to see later whether it changed; None of one that cannot be encoded."""
        version = self._progress.versions.get(name, 0)
        known = self._saved.get(name)
        if known is None or known[0] != version:
            known = self._saved[name] = version, saved(name, value)
        return known[1]

    def changes(self, name: str, value: Any, node: str) -> list[Any]:
        """The operations that make this the value of a name. It is the next version then.

        Raises MutatedArgumentError if the version before is not what it was: a node changed it in place.
        """
        progress, before = self._progress, None
        if name in progress.given and name not in self._stale:
            self.load([name])
            before = self.saved(name, progress.values[name])
        version = progress.versions.get(name, 0) + 1
        try:
            if before is None:
                ops, after = [[SET, name, value]], delta.saved(name, value)
            else:
                ops, after = delta.changed(name, before, value)
        except UnstorableError:  # named properly by whoever writes the row
            return [[SET, name, value]]
        if before is not None and not _only_appends(ops) and progress.values[name] is not value:
            self._check_unchanged(name, before, node)
        self._saved[name] = version, after
        return ops

    def arguments(self, call: Call) -> dict[str, Any]:
        """What the function of a node is given."""
        return self._progress.arguments(call)

    def take_back(self, node: Node) -> None:
        """Let what a node changed in place, and then failed, be what it was: nothing of it is on record."""
        values, pen = self._progress.values, self._run.pen
        for name in node.inputs.values():
            known = self._known(name)
            if known is not None and not is_as(known, values[name]):
                assert pen is not None  # noqa: S101 - a run without a store saves none
                values[name] = self._run.reach.decode(known.data, pen.scribe.fetch)

    def check_last(self) -> None:
        """Raise MutatedArgumentError if a value that nobody gave again was changed in place."""
        for name in self.repeated:
            known = self._known(name)
            if known is not None:
                self._check_unchanged(name, known, self._progress.shape.consumers.get(name, ["?"])[-1])

    def _known(self, name: str) -> Saved | None:
        """What a value is in this version, if that was kept."""
        version, known = self._saved.get(name, (0, None))
        return known if version == self._progress.versions.get(name) else None

    def _check_unchanged(self, name: str, before: Saved, node: str) -> None:
        if not is_as(before, self._progress.values[name]):
            raise MutatedArgumentError(node, name)

    def corrections(self) -> dict[str, Any]:
        """What to set and delete, so that the state is what the values are here and not what superseded calls gave."""
        progress = self._progress
        return {
            "set": {name: progress.values[name] for name in progress.given if name in self._stale},
            "delete": [name for name in self._newest if name not in progress.given],
        }


def _only_appends(ops: list[Any]) -> bool:
    return all(op[0] == APPEND for op in ops)
