"""The beginning and the end of a run: what both runners do, without waiting for the code in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from everstep import actual
from everstep.codec import chain, record
from everstep.codec.record import read_payload
from everstep.errors import (
    CodeChangedWarning,
    DivergenceError,
    EverstepError,
    JournalError,
    PrunedError,
    RunCancelledError,
    RunExistsError,
    RunFinishedError,
    RunNotFoundError,
    RunStoppedError,
    UnstorableError,
    WorkflowDiffersError,
)
from everstep.journal import Journal
from everstep.journal.track import CHAIN, metadata_of
from everstep.model import STATUSES, CheckpointKind, Kind, Status
from everstep.run import always, faults, heart
from everstep.run.arguments import Inputs
from everstep.run.execution import Execution
from everstep.run.forked import read_forks
from everstep.run.lanes import here
from everstep.run.log import RunLog
from everstep.run.noted import log_row, log_rows, paused_rows
from everstep.run.pen import Pen, Waiter, after_run
from everstep.run.result import PauseInfo, RunResult, failed_note
from everstep.run.spawning import watch_threads
from everstep.run.stopping import RESTARTING, came_of_stopping
from everstep.run.workflows import Workflow
from everstep.store.base import RunRow
from everstep.trail.answers import CANCEL, cancel, unknown_prompt
from everstep.trail.beginning import Beginning, begin, check_inputs
from everstep.trail.detail import text
from everstep.trail.late import asyncio
from everstep.trail.leaving import give_up
from everstep.trail.reading import Reader
from everstep.trail.scribe import Scribe
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail
from everstep.trail.versions import CAPTURED

_MOMENT = 0.001  # seconds
_TRIES = 4  # at a run that others begin and finish at the same time
_NAMED = "named"  # in what is said of a run: inputs that something stands for


class Life:
    """One run from its beginning to its end, around the call of the workflow's function."""

    replays = False  # it is a recorded one, and nothing is live

    def __init__(
        self,
        trail: Trail | None,
        durability: str,
        lease: float,
        workflow: Workflow[..., Any],
        as_child: Callable[[Any], Any] | None,
    ) -> None:
        self.trail = trail
        self.durability = durability
        self.lease = lease
        self.workflow = workflow
        self.as_child = as_child
        self.run: Execution
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        self.resumed = False
        self.left_open = True  # the run has not ended, and nobody owns it once this is closed
        self.paused_at: int | None = None  # the row after which it waited for an answer
        self.warns = True  # that it goes on with another version of the code
        self.made: Scribe | None = None  # the run, if it was made just now and is to be begun
        self._status, self._value = Status.ACTIVE, None
        self._error: BaseException | None = None
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
        if trail is None and always.replays:
            trail = self.trail = open_trail(":memory:")  # to have something to go through
        if trail is None:
            self.run = Execution(name, run_id or f"run-{actual.token(8)}", as_child=self.as_child)
            self._live()
            return None
        if self.made is not None:
            self._took(trail, self.made)
            return None
        for tries_left in reversed(range(_TRIES)):
            try:
                return self._begin_stored(trail, run_id, tags, parent)
            except (RunExistsError, RunFinishedError):  # another began or finished it just now: it is looked at again
                if not tries_left:
                    raise
        raise AssertionError  # the last try returned, or raised

    def _begin_stored(
        self, trail: Trail, run_id: str | None, tags: Mapping[str, str] | None, parent: str | None
    ) -> RunResult[Any] | None:
        known = self._known(trail, run_id)
        anew = known is None or self.args or self.kwargs
        said = self.said(trail, self._bound(run_id, known) if anew else None, tags, parent)
        if known is not None:
            self._check_workflow(known)
            if known.base == 0:
                self.workflow.check_kind(known.id, metadata_of(trail.store.entries(known.id, 0, 0)[0]))
            if STATUSES[known.status] is Status.COMPLETED:
                check_inputs(trail.store, trail.gate, known, said.get("inputs"))
                return self._restored(trail, known)
        self._took(trail, begin(trail.store, trail.gate, run_id, is_new=known is None, **said))
        return None

    def said(
        self, trail: Trail, bound: dict[str, Any] | None, tags: Mapping[str, str] | None, parent: str | None
    ) -> Beginning:
        """What is said of the run when it begins, of a new one or of one that is given its inputs again."""
        about = self.workflow.fingerprint()
        said = Beginning(workflow=self.workflow.name, tags=tags, parent=parent, lease=self.lease, metadata=about)
        if bound is not None:
            given = Inputs(trail.gate, self.workflow.name, bound, "workflow")
            said["inputs"], about[_NAMED] = given.values, given.named or None
        return said

    def _took(self, trail: Trail, scribe: Scribe) -> None:
        """Go on with a run that is owned now."""
        try:
            # Whether it was there is seen by its epoch: another process may have begun it since it was looked for.
            self._take_up(trail, Pen(scribe, self.durability), known=scribe.claim.epoch > 1)
        except BaseException:  # an interrupt too: nobody else would give the run up
            give_up(scribe)
            raise
        self._live()

    def _bound(self, run_id: str | None, known: RunRow | None) -> dict[str, Any]:
        try:
            return self.workflow.parameters.bind(self.args, self.kwargs)
        except TypeError as error:
            if run_id is None or known is not None or self.args or self.kwargs:
                raise
            raise TypeError(f"there is no run {run_id!r} to go on with, and a new one needs inputs: {error}") from None

    def _check_workflow(self, row: RunRow) -> None:
        if row.workflow != self.workflow.name:
            is_program = CAPTURED in self.workflow.fingerprint()
            raise WorkflowDiffersError(row.id, row.workflow, self.workflow.name, of_program=is_program)

    @staticmethod
    def _known(trail: Trail, run_id: str | None) -> RunRow | None:
        if run_id is not None:
            with suppress(RunNotFoundError):
                return trail.store.run(text(trail.gate, "id", run_id))
        return None

    def again(self) -> bool:
        """Whether the code is to be gone through anew; then it is ready to."""
        run, trail, pen = self.run, self.trail, self.run.pen
        if not run.restarts or run.stopping != RESTARTING or trail is None or pen is None:
            return False
        while run.busy():  # in threads. What is not on record below would be done again
            time.sleep(_MOMENT)
        self.close(keep=True)
        while (row := trail.store.run(run.run_id)).seq < pen.scribe.claim.seq and pen.failure is None:
            time.sleep(_MOMENT)
        now = self.run = self._execution(trail, pen, Journal(Reader(trail.store).entries(row, 0, row.seq)))
        now.goes_on, now.forked = run.goes_on, run.forked
        now.journal.shared, now.journal.kept = run.journal.shared, run.journal.kept
        heart.begin(now)
        return True

    def _take_up(self, trail: Trail, pen: Pen, *, known: bool) -> None:
        """Read what is on record, if there is something."""
        if not known:
            self.run = self._execution(trail, pen, None)
            return
        row = trail.store.run(pen.scribe.claim.run_id)
        self._check_workflow(row)
        if row.base > 0:
            raise PrunedError(row.id, 0, row.base, way_out="It takes all steps to go on; begin a new run.")
        entries = Reader(trail.store).entries(row, 0, row.seq)
        about = metadata_of(entries[0])
        self.resumed = True
        self.paused_at = row.seq if STATUSES[row.status] is Status.PAUSED else None
        self.workflow.check_kind(row.id, about)
        if row.forked_from is None:  # a fork may go on with another structure
            self.workflow.check_structure(row.id, about)
        self._compare_code(row.forked_from or row.id, about)  # a fork has no beginning of its own
        pen.scribe.prepare()
        self.run = self._execution(trail, pen, Journal(entries, keeps_cancelled=self.workflow.keeps_cancelled))
        if row.forked_from is not None:
            self.run.forked.others = self.workflow.changed_since(about)
        read_forks(self.run, row)
        if not self.args and not self.kwargs:
            self.args, self.kwargs = self.workflow.parameters.spread(self._inputs(entries[0]))
        elif changed := self.run.forked.given(row.id, self.workflow):  # what was given are its first ones
            self.args, self.kwargs = self.workflow.parameters.spread(self._bound(row.id, row) | changed)

    def _inputs(self, start: chain.Entry) -> dict[str, Any]:
        """What the run was given, and what forks changed of it."""
        if named := metadata_of(start).get(_NAMED):
            raise JournalError(
                f"run {self.run.run_id!r} was given {', '.join(map(repr, named))}, of which only the name could be "
                "stored. Give the run all of its inputs again."
            )
        inputs: dict[str, Any] = (self.run.payload(start) or [None])[record.INPUTS] or {}
        self.workflow.check_recorded(self.run.run_id, inputs)
        return inputs | self.run.forked.given(self.run.run_id, self.workflow)

    def _execution(self, trail: Trail, pen: Pen, journal: Journal | None) -> Execution:
        run = Execution(
            self.workflow.name, pen.scribe.claim.run_id, trail=trail, pen=pen, journal=journal, lease=self.lease,
            durability=self.durability, as_child=self.as_child, restarts=always.replays,
        )  # fmt: skip
        for function in self.workflow.functions():
            run.reach.add(function)
        run.root.seen = 0
        run.root.up = here()  # of a run that this one is started in: whatever its thread or task knows, this goes first
        return run

    def _compare_code(self, run_id: str, about: Mapping[str, Any]) -> None:
        was, now = about.get("code"), self.workflow.fingerprint()["code"]
        if self.warns and was is not None and was != now:
            faults.warn(
                f"the code of {self.workflow.name!r} has changed since run {run_id!r} began. Recorded answers are used "
                "as long as the code makes the same calls; a different one is an error up to the end of what is on "
                "record, and live after it.",
                CodeChangedWarning,
            )

    def _live(self) -> None:
        heart.begin(self.run)
        self.run.tell("run_resumed" if self.resumed else "run_started")

    def _restored(self, trail: Trail, known: RunRow) -> RunResult[Any]:
        """The result of a run that has completed."""
        run = Execution(self.workflow.name, known.id, trail=trail, lease=self.lease)
        for function in self.workflow.functions():
            run.reach.add(function)
        reader = Reader(trail.store, decode=run.reach.decode)
        if self.workflow.gives_state:
            value: Any = reader.state(known.id, known.seq)
        else:
            [end] = reader.entries(known, known.seq, known.seq)
            body = read_payload(end, reader.fetch, reader.decode)
            value = body[record.OUTPUT] if len(body) > record.OUTPUT else None
        log = RunLog.of(known.workflow, known.id, 0.0, [] if known.base else log_rows(trail, known))
        return RunResult(known.id, Status.COMPLETED, log, value, restored=True)

    # The end.

    def end(self, value: Any, error: BaseException | None, loop: asyncio.AbstractEventLoop | None) -> Iterator[Waiter]:
        """Record how the function ended; each item is to be waited for. Raises what leaves the run as it is."""
        run = self.run
        if run.divergence is not None:
            raise run.divergence from (None if error is run.divergence else error)
        if run.interrupted is not None:  # whatever the code made of it
            raise run.interrupted
        run.closing.close(run.root.scope)
        failure = None if run.pen is None else run.pen.failure
        if failure is not None:
            raise failure from (None if error is failure else error)
        if run.waiting and (error is None or came_of_stopping(error, run.root.scope)):
            yield self._paused(loop)
            return
        if isinstance(error, DivergenceError) and not self.workflow.is_map:  # the items of a map are others
            raise error
        if run.cancelling:
            self._ended(Status.CANCELLED, None, RunCancelledError(run.run_id))
        elif run.is_stopped:
            self._ended(Status.STOPPED, value, None)
        elif error is None:
            run.check_left(run.root.scope)
            self._ended(Status.COMPLETED, value, None)
        else:
            self._ended(Status.PARTIAL if run.is_partial else Status.FAILED, None, error)
        try:
            yield self._write_end(loop)
        except UnstorableError as refused:  # what the function returned
            self._ended(Status.FAILED, None, refused)
            yield self._write_end(loop)
        self.left_open = False
        yield after_run(self.trail, run.run_id, loop)

    def _ended(self, status: Status, value: Any, error: BaseException | None) -> None:
        self._status, self._value, self._error = status, value, error
        self.run.stopping = f"has {status}" if status is not Status.CANCELLED else "was cancelled"

    def _write_end(self, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        error = self._error
        found = [] if error is None else sorted({*faults.chain(error, self.run.root.scope), *self.run.also_failed})
        with self.run.keeping:
            waiter = self._write(
                "end", loop, run_status=self._status, kind=Kind.END, status=self._status, error=error,
                output=None if self.workflow.gives_state else self._value, metadata={CHAIN: found} if found else None,
                **self.run.corrections,
            )  # fmt: skip
            if self.run.pen is not None:  # no row of a task or thread that is left over comes after it
                self.run.pen.close(self.run.stopping)
        return waiter

    def _paused(self, loop: asyncio.AbstractEventLoop | None) -> Waiter:
        """Nothing is left to do until somebody answers."""
        run = self.run
        self._status, run.stopping = Status.PAUSED, "waits for an answer"
        if run.pen is None or run.pen.scribe.claim.seq == self.paused_at:
            return None  # it was paused here before
        return self._write(
            "waiting", loop, run_status=Status.PAUSED, kind=Kind.CHECKPOINT, status=Status.PAUSED,
            node_type=CheckpointKind.BOUNDARY.value, **run.corrections,
        )  # fmt: skip

    def _write(self, name: str, loop: asyncio.AbstractEventLoop | None, **detail: Any) -> Waiter:
        pen = self.run.pen
        if pen is None:
            return None
        with pen.lock:
            pen.draft(name, **detail)
            return pen.send(loop, now=True)

    def close(self, *, keep: bool = False) -> None:
        """Take no further step. A run that has not ended is given up, for another to continue, unless it is kept."""
        run, pen = self.run, self.run.pen
        if run.closed:
            return
        with run.keeping:  # nobody renews what is given up below
            run.closed = True
        run.stopping = run.stopping or "was interrupted"
        run.closing.close()
        heart.end(run)
        if pen is None:
            return
        if pen.failure is None and keep:
            pen.flush()
            return
        try:
            if pen.failure is None:
                pen.flush()
        finally:
            pen.failure = pen.failure or RunStoppedError(run.run_id, None, "has ended")
            if self.left_open:
                give_up(pen.scribe)
                with suppress(EverstepError):  # a store that fails is told of by whatever led here
                    self._heed_requests()

    def _heed_requests(self) -> None:
        """Cancel a run that was given up before it heard that it should be."""
        if self.trail is not None:
            row = self.trail.store.run(self.run.run_id)
            if row.request == CANCEL and row.owner is None:
                cancel(self.trail, row)

    def result(self, error_handling: str) -> RunResult[Any]:
        """What came of it. Raises what it failed with, unless errors are to be results too."""
        run, status, error = self.run, self._status, self._error
        total = (time.perf_counter() - self._began) * 1000
        run.log += paused_rows(run) if status is Status.PAUSED else []
        pauses = tuple(self._pause(*each) for each in run.waiting) if status is Status.PAUSED else ()
        log = RunLog.of(run.name, run.run_id, total, (log_row(row, run.child_logs) for row in run.log))
        around = run.root.up
        if around is not None and around.scope.child == run.run_id:
            around.run.child_logs[run.run_id] = log
        run.tell(f"run_{status}", error=error)
        if error is not None and error_handling != "continue":
            if self.trail is not None and status is Status.FAILED:
                error.add_note(failed_note(self.trail.store.where, run.run_id, is_inside=around is not None))
            raise error
        value = self._value
        if value is None and run.partial_values is not None:
            value = run.partial_values()
        return RunResult(run.run_id, status, log, value, error, pauses)

    def _pause(self, run_id: str, seq: int) -> PauseInfo:
        assert self.trail is not None  # noqa: S101 - only a stored run pauses
        step = self.trail.step(run_id, seq, view=True)
        if step.kind is Kind.PAUSE:
            around = None if step.parent is None else self.trail.step(run_id, step.parent, view=True).name
            return PauseInfo(run_id, seq, step.name, **step.pause, node_name=around)
        return PauseInfo(run_id, seq, step.name, unknown_prompt(step))
