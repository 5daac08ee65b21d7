"""What a store is: a small protocol, and the few plain things that cross it.

A store keeps rows of bytes. It does not know what they mean: values are encoded, gated, deltaed and chained above
it. What it promises is order, durability and one writer:

- `append` is durable when it returns, advances a run only from the head and epoch it names, and is idempotent: the
  same rows again are found to be there. A stale writer fails alone, with a typed error.
- Everything handed out is a copy.
- The clock of leases is the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from everstep.codec.chain import Entry
from everstep.errors import OwnedError, PrunedError, RunFinishedError, StepNotFoundError
from everstep.model import STATUSES, Status
from everstep.store.cache import ValueCache
from everstep.store.health import Health

if TYPE_CHECKING:
    import asyncio

LEASE_SECONDS = 120.0


class Claim(NamedTuple):
    """The right to write to a run, and where the run stands."""

    run_id: str
    owner: str
    epoch: int
    seq: int
    hash: bytes
    key: int  # the store's own name for the run
    generation: int  # of the pieces that keyframes share: rises when retention removes some
    lease: float = LEASE_SECONDS  # for how long every append makes it hold


class Keyframe(NamedTuple):
    """The state after step `seq`, as a cache. Framed, and so are its pieces."""

    seq: int
    hash: bytes  # of the row at `seq`
    data: bytes
    blobs: dict[bytes, bytes]  # the pieces that are new with it; empty when it was read


class Append:
    """Rows to add to a run at its head, in one transaction with what belongs to them."""

    __slots__ = ("blobs", "claim", "entries", "keyframe", "status")

    def __init__(
        self,
        claim: Claim,
        entries: Sequence[Entry],
        blobs: dict[bytes, bytes] | None = None,
        keyframe: Keyframe | None = None,
        status: int | None = None,
    ) -> None:
        self.claim = claim  # its seq and hash are what the first row follows
        self.entries = entries
        self.blobs = blobs  # large leaves that the rows refer to
        self.keyframe = keyframe
        self.status = status  # of the run, when these rows change it; one that ends it gives it up too


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """A run to create, with its first rows."""

    id: str
    owner: str
    created: int
    workflow: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    parent: str | None = None
    fork: tuple[str, int] | None = None  # the run and seq whose history it shares
    retry_of: str | None = None
    retry_index: int | None = None
    entries: Sequence[Entry] = ()
    blobs: dict[bytes, bytes] = field(default_factory=dict)
    keyframe: Keyframe | None = None
    status: int | None = None  # when the rows say that it has ended, or waits; one that ends it leaves it without owner
    root: str | None = None  # the run that its rows began with, when they come from another trail; else itself
    base: Keyframe | None = None  # the state before the first row, when those below it were pruned in another trail
    came_from: tuple[str, int] | None = None  # the run and seq that it was forked from, when it has those rows itself
    lease: float = LEASE_SECONDS


class RunRow(NamedTuple):
    """A run as it is stored."""

    key: int  # rises with creation
    id: str
    root: str  # the run that its history begins with: itself, unless it is a fork
    workflow: str
    status: int
    owner: str | None
    lease: float  # when the owner's right ends, seconds since 1970
    epoch: int
    seq: int
    hash: bytes
    base: int  # the oldest seq whose row is left; 0 when nothing was pruned
    created: int
    ended: int | None
    parent: str | None
    forked_from: str | None
    fork_seq: int | None
    retry_of: str | None
    retry_index: int | None
    tags: dict[str, str]
    errors: int  # how many of its own rows failed, but for its end
    generation: int  # of the pieces that keyframes share, see Claim
    request: str | None = None  # what its owner is asked to do

    def require(self, first: int, last: int | None = None) -> None:
        """See that it has a step, or all up to `last`. Raises StepNotFoundError or PrunedError."""
        seq = last if last is not None and last > self.seq and first >= 0 else first
        if not 0 <= seq <= self.seq:
            raise StepNotFoundError(self.id, seq, self.seq)
        if seq < self.base:
            raise PrunedError(self.id, seq, self.base)

    def require_claimable(self, owner: str, now: float) -> None:
        """See that it can be given to an owner. Raises RunFinishedError or OwnedError."""
        if STATUSES[self.status] is Status.COMPLETED:
            raise RunFinishedError(self.id, Status.COMPLETED)
        if self.owner is not None and self.owner != owner and self.lease > now:
            raise OwnedError(self.id, self.owner, self.lease - now)


# What is told how a write went: with the error it failed with, or else with what `append` would have given.
Settled = Callable[[Exception | None, bool], None]

ANY = object()  # a filter left out; None is a value to look for
ALL = 1_000_000_000  # a limit that nothing reaches


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs to list, newest first. Filters come before the limit."""

    status: int | None = None
    workflow: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    since: int | None = None
    parent: object = ANY
    forked_from: str | None = None
    before: int | None = None  # only runs whose key is smaller: where the last page ended
    limit: int = 100

    def fits(self, row: RunRow) -> bool:
        """Whether a run is one of those that are asked for, the limit aside."""
        return (
            self.status in {None, row.status}
            and self.workflow in {None, row.workflow}
            and self.forked_from in {None, row.forked_from}
            and (self.since is None or row.created >= self.since)
            and (self.before is None or row.key < self.before)
            and self.parent in {ANY, row.parent}
            and all(row.tags.get(name) == text for name, text in self.tags.items())
        )


class Counts(NamedTuple):
    """What retention removed."""

    runs: int
    steps: int
    keyframes: int
    blobs: int


class Store(Protocol):
    """Where a trail's rows live. Every call is synchronous and safe from any thread."""

    @property
    def where(self) -> str:
        """The name of the place, for messages."""

    def create(self, new: NewRun) -> Claim:
        """Create a run, owned. Raises RunExistsError; for a fork RunNotFoundError, StepNotFoundError, PrunedError."""

    def submit_create(self, new: NewRun, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Claim]:
        """Like `create` for callers that must not block: the future is done when the run is durable."""

    def claim(self, run_id: str, owner: str, lease: float = LEASE_SECONDS) -> Claim:
        """Own a run that nobody owns, or whose owner's lease ended. The epoch rises. Raises OwnedError otherwise.

        Raises RunFinishedError for one that has completed, which stays as it is: the caller may have looked before.
        """

    def renew(self, claim: Claim, lease: float = LEASE_SECONDS) -> None:
        """Own it for longer; a lease of 0 gives it up. Raises StaleWriterError when another has claimed it."""

    def request(self, run_id: str, word: str) -> None:
        """Leave a word for whoever owns the run, who finds it in its row; the next claim, or the run's end, clears it.

        Raises RunNotFoundError.
        """

    def append(self, append: Append) -> bool:
        """Add rows; durable on return. Raises ConflictError, StaleWriterError; the same rows again change nothing.

        False when the rows were kept but the keyframe was not, because the claim's generation has passed.
        """

    def post(self, append: Append, settled: Settled | None = None) -> Callable[[], bool]:
        """Take the rows in now, behind those taken in before; calling what it gives waits for them, as `append` does.

        With `settled`, which is told how it went on any thread, nobody needs to call it.
        """

    def submit(
        self, append: Append, loop: asyncio.AbstractEventLoop, settled: Settled | None = None
    ) -> asyncio.Future[bool]:
        """Like `append` for callers that must not block: the future is done when the rows are durable.

        Before that `settled` is told how it went, on the loop's thread; also when the future was cancelled meanwhile,
        which takes nothing back.
        """

    def run(self, run_id: str) -> RunRow:
        """One run. Raises RunNotFoundError."""

    def requests(self, run_ids: Sequence[str]) -> dict[str, str]:
        """The words that were left for the owners of these runs, by run. Runs that are not there have none."""

    def runs(self, query: RunQuery) -> list[RunRow]:
        """The runs that fit, newest first."""

    def entries(self, run_id: str, first: int, last: int) -> list[Entry]:
        """Rows `first` to `last` of a run's history in order, those shared with its parents included.

        Raises PrunedError below what retention left, DamagedError when a row is missing.
        """

    def keyframe(self, run_id: str, at: int) -> Keyframe | None:
        """The newest keyframe of the run's history at or below step `at`.

        Raises DamagedError with its seq if it is not what was written: an older one, or the rows, tell the same.
        """

    def blob(self, blob_id: bytes) -> bytes:
        """A large piece by its id, framed as it was given. Raises DamagedError when it is missing."""

    def marked(self, run_id: str | None, kind: int, limit: int) -> list[tuple[str, Entry]]:
        """Checkpoint rows (by kind), newest first, of one run's history or of all runs, with the run they stand in."""

    def close(self) -> None:
        """Write what waits and let go of the file. Idempotent."""


@runtime_checkable
class Retains(Protocol):
    """A store that can also let go of history."""

    def drop(self, run_id: str) -> Counts:
        """Remove a run. Rows that a fork still shares stay until that fork goes."""

    def prune(self, run_id: str, base: Keyframe, generation: int) -> Counts | None:
        """Remove the rows up to and including `base.seq`, whose state `base` keeps. The newest row always stays.

        None, with nothing done, when pieces were removed since `generation`: `base` may refer to them; make it anew.
        """

    def erase(self, run_id: str, entries: Sequence[Entry]) -> None:
        """Put erased rows in place of the rows with their seqs, and drop the keyframes that could still tell."""

    def reclaim(self) -> Counts:
        """Remove what nothing refers to any more, and give the space back."""


@runtime_checkable
class Gathers(Protocol):
    """A store that is far away: to ask it for many pieces takes no longer than to ask for one."""

    def blobs(self, blob_ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Pieces by their ids, framed as they were given; without those that are missing."""


@runtime_checkable
class Inspects(Protocol):
    """A store that can look for damage of its own kind."""

    def inspect(self) -> list[str]:
        """What is wrong with the file itself, each in a sentence."""


@runtime_checkable
class Measures(Protocol):
    """A store that can tell how it fares."""

    def health(self) -> Health:
        """Its settings, sizes and growth, and what there weakens the promises. Cheap, however many steps there are."""


@runtime_checkable
class Searches(Protocol):
    """A store that finds steps by their words."""

    def search(self, words: str, limit: int) -> list[tuple[str, Entry]]:
        """Rows that hold all the words, best first, with the run they stand in."""


@runtime_checkable
class Caches(Protocol):
    """A store with a place for values that can be computed again."""

    def cache(self) -> ValueCache:
        """That place. Raises ReadOnlyError where nothing may be written."""
