"""A step that the code asks for."""

from __future__ import annotations

from everstep.codec.chain import Entry
from everstep.journal.track import Recorded
from everstep.run.arguments import Inputs
from everstep.run.lanes import Lane, Scope


class Ask:
    """A step that the code asks for: its place, what it is given, and what the record says."""

    __slots__ = (
        "began",
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

    @property
    def digest(self) -> bytes | None:
        return None if self.inputs is None else self.inputs.digest
