"""Which rows of a run are still read: by it, and by the runs that were forked from it. One answer for all stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from everstep.store.base import RunRow

Forks = Callable[[int], Iterable[tuple[int, int]]]
"""Gives the runs that were forked from one, by their keys, and the last seq that each shares with it."""

Base = Callable[[int], int | None]
"""Gives the oldest seq that a run reads, by its key; None for one that was dropped, which reads nothing itself."""


def descendants(key: int, forks: Forks) -> Iterator[tuple[int, int | None]]:
    """A run and all that came of it, each with the last seq that it shares with the run; None for the run itself."""
    waiting: list[tuple[int, int | None]] = [(key, None)]
    while waiting:
        run, last = waiting.pop()
        yield run, last
        waiting += [(child, seq if last is None else min(last, seq)) for child, seq in forks(run)]


def read_by_somebody(run: RunRow, forks: Forks, base: Base) -> range:
    """The seqs between which a run's rows are read by it or by a fork; empty when none is."""
    spans: list[range] = []
    for key, last in descendants(run.key, forks):
        first = base(key)
        if first is not None:
            spans.append(range(first, (run.seq if last is None else min(run.seq, last)) + 1))
    some = [span for span in spans if span]
    return range(min(span.start for span in some), max(span.stop for span in some)) if some else range(0)
