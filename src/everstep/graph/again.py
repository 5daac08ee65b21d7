"""What the record has of a run of a graph that is taken up again.

A run that failed, and went on past the failure, has done things that it would not have done without it. When it is
taken up they are superseded: a call is served only if what it took is what the record had when it was made.
"""

from __future__ import annotations

from typing import Any

from everstep.codec import record
from everstep.graph.calls import NodeCall, given_by
from everstep.graph.shape import Shape
from everstep.model import STATUSES, Status
from everstep.run.asked import Ask
from everstep.run.execution import Execution
from everstep.run.lanes import NODES

_NOW = 1 << 62  # later than any row there is


class Again:
    """The calls on record, and which of them still hold."""

    def __init__(self, run: Execution, shape: Shape) -> None:
        journal = run.journal
        self.newest: dict[str, int] = {}  # by name, the last row that gave the value
        self.highest = -1  # superstep that was counted before the run had ended
        self._others, self._shared = run.forked.others, journal.shared
        self._reopened = journal.ended_at is not None or bool(self._others)
        self._since: dict[str, int] = {}  # by name, the row that gave the value as it is now
        self._indexes: dict[str, set[int]] = {}  # by node, the numbers that calls of it have
        ended_at, track = journal.ended_at or 0, journal.track(None, NODES)
        for entry in journal.failures:
            self.highest = max(self.highest, superstep_of(entry) if entry.seq < ended_at else -1)
        for step in track.steps if track is not None else ():
            node, outcome = shape.nodes.get(step.name), step.outcome
            self._indexes.setdefault(step.name, set()).add(step.index)
            if node is None or outcome is None:
                continue
            if outcome.seq < ended_at:
                self.highest = max(self.highest, superstep_of(outcome))
            if STATUSES[outcome.status] is Status.COMPLETED:
                for name in given_by(node, outcome):
                    self.newest[name] = max(self.newest.get(name, 0), outcome.seq)

    def check(self, ask: Ask, call: NodeCall) -> None:
        """Let go of what is on record of a call if it was made with other values; its number is a new one then."""
        if ask.recorded is not None:
            ask.recorded.cancelled = None  # not by the code, which is ours: it is asked for again
        if not self._reopened:
            return
        while ask.recorded is not None and not self._holds(ask.name, ask.recorded.id or ask.recorded.seq, call):
            assert ask.lane.track is not None  # noqa: S101 - it came from there
            ask.recorded = ask.lane.track.take(ask.name, ask.digest)
        used = self._indexes.setdefault(ask.name, set())
        if ask.recorded is not None:
            ask.index = ask.recorded.index
        while ask.recorded is None and ask.index in used:
            ask.index += 1
        used.add(ask.index)

    def _holds(self, name: str, seq: int, call: NodeCall) -> bool:
        if name in self._others and seq <= self._shared:
            return False  # the node is another one now
        return all(self._since.get(name, 0) < seq for name in call.call.versions)

    def took(self, call: NodeCall) -> None:
        """These are the values now."""
        if self._reopened:
            at = _NOW if call.stored_at is None else call.stored_at
            names = [f"_{call.call.node.name}"] if call.decision is not None else call.names
            self._since.update(dict.fromkeys(names, at))


def superstep_of(outcome: Any) -> int:
    """The superstep that a row belongs to."""
    return record.read_meta(outcome)[record.SUPERSTEP] or 0
