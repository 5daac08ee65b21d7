"""Writes the rows of a run in order, from any thread or event loop, and says when they are durable."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from everstep import actual
from everstep.codec.chain import Entry
from everstep.errors import EverstepError, RunStoppedError
from everstep.store.base import Append, Keyframe
from everstep.store.commit import is_interrupt
from everstep.trail.late import asyncio
from everstep.trail.scribe import Scribe
from everstep.trail.trail import Trail

Waiter: TypeAlias = "Callable[[], object] | asyncio.Future[Any] | None"
_Late: TypeAlias = tuple[Callable[[], Waiter], dict[str, Any]]  # what drafts a row, and its beside
_BACKLOG = 1_000  # rows that may wait to be written when nobody waits for them
_MOST_LATE = 32  # rows that may wait to be drafted
_BREATH = 1e-4  # seconds between the drafts of two of them
_CHUNK = 500  # rows that one transaction writes at the end of a run that wrote nothing before


class Pen:
    """Hands what the scribe drafts to the store. A write that failed ends it: what follows would not fit.

    `sync`: the waiter of a row is done when it is durable. `async`: rows are written in the background, and a failure
    surfaces with a later row. `exit`: rows are written when the run ends or is given up.
    """

    def __init__(self, scribe: Scribe, durability: str) -> None:
        self._scribe = scribe
        self.lock = threading.RLock()
        self.failure: Exception | None = None
        self._durability = durability
        self.beside: dict[str, Any] = {}  # what the next row says beside its own
        self._drafted: list[Append] = []  # rows that go with the next ones, in one transaction
        self._claim = scribe.claim  # where the scribe stands, by what was taken of it
        self._backlog: deque[Callable[[], bool]] = deque()
        self._late: deque[_Late] = deque()  # rows that are to be drafted
        self._is_drafting = False  # the first of them
        self._stopped: _Late | None = None  # whose draft was left last, perhaps by the handler of a signal
        self._is_soon = False  # the store's thread is about to
        self._owed: Waiter = None  # what such a row gave to wait for
        self._soon = getattr(scribe.store, "soon", None)  # what has something done in a moment, where a store can

    @property
    def scribe(self) -> Scribe:
        """Who drafts the rows; all are drafted for whoever looks."""
        if self._late:
            self.catch_up()
        return self._scribe

    def draft(self, name: str, **detail: Any) -> Entry:
        """Draft a row; `send` writes it. Raises, with nothing drafted, if a value does not fit."""
        if self.beside:
            detail["metadata"], self.beside = {**(detail.get("metadata") or {}), **self.beside}, {}
        return self.drafted(self.ready().row(name, **detail))

    def ready(self) -> Scribe:
        """The scribe, to draft a row with. Raises what failed before: no further row fits."""
        if self._late:
            self.catch_up()
        if self.failure is not None:
            raise self.failure
        if self._scribe.claim.seq != self._claim.seq:  # a handler of a signal raised something before it was taken
            self._scribe.rewind(self._claim)
        return self._scribe

    def drafted(self, append: Append) -> Entry:
        """Take a row that the scribe drafted; `send` writes it."""
        self._drafted.append(append)
        self._claim = self._scribe.claim
        return append.entries[0]

    def send(self, loop: asyncio.AbstractEventLoop | None, *, now: bool = False, unawaited: bool = False) -> Waiter:
        """Hand over what was drafted. What it gives tells when that is durable; None if nobody should wait for it.

        With `now` it is written whatever the mode; `unawaited` rows are written soon, and durable with the next ones.
        """
        if self._late:
            self.catch_up()
        if not self._drafted or (self._durability == "exit" and not now):
            return None
        drafted, self._drafted = self._drafted, []
        background = unawaited or (self._durability == "async" and not now)
        while len(drafted) > _CHUNK:  # of a run that wrote nothing before: nobody needs to wait for the first ones
            self._hand_over(joined(drafted[:_CHUNK]), None, background=True)
            drafted = drafted[_CHUNK:]
        return self._hand_over(joined(drafted), loop, background=background)

    @property
    def may_be_late(self) -> bool:
        """Whether rows that nobody waits for may be drafted `later`: a crash loses what it would lose without that."""
        return self._durability == "async" and self._soon is not None

    def later(self, draft: Callable[[], Waiter]) -> tuple[int, Waiter]:
        """Have a row drafted by the store's thread in a moment, or before any other row, or when somebody looks.

        `draft` drafts and sends it; what it raises, a later row does. Given are the seq that it will have, and what is
        to be waited for: older rows.
        """
        assert self._soon is not None  # noqa: S101 - it may be late
        with self.lock:
            if self.failure is not None:
                raise self.failure
            self._late.append((draft, self.beside))
            self.beside = {}
            seq = self.seq
            if not self._is_soon:
                self._is_soon = True
                self._soon(self._catch_up_gently)
            if len(self._late) > _MOST_LATE:
                self.catch_up()
            owed, self._owed = self._owed, None
            return seq, owed

    @property
    def seq(self) -> int:
        """That of the newest row, drafted or not. Under the lock."""
        return self._claim.seq + len(self._late)

    def catch_up(self) -> None:
        """Draft the rows that were left for later."""
        with self.lock:
            while self._draft_first():
                pass

    def _catch_up_gently(self) -> None:
        """`catch_up` beside a program that is at work: it may have the interpreter, and the lock, between two rows."""
        for _ in range(len(self._late)):
            with self.lock:
                self._draft_first()
            actual.sleep(_BREATH)
        with self.lock:
            self._is_soon = bool(self._late)  # they came meanwhile
            if self._is_soon:
                self._soon(self._catch_up_gently)  # type: ignore[misc] # there is one

    def _draft_first(self) -> bool:
        """Draft one row, under the lock. Whether there was one; not within another, which makes rows of its own."""
        if not self._late or self._is_drafting:
            return False
        late, claim, kept = self._late[0], self._claim, self.beside
        draft, beside = late
        self.beside, self._is_drafting = beside, True
        try:
            if self.failure is None:
                self._owed = draft() or self._owed
        except BaseException as error:  # what it means is decided here
            is_again, self._stopped = self._stopped is late, late
            if not isinstance(error, Exception) or (is_interrupt(error) and not is_again):
                if self._claim is not claim:
                    self._late.popleft()
                raise
            self.failure = self.failure or error  # the code has gone on: no further row fits
        finally:
            self.beside, self._is_drafting = kept, False
        self._late.popleft()
        return True

    def close(self, why: str | None) -> None:
        """Take no further rows."""
        self.failure = self.failure or RunStoppedError(self._scribe.claim.run_id, None, why or "has ended")

    def flush(self) -> None:
        """Have everything written that was drafted so far."""
        with self.lock:
            waiter = self.send(None, now=True)
        if callable(waiter):
            waiter()
        while self._backlog:
            self._backlog.popleft()()

    def _hand_over(self, append: Append, loop: asyncio.AbstractEventLoop | None, *, background: bool) -> Waiter:
        store = self._scribe.store
        try:
            if background:
                return self._bounded(store.post(append, partial(self._settle, append)))
            if loop is not None:
                return store.submit(append, loop, partial(self._settle, append))
            return partial(self._wait, append, store.post(append))
        except EverstepError as error:
            self._settle(append, error, kept=False)
            raise

    def _wait(self, append: Append, wait: Callable[[], bool]) -> None:
        try:
            kept = wait()
        except Exception as error:  # whatever it is, no further row fits
            self._settle(append, error, kept=False)
            raise
        self._settle(append, None, kept)

    def _bounded(self, wait: Callable[[], bool]) -> Waiter:
        self._backlog.append(wait)
        return self._backlog.popleft() if len(self._backlog) > _BACKLOG else None

    def _settle(self, append: Append, error: Exception | None, kept: bool) -> None:  # noqa: FBT001 - as stores tell it
        with self.lock:
            if error is not None:
                self.failure = error
                self._scribe.lost()
            else:
                self._scribe.settled(append, kept=kept)


def joined(appends: list[Append]) -> Append:
    """Rows that follow one another, in one."""
    if len(appends) == 1:
        return appends[0]
    keyframe: Keyframe | None = None
    blobs: dict[bytes, bytes] = {}
    status = None
    for append in appends:
        if append.keyframe is not None:  # the newest tells all; it may refer to what came with an earlier one
            earlier = keyframe.blobs if keyframe is not None else {}
            keyframe = append.keyframe._replace(blobs={**earlier, **append.keyframe.blobs})
        blobs.update(append.blobs or {})
        status = append.status if append.status is not None else status
    entries = [entry for append in appends for entry in append.entries]
    return Append(appends[0].claim, entries, blobs, keyframe, status)


def after_run(trail: Trail | None, run_id: str, loop: asyncio.AbstractEventLoop | None) -> Waiter:
    """What the trail does when a run has ended, to be waited for; where there is a loop, off it."""
    if trail is None or trail.after_run is None:
        return None
    job = partial(trail.after_run, run_id)
    return job if loop is None else loop.run_in_executor(None, job)
