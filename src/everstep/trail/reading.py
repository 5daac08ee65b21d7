"""Reading a run back: rows checked against the chain, and the state they fold to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

from everstep.codec import chain, frame
from everstep.codec.blobs import blob_id, opened
from everstep.codec.chain import Entry
from everstep.codec.delta import apply
from everstep.codec.keyframe import StateTree, refs, thaw
from everstep.codec.record import ops_of, read_payload
from everstep.codec.values import Fetch, view
from everstep.codec.values import decode as real
from everstep.errors import DamagedError, DamageWarning, ErasedError, PrunedError, StateError, StepNotFoundError
from everstep.store.base import Gathers, Keyframe, RunRow, Store

Decode = Callable[..., Any]
_TRIES = 5  # to read what retention is at work on


class Reader:
    """Reads runs of one store. With `as_view`, classes come as plain data and need not be known."""

    def __init__(self, store: Store, *, as_view: bool = False, decode: Decode = real) -> None:
        self._store = store
        self.decode = view if as_view else decode

    def fetch(self, blob_id: bytes) -> bytes:
        """A stored piece, checked against its id."""
        return opened(blob_id, self._store.blob(blob_id))

    def place(self, run: RunRow, at: int | None) -> int:
        """A seq that can be asked for: the head by default. Raises StepNotFoundError or PrunedError."""
        seq = run.seq if at is None else at
        if not -1 <= seq <= run.seq or (seq < 0 and at is not None):
            raise StepNotFoundError(run.id, seq, run.seq)
        if seq < run.base - 1:
            raise PrunedError(run.id, seq, run.base - 1)
        return seq

    def entries(self, run: RunRow, first: int, last: int) -> list[Entry]:
        """Rows in order, each seen to follow the one before. Raises DamagedError."""
        if first > last:
            return []
        # The row before the first tells what that one must follow; a pruned run's base keyframe does where it is gone.
        if first <= 0 or first < run.base:  # what is not there, the store tells
            before, rows = chain.genesis(run.root), self._store.entries(run.id, first, last)
        elif first == run.base:
            kept = self._store.keyframe(run.id, first - 1)
            if kept is None or kept.seq != first - 1:
                self._store.run(run.id).require(first)  # it may have been pruned further meanwhile
                raise DamagedError("the keyframe that the pruned run begins with is missing", run_id=run.id, seq=first)
            before, rows = kept.hash, self._store.entries(run.id, first, last)
        else:
            earlier, *rows = self._store.entries(run.id, first - 1, last)
            before = earlier.hash
        return self.follow(run, before, rows)

    def follow(self, run: RunRow, before: bytes, rows: list[Entry]) -> list[Entry]:
        """The rows, if they follow `before` and one another."""
        verified = chain.verified
        for entry in rows:
            try:
                sound = verified(before, entry)
            except (OverflowError, TypeError, ValueError):  # a column became one of another type
                sound = False
            if not sound:
                raise DamagedError(
                    "a row is not what was written", run_id=run.id, seq=entry.seq, intact=_below(run, entry.seq)
                )
            before = entry.hash
        return rows

    def state(self, run_id: str, at: int | None) -> dict[str, Any]:
        """The values after step `at`. Retention may take away meanwhile what they are made from: then again."""
        run = self._store.run(run_id)
        for _ in range(_TRIES - 1):
            try:
                return self._state(run, at)
            except (DamagedError, PrunedError, StepNotFoundError):
                if not self._has_moved(run):
                    raise
                run = self._store.run(run_id)
        return self._state(run, at)

    def _has_moved(self, run: RunRow) -> bool:
        """Whether something of the trail was let go of since the run was looked at."""
        now = self._store.run(run.id)
        return (now.key, now.base, now.generation) != (run.key, run.base, run.generation)

    def _state(self, run: RunRow, at: int | None) -> dict[str, Any]:
        seq = self.place(run, at)
        start, before, state = self._start(run, seq)
        erased: int | None = None
        rows = self._store.entries(run.id, start + 1, seq) if start < seq else []
        for entry in self.follow(run, before, rows):
            if chain.is_erased(entry):
                erased = entry.seq
                continue
            try:
                apply(state, self._ops(run, entry))
            except StateError:
                if erased is None:
                    raise
                raise ErasedError(run.id, erased) from None  # what this row builds on was erased
        return state

    def _start(self, run: RunRow, seq: int) -> tuple[int, bytes, dict[str, Any]]:
        """The newest keyframe at or below `seq` that can be read: where it stands, its hash, its state."""
        for kept in self.keyframes(run, seq):
            try:
                data = frame.unpack(kept.data)
                return kept.seq, kept.hash, thaw(data, self._gathered(data), decode=self.decode)
            except DamagedError as damage:
                if self._has_moved(run):
                    raise
                _pass_over(run, kept.seq, damage)
        return -1, chain.genesis(run.root), {}

    def _gathered(self, data: bytes) -> Fetch:
        """What gives the pieces of a keyframe, after they were asked for together if that is quicker."""
        if not isinstance(self._store, Gathers):
            return self.fetch
        held: dict[bytes, bytes] = {}

        def fetch(name: bytes) -> bytes:
            if name not in held:
                held[name] = self._store.blob(name)
            return opened(name, held[name])

        held |= self._store.blobs([name for name in refs(data, fetch) if name not in held])
        return fetch

    def tree(self, run: RunRow, at: int, fetch: Fetch) -> tuple[StateTree, list[Entry]]:
        """What to fold the state at `at` from: the newest keyframe that is whole, and the rows after it."""
        for kept in self.keyframes(run, at):
            try:
                data = frame.unpack(kept.data)
                for name in refs(data, self.fetch):
                    self.piece(name)
            except DamagedError as damage:
                _pass_over(run, kept.seq, damage)
            else:
                rows = self._store.entries(run.id, kept.seq + 1, at)
                return StateTree.load(data, fetch), self.follow(run, kept.hash, rows)
        return StateTree(fetch), self.entries(run, 0, at)

    def piece(self, name: bytes) -> bytes:
        """A piece as it is stored, if that is what was written: its frame is checked against its name, not unpacked."""
        framed = self._store.blob(name)
        if blob_id(framed) != name:
            raise DamagedError(f"the piece stored as {name.hex()} is not what was written")
        return framed

    def keyframes(self, run: RunRow, at: int) -> Iterator[Keyframe]:
        """The keyframes at or below `at`, newest first.

        A damaged one is passed over with a warning, because what it tells can be told without it; all but the one
        that a pruned run begins with.
        """
        while at >= 0:
            try:
                kept = self._store.keyframe(run.id, at)
            except DamagedError as damage:
                at = -1 if damage.seq is None else damage.seq
                _pass_over(run, at, damage)
            else:
                if kept is None:
                    return
                yield kept
                at = kept.seq
            at -= 1

    def _ops(self, run: RunRow, entry: Entry) -> list[list[Any]]:
        try:
            payload = read_payload(entry, self.fetch, self.decode)
        except DamagedError as damage:
            raise DamagedError(damage.what, run_id=run.id, seq=entry.seq, intact=_below(run, entry.seq)) from None
        return ops_of(payload)

    def history(self, run: RunRow, size: int = 4_000) -> Iterator[list[Entry]]:
        """All rows, in order, some thousand at a time."""
        for first in range(run.base, run.seq + 1, size):
            yield self.entries(run, first, min(first + size - 1, run.seq))


def _pass_over(run: RunRow, seq: int, damage: DamagedError) -> None:
    if seq < run.base:
        raise damage
    warnings.warn(f"the keyframe at {run.id}@{seq} was not used. {damage}", DamageWarning, stacklevel=6)


def _below(run: RunRow, seq: int) -> int | None:
    return seq - 1 if seq - 1 >= run.base else None
