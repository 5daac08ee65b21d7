"""The rows of a run as the tree of steps that people see: one node each, whatever the log needed to keep it safe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from everstep.codec.record import ID, INDEX, LANE, StepRecord, places
from everstep.errors import DamagedError, ErasedError
from everstep.journal.track import AT, CHAIN, RETRY, is_unordered
from everstep.model import Kind, Status, StepError

T = TypeVar("T")
Address = tuple[int | None, str, str, int]

_ALONE = frozenset({Kind.CHECKPOINT, Kind.SAVE, Kind.FORK, Kind.END})  # one row, one node
_BEGINS = {Kind.COMPOSITE_START: Status.ACTIVE, Kind.INTENT: Status.UNKNOWN, Kind.PAUSE: Status.PAUSED}
_ENDS = {Kind.CANCELLED: Status.CANCELLED, Kind.ANSWER: Status.COMPLETED}  # any other row that ends a step says how
_MAX_DEPTH = 1_000  # of parents that were met after their children: hostile rows could name one another


@dataclass(slots=True, eq=False)
class Node:
    """One step. Its start, its intent, its failed attempts and its outcome are one; so are a pause and its answer.

    `kind` is step, pause, checkpoint, save or fork; or end, for an end that the run went on after.
    """

    name: str
    kind: Kind
    status: Status  # active while it is open; unknown for an external effect with intent and no outcome
    begun: StepRecord = field(repr=False)  # its first row
    record: StepRecord = field(repr=False)  # the row that tells how it stands: its outcome, or its first while open
    parent: Node | None = field(default=None, repr=False)
    superseded: bool = False  # what failed was run again, or belongs to an attempt that failed
    # Most have neither: a list for each would be as many objects for the garbage collector to go through.
    earlier: Sequence[StepRecord] = field(default=(), repr=False)  # failed attempts, failures that were reopened
    children: Sequence[Node] = field(default=(), repr=False)

    @property
    def seq(self) -> int:
        """Where its outcome stands; its first row while it is open."""
        return self.record.seq

    @property
    def lane(self) -> str:
        return self.record.lane

    @property
    def open(self) -> bool:
        """Whether it has no outcome yet."""
        status = self.status  # which word it is, and not the word: the hash of one takes long
        return status is Status.ACTIVE or status is Status.UNKNOWN or status is Status.PAUSED

    @property
    def started_at(self) -> datetime:
        return self.begun.started_at

    @property
    def duration_ms(self) -> float | None:
        """How long it took, as recorded; for a pause, until the answer came. None while it is open."""
        if self.open:
            return None
        if self.kind is Kind.PAUSE:
            return (self.record.started_at - self.started_at) / timedelta(milliseconds=1)
        return self.record.duration_ms

    @property
    def attempts(self) -> int:
        return max(1, self.record.attempt, len(self.earlier) + (not self.open) if self.earlier else 1)

    @property
    def error(self) -> StepError | None:
        """What it failed with; while it is tried again, what the last attempt failed with."""
        if self.status is Status.COMPLETED:
            return None
        return error_of(self.earlier[-1] if self.open and self.earlier else self.record)


@dataclass(frozen=True, slots=True)
class Outline:
    """A run as people see it: the steps at its top, each with those that ran inside it."""

    steps: list[Node]
    start: StepRecord | None  # None when it was pruned
    end: StepRecord | None  # None while the run has not ended, or when it went on after it

    def walk(self) -> Iterator[tuple[int, Node]]:
        """Every node with its depth, parents before children."""
        levels = [iter(self.steps)]
        while levels:
            for node in levels[-1]:
                yield len(levels) - 1, node
                if node.children:
                    levels.append(iter(node.children))
                    break
            else:
                levels.pop()


def outline(records: Iterable[StepRecord]) -> Outline:
    """The tree of a run's steps, from its rows in order. Takes time in proportion to them, however deep they nest.

    Raises DamagedError if a row is not one of a step.
    """
    tree = _Tree()
    for record in records:
        try:
            tree.take(record)
        except (AttributeError, OverflowError, TypeError, ValueError):  # one of its fields is of another type
            raise DamagedError("a step's meta is not that of a step", run_id=record.run_id, seq=record.seq) from None
    return tree.done()


def error_of(record: StepRecord) -> StepError | None:
    """What a row failed with; None when it did not, or when that was erased."""
    try:
        return record.error
    except ErasedError:
        return None


class _Tree:
    """What is known after some of the rows."""

    def __init__(self) -> None:
        self._top: list[Node] = []
        self._start: StepRecord | None = None
        self._end: StepRecord | None = None
        self._by_id: dict[int, Node] = {}
        self._unsettled: dict[Address, Node] = {}  # open, or may be run again: the next row at the address tells
        self._lanes: dict[Node | None, dict[str, list[Node]]] = {}  # by parent and path, but for what is superseded
        self._failed: list[tuple[Address, Node]] = []  # since the last end
        self._reopenable: set[Node] = set()  # failed before an end that the run went on after
        self._missing: set[Node] = set()  # named as a parent, not met yet: pruned, or recorded after its children
        self._tried: dict[Node, int] = {}  # how many of its children belong to attempts that failed

    def take(self, record: StepRecord) -> None:
        """Take in the next row."""
        kind = record.kind
        if kind is Kind.LANE_END or (kind is Kind.CHECKPOINT and record.status is Status.PAUSED):
            return  # a lane's end, or where a run was left to wait: the pause itself is shown
        if self._end is not None:
            self._went_on(self._end)
        if kind is Kind.STEP:  # nearly all are
            self._step(record, kind)
        elif kind is Kind.START:
            self._start = record
        elif kind is Kind.END:
            self._end = record
        elif kind in _ALONE:
            self._attach(Node(record.name, kind, record.status, record, record), record)
        else:
            self._step(record, kind)

    def _step(self, record: StepRecord, kind: Kind) -> None:
        number, parent, lane, index = places(record, ID, INDEX)  # at once: nearly all of the time here goes into them
        number, address = int(number), (parent, lane or "", record.name, index or 0)
        at = record.metadata.get(AT)
        if type(at) is int and at >= 0:
            above = None if parent is None else self._by_id.get(parent)
            self._cut(above, lane or "", at)
        node = self._node(record, kind, number, address)
        self._by_id[number] = node
        if kind is Kind.ANSWER:
            address = address_of(node.begun)
        if kind is Kind.STEP:
            self._settle(node, record, record.status, address)
        elif kind is Kind.ATTEMPT:
            self._tried_in_vain(node, record)
            self._unsettled[address] = node
        elif kind in _BEGINS or (kind is Kind.ANSWER and record.metadata.get(RETRY)):
            node.status = _BEGINS.get(kind, Status.ACTIVE)
            self._unsettled[address] = node
        else:
            self._settle(node, record, _ENDS.get(kind, record.status), address)

    def _node(self, record: StepRecord, kind: Kind, number: int, address: Address) -> Node:
        """The node that a row belongs to: the one with its id, the one that waits at its address, or a new one."""
        node = self._by_id.get(number)
        if node is not None:
            if node in self._missing:
                return self._found(node, record, kind)
            self._revive(node)
            if node.open:
                return node
        node = self._unsettled.get(address)
        if node is not None:
            if node.open:
                return node
            node.superseded = True
            del self._unsettled[address]
        return self._attach(Node(record.name, _shown(kind), Status.ACTIVE, record, record), record)

    def _attach(self, node: Node, record: StepRecord) -> Node:
        """Put a node where its row says. A parent that is not known yet is kept a place for."""
        number, inside, lane = places(record, ID, LANE)
        above = None
        if inside is not None and inside != number:
            above = self._by_id.get(inside)
            if above is None:
                above = self._by_id[inside] = Node("", Kind.STEP, Status.ACTIVE, record, record)
                self._missing.add(above)
            self._revive(above)
        node.parent = above
        if above is None:
            self._top.append(node)
        else:
            above.children = _with(above.children, node)
        if node.kind is not Kind.FORK and (node.kind is not Kind.CHECKPOINT or record.input_digest is not None):
            self._lanes.setdefault(above, {}).setdefault(lane or "", []).append(node)
        return node

    def _found(self, node: Node, record: StepRecord, kind: Kind) -> Node:
        """A parent that was met after its children takes the place that was kept for it."""
        self._missing.discard(node)
        node.name, node.begun, node.record = record.name, record, record
        node.kind = _shown(kind)
        above = self._by_id.get(record.parent) if record.parent is not None else None
        if above is not None and _inside(above, node):
            self._top.append(node)
            return node
        return self._attach(node, record)

    def _settle(self, node: Node, record: StepRecord, status: Status, address: Address) -> None:
        node.record, node.status = record, status
        if self._unsettled.get(address) is node:
            del self._unsettled[address]
        if status is Status.CANCELLED:
            self._unsettled[address] = node
        elif status is Status.FAILED:
            self._failed.append((address, node))

    def _tried_in_vain(self, node: Node, record: StepRecord) -> None:
        """An attempt failed and another follows, with children of its own."""
        node.earlier = _with(node.earlier, record)
        for child in node.children[self._tried.get(node, 0) :]:
            child.superseded = True
        self._tried[node] = len(node.children)

    def _went_on(self, end: StepRecord) -> None:
        """The run had ended, and here is more of it: the steps that its failure came from are run again."""
        self._end = None
        self._top.append(Node(end.name, Kind.END, end.status, end, end, superseded=True))
        failed, self._failed = self._failed, []
        if end.status is Status.COMPLETED:  # a fork goes on after it
            return
        self._reopenable.update(node for _, node in failed)
        self._unsettled.update(failed)
        by_outcome = {node.seq: node for _, node in failed}
        chain = chain_of(end) or self._guessed(end, [node for _, node in failed])
        while chain:
            node = by_outcome.pop(chain.pop(), None)
            if node is None:
                continue
            chain += chain_of(node.record)
            composite = node.begun.kind is Kind.COMPOSITE_START
            self._take_back(node, whole=not composite)
            if composite:  # its code runs again, over what it had recorded
                self._revive(node)

    @staticmethod
    def _guessed(end: StepRecord, failed: list[Node]) -> list[int]:
        """What a run that says nothing of it failed with: in each lane the last step with the error that ended it."""
        reason = error_of(end)
        if reason is None:
            return []
        last = {(node.parent, node.lane): node for node in failed if _same(node, reason)}
        return [node.seq for node in last.values() if node.parent is None or node.parent.status is not Status.COMPLETED]

    def _take_back(self, node: Node, *, whole: bool) -> None:
        """What came after a step in its lane is superseded; with `whole`, the step too."""
        if node.superseded:
            return
        lane = self._lanes.get(node.parent, {}).get(node.begun.lane, [])
        for position in range(len(lane) - 1, -1, -1):
            if lane[position] is node:
                self._cut(node.parent, node.begun.lane, position, whole=whole)
                return
        node.superseded = whole

    def _cut(self, parent: Node | None, path: str, position: int, *, whole: bool = True) -> None:
        """What a lane holds from a position on is superseded, and so are the lanes that were spawned after it."""
        lanes = self._lanes.get(parent, {})
        lane = lanes.get(path, [])
        first = position if whole else position + 1
        last = position + 1 if is_unordered(path) else len(lane)  # what stands behind it there did not come after it
        for node in lane[first:last]:
            node.superseded = True
        del lane[first:last]
        below = f"{path}/" if path else ""
        for other in [other for other in lanes if other != path and other.startswith(below)]:
            if _spawned_at(other[len(below) :]) > position:
                for node in lanes.pop(other):
                    node.superseded = True

    def _revive(self, node: Node | None) -> None:
        """A failed step that has new rows is open again, and so is what it runs inside."""
        while node is not None and node in self._reopenable:
            self._reopenable.discard(node)
            node.earlier = _with(node.earlier, node.record)
            node.record, node.status, node.superseded = node.begun, Status.ACTIVE, False
            node = node.parent

    def done(self) -> Outline:
        """The tree as it stands after the last row."""
        for lost in self._missing:
            for child in lost.children:
                child.parent = None
            self._top += lost.children
        if self._missing:
            self._top.sort(key=lambda node: node.begun.seq)
        return Outline(self._top, self._start, self._end)


def _with(known: Sequence[T], one: T) -> Sequence[T]:
    """The list with one more: the same list, once there is one."""
    if not isinstance(known, list):
        return [*known, one]
    known.append(one)
    return known


def address_of(record: StepRecord) -> Address:
    """What all rows of one step have in common: where it stands, its name, and which of its name it is."""
    return record.parent, record.lane, record.name, record.index


def _shown(kind: Kind) -> Kind:
    return Kind.PAUSE if kind is Kind.PAUSE or kind is Kind.ANSWER else Kind.STEP


def _inside(node: Node | None, other: Node) -> bool:
    """Whether a node is another, or inside it; also if that takes too long to tell."""
    for _ in range(_MAX_DEPTH):
        if node is None or node is other:
            return node is other
        node = node.parent
    return True


def chain_of(record: StepRecord) -> list[int]:
    """The seqs of the failed steps that a failure came from, as its row says."""
    found = record.metadata.get(CHAIN)
    return [seq for seq in found if type(seq) is int] if type(found) is list else []


def _spawned_at(below: str) -> int:
    """The position of the spawning lane, from the first segment of a path: `task:fetch#0@3`."""
    position = below.partition("/")[0].rpartition("@")[2]
    return int(position) if position.isdecimal() and len(position) < 10 else -1


def _same(node: Node, reason: StepError) -> bool:
    found = node.error
    return found is not None and (found.type, found.message) == (reason.type, reason.message)
