"""How far to the right each place of a layered picture lies: as many wires as can be are straight.

After Brandes and Köpf, "Fast and Simple Horizontal Coordinate Assignment": places that are joined become blocks that
share one line, chosen from four sides in turn; of the four layouts that this gives, each place takes the middle.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

GAP = 18.0  # between neighbours

Rows = list[list[int]]
Near = list[list[int]]  # by place, the places that it is joined to in the next row


class Size(NamedTuple):
    """How much room something takes; and by how much its upper and lower edge are shorter, at each end."""

    width: float
    height: float
    point: float = 0.0


def straightened(rows: Rows, up: Near, down: Near, sizes: list[Size], boxes: int) -> list[float]:
    """The middle of each place. Those from number `boxes` on are parts of wires, and rather straight than others."""
    crossed = _crossed(rows, up, boxes)
    found = []
    for from_below in (False, True):
        for from_right in (False, True):
            seen = [row[::-1] if from_right else row for row in (reversed(rows) if from_below else rows)]
            heads = _blocks(seen, down if from_below else up, crossed)
            x = _compact(seen, heads, sizes)
            found.append([-each for each in x] if from_right else x)
    return _balanced(found, sizes)


def _crossed(rows: Rows, up: Near, boxes: int) -> set[tuple[int, int]]:
    """The joins that cross a part of a wire between two other parts: the part of the wire is to be straight."""
    found: set[tuple[int, int]] = set()
    for above, row in pairwise(rows):
        at = {place: number for number, place in enumerate(above)}
        begun, low = 0, 0
        for number, place in enumerate(row):
            inner = next((at[other] for other in up[place] if place >= boxes and other >= boxes), None)
            if inner is None and number < len(row) - 1:
                continue
            high = len(above) - 1 if inner is None else inner
            for each in row[begun : number + 1]:
                found.update((other, each) for other in up[each] if not low <= at[other] <= high)
            begun, low = number + 1, high
    return found


def _blocks(rows: Rows, near: Near, crossed: set[tuple[int, int]]) -> list[int]:
    """For each place the first of its block. A place joins the block of the middle one of those it is joined to."""
    heads = list(range(len(near)))
    for before, row in pairwise(rows):
        at = {place: number for number, place in enumerate(before)}
        free = 0  # blocks must not cross: only what lies further on may still be joined
        for place in row:
            others = sorted(near[place], key=at.__getitem__)
            middle = (len(others) - 1) / 2
            for other in dict.fromkeys(others[int(middle) : int(middle + 0.5) + 1]):
                if at[other] >= free and (other, place) not in crossed and (place, other) not in crossed:
                    heads[place] = heads[other]
                    free = at[other] + 1
                    break
    return heads


def _compact(rows: Rows, heads: list[int], sizes: list[Size]) -> list[float]:
    """Every block as far to the left as its neighbours let it; then as near to its right ones as it can get."""
    before: dict[int, dict[int, float]] = {head: {} for head in heads}
    after: dict[int, dict[int, float]] = {head: {} for head in heads}
    for row in rows:
        for left, right in pairwise(row):
            room = (sizes[left].width + sizes[right].width) / 2 + GAP
            one, other = heads[left], heads[right]
            before[other][one] = after[one][other] = max(before[other].get(one, 0.0), room)
    waiting = {head: len(found) for head, found in before.items()}
    order = [head for head, count in waiting.items() if not count]
    for head in order:  # grows while it is gone through
        for other in after[head]:
            waiting[other] -= 1
            if not waiting[other]:
                order.append(other)
    x: dict[int, float] = {}
    for head in order:
        x[head] = max((x[other] + room for other, room in before[head].items()), default=0.0)
    for head in reversed(order):
        if before[head] or after[head]:
            x[head] = max(x[head], min((x[other] - room for other, room in after[head].items()), default=x[head]))
    return [x[head] for head in heads]


def _balanced(found: list[list[float]], sizes: list[Size]) -> list[float]:
    """Lay the four over one another at the edges of the narrowest, and take the middle of each place."""
    edges = [
        (
            min(middle - size.width / 2 for middle, size in zip(x, sizes, strict=True)),
            max(middle + size.width / 2 for middle, size in zip(x, sizes, strict=True)),
        )
        for x in found
    ]
    left, right = min(edges, key=lambda edge: edge[1] - edge[0])
    for number, x in enumerate(found):
        shift = right - edges[number][1] if number % 2 else left - edges[number][0]
        found[number] = [each + shift for each in x]
    return [sum(sorted(four)[1:3]) / 2 for four in zip(*found, strict=True)]
