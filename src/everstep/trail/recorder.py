"""The one writer of a run, and its twin for event loops. They differ in how they wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from everstep.codec.record import StepRecord
from everstep.errors import EverstepError, RunFinishedError
from everstep.model import FINISHED, STATUSES, CheckpointKind, Status
from everstep.store.base import LEASE_SECONDS, Append
from everstep.trail.detail import About, Detail
from everstep.trail.late import Late
from everstep.trail.reading import Reader
from everstep.trail.scribe import Scribe

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = Late("asyncio")

# What a store says no with. Anything else that comes out of a write is an interrupt in the middle of it.
REFUSALS = (EverstepError, OverflowError, TypeError, ValueError)


class Recorder:
    """Adds steps to one run. Each is on disk when the call returns. Safe to share between threads.

    As a context manager it ends the run: `completed`, or `failed` with the exception that left the block. What is no
    failure of the run (Ctrl-C, an exit, a cancelled task) only gives it up, to be continued later.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._lock = threading.Lock()
        self._unsettled: Append | None = None  # handed to the store, outcome not known: an interrupt came between
        self._settled = scribe.claim  # as the store knows it; another one was drafted and never handed over
        self._finished: Status | None = None

    @property
    def run_id(self) -> str:
        return self._scribe.claim.run_id

    @property
    def seq(self) -> int:
        """The seq of the newest step."""
        return self._settled.seq

    def state(self) -> dict[str, Any]:
        """The values as they stand."""
        return Reader(self._scribe.store).state(self.run_id, None)

    def step(self, name: str, **detail: Unpack[Detail]) -> StepRecord:
        """Record a step. Raises UnstorableError or StateError, with nothing recorded, when a value does not fit."""
        with self._lock:
            self._ready()
            return self._put(self._scribe.step(name, **detail))

    def save(self, state: Mapping[str, Any], name: str = "save", **about: Unpack[About]) -> StepRecord:
        """Record `state` as the whole state. Only what changed since the last save is written."""
        with self._lock:
            self._ready()
            return self._put(self._scribe.save(state, name, **about))

    def checkpoint(
        self, name: str, kind: CheckpointKind | str = CheckpointKind.MANUAL, metadata: Mapping[str, Any] | None = None
    ) -> StepRecord:
        """Name this point of the run. It copies nothing."""
        with self._lock:
            self._ready()
            return self._put(self._scribe.checkpoint(name, kind, metadata))

    def finish(
        self, output: Any = None, *, status: Status | str | None = None, error: BaseException | None = None
    ) -> StepRecord:
        """End the run, completed unless it is said otherwise or there is an error, and give up its ownership."""
        with self._lock:
            if self._unsettled is not None and _ends(self._unsettled):  # it was interrupted in this very act
                return self._put(self._unsettled)
            self._ready()
            return self._put(self._scribe.end(output, status, error))

    def renew(self, lease: float = LEASE_SECONDS) -> None:
        """Keep the run for longer while a step takes its time; every step renews it too."""
        self._scribe.check_process()
        self._scribe.store.renew(self._scribe.claim, lease)

    def release(self) -> None:
        """Give the run up as it stands, for another to continue."""
        with self._lock:
            if self._finished is None:
                self._ready()
                self._scribe.store.renew(self._scribe.claim, 0)

    def _ready(self) -> None:
        if self._finished is not None:
            raise RunFinishedError(self.run_id, self._finished)
        self._scribe.check_process()
        if self._unsettled is not None:
            self._put(self._unsettled)
        elif self._scribe.claim is not self._settled:
            self._scribe.lost()

    def _put(self, append: Append) -> StepRecord:
        self._unsettled = append
        try:
            kept = self._scribe.store.append(append)
        except REFUSALS:  # the store said no; an interrupt says nothing, and leaves it unsettled
            self._unsettled = None
            self._scribe.lost()
            raise
        self._settled = self._scribe.claim
        if append.status is not None and _ends(append):
            self._finished = STATUSES[append.status]
        self._unsettled = None
        self._scribe.settled(append, kept=kept)
        return self._scribe.record(append)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if self._finished is None:
                self.finish()
            return
        try:  # whatever happens here, the error that left the block is the one that counts
            if not isinstance(error, Exception):
                self.release()
            elif self._finished is None:
                self.finish(status=Status.FAILED, error=error)
        except EverstepError as another:
            error.add_note(f"everstep: the run {self.run_id!r} could not be ended: {another}")


class AsyncRecorder:
    """`Recorder` for an event loop: every call is awaited, and the loop does not wait for the disk to write.

    Steps may be awaited together; they are recorded in the order they were called, in few commits.
    """

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe
        self._finished: Status | None = None

    @property
    def run_id(self) -> str:
        return self._scribe.claim.run_id

    @property
    def seq(self) -> int:
        """The seq of the newest step, waited for or not."""
        return self._scribe.claim.seq

    async def state(self) -> dict[str, Any]:
        """The values as they stand."""
        return await asyncio.to_thread(Reader(self._scribe.store).state, self.run_id, None)

    async def step(self, name: str, **detail: Unpack[Detail]) -> StepRecord:
        """Record a step. Raises UnstorableError or StateError, with nothing recorded, when a value does not fit."""
        self._ready()
        return await self._put(self._scribe.step(name, **detail))

    async def save(self, state: Mapping[str, Any], name: str = "save", **about: Unpack[About]) -> StepRecord:
        """Record `state` as the whole state. Only what changed since the last save is written."""
        self._ready()
        return await self._put(self._scribe.save(state, name, **about))

    async def checkpoint(
        self, name: str, kind: CheckpointKind | str = CheckpointKind.MANUAL, metadata: Mapping[str, Any] | None = None
    ) -> StepRecord:
        """Name this point of the run. It copies nothing."""
        self._ready()
        return await self._put(self._scribe.checkpoint(name, kind, metadata))

    async def finish(
        self, output: Any = None, *, status: Status | str | None = None, error: BaseException | None = None
    ) -> StepRecord:
        """End the run, completed unless it is said otherwise or there is an error, and give up its ownership."""
        self._ready()
        append = self._scribe.end(output, status, error)
        self._finished = STATUSES[append.status or 0]  # before it waits: no step may slip in behind
        return await self._put(append)

    async def renew(self, lease: float = LEASE_SECONDS) -> None:
        """Keep the run for longer while a step takes its time; every step renews it too."""
        self._scribe.check_process()
        await asyncio.to_thread(self._scribe.store.renew, self._scribe.claim, lease)

    async def release(self) -> None:
        """Give the run up as it stands, for another to continue."""
        if self._finished is None:
            self._scribe.check_process()
            await asyncio.to_thread(self._scribe.store.renew, self._scribe.claim, 0)

    def _ready(self) -> None:
        if self._finished is not None:
            raise RunFinishedError(self.run_id, self._finished)

    async def _put(self, append: Append) -> StepRecord:
        try:
            future = self._scribe.store.submit(append, asyncio.get_running_loop(), partial(self._settle, append))
        except EverstepError:
            self._scribe.lost()
            self._finished = None if _ends(append) else self._finished
            raise
        await future  # a cancelled caller does not take back what is on its way to the disk
        return self._scribe.record(append)

    def _settle(self, append: Append, error: Exception | None, kept: bool) -> None:  # noqa: FBT001 - as stores tell it
        """Take note of how a write went, also when nobody waits for it any more."""
        if error is not None:
            self._scribe.lost()
            self._finished = None if _ends(append) else self._finished
        else:
            self._scribe.settled(append, kept=kept)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            if self._finished is None:
                await self.finish()
            return
        try:  # whatever happens here, the error that left the block is the one that counts
            if not isinstance(error, Exception):
                await asyncio.shield(self.release())
            elif self._finished is None:
                await self.finish(status=Status.FAILED, error=error)
        except EverstepError as another:
            error.add_note(f"everstep: the run {self.run_id!r} could not be ended: {another}")


def _ends(append: Append) -> bool:
    """Whether these rows end the run."""
    return append.status is not None and STATUSES[append.status] in FINISHED
