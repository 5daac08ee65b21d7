"""One run taken from one store to another, byte for byte, so that it can be looked at and resumed there.

Every row is checked against the chain as it goes through, every piece against its name, and at the end the head. What
is there already is not written again. Until a run is there up to its head it belongs to the copy, so that nobody but
another copy goes on with half of it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import islice
from typing import NamedTuple

from everstep.codec import chain, frame
from everstep.codec.chain import Entry
from everstep.codec.keyframe import refs
from everstep.codec.record import blob_ids
from everstep.errors import (
    ConflictError,
    CopyAtWorkError,
    DamagedError,
    DamageWarning,
    HistoryDiffersError,
    OwnedError,
    PrunedError,
    RunError,
    RunExistsError,
    RunNotFoundError,
    StaleWriterError,
)
from everstep.model import FINISHED, STATUS_NUMBER, STATUSES, Status
from everstep.store.base import LEASE_SECONDS, Append, Claim, Keyframe, NewRun, RunRow, Store
from everstep.store.grouped import Grouped
from everstep.trail.beginning import give_up_for_dead
from everstep.trail.following import Following
from everstep.trail.owner import COPY, HELD, is_copy, is_gone, new_owner
from everstep.trail.reading import Reader

_ACTIVE = STATUS_NUMBER[Status.ACTIVE]
_ROWS = 1_000  # that are read at once
_BYTES = 1 << 23  # of large values that are held at once, if no single row has more
_SENT = 1 << 18  # pieces that are known to be there; of more they are sent again
_LOOKS = 3  # at what is there, when others write to it meanwhile
# Another was quicker: how, is seen at the next look.
_OVERTAKEN = (RunExistsError, RunNotFoundError, StaleWriterError, ConflictError)
_stopped = set[str]()  # the copies of this process that are not at work: it may live on long after them

Written = Callable[[Sequence[Entry], Sequence[dict[bytes, bytes]]], object]
"""Is told of rows that are durable there, and of the pieces that went with them."""


class Outcome(Enum):
    """How a run stands in the other store now."""

    COPIED = "copied"
    SAME = "same"  # it was there
    AHEAD = "ahead"  # it was there, and has gone on there


class _Part(NamedTuple):
    """Rows that go in one transaction, and what belongs to them."""

    entries: Sequence[Entry]
    blobs: dict[bytes, bytes]
    keyframe: Keyframe | None = None  # as it was read, without its pieces
    status: int | None = None


class Transfer:
    """The way from one store to another. One thread uses it."""

    def __init__(self, source: Store, to: Store, written: Written, *, follows: bool = False) -> None:
        self._source, self._to, self._written = source, to, written
        self.following = Following(to) if follows else None
        self._owner = COPY + new_owner()  # of its own: two with one name could not tell each other apart
        self._reader = Reader(source)
        self._sent: set[bytes] = set()  # pieces of keyframes that are there, as long as the generation is this one
        self._generation = -1
        self._waiting = 0  # bytes that were posted

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While it takes runs, other copies leave those alone that it has begun."""
        _stopped.discard(self._owner)
        try:
            yield
        finally:
            _stopped.add(self._owner)

    def take(self, run: RunRow) -> Outcome:
        """Copy a run up to the head that its row tells, or what is missing of it.

        Raises HistoryDiffersError, OwnedError and PrunedError for what is there, DamagedError for what is here, and
        RunNotFoundError if it was dropped here meanwhile.
        """
        return self._taken(run, _find(self._to, run.id))

    def post(self, run: RunRow) -> tuple[Callable[[], Outcome], bool]:
        """What copies a run when it is called, and whether others may be posted before that.

        A short one that is new there is taken in already, and made in one commit with those that were posted before.
        """
        there = _find(self._to, run.id)
        if there is None and not is_copy(run.owner) and isinstance(self._to, Grouped) and run.seq < _ROWS:
            with suppress(RunError, DamagedError):  # told when it is called
                new, first, before = self._beginning(run)
                parts = list(islice(self._parts(run, first, before), 2)) if new.base is None else []
                if len(parts) == 1 and parts[0].keyframe is None:
                    self._waiting += sum(map(len, (*parts[0].blobs.values(), *(row.data for row in parts[0].entries))))
                    made = partial(self._made, run, parts[0], self._to.post_create(_with(new, run, parts[0])))
                    return made, self._waiting < _BYTES
        return partial(self._taken, run, there), False

    def _made(self, run: RunRow, part: _Part, claim: Callable[[], Claim]) -> Outcome:
        self._waiting = 0
        with suppress(*_OVERTAKEN):
            hold = claim()
            self._told(part.entries, part.blobs, None)
            return self._finish(run, hold)
        return self.take(run)

    def _taken(self, run: RunRow, there: RunRow | None) -> Outcome:
        for _ in range(_LOOKS - 1):
            try:
                return self._take(run, there)
            except _OVERTAKEN:
                pass
            except (PrunedError, DamagedError):
                now = self._source.run(run.id)
                if now.base == run.base:
                    raise
                run = now  # it was pruned here meanwhile
            there = _find(self._to, run.id)
        return self._take(run, there)

    def _take(self, run: RunRow, there: RunRow | None) -> Outcome:
        if is_copy(run.owner):
            raise OwnedError(run.id, run.owner, HELD)
        outcome = Outcome.COPIED if there is None else self._compared(run, there)
        if outcome is not Outcome.COPIED:
            return outcome
        hold: Claim | NewRun
        hold, first, before = self._beginning(run) if there is None else self._going_on(there)
        for part in self._parts(run, first, before):
            hold = self._add(run, part, hold) if isinstance(hold, Claim) else self._make(run, part, hold)
        if isinstance(hold, NewRun):  # a fork that has no rows of its own yet
            hold = self._to.create(_given_up(hold))
        return self._finish(run, hold)

    def has_half(self, run_id: str) -> bool:
        """Whether there is some of a run there that belongs to a copy."""
        there = _find(self._to, run_id)
        return there is not None and is_copy(there.owner)

    def begin(self, run: RunRow) -> None:
        """Make a run there that waits for others, all of it but its last row, and keep it."""
        if is_copy(run.owner) or _find(self._to, run.id) is not None:
            return
        hold: Claim | NewRun
        hold, first, before = self._beginning(run)
        last = hash_at(self._source, run, run.seq - 1)
        if last is None or (run.base > 0 and first == run.seq):
            return  # nothing is left of it to begin with
        short = run._replace(seq=run.seq - 1, hash=last, status=_ACTIVE)
        for part in self._parts(short, first, before):
            hold = self._add(run, part, hold) if isinstance(hold, Claim) else self._make(run, part, hold)
        if isinstance(hold, NewRun):
            self._to.create(replace(hold, lease=HELD))

    # What is there already.

    def _compared(self, run: RunRow, there: RunRow) -> Outcome:
        """What is there of the run: COPIED if it is a beginning, and the rest can follow."""
        if there.hash == run.hash:
            if is_copy(there.owner):  # it was interrupted just before its end
                self._to.renew(self._taken_over(there, there.owner), 0)
            return Outcome.SAME
        if there.seq < run.seq:
            known = hash_at(self._source, run, there.seq)
            if known == there.hash:
                return Outcome.COPIED
            if known is None:
                way_out = f"{self._to.where} has it up to step {there.seq}: drop it there, and copy it again."
                raise PrunedError(run.id, there.seq + 1, run.base, way_out=way_out)
        elif hash_at(self._to, there, run.seq) in {None, run.hash}:
            return Outcome.AHEAD
        if hash_at(self._source, run, run.seq) != run.hash:
            raise _astray(run)
        raise HistoryDiffersError(run.id, (run.seq, run.hash), self._to.where, (there.seq, there.hash))

    def _going_on(self, there: RunRow) -> tuple[Claim, int, bytes]:
        """The right to write, the first row that is missing, and what that one follows."""
        if is_copy(there.owner):
            claim = self._taken_over(there, there.owner)
        elif self.following is not None and there.owner == self.following.owner:
            claim = self._as_ours(there)
        else:
            give_up_for_dead(self._to, there)
            claim = self._to.claim(there.id, self._owner, HELD)
        self._under(claim)
        return claim, claim.seq + 1, claim.hash

    def _taken_over(self, there: RunRow, owner: str) -> Claim:
        """The right to go on with what another copy began. Raises CopyAtWorkError if that one still does.

        Not by a claim: the run would have to be given up first, and whoever comes just then would go on with half.
        Should the other be there after all, nothing is lost: both write the same rows, each behind the one it follows.
        """
        process = owner.removeprefix(COPY)
        left = there.lease - HELD + LEASE_SECONDS - time.time()  # counted from when it last wrote
        if owner != self._owner and owner not in _stopped and left > 0 and not is_gone(process):
            raise CopyAtWorkError(there.id, process, left, self._to.where)
        return self._as_ours(there)

    def _as_ours(self, there: RunRow) -> Claim:
        claim = Claim(there.id, self._owner, there.epoch, there.seq, there.hash, there.key, there.generation, HELD)
        self._to.renew(claim, HELD)
        return claim

    def _beginning(self, run: RunRow) -> tuple[NewRun, int, bytes]:
        """The run to create, the first row that it is to get, and what that one follows."""
        came_from = None if run.forked_from is None or run.fork_seq is None else (run.forked_from, run.fork_seq)
        new = NewRun(
            id=run.id, owner=self._owner, created=run.created, workflow=run.workflow, tags=run.tags, parent=run.parent,
            retry_of=run.retry_of, retry_index=run.retry_index, root=run.root, came_from=came_from,
        )  # fmt: skip
        if came_from is not None and (shared := self._shared(run, *came_from)) is not None:
            return replace(new, came_from=None, root=None, fork=came_from), came_from[1] + 1, shared
        if run.base == 0:
            return new, 0, chain.genesis(run.root)
        base = self._source.keyframe(run.id, run.base - 1)
        if base is None or base.seq != run.base - 1:
            raise DamagedError("the keyframe that the pruned run begins with is missing", run_id=run.id, seq=run.base)
        return replace(new, base=self._whole(run, base, ())), run.base, base.hash

    def _shared(self, run: RunRow, parent_id: str, seq: int) -> bytes | None:
        """The hash of the last row that the run shares with its parent, if that is there with the same history."""
        parent = _find(self._to, parent_id)
        if parent is None or parent.base != run.base or not run.base <= seq <= parent.seq:
            return None
        known = hash_at(self._source, run, seq)
        return known if hash_at(self._to, parent, seq) == known else None

    # Rows, with what belongs to them.

    def _parts(self, run: RunRow, first: int, before: bytes) -> Iterator[_Part]:
        """The rows from `first` on, each seen to follow the one before; cut where there is a keyframe."""
        for start in range(first, run.seq + 1, _ROWS):
            last = min(start + _ROWS - 1, run.seq)
            rows = self._reader.follow(run, before, self._source.entries(run.id, start, last))
            before = rows[-1].hash
            if last == run.seq and before != run.hash:
                raise _astray(run)
            kept = {found.seq: found for found in self._keyframes(run, start, last)}
            ended = _ended_at(run, rows) if last == run.seq else -1
            entries, blobs, size = list[Entry](), dict[bytes, bytes](), 0
            for entry in rows:
                entries.append(entry)
                for name in blob_ids(entry):
                    with _named(run, entry.seq):
                        blobs[name] = self._reader.piece(name)
                    size += len(blobs[name])
                if entry.seq in kept or entry.seq in {last, ended} or size > _BYTES:
                    yield _Part(entries, blobs, kept.get(entry.seq), run.status if entry.seq == ended else None)
                    entries, blobs, size = [], {}, 0

    def _keyframes(self, run: RunRow, first: int, last: int) -> Iterator[Keyframe]:
        for kept in self._reader.keyframes(run, last):
            if kept.seq < first:
                return
            yield kept

    def _carried(self, run: RunRow, part: _Part, known: Container[bytes]) -> Keyframe | None:
        """The keyframe of a part with what it needs. One that cannot be used is left out, because it is a cache."""
        kept = part.keyframe
        if kept is None:
            return None
        damage: str | DamagedError = "It does not belong to its step."
        try:
            if kept.hash == part.entries[-1].hash:
                return self._whole(run, kept, known)
        except DamagedError as found:
            damage = found
        warnings.warn(f"the keyframe at {run.id}@{kept.seq} was not copied. {damage}", DamageWarning, stacklevel=2)
        return None

    def _whole(self, run: RunRow, kept: Keyframe, known: Container[bytes]) -> Keyframe:
        """A keyframe with the pieces that it needs, but for those that are known to be there."""
        with _named(run, kept.seq):
            needed = refs(frame.unpack(kept.data), self._reader.fetch, known)
            return kept._replace(blobs={name: self._reader.piece(name) for name in needed if name not in known})

    # Writing.

    def _make(self, run: RunRow, part: _Part, new: NewRun) -> Claim:
        """Create the run with its first rows. All that its keyframe needs goes along: no claim protects pieces yet."""
        entries, kept = part.entries, self._carried(run, part, ())
        claim = self._to.create(_with(new, run, part, kept))
        self._under(claim)
        self._told(entries, part.blobs, kept)
        return claim._replace(seq=entries[-1].seq, hash=entries[-1].hash, lease=HELD)

    def _add(self, run: RunRow, part: _Part, claim: Claim) -> Claim:
        entries, blobs, kept = part.entries, part.blobs, self._carried(run, part, self._sent)
        if self._to.append(Append(claim, entries, blobs, kept, part.status)):
            self._told(entries, blobs, kept)
        else:  # pieces were removed there meanwhile: this keyframe was not kept, the next one can be
            self._told(entries, blobs, None)
            claim = claim._replace(generation=self._to.run(run.id).generation)
            self._under(claim)
        return claim._replace(seq=entries[-1].seq, hash=entries[-1].hash)

    def _under(self, claim: Claim) -> None:
        """Forget which pieces are there, if some may have been removed since."""
        if claim.generation != self._generation or len(self._sent) > _SENT:
            self._generation, self._sent = claim.generation, set()

    def _told(self, entries: Sequence[Entry], blobs: dict[bytes, bytes], kept: Keyframe | None) -> None:
        pieces = kept.blobs if kept is not None else {}
        self._sent.update(pieces)
        self._written(entries, (blobs, pieces))

    def _finish(self, run: RunRow, claim: Claim) -> Outcome:
        """See that the head is the same, and give the run up: whoever wants to may go on with it."""
        there = self._to.run(run.id)
        if there.hash != run.hash:  # somebody went on with it at once, or it is not what was written
            return self._compared(run, there)
        if there.owner in {self._owner, claim.owner}:
            if self.following is None:
                self._to.renew(claim, 0)
            else:
                self.following.give_up(run, claim)
        return Outcome.COPIED


def _with(new: NewRun, run: RunRow, part: _Part, kept: Keyframe | None = None) -> NewRun:
    """A new run with its first rows."""
    new = _given_up(new) if part.entries[-1].seq == run.seq else replace(new, lease=HELD)
    return replace(new, entries=part.entries, blobs=part.blobs, keyframe=kept, status=part.status)


def _given_up(new: NewRun) -> NewRun:
    """A new run that is all there at once: it needs nobody's protection, and is never half of one."""
    return replace(new, owner=new.owner.removeprefix(COPY), lease=0.0)


def _find(store: Store, run_id: str) -> RunRow | None:
    try:
        return store.run(run_id)
    except RunNotFoundError:
        return None


def hash_at(store: Store, run: RunRow, seq: int) -> bytes | None:
    """The hash of a row of a run; None if it was pruned."""
    if seq < 0:
        return chain.genesis(run.root)
    if seq < run.base:
        kept = store.keyframe(run.id, seq)
        return kept.hash if kept is not None and kept.seq == seq else None
    return store.entries(run.id, seq, seq)[0].hash


@contextmanager
def _named(run: RunRow, seq: int) -> Iterator[None]:
    """Tell of damage in a piece with the place that needs it."""
    try:
        yield
    except DamagedError as found:
        raise DamagedError(found.what, run_id=run.id, seq=seq) from None


def _astray(run: RunRow) -> DamagedError:
    return DamagedError("the run does not point at its newest step", run_id=run.id, seq=run.seq)


def _ended_at(run: RunRow, rows: Sequence[Entry]) -> int:
    """The row with which the run got the status that it has."""
    if STATUSES[run.status] not in FINISHED:
        return run.seq
    return next((row.seq for row in reversed(rows) if row.started + row.duration == run.ended), run.seq)
