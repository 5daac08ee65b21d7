"""Two sequences side by side: which item of one is which of the other. Pure, and bounded in what it costs.

What is equal and stands once on both sides holds the rest in place. Between such anchors, items that were asked the
same are taken for one another, then those that look most alike under one name. See docs/adr/0027.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol, TypeVar

Key = Hashable
Pair = tuple[int, int]

_GAP = 2_500  # cells of a gap in which every item is held against every other
_CELLS = 60_000  # of them in one alignment
_EDITS = 32  # that are looked for at once in a longer gap: the cost of one is never more than that for each item


class Item(Protocol):
    """Something that stands in a sequence."""

    @property
    def content(self) -> Key:
        """All that it is: two of one content are equal."""

    @property
    def asked(self) -> Key | None:
        """What it was asked; None if that is not known."""

    @property
    def place(self) -> Key | None:
        """What no other of its sequence can be, as long as all before it is equal; None if that is not known."""

    @property
    def name(self) -> Key:
        """What it is called. Two of other names are never taken for one another."""

    @property
    def words(self) -> frozenset[bytes]:
        """What it is made of, for a measure of likeness."""


T = TypeVar("T", bound=Item)
_SIGNS = ("content", "asked", "name")  # that items are paired by, the strongest first
_Gap = tuple[int, int, int, int, int]  # from and to on both sides, and by what they are compared


def align(a: Sequence[T], b: Sequence[T]) -> list[Pair]:
    """The pairs of positions that belong together, in order: both sides rise."""
    return sorted(_Alignment(a, b).pairs())


class _Alignment:
    def __init__(self, a: Sequence[T], b: Sequence[T]) -> None:
        self._items = a, b
        self._found: list[Pair] = []
        self._cells = _CELLS

    def _sides(self, gap: _Gap) -> tuple[list[Key | None], list[Key | None]]:
        """What the items of a gap are compared by: most are paired by the first sign, before others are looked at."""
        first, last, begin, end, level = gap
        sign, (a, b) = attrgetter(_SIGNS[level]), self._items
        return list(map(sign, a[first:last])), list(map(sign, b[begin:end]))

    def pairs(self) -> list[Pair]:
        a, b = self._items
        first = self._same((0, len(a), 0, len(b), 0))
        self._found += zip(range(first), range(first), strict=True)
        if first < min(len(a), len(b)) and a[first].place is not None and a[first].place == b[first].place:
            self._found.append((first, first))  # where they part: one call with two outcomes
            first += 1
        gaps: list[_Gap] = [(first, len(a), first, len(b), 0)]
        while gaps:
            gap = gaps.pop()
            if gap[0] < gap[1] and gap[2] < gap[3]:
                gaps += self._look_at(gap)
        return self._found

    def _look_at(self, gap: _Gap) -> Iterator[_Gap]:
        """Find pairs in a gap; what is left of it is looked at again, by weaker signs."""
        level = gap[4]
        if level == 2:
            self._closest(gap)
            return
        first, last, begin, end, _ = self._trimmed(gap)
        if first == last or begin == end:
            return
        anchors = self._anchors((first, last, begin, end, level))
        if anchors:
            self._found += anchors
            yield from _between(anchors, (first, last, begin, end, level))
        elif level == 0 and (last - first) * (end - begin) > _GAP:
            pairs = self._common((first, last, begin, end, 0))
            yield from _between(pairs, (first, last, begin, end, 1))
        else:
            yield first, last, begin, end, level + 1

    def _same(self, gap: _Gap) -> int:
        """How many items are equal at the beginning of a gap."""
        left, right = self._sides(gap)
        differ = (at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one is None or one != other)
        return next(differ, min(len(left), len(right)))

    def _trimmed(self, gap: _Gap) -> _Gap:
        """The gap without what is equal at both of its ends."""
        first, last, begin, end, level = gap
        same = self._same(gap)
        self._found += zip(range(first, first + same), range(begin, begin + same), strict=True)
        first, begin = first + same, begin + same
        left, right = self._sides((first, last, begin, end, level))
        while left and right and left[-1] is not None and left.pop() == right.pop():
            last, end = last - 1, end - 1
            self._found.append((last, end))
        return first, last, begin, end, level

    def _anchors(self, gap: _Gap) -> list[Pair]:
        """What stands once on both sides of a gap, as much of it as is in one order."""
        first, _, begin, *_ = gap
        left, right = self._sides(gap)
        once, other = Counter(left), Counter(right)
        place = {key: at for at, key in enumerate(right, begin) if other[key] == 1}
        pairs = [
            (at, place[key])
            for at, key in enumerate(left, first)
            if key is not None and once[key] == 1 and key in place
        ]
        return _rising(pairs)

    def _common(self, gap: _Gap) -> list[Pair]:
        """The pairs of one key in a long gap, by the shortest way from one side to the other."""
        first, _, begin, *_ = gap
        left, right = self._sides(gap)
        if set(left).isdisjoint(right):
            return []
        pairs = [(first + at, begin + to) for at, to in _shortest(left, right)]
        self._found += pairs
        return pairs

    def _closest(self, gap: _Gap) -> None:
        """Pairs of one name. In a short gap those that are most alike; in a long one as many as can be."""
        first, last, begin, end, _ = gap
        size = (last - first) * (end - begin)
        if size > min(_GAP, self._cells):
            self._common(gap)
            return
        self._cells -= size
        a, b = self._items[0][first:last], self._items[1][begin:end]
        self._found += [(first + at, begin + to) for at, to in _cheapest(a, b)]


def _between(pairs: list[Pair], gap: _Gap) -> Iterator[_Gap]:
    """What is left of a gap around the pairs that were found in it."""
    first, last, begin, end, level = gap
    for at, to in pairs:
        yield first, at, begin, to, level
        first, begin = at + 1, to + 1
    yield first, last, begin, end, level


def _rising(pairs: list[Pair]) -> list[Pair]:
    """The longest part of the pairs, which rise on the left, that rises on the right too."""
    ends: list[int] = []  # the least right side that a rising part of each length can end with
    last: list[int] = []  # and the pair that it belongs to
    before: list[int] = []
    for number, (_, to) in enumerate(pairs):
        length = bisect_left(ends, to)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [to]
        last[length : length + 1] = [number]
    found, number = list[Pair](), last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]


def _shortest(left: Sequence[Key], right: Sequence[Key]) -> list[Pair]:
    """The equal pairs on a short way from one side to the other (Myers), some edits at a time."""
    pairs, at, to = list[Pair](), 0, 0
    while at < len(left) and to < len(right):
        steps, at, to = _some_way(left, right, at, to)
        pairs += steps
    return pairs


def _some_way(left: Sequence[Key], right: Sequence[Key], at: int, to: int) -> tuple[list[Pair], int, int]:
    """The equal pairs on the way that gets furthest with few edits, and where it ends."""
    wide, high = len(left) - at, len(right) - to
    reached, trace = {1: 0}, list[dict[int, int]]()  # by diagonal, how far on the left; and that before each edit
    far = 0, 0, 0  # on the left, on the right, with so many edits
    for edits in range(_EDITS + 1):
        trace.append(reached.copy())
        for line in range(-edits, edits + 1, 2):
            x = _next(reached, line, edits)[0]
            while x < wide and x - line < high and left[at + x] == right[to + x - line]:
                x += 1
            reached[line] = x
            if x <= wide and x - line <= high and 2 * x - line > far[0] + far[1]:
                far = x, x - line, edits
        if far[:2] == (wide, high):
            break
    x, y, edits = far
    found: list[Pair] = []
    for before in reversed(trace[: edits + 1]):
        begin, came = _next(before, x - y, edits)
        while x > begin and x > 0 and y > 0:
            x, y = x - 1, y - 1
            found.append((at + x, to + y))
        x, y, edits = before[came], before[came] - came, edits - 1
    return found[::-1], at + far[0], to + far[1]


def _next(reached: dict[int, int], line: int, edits: int) -> Pair:
    """How far one more edit gets on a diagonal, and the diagonal that it comes from."""
    if line == -edits or (line != edits and reached[line - 1] < reached[line + 1]):
        return reached[line + 1], line + 1
    return reached[line - 1] + 1, line - 1


def _cheapest(a: Sequence[T], b: Sequence[T]) -> list[Pair]:
    """The pairs of one name that leave the least to explain. One without partner costs 1, a pair what is not alike."""
    costs = [[float(to) for to in range(len(b) + 1)]]
    for at, one in enumerate(a):
        above, row = costs[-1], [at + 1.0]
        for to, other in enumerate(b):
            alone = 1 + min(above[to + 1], row[to])
            row.append(alone if one.name != other.name else min(alone, above[to] + _unlike(one, other)))
        costs.append(row)
    found, at, to = list[Pair](), len(a), len(b)
    while at and to:
        cost = costs[at][to]
        if cost == costs[at][to - 1] + 1:  # of equal ways, the one whose pairs come first
            to -= 1
        elif cost == costs[at - 1][to] + 1:
            at -= 1
        else:
            at, to = at - 1, to - 1
            found.append((at, to))
    return found


def _unlike(one: Item, other: Item) -> float:
    """How much two items of one name differ: 0 if they are equal, 1 if they have nothing in common."""
    if one.content == other.content:
        return 0.0
    mine, its = one.words, other.words
    most = max(len(mine), len(its))
    return 1.0 - 0.9 * (len(mine & its) / most if most else 0.0)
