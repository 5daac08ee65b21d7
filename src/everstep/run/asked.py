"""A step that the code asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from everstep.codec.chain import Entry
from everstep.journal.track import AT, Recorded
from everstep.run.arguments import Inputs
from everstep.run.lanes import Lane, Scope


class Calls(Protocol):
    """What a graph knows of a step that is the call of one of its nodes, and a run does not."""

    names: Sequence[str]  # of the values that it gives
    child: str | None  # the run that it was, as the record says

    def about(self) -> dict[str, Any]:
        """What every row of it says beside the usual."""

    def outcome(self, value: Any) -> tuple[list[Any], Any, dict[str, Any]]:
        """The operations for what the node gave, the output to store, and what the row says beside the usual."""

    def begin_again(self) -> None:
        """Have the next attempt given what the one that failed was given, whatever that made of it."""

    def rides_along(self, duration: float) -> bool:
        """Whether its row may be written with the next one, because to do it again would cost less than to write it."""

    def restore(self, entry: Entry) -> None:
        """Take what the row of its outcome says."""

    def given(self, value: Any) -> Any:
        """What a value that its function returned comes to, as it is compared."""

    def recorded(self, entry: Entry) -> Any:
        """The same, of what is on record."""

    def logged(self) -> tuple[Any, ...]:
        """What the run log says of it: superstep, cached, decision."""


class Ask:
    """A step that the code asks for: its place, what it is given, and what the record says."""

    __slots__ = (
        "began",
        "call",
        "entry",
        "index",
        "inputs",
        "lane",
        "name",
        "position",
        "recorded",
        "rewritten",
        "scope",
    )

    def __init__(self, lane: Lane, name: str, place: tuple[int, int], inputs: Inputs | None) -> None:
        self.lane = lane
        self.name = name
        self.position, self.index = place
        self.inputs = inputs
        self.recorded: Recorded | None = None
        self.rewritten = False  # its position is not the one that the order of the rows gives
        self.began = 0.0
        self.scope: Scope | None = None  # of the attempt at work
        self.entry: Entry | None = None  # its newest row
        self.call: Calls | None = None  # of a graph's node

    def about(self) -> dict[str, Any]:
        """What every row of the step says."""
        about: dict[str, Any] = {"index": self.index or None}
        if self.inputs is not None:
            about["input_digest"], about["gated_inputs"] = self.inputs.digest, self.inputs.data
        if self.rewritten:
            about["metadata"] = {AT: self.position}
        if self.call is not None:
            about |= self.call.about()
        return about

    @property
    def digest(self) -> bytes | None:
        return None if self.inputs is None else self.inputs.digest
