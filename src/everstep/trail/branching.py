"""The steps of two runs as trees side by side: lane by lane, step by step, and then what ran inside each."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, TypeVar

from everstep.codec import frame
from everstep.codec.chain import Entry
from everstep.codec.record import StepRecord, body
from everstep.codec.values import encode
from everstep.errors import UnstorableError
from everstep.journal.track import is_unordered
from everstep.model import Kind, Run
from everstep.store.base import Store
from everstep.trail.aligning import Item, align
from everstep.trail.differing import heavy, is_carried, said
from everstep.trail.outline import Node, outline
from everstep.trail.reading import Reader

_POSITION = re.compile(r"@\d+(?=/|$)")  # where a lane was spawned: an inserted step shifts it
_WORD = re.compile(rb"\w+")
_LOOKED_AT = 4_096  # bytes of a payload that its likeness to others is told by
_FEW = 8  # steps, or lanes, inside a step that its likeness is told by


class Numbers:
    """A number for each content, the same for equal ones: quick to compare, however large a content is."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def of(self, content: Hashable) -> int:
        """Its number."""
        return self._known.setdefault(content, len(self._known))


class Mark:
    """A step, with what is needed to find its counterpart."""

    __slots__ = ("_words", "content", "inside", "name", "node", "own")

    def __init__(self, node: Node, own: int, content: int, inside: Sequence[Strand]) -> None:
        self.node = node
        self.own = own  # the number of all that the step itself is
        self.content = content  # and of that with what ran in it
        self.inside = inside
        self.name: Hashable = node.name if node.kind is Kind.STEP else (node.kind, node.name)
        self._words: frozenset[bytes] | None = None

    @property
    def asked(self) -> Hashable | None:
        """Its name and the digest of its inputs; of a graph's node that tells the versions, and not of what."""
        row = self.node.record
        digest = row.input_digest
        return None if digest is None or row.input_versions is not None else (self.name, digest)

    @property
    def place(self) -> Hashable | None:
        """Of a graph's node, its name and the versions of what it takes."""
        row = self.node.record
        return None if row.input_versions is None else (self.name, row.input_digest)

    @property
    def words(self) -> frozenset[bytes]:
        """The words of its payload, and of what ran in it; of long ones some."""
        if self._words is None:  # no deeper than one level: steps may nest as deep as they like
            self._words = self.own_words.union(*(strand.words for strand in self.inside[:_FEW]))
        return self._words

    @property
    def own_words(self) -> frozenset[bytes]:
        """The words of its payload alone."""
        bodies = [frame.unpack(body(row)) for row in _rows(self.node) if not row.erased]
        return frozenset(word for body in bodies for word in _WORD.findall(body[:_LOOKED_AT]))

    @property
    def superstep(self) -> int | None:
        """The round of a graph that it belongs to."""
        node, found = self.node, self.node.record.superstep
        return node.begun.superstep if found is None and node.begun is not node.record else found

    def walk(self, depth: int) -> Iterator[tuple[int, Mark]]:
        """The step and all that ran in it, with their depths: for equal steps in the same order."""
        waiting = [(depth, self)]
        while waiting:
            level, mark = waiting.pop()
            yield level, mark
            waiting += [(level + 1, each) for strand in reversed(mark.inside) for each in reversed(strand.marks)]


def _content(node: Node) -> Hashable:
    """What its payloads say, in one piece. JSON in an answer may spell out half a character, which nothing encodes."""
    told = heavy(node)
    try:
        return encode(told)
    except UnstorableError:
        return repr(told)


def _rows(node: Node) -> tuple[StepRecord, ...]:
    """The rows whose payloads say what a step is."""
    return (node.record,) if node.begun is node.record else (node.begun, node.record)


class Strand:
    """The steps of one lane inside a step."""

    def __init__(self, path: str, marks: list[Mark], numbers: Numbers) -> None:
        self.name = self.asked = _POSITION.sub("", path)
        self.place = None
        if is_unordered(path):  # the order of the rows is chance there
            marks.sort(key=_out_of_order)
        self.marks = marks
        self.content = numbers.of(tuple(mark.content for mark in marks))

    @cached_property
    def words(self) -> frozenset[bytes]:
        """The words of its first steps."""
        return frozenset[bytes]().union(*(mark.own_words for mark in self.marks[:_FEW]))


def _out_of_order(mark: Mark) -> tuple[object, ...]:
    """An order that does not depend on which step ended first."""
    record = mark.node.record
    superstep = mark.superstep
    return -1 if superstep is None else superstep, mark.node.name, record.index, record.input_digest or b"", mark.own


def _spawned(path: str) -> list[tuple[int, str, int]]:
    """The order in which lanes are looked at: by where each was spawned, and the how-manieth of its name it is."""
    found = []
    for segment in path.split("/") if path else []:
        tag, _, position = segment.rpartition("@")
        name, _, count = tag.rpartition("#")
        found.append((_number(position), name, _number(count)))
    return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else -1


class Branches:
    """A run up to a point, as the tree that is compared."""

    def __init__(self, store: Store, run: Run, at: int | None) -> None:
        reader, row = Reader(store, as_view=True), store.run(run.id)
        self.run = run
        self.at = reader.place(row, at)
        self._rows = reader.entries(row, row.base, self.at)
        fetch, decode = reader.fetch, reader.decode  # one method for all records, and not one for each
        records = [StepRecord(run.id, entry, fetch, decode) for entry in self._rows]
        self.tree = outline(records)
        self.newest: datetime = records[-1].completed_at if records else run.created_at
        self._shared = -1  # the last row that it has in common with the other by lineage
        self._numbers = Numbers()

    def share(self, other: Branches) -> None:
        """Find out how far the two are one history: a row's hash stands for all before it."""
        low, high = max(self.run.oldest, other.run.oldest) - 1, min(self.at, other.at)
        while low < high:
            middle = (low + high + 1) // 2
            if self._row(middle).hash == other._row(middle).hash:
                low = middle
            else:
                high = middle - 1
        self._shared = other._shared = low
        self._numbers = other._numbers

    def is_at(self, other: Branches) -> bool:
        """Whether both end with the same row."""
        return self.at == other.at == self._shared

    def _row(self, seq: int) -> Entry:
        return self._rows[seq - self.run.oldest]

    def strands(self) -> Sequence[Strand]:
        """The lanes at the top of the run."""
        inside: dict[Node | None, dict[str, list[Mark]]] = {}
        for node in reversed([node for _, node in self.tree.walk()]):  # children first
            mark = self._mark(node, self._strands(inside.pop(node, None)))
            inside.setdefault(node.parent, {}).setdefault(node.begun.lane, []).append(mark)
        return self._strands(inside.get(None))

    def _strands(self, lanes: dict[str, list[Mark]] | None) -> Sequence[Strand]:
        if lanes is None:
            return ()
        return [Strand(path, lanes[path][::-1], self._numbers) for path in sorted(lanes, key=_spawned)]

    def _mark(self, node: Node, inside: Sequence[Strand]) -> Mark:
        """A step as it is compared. One that both have by lineage is equal without looking."""
        numbers, row = self._numbers, node.record
        if node.begun.seq <= self._shared and row.seq <= self._shared:
            own = numbers.of(row.hash)
        else:
            # A stored error has a traceback: where it was, which is no difference. An erased row is equal to itself.
            plain = node.error is None and not row.erased and not node.begun.erased and not is_carried(node)
            own = numbers.of((*said(node), *(map(body, _rows(node)) if plain else (_content(node), None))))
        whole = numbers.of((own, *(strand.content for strand in inside))) if inside else own
        return Mark(node, own, whole, inside)

    def ends(self, kind: Kind) -> Mark | None:
        """The start or the end of the run."""
        row = self.tree.start if kind is Kind.START else self.tree.end
        return None if row is None else self._mark(Node(row.name, kind, row.status, row, row), ())


class Twin(NamedTuple):
    """A step and its counterpart, if it has one."""

    depth: int
    a: Mark | None
    b: Mark | None
    moved: bool = False

    @property
    def one(self) -> Mark:
        """That of `b`, if there is one."""
        found = self.b or self.a
        assert found is not None  # noqa: S101 - a twin has at least one side
        return found


def side_by_side(a: Branches, b: Branches) -> Iterator[Twin]:
    """Every step of both, with its counterpart, parents before children."""
    start, end = ((a.ends(kind), b.ends(kind)) for kind in (Kind.START, Kind.END))
    if start != (None, None):
        yield Twin(0, *start)
    yield from _moved(list(_aligned(a.strands(), b.strands())))
    if end != (None, None):
        yield Twin(0, *end)


def _aligned(a: Sequence[Strand], b: Sequence[Strand]) -> Iterator[Twin]:
    waiting = [Twin(0, *pair) for pair in reversed(_children(a, b))]
    while waiting:
        depth, one, other, _ = twin = waiting.pop()
        yield twin
        left, right = (mark.inside if mark is not None else () for mark in (one, other))
        if left or right:
            waiting += [Twin(depth + 1, *pair) for pair in reversed(_children(left, right))]


_Pair = tuple[Mark | None, Mark | None]


def _children(a: Sequence[Strand], b: Sequence[Strand]) -> list[_Pair]:
    """The steps inside two that belong together, in pairs."""
    if not a or not b:
        one: list[_Pair] = [(mark, None) for strand in a for mark in strand.marks]
        return _in_order([*one, *((None, mark) for strand in b for mark in strand.marks)])
    pairs: list[_Pair] = []
    for left, right in _matched(a, b):
        if left is None or right is None:
            pairs += [(mark, None) for mark in left.marks] if left is not None else []
            pairs += [(None, mark) for mark in right.marks] if right is not None else []
        else:
            pairs += _matched(left.marks, right.marks)
    return _in_order(pairs)


T = TypeVar("T", bound=Item)


def _matched(a: Sequence[T], b: Sequence[T]) -> Iterator[tuple[T | None, T | None]]:
    """Every item of both, with its counterpart or without."""
    at = to = 0
    for one, other in [*align(a, b), (len(a), len(b))]:
        yield from ((each, None) for each in a[at:one])
        yield from ((None, each) for each in b[to:other])
        if one < len(a):
            yield a[one], b[other]
        at, to = one + 1, other + 1


def _in_order(pairs: list[_Pair]) -> list[_Pair]:
    """Pairs in the order of `a`. What only `b` has stands behind what came before it, and what `a` had instead."""
    of_a, of_b = _numbered([a for a, _ in pairs]), _numbered([b for _, b in pairs])
    behind: dict[int, list[_Pair]] = {}
    last = -1
    for number in of_b:
        if pairs[number][0] is None:
            behind.setdefault(last, []).append(pairs[number])
        else:
            last = number
    found, held = list[_Pair](), behind.get(-1, [])
    for number in of_a:
        if pairs[number][1] is not None:
            found, held = found + held if held else found, behind.get(number, [])
        found.append(pairs[number])
    return found + held


def _numbered(marks: list[Mark | None]) -> list[int]:
    """The places in a list where there is a step, by when it began."""
    began = [-1 if mark is None else mark.node.begun.seq for mark in marks]
    return sorted([number for number, seq in enumerate(began) if seq >= 0], key=began.__getitem__)


def _moved(twins: list[Twin]) -> list[Twin]:
    """The same, with a step that was removed at one place and inserted at another, all of it, as one that moved."""
    gone: dict[int, list[Mark]] = {}
    for mark in _alone(twins, removed=True):
        gone.setdefault(mark.content, []).append(mark)
    partner = {mark: gone[mark.content].pop(0) for mark in _alone(twins, removed=False) if gone.get(mark.content)}
    if not partner:
        return twins
    left = {inner for mark in partner.values() for _, inner in mark.walk(0)}
    counterpart = {
        inner: other
        for mark, was in partner.items()
        for (_, inner), (_, other) in zip(mark.walk(0), was.walk(0), strict=True)
    }
    return [
        Twin(twin.depth, counterpart[twin.b], twin.b, moved=True) if twin.b in counterpart else twin
        for twin in twins
        if twin.a not in left
    ]


def _alone(twins: list[Twin], *, removed: bool) -> Iterator[Mark]:
    """The steps that only one side has, without those inside them."""
    deeper = -1  # inside a step that was given, what is deeper than this
    for depth, a, b, _ in twins:
        mark, other = (a, b) if removed else (b, a)
        if 0 <= deeper < depth:
            continue
        deeper = -1
        if mark is not None and other is None:
            deeper = depth
            yield mark
