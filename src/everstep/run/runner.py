"""The runner, and its twin for event loops. They differ in how they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from everstep.errors import EscapedStepWarning, JournalError, WorkflowDiffersError
from everstep.model import Durability
from everstep.run.batch import Batch
from everstep.run.beginning import begun, new_run
from everstep.run.faults import warn
from everstep.run.given import check_seconds, check_tags, check_word, plain_trail
from everstep.run.items import Mode
from everstep.run.lanes import Lane, here
from everstep.run.life import Life
from everstep.run.mapped import MapResult
from everstep.run.mapping import map_awaited, map_waiting
from everstep.run.result import RunResult
from everstep.run.steps import called_at
from everstep.run.through import AS_CHILD, ErrorHandling, go_through, go_through_awaited, in_a_thread, terminable_task
from everstep.run.workflows import Workflow
from everstep.store.base import LEASE_SECONDS
from everstep.trail.late import running_loop
from everstep.trail.trail import Trail
from everstep.trail.twin import AsyncTrail

P = ParamSpec("P")
R = TypeVar("R")
NO_ANSWER: Any = object()
_WARNED: set[tuple[str, int]] = set()  # places that begin runs inside a run


class _Runs:
    """What the two runners have in common: where runs are kept, and how durably."""

    def __init__(
        self,
        trail: Trail | AsyncTrail | None = None,
        *,
        durability: Durability | None = None,
        lease: float = LEASE_SECONDS,
    ) -> None:
        if durability is not None:
            check_word("durability", durability, Durability)
        check_seconds("lease", lease)
        self.trail = None if trail is None else plain_trail(trail, type(self).__name__)
        self.durability: str = durability or (self.trail and self.trail.durability) or "sync"
        self.lease = lease

    def life(self, workflow: Workflow[..., Any]) -> Life:
        """A run to begin."""
        _check_workflow(workflow)
        _check_place(f"{type(self).__name__}.run", workflow)
        return Life(self.trail, self.durability, self.lease, workflow, AS_CHILD)

    def batch(
        self, workflow: Workflow[..., Any], values: Mapping[str, Any], map_over: str | Sequence[str], **how: Any
    ) -> Batch:
        """A map to begin."""
        _check_workflow(workflow)
        _check_place(f"{type(self).__name__}.map", workflow)
        return Batch((self.trail, self.durability, self.lease), workflow, values, map_over, **how)

    def settle(self, workflow: Workflow[..., Any], run_id: str | None, answer: Any) -> None:
        """Take the answer that a paused run is given. Raises WorkflowDiffersError before it is, if it is not for it."""
        if answer is not NO_ANSWER:
            if run_id is None or self.trail is None:
                raise ValueError("an answer is for a run of a trail: give the id of the run that waits")
            known = self.trail.run(run_id)
            if known.workflow != workflow.name:
                raise WorkflowDiffersError(known.id, known.workflow, workflow.name)
            self.trail.answer(run_id, answer)


def _check_workflow(workflow: object) -> None:
    if not isinstance(workflow, Workflow):
        raise TypeError(f"{workflow!r} is not a workflow: decorate it with @everstep.workflow")


def _check_place(call: str, workflow: Workflow[..., Any]) -> None:
    """Raise JournalError in a replay, which executes nothing; warn in a run's own code, which may be gone through anew.

    In a step it is the step's own business: its outcome is kept.
    """
    lane = here()
    if lane is None or lane.run.captured is not None:
        return
    said = f"{call} of {workflow.name!r} in the code of run {lane.run.run_id!r} begins a run that is no part of it"
    way_out = f"Call the workflow itself, as in {workflow.name}(...): it is a child run then. Or do it in a step."
    if lane.run.life is not None:
        if not _is_at_work(lane):
            refused = JournalError(f"{said}, and a replay executes nothing. {way_out}")
            while lane is not None:  # whatever the code makes of it, those around it are not replayed, either
                lane.run.interrupt(refused)
                lane = lane.run.root.up
            raise refused
    elif lane.scope.place is None and lane.run.trail is not None and called_at() not in _WARNED:
        _WARNED.add(called_at())
        warn(f"{said}: a resume begins another one, and a replay refuses it. {way_out}", EscapedStepWarning)


def _is_at_work(lane: Lane) -> bool:
    """Whether a replay has called this step on purpose, and does not only go through the steps inside."""
    run: Any = lane.run
    return lane.scope.place is not None and not run.is_composite(lane.scope.ask.recorded)


def one_of(run_id: str | None, workflow_id: str | None) -> str | None:
    """The id of a run, which has two spellings."""
    if run_id is not None and workflow_id not in {None, run_id}:
        raise ValueError(f"id={run_id!r} and workflow_id={workflow_id!r} are two ids of one run: give one of them")
    return workflow_id if run_id is None else run_id


class Runner(_Runs):
    """Runs workflows and waits for them. Without a trail nothing is stored, and the log is all there is."""

    def run(
        self,
        workflow: Workflow[P, Any],
        *args: Any,
        id: str | None = None,  # noqa: A002 - the run's id, as everywhere
        workflow_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        answer: Any = NO_ANSWER,
        error_handling: ErrorHandling = "raise",
        **kwargs: Any,
    ) -> RunResult[Any]:
        """Run a workflow, or go on with a run that was interrupted, failed or paused, if the id is that of one.

        Of a run that has completed the recorded result is given. Raises what the workflow raises, InputsDifferError,
        OwnedError, DivergenceError and RunCancelledError.
        """
        check_word("error_handling", error_handling, ErrorHandling)
        check_tags(tags)
        life, run_id = self.life(workflow), one_of(id, workflow_id)
        _check_no_loop(workflow)
        self.settle(workflow, run_id, answer)
        done = life.begin(run_id, args, kwargs, tags=tags)
        return done or go_through(life, error_handling)

    def resume(self, workflow: Workflow[..., Any], run_id: str) -> RunResult[Any]:
        """Go on with a run, with the inputs it began with. Raises RunNotFoundError."""
        if self.trail is not None:
            self.trail.run(run_id)
        return self.run(workflow, id=run_id)

    def map(
        self,
        workflow: Workflow[..., Any],
        values: Mapping[str, Any],
        *,
        map_over: str | Sequence[str],
        id: str | None = None,  # noqa: A002 - the run's id, as everywhere
        workflow_id: str | None = None,
        mode: Mode = "zip",
        max_concurrency: int = 1,
        error_handling: ErrorHandling = "raise",
        tags: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> MapResult:
        """Run a workflow once for each item of the lists that `map_over` names, or go on with a map that has this id.

        Items are known by what they are: those that completed before are restored, wherever they stand. Raises what
        the first item fails with, when those at work have ended; with error_handling="continue" all are tried.
        """
        check_tags(tags)
        batch = self.batch(
            workflow, values, map_over, mode=mode, max_concurrency=max_concurrency, error_handling=error_handling,
            progress=progress,
        )  # fmt: skip
        run_id = one_of(id, workflow_id)
        if not workflow.is_async:
            return map_waiting(batch, run_id, tags)
        _check_no_loop(workflow)
        return asyncio.run(map_awaited(batch, run_id, tags))


def _check_no_loop(workflow: Workflow[..., Any]) -> None:
    if workflow.is_async and running_loop() is not None:
        raise RuntimeError(f"an event loop runs here, which {workflow!r} needs: await it with an AsyncRunner instead")


class AsyncRunner(_Runs):
    """Runs workflows on an event loop, which does not wait for the disk. A plain workflow is run in a thread."""

    async def run(
        self,
        workflow: Workflow[P, Any],
        *args: Any,
        id: str | None = None,  # noqa: A002 - the run's id, as everywhere
        workflow_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        answer: Any = NO_ANSWER,
        error_handling: ErrorHandling = "raise",
        **kwargs: Any,
    ) -> RunResult[Any]:
        """Run a workflow, or go on with a run, as `Runner.run` does."""
        check_word("error_handling", error_handling, ErrorHandling)
        check_tags(tags)
        life, run_id = self.life(workflow), one_of(id, workflow_id)

        def begin() -> RunResult[Any] | None:
            self.settle(workflow, run_id, answer)
            return life.begin(run_id, args, kwargs, tags=tags)

        draft = partial(new_run, life, run_id, args, kwargs, tags=tags) if answer is NO_ANSWER else None
        done = await begun(life, begin, draft)
        if done is not None:
            return done
        if not workflow.is_async:
            with terminable_task(life.run, asyncio.get_running_loop()):
                return await in_a_thread(life, error_handling)
        return await go_through_awaited(life, error_handling)

    async def resume(self, workflow: Workflow[..., Any], run_id: str) -> RunResult[Any]:
        """Go on with a run, with the inputs it began with. Raises RunNotFoundError."""
        if self.trail is not None:
            await asyncio.to_thread(self.trail.run, run_id)
        return await self.run(workflow, id=run_id)

    async def map(
        self,
        workflow: Workflow[..., Any],
        values: Mapping[str, Any],
        *,
        map_over: str | Sequence[str],
        id: str | None = None,  # noqa: A002 - the run's id, as everywhere
        workflow_id: str | None = None,
        mode: Mode = "zip",
        max_concurrency: int = 16,
        error_handling: ErrorHandling = "raise",
        tags: Mapping[str, str] | None = None,
        progress: bool = True,
    ) -> MapResult:
        """Run a workflow once for each item, as `Runner.map` does, several items at the same time."""
        check_tags(tags)
        batch = self.batch(
            workflow, values, map_over, mode=mode, max_concurrency=max_concurrency, error_handling=error_handling,
            progress=progress,
        )  # fmt: skip
        return await map_awaited(batch, one_of(id, workflow_id), tags)
