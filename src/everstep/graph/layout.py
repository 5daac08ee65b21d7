"""Where the boxes and wires of a picture lie: layers from top to bottom, crossings few, wires straight.

Between two layers of boxes lies a row for the labels, so that none covers another: a label is laid out as a box is.
A wire that goes past a layer has a place of its own there. What leads back, or very far, runs along the right side.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from everstep.graph.straight import Size, straightened

ROW = 20.0  # between rows
_LANE = 16.0  # between wires along the side
_PORT = 18.0  # between the ends of wires at a box
_FAR = 24  # layers after which a wire runs along the side
_WORK = 40_000  # places that are moved in all while a layout settles


class Span(NamedTuple):
    """A wire: where it begins and ends, by the places of boxes, and the room of its label."""

    source: int
    targets: tuple[int, ...]
    label: Size | None


class Point(NamedTuple):
    """A place in the picture. The middle, of a box or a label."""

    x: float
    y: float


class Route(NamedTuple):
    """The way of a wire to one of its targets. At the side, its corners; else both ends of each vertical part."""

    span: int
    target: int
    at_side: bool
    points: list[Point]


class Layout:
    """Everything in its place."""

    def __init__(self, sizes: Sequence[Size], layer: Sequence[int], spans: Sequence[Span]) -> None:
        self._sizes = list(sizes)
        self._layer = layer
        self._spans = spans
        self._rank = [2 * each for each in layer]  # rows with odd numbers are for labels
        self._up: list[list[int]] = [[] for _ in sizes]  # by place, what leads there
        self._down: list[list[int]] = [[] for _ in sizes]
        self._chains: dict[tuple[int, int], list[int]] = {}  # by span and target, the places between them
        self._labels: dict[int, int] = {}
        self._boxes = len(sizes)
        for number, span in enumerate(spans):
            self._chain(number, span)
        self._rows: list[list[int]] = [[] for _ in range(max(self._rank, default=0) + 1)]
        for place, rank in enumerate(self._rank):
            self._rows[rank].append(place)
        self._order()
        self._x = straightened(self._rows, self._up, self._down, self._sizes, self._boxes)
        self._y, self._height = self._stacked()
        self._ports()
        self._finish()

    def box(self, place: int) -> Point:
        """The middle of a box."""
        return Point(self._x[place], self._y[self._rank[place]])

    # What has a place.

    def is_at_side(self, source: int, target: int) -> bool:
        """Whether a wire leads back, or too far."""
        return not 0 < self._layer[target] - self._layer[source] <= _FAR

    def _chain(self, number: int, span: Span) -> None:
        """Give a wire a place in each row that it passes; its targets share them."""
        ahead = [target for target in span.targets if not self.is_at_side(span.source, target)]
        if not ahead:
            return
        first = self._rank[span.source] + 1
        shared: list[int] = []
        for rank in range(first, max(self._rank[target] for target in ahead)):
            label = span.label if rank == first else None
            place = self._add(rank, label or Size(0.0, 0.0))
            if label is not None:
                self._labels[number] = place
            self._link(shared[-1] if shared else span.source, place)
            shared.append(place)
        for target in ahead:
            chain = self._chains[number, target] = shared[: self._rank[target] - first]
            self._link(chain[-1], target)

    def _add(self, rank: int, size: Size) -> int:
        self._sizes.append(size)
        self._rank.append(rank)
        self._up.append([])
        self._down.append([])
        return len(self._sizes) - 1

    def _link(self, above: int, below: int) -> None:
        self._down[above].append(below)
        self._up[below].append(above)

    # The order in each row.

    def _order(self) -> None:
        """Sort the rows by what each place is joined to, down and up, and keep the order with the fewest crossings."""
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(max(2, min(16, _WORK // len(self._sizes)))):
            if not fewest:
                break
            down = sweep % 2 == 0
            at = {place: number for row in self._rows for number, place in enumerate(row)}
            for row in self._rows if down else reversed(self._rows):
                near = self._up if down else self._down
                wanted = {
                    place: sum(at[other] for other in near[place]) / len(near[place]) if near[place] else at[place]
                    for place in row
                }
                row.sort(key=wanted.__getitem__)
                at.update((place, number) for number, place in enumerate(row))
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _crossings(self) -> int:
        found = 0
        for row, below in pairwise(self._rows):
            at = {place: number for number, place in enumerate(below)}
            seen: list[int] = []
            for place in row:
                ends = sorted(at[other] for other in self._down[place])
                found += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
                for end in ends:
                    insort(seen, end)
        return found

    # How far down.

    def _stacked(self) -> tuple[list[float], list[float]]:
        """The middle and the height of each row."""
        heights = [max((self._sizes[place].height for place in row), default=0.0) for row in self._rows]
        middles, top = [], 0.0
        for height in heights:
            middles.append(top + height / 2)
            top += height + ROW
        return middles, heights

    # The wires.

    def _ports(self) -> None:
        """Where wires leave and enter a box: side by side, in the order of where they come from and go to."""
        leaving: dict[int, dict[int, float]] = {}
        entering: dict[int, dict[int, float]] = {}
        for (number, target), chain in self._chains.items():
            leaving.setdefault(self._spans[number].source, {})[number] = self._x[chain[0]]
            entering.setdefault(target, {})[number] = self._x[chain[-1]]
        self._leaves = self._shared_out(leaving)
        self._enters = self._shared_out(entering)

    def _shared_out(self, ends: dict[int, dict[int, float]]) -> dict[tuple[int, int], float]:
        found: dict[tuple[int, int], float] = {}
        for place, wires in ends.items():
            room = self._sizes[place].width * 0.6
            step = min(_PORT, room / len(wires))
            for number, wire in enumerate(sorted(wires, key=lambda wire: (wires[wire], wire))):
                found[place, wire] = self._x[place] + (number - (len(wires) - 1) / 2) * step
        return found

    def _finish(self) -> None:
        """Draw the wires, those ahead first; then those at the side, short ones nearer."""
        self.routes = [self._ahead(number, target) for number, target in self._chains]
        self.labels = [(number, self.box(place)) for number, place in self._labels.items()]
        edges = [[self._x[place] - self._sizes[place].width / 2 for place in row] for row in self._rows]
        self.left = min((edge for row in edges for edge in row), default=0.0)
        self._right = [
            max((self._x[place] + self._sizes[place].width / 2 for place in row), default=self.left)
            for row in self._rows
        ]
        aside = {
            number: [target for target in span.targets if self.is_at_side(span.source, target)]
            for number, span in enumerate(self._spans)
        }
        self._used: Counter[tuple[int, bool]] = Counter()
        lanes = [number for number, targets in aside.items() if targets]
        for number in sorted(lanes, key=lambda number: self._reach(number, aside[number])):
            self._lane(number, aside[number])
        self.right = max(self._right, default=0.0)
        self.bottom = self._y[-1] + self._height[-1] / 2 if self._y else 0.0

    def _ahead(self, number: int, target: int) -> Route:
        source, chain = self._spans[number].source, self._chains[number, target]
        leaves, enters = self._leaves[source, number], self._enters[target, number]
        points = [Point(leaves, self._edge(source, 1)), Point(leaves, self._row_edge(source, 1))]
        for place in chain:
            points += [Point(self._x[place], self._row_edge(place, side)) for side in (-1, 1)]
        points += [Point(enters, self._row_edge(target, -1)), Point(enters, self._edge(target, -1))]
        return Route(number, target, at_side=False, points=points)

    def _row_edge(self, place: int, side: int) -> float:
        """The upper (-1) or lower (1) edge of the row of a place. Between rows there is nothing but wires."""
        rank = self._rank[place]
        return self._y[rank] + side * self._height[rank] / 2

    def _edge(self, place: int, side: int) -> float:
        """The upper (-1) or lower (1) edge of a box."""
        return self._y[self._rank[place]] + side * self._sizes[place].height / 2

    def _reach(self, number: int, targets: list[int]) -> tuple[int, int]:
        ranks = [self._rank[place] for place in (self._spans[number].source, *targets)]
        return max(ranks) - min(ranks), number

    def _lane(self, number: int, targets: list[int]) -> None:
        """Take a wire along the right side, past all that is there."""
        span = self._spans[number]
        ranks = [self._rank[place] for place in (span.source, *targets)]
        passed = range(max(0, min(ranks) - 1), min(len(self._right), max(ranks) + 2))
        half = span.label.width / 2 if span.label is not None else 0.0
        beside = half + 4 if targets == [span.source] else 0.0  # a loop of one box is too small for a label on it
        lane = max(self._right[rank] for rank in passed) + max(_LANE, half + 4 - beside)
        start = self._way_out(span.source)
        turns = []
        for target in targets:
            end = self._way_out(target, enters=True)
            turns += [Point(lane, start[-1].y), Point(lane, end[-1].y)]
            self.routes.append(Route(number, target, at_side=True, points=[*start, *turns[-2:], *reversed(end)]))
        if span.label is not None:
            ys = [turn.y for turn in turns]
            self.labels.append((number, Point(lane + beside, (min(ys) + max(ys)) / 2)))
        for rank in passed:
            self._right[rank] = lane + beside + half

    def _way_out(self, place: int, *, enters: bool = False) -> list[Point]:
        """From a box to where no other is to its right: straight, or between its row and the next."""
        middle, rank, size = self.box(place), self._rank[place], self._sizes[place]
        side, half = -1 if enters else 1, size.width / 2
        before = self._used[place, enters]  # wires at this side: those of inner lanes lie nearer to the middle
        self._used[place, enters] += 1
        last = max(self._rows[rank], key=lambda each: (each < self._boxes, self._x[each]))
        if place == last:  # beside it there are but wires
            offset = min(6.0 + 4.0 * before, size.height / 2 - 4)
            return [Point(middle.x + half - size.point * 2 * offset / size.height, middle.y + side * offset)]
        x = middle.x + half - min(14.0 + 8.0 * before, half)
        outside = self._row_edge(place, side) + side * min(7.0 + 5.0 * before, ROW - 3)
        return [Point(x, self._edge(place, side)), Point(x, outside)]
