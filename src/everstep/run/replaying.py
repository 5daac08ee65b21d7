"""Replaying a run: today's code over what is on record. Nothing is live, nothing is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from everstep.codec.chain import Entry
from everstep.errors import DivergenceError, InputsDifferError, JournalError, PrunedError
from everstep.journal.track import metadata_of
from everstep.model import FINISHED, KIND_NUMBER, STATUSES, Kind, Run, Status
from everstep.run import causes, heart
from everstep.run.forked import called_again, read_forks
from everstep.run.lanes import here
from everstep.run.life import Life
from everstep.run.log import RunLog
from everstep.run.pen import Waiter
from everstep.run.rehearsal import Rehearsal
from everstep.run.replay_flow import replay_flow
from everstep.run.result import RunResult
from everstep.run.spawning import watch_threads
from everstep.run.stopping import came_of_stopping
from everstep.run.through import AS_CHILD, go_through
from everstep.trail.beginning import check_inputs
from everstep.trail.late import running_loop
from everstep.trail.reading import Reader
from everstep.trail.rebuilding import WHOLE
from everstep.trail.replayed import ReplayReport
from everstep.trail.trail import Trail
from everstep.trail.versions import CAPTURED, changed_versions, is_same_program

if TYPE_CHECKING:
    from everstep.run.workflows import Workflow
    from everstep.store.base import RunRow

_END = KIND_NUMBER[Kind.END]


class Replay(Life):
    """A recorded run on its way through the code once more."""

    replays = True
    run: Rehearsal
    lenient = False
    rerun: frozenset[str] = frozenset()
    above: Rehearsal | None = None  # the replay of the run that this one is a child of
    entries: list[Entry]  # the record, as it was when this began
    given: tuple[str, ...] = ()  # in what the words differ that a program is called with

    def begin(
        self,
        run_id: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
    ) -> RunResult[Any] | None:
        """Read the record. Its inputs are those it began with, unless they are given."""
        del tags, parent  # what a replay goes through has them
        assert self.trail is not None and run_id is not None  # noqa: PT018, S101 - there is no replay without them
        watch_threads()
        row = self.trail.store.run(run_id)
        self._check_workflow(row)
        if row.base > 0:
            raise PrunedError(run_id, 0, row.base, way_out=WHOLE)
        self.entries = Reader(self.trail.store).entries(row, 0, row.seq)
        self.workflow.check_kind(run_id, metadata_of(self.entries[0]))
        self.run = Rehearsal(
            self.trail, run_id, self.workflow.name, self.entries, lenient=self.lenient, rerun=self.rerun,
            as_child=self.as_child, lease=self.lease,
        )  # fmt: skip
        self.run.flow, self.run.life = replay_flow, self._below
        for function in self.workflow.functions():
            self.run.reach.add(function)
        self.run.root.seen = 0
        self.run.root.up = here()
        read_forks(self.run, row)
        if row.forked_from is not None:
            self.run.forked.others = called_again(self.run, self.workflow.changed_since(metadata_of(self.entries[0])))
        self.args, self.kwargs = args, kwargs
        if not args and not kwargs:
            self.args, self.kwargs = self.workflow.parameters.spread(self._inputs(self.entries[0]))
        elif CAPTURED in metadata_of(self.entries[0]):  # of a workflow they are given to be others
            self._compare_inputs(self.trail, row)
        heart.begin(self.run)
        return None

    def _compare_inputs(self, trail: Trail, row: RunRow) -> None:
        try:
            check_inputs(trail.store, trail.gate, row, self._bound(row.id, row))
        except InputsDifferError as error:
            self.given = error.changes

    def _below(self, *given: Any) -> Replay:
        child = Replay(*given)
        child.lenient, child.rerun, child.above = self.lenient, self.rerun, self.run
        return child

    def again(self) -> bool:
        """Never: a replay is gone through once."""
        return False

    def end(self, value: Any, error: BaseException | None, loop: asyncio.AbstractEventLoop | None) -> Iterator[Waiter]:
        """Compare how the code ended with how the run did."""
        del loop
        run, last = self.run, self.entries[-1]
        run.closing.close(run.root.scope)
        if run.interrupted is not None:
            raise run.interrupted
        self._value, self._error = value, error
        if run.beyond is not None and error is not None and came_of_stopping(error):
            run.diverged(*run.beyond)
        if error is not None and run.journal.ended_at is not None:
            # Its last life may have failed before it came as far as those before.
            run.journal.shared = max(run.journal.shared, run.journal.ended_at)
        if run.divergence is None and not run.came_to_the_end:
            try:
                run.check_left(run.root.scope)
                if last.kind == _END and STATUSES[last.status] in {Status.COMPLETED, Status.FAILED, Status.PARTIAL}:
                    run.compare_end(last, value, error, is_state=self.workflow.gives_state)
            except DivergenceError:
                pass  # it is among those that were found
        yield from ()

    def compare_state(self, values: Mapping[str, Any]) -> None:
        """See whether these values stand in the state at the end of the run, as they do in its record."""
        run, last = self.run, self.entries[-1]
        if run.divergence is None and not run.came_to_the_end and last.kind == _END:
            with suppress(DivergenceError):  # it is among those that were found
                run.compare_state(last, values)

    def result(self, error_handling: str) -> RunResult[Any]:
        """What the code gave, for a run that this one is a child of."""
        del error_handling
        run = self.run
        if self.above is not None:
            self.above.found += run.found
            self.above.steps += run.steps
            self.above.came_to_the_end = self.above.came_to_the_end or run.came_to_the_end
            if run.divergence is not None:
                self.above.divergence = self.above.divergence or run.divergence
                raise run.divergence
            if self._error is not None:
                raise self._error
        return RunResult(run.run_id, Status.COMPLETED, RunLog(run.name, run.run_id, 0.0), self._value)

    def close(self, *, keep: bool = False) -> None:
        """Take no further step."""
        del keep
        if not self.run.closed:
            self.run.closed = True
            self.run.stopping = self.run.stopping or "was replayed"
            self.run.closing.close()
            heart.end(self.run)

    def report(self, run: Run, mode: str, took: float) -> ReplayReport:
        """What was found, of a replay that took so many milliseconds."""
        found = self.run.found if self.lenient else self.run.found[:1]
        was, now = metadata_of(self.entries[0]), self.workflow.fingerprint()
        versions = changed_versions(was, now)
        beyond = {None} if self._error is not None else {None, self.entries[-1].seq}  # rows where it had failed
        went_past = run.status is Status.FAILED and bool(found) and found[0].seq in beyond
        parted = found[0].cause if found else None
        return ReplayReport(
            run.id, self.workflow.name, mode, run.status, tuple(found), tuple(self.run.steps),
            whole=run.status in FINISHED and not self.run.came_to_the_end,
            hints=(*[causes.MENDED] * went_past, *causes.hints(was, now, versions, parted=parted, given=self.given)),
            duration_ms=took, original_ms=run.duration_ms, versions=versions, same_program=is_same_program(was, now),
        )  # fmt: skip


def replay(
    trail: Trail,
    run: Run,
    workflow: Workflow[..., Any],
    mode: str,
    inputs: Mapping[str, Any] | None,
    rerun: Collection[str],
) -> ReplayReport:
    """Go through a run with this code. What differs is told, never raised."""
    if workflow.is_async and running_loop() is not None:
        raise JournalError("an async workflow is replayed on a loop of its own: call it with asyncio.to_thread")
    life = Replay(trail, "sync", 0.0, workflow, AS_CHILD)
    life.lenient, life.rerun = mode == "lenient", frozenset(rerun)
    args, kwargs = workflow.parameters.spread(inputs) if inputs else ((), {})
    began = time.perf_counter()
    life.begin(run.id, args, kwargs)
    go_through(life, "continue" if run.status is Status.PARTIAL else "raise")
    took = (time.perf_counter() - began) * 1000
    return life.report(run, mode, took)
