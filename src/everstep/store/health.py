"""How a store fares: how large it is, how fast it grows, and what there weakens the promises. Plain facts, no verdicts.

Found cheaply, whatever the number of steps: from the rows of runs, and from a sample of the rows of the largest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WEEK = 7 * 86_400.0  # seconds: the growth of this time is told
SAMPLE = 1_000  # of a run's newest rows, which tell how large its rows are
CANDIDATES = 10  # runs that are measured, by their rows, and as many by their large pieces
PIECES = 10_000  # of the newest large pieces, which tell the runs that have large ones
SHOWN = 5  # of the largest runs
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afs|9p|ceph|lustre|glusterfs|fuse\.(sshfs|glusterfs|s3fs|rclone|gcsfuse)"
)


class RunSize(NamedTuple):
    """How large a run is: what its own rows hold, and its keyframes. Not what it shares with others."""

    run_id: str
    rows: int
    bytes: int


class Growth(NamedTuple):
    """Rows that came in the last while: a week, or since there are runs. Those of a run are spread over its time."""

    seconds: float
    rows: int


class Counted(NamedTuple):
    """A run of a store that counts each, its times in seconds since 1970; it ended when its owner last held it."""

    run_id: str
    status: int
    rows: int
    bytes: int
    begun: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a store tells of itself. A fact that is None cannot be seen from here."""

    store: str
    facts: Mapping[str, str | int | bool | None]  # its version, and its settings that bear on the promises
    sizes: Mapping[str, int]  # in bytes, part by part
    dead: int | None  # bytes of these that nothing uses any more
    runs: Mapping[int, int]  # how many, by status
    rows: int
    oldest: str | None
    growth: Growth | None
    largest: Sequence[RunSize]
    weaknesses: Sequence[str] = field(default=())  # each with what it breaks and the way out


def counted(runs: Sequence[Counted], now: float, **rest: Any) -> Health:
    """What a store tells that has looked at each of its runs, the oldest first."""
    return Health(
        runs=Counter(run.status for run in runs), rows=sum(run.rows for run in runs),
        oldest=runs[0].run_id if runs else None, growth=_grown(runs, now),
        largest=largest(RunSize(run.run_id, run.rows, run.bytes) for run in runs), **rest,
    )  # fmt: skip


def _grown(runs: Sequence[Counted], now: float) -> Growth | None:
    since, rows = now - WEEK, 0.0
    for run in runs:
        if run.begun >= since:
            rows += run.rows
        elif run.ended > since:
            rows += run.rows * (run.ended - since) / (run.ended - run.begun)
    return growth(min((run.begun for run in runs), default=None), rows, now)


def growth(first: float | None, rows: float, now: float) -> Growth | None:
    """The growth since the first run began, or of the last week; none without runs."""
    return None if first is None else Growth(now - min(now, max(first, now - WEEK)), round(rows))


def scaled(rows: int, sampled: int, size: int) -> int:
    """The size of a run, from that of some of its rows."""
    return round(size * rows / sampled) if sampled else 0


def largest(sizes: Iterable[RunSize]) -> list[RunSize]:
    """The largest few."""
    return sorted(sizes, key=lambda run: run.bytes, reverse=True)[:SHOWN]


def weaknesses_of_place(kind: str) -> Iterator[str]:
    """What a file system of this kind breaks."""
    if NETWORK.fullmatch(kind):
        yield (
            f"the trail is on a network file system ({kind}): locks and syncs cannot be relied on there, so it can be "
            "read and not written. Move it to a local disk, or use PostgreSQL."
        )
    if kind in _IN_MEMORY:
        yield (
            f"the trail is on {kind}, which is in memory: every acknowledged step is gone when the machine stops. Move "
            "it to a disk."
        )


def facts_of_place(kind: str) -> dict[str, Any]:
    """What is told of a file system."""
    return {"file_system": kind or None, "network": bool(NETWORK.fullmatch(kind))}
