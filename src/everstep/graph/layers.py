"""Which boxes of a picture lie in which layer: each below those that lead to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def layers(count: int, arrows: Iterable[tuple[int, int]]) -> list[int]:
    """The layer of each of `count` boxes: the longest path to it, arrows that close a ring left out."""
    below: list[list[int]] = [[] for _ in range(count)]
    reached = bytearray(count)
    for source, target in dict.fromkeys(arrows):
        below[source].append(target)
        reached[target] = True
    roots = sorted(range(count), key=reached.__getitem__)  # first those that nothing leads to
    found = [0] * count
    onward: list[list[int]] = [[] for _ in range(count)]
    for place in reversed(list(_finished(roots, below, onward))):  # each before those that it leads to
        for target in onward[place]:
            found[target] = max(found[target], found[place] + 1)
    return found


def _finished(roots: list[int], below: list[list[int]], onward: list[list[int]]) -> Iterator[int]:
    """The boxes, each after all that it leads to; `onward` gets the arrows that close no ring. No recursion."""
    met, at_work = bytearray(len(below)), bytearray(len(below))
    for root in roots:
        if met[root]:
            continue
        met[root] = at_work[root] = True
        work = [(root, iter(below[root]))]
        while work:
            place, rest = work[-1]
            following = next(rest, None)
            if following is None:
                at_work[place] = False
                work.pop()
                yield place
                continue
            if at_work[following]:
                continue
            onward[place].append(following)
            if not met[following]:
                met[following] = at_work[following] = True
                work.append((following, iter(below[following])))
