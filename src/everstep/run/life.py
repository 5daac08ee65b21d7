"""The beginning and the end of a run: what both runners do, without waiting for the code in between."""

from __future__ import annotations

import asyncio
import time
import uuid
import warnings
from collections.abc import Mapping
from typing import Any

from everstep.codec import chain, record
from everstep.codec.record import read_payload
from everstep.codec.values import view
from everstep.errors import (
    CodeChangedWarning,
    EverstepError,
    PrunedError,
    RunCancelledError,
    RunNotFoundError,
    RunStoppedError,
    WorkflowDiffersError,
)
from everstep.journal import CHAIN, Journal
from everstep.model import STATUSES, CheckpointKind, Kind, Status, StepError
from everstep.run import faults, heart
from everstep.run.arguments import Inputs
from everstep.run.execution import Execution
from everstep.run.log import RunLog
from everstep.run.pen import Pen, Waiter
from everstep.run.result import PauseInfo, RunResult
from everstep.run.spawning import watch_threads
from everstep.run.workflows import Workflow
from everstep.store.base import RunRow
from everstep.trail.beginning import begin, check_inputs
from everstep.trail.detail import text
from everstep.trail.answers import unknown_prompt
from everstep.trail.reading import Reader
from everstep.trail.trail import Trail


class Life:
    """One run from its beginning to its end, around the call of the workflow's function."""

    def __init__(self, trail: Trail | None, durability: str, lease: float, workflow: Workflow[..., Any]) -> None:
        self.trail = trail
        self.durability = durability
        self.lease = lease
        self.workflow = workflow
        self.run: Execution
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.resumed = False
        self._paused_at: int | None = None
        self._began = time.perf_counter()

    def begin(
        self,
        run_id: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
    ) -> RunResult[Any] | None:
        """Take the run, new or as it was left. The result, if it has completed already."""
        watch_threads()
        self.args, self.kwargs = args, kwargs
        trail, name = self.trail, self.workflow.name
        if trail is None:
            self.run = Execution(name, run_id or f"run-{uuid.uuid4().hex[:16]}", lease=self.lease)
            self._live()
            return None
        known = self._known(trail, run_id)
        inputs: Any = None
        if known is None or args or kwargs:
            inputs = Inputs(trail.gate, name, self.workflow.parameters.bind(args, kwargs)).values
        if known is not None:
            if known.workflow != name:
                raise WorkflowDiffersError(known.id, known.workflow, name)
            if STATUSES[known.status] is Status.COMPLETED:
                check_inputs(trail.store, trail.gate, known, inputs)
                return self._restored(trail, known)
        scribe = begin(
            trail.store, trail.gate, run_id, workflow=name, inputs=inputs, tags=tags, parent=parent, lease=self.lease,
            metadata=self.workflow.fingerprint(),
        )  # fmt: skip
        try:
            self._take_up(trail, Pen(scribe, self.durability), known)
        except BaseException:
            trail.store.renew(scribe.claim, 0)
            raise
        self._live()
        return None

    @staticmethod
    def _known(trail: Trail, run_id: str | None) -> RunRow | None:
        if run_id is None:
            return None
        try:
            return trail.store.run(text(trail.gate, "id", run_id))
        except RunNotFoundError:
            return None

    def _take_up(self, trail: Trail, pen: Pen, known: RunRow | None) -> None:
        """Read what is on record, if there is something."""
        run_id, journal = pen.scribe.claim.run_id, None
        if known is not None:
            row = trail.store.run(run_id)
            if row.base > 0:
                raise PrunedError(run_id, 0, row.base)
            entries = Reader(trail.store).entries(row, 0, row.seq)
            journal = Journal(entries)
            self.resumed = True
            self._paused_at = row.seq if STATUSES[known.status] is Status.PAUSED else None
            self._compare_code(run_id, entries[0])
            pen.scribe.prepare()
        self.run = Execution(
            self.workflow.name, run_id, trail=trail, pen=pen, journal=journal, lease=self.lease,
            durability=self.durability,
        )  # fmt: skip
        self.run.reach.add(self.workflow.function)
        self.run.root.seen = 0
        if known is not None and not self.args and not self.kwargs:
            stored = self.run.payload(entries[0])
            values = stored[record.INPUTS] if stored else {}
            self.args, self.kwargs = self.workflow.parameters.spread(values or {})

    def _compare_code(self, run_id: str, start: chain.Entry) -> None:
        meta = view(start.meta)
        kept = meta[record.METADATA] if len(meta) > record.METADATA else None
        was, now = (kept or {}).get("code"), self.workflow.fingerprint()["code"]
        if was is not None and was != now:
            warnings.warn(
                f"run {run_id!r} goes on with another version of workflow {self.workflow.name!r} than it began with. "
                "What was recorded is served where the code asks for the same, and a divergence is an error.",
                CodeChangedWarning,
                stacklevel=4,
            )

    def _live(self) -> None:
        heart.begin(self.run)
        self.run.tell("run_resumed" if self.resumed else "run_started")

    def _restored(self, trail: Trail, known: RunRow) -> RunResult[Any]:
        """The result of a run that has completed."""
        run = Execution(self.workflow.name, known.id, trail=trail, lease=self.lease)
        run.reach.add(self.workflow.function)
        reader = Reader(trail.store)
        [end] = reader.entries(known, known.seq, known.seq)
        body = read_payload(end, reader.fetch, run.reach.decode)
        value = body[record.OUTPUT] if len(body) > record.OUTPUT else None
        rows = [] if known.base else _log_rows(trail, known)
        log = RunLog.of(known.workflow, known.id, 0.0, rows)
        return RunResult(known.id, Status.COMPLETED, log, value, restored=True)

    # The end. Each gives what to wait for, and then the result.

    def completed(self, value: Any, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        """The function returned."""
        run = self.run
        run.check_left(run.root.scope)
        run.stopping = "has ended"
        return self._write("end", loop, run_status=Status.COMPLETED, kind=Kind.END, output=value)

    def failed(self, error: BaseException, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        """The function raised."""
        found = faults.chain(error, self.run.root.scope)
        self.run.stopping = "has failed"
        return self._write(
            "end", loop, run_status=Status.FAILED, kind=Kind.END, status=Status.FAILED, error=error,
            metadata={CHAIN: found} if found else None,
        )  # fmt: skip

    def cancelled(self, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        """Somebody asked for the run to be cancelled."""
        error = StepError("RunCancelledError", str(RunCancelledError(self.run.run_id)))
        return self._write(
            "end", loop, run_status=Status.CANCELLED, kind=Kind.END, status=Status.CANCELLED, error=error
        )

    def paused(self, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        """Nothing is left to do until somebody answers."""
        run = self.run
        run.stopping = "waits for an answer"
        if run.pen is not None and run.pen.scribe.claim.seq == self._paused_at:
            return None  # it was paused here before
        return self._write(
            "waiting", loop, run_status=Status.PAUSED, kind=Kind.CHECKPOINT, status=Status.PAUSED,
            node_type=CheckpointKind.BOUNDARY.value,
        )  # fmt: skip

    def _write(self, name: str, loop: asyncio.AbstractEventLoop | None, **detail: Any) -> Waiter:
        pen = self.run.pen
        if pen is None:
            return None
        with pen.lock:
            pen.draft(name, **detail)
            return pen.send(loop, now=True)

    def is_suspended(self) -> bool:
        """Whether a lane waits for an answer."""
        return bool(self.run.waiting)

    def close(self, *, give_up: bool) -> None:
        """Take no further step. With `give_up` the run is left for another to continue."""
        run = self.run
        if run.closed:
            return
        run.closed = True
        run.stopping = run.stopping or "was interrupted"
        heart.end(run)
        pen = run.pen
        if pen is None:
            return
        try:
            if pen.failure is None:
                pen.flush()
        finally:
            pen.failure = pen.failure or RunStoppedError(run.run_id, "a step", "has ended")
            if give_up:
                _quietly(lambda: pen.scribe.store.renew(pen.scribe.claim, 0))

    def result(self, status: Status, value: Any = None, error: BaseException | None = None) -> RunResult[Any]:
        """What came of it."""
        run = self.run
        total = (time.perf_counter() - self._began) * 1000
        log = RunLog.of(run.name, run.run_id, total, map(_log_row, run.log))
        pauses = tuple(self._pause(*each) for each in run.waiting) if status is Status.PAUSED else ()
        run.tell(f"run_{status}")
        return RunResult(run.run_id, status, log, value, error, pauses)

    def _pause(self, run_id: str, seq: int) -> PauseInfo:
        assert self.trail is not None  # noqa: S101 - only a stored run pauses
        step = self.trail.step(run_id, seq, view=True)
        if step.kind is Kind.PAUSE:
            return PauseInfo(run_id, seq, step.name, **step.pause)
        return PauseInfo(run_id, seq, step.name, unknown_prompt(step.name))


def _log_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step that was noted, as the log wants it."""
    name, span, scope, duration, status, error = row
    kept = None if error is None else StepError(type(error).__qualname__, faults.str_of(error))
    parent = None if scope.id is None else str(scope.id)
    return name, None, duration, status, str(span), kept, False, None, None, parent


def _log_rows(trail: Trail, known: RunRow) -> list[tuple[Any, ...]]:
    """The steps of a run that has completed."""
    found = []
    for entry in Reader(trail.store).entries(known, 1, known.seq):
        if entry.kind == _STEP:
            meta = view(entry.meta)
            parent = meta[record.PARENT] if len(meta) > record.PARENT else None
            found.append((
                entry.name, None, entry.duration / 1000, Status.RESTORED, str(meta[record.ID]), None, False, None, None,
                None if parent is None else str(parent),
            ))  # fmt: skip
    return found


_STEP = list(Kind).index(Kind.STEP)


def _quietly(do: Any) -> None:
    """Do it; that it could not be done is told by whatever led here."""
    try:
        do()
    except EverstepError:
        pass
