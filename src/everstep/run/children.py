"""A workflow called inside a run: a run of its own, and one step of the run that called it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from everstep.run.flow import Suspended
from everstep.run.lanes import Lane, here
from everstep.run.life import Life
from everstep.run.steps import Step

if TYPE_CHECKING:
    from everstep.run.result import RunResult
    from everstep.run.workflows import Workflow


def child_step(
    go_through: Callable[[Life], RunResult[Any]],
    go_through_awaited: Callable[[Life], Awaitable[RunResult[Any]]],
    workflow: Workflow[..., Any],
) -> Step[..., Any]:
    """The step that runs a workflow as a child. The child's id follows from the step's place: resume finds it again."""

    def begin(lane: Lane, args: Any, kwargs: Any) -> tuple[Life, RunResult[Any] | None]:
        parent = lane.run
        lane.scope.child = f"{parent.run_id}/{lane.scope.key()}"
        life = Life(parent.trail, parent.durability, parent.lease, workflow, parent.as_child)
        done = life.begin(lane.scope.child, args, kwargs, parent=parent.run_id if parent.trail is not None else None)
        if done is None:
            parent.children.append(life.run)
        return life, done

    def value_of(result: RunResult[Any], lane: Lane) -> Any:
        if not result.paused:
            return result.value
        for pause in result.pauses:
            lane.run.waiting.append((pause.run_id, pause.seq))
        lane.run.suspend(lane, None, around=not workflow.is_async)
        raise Suspended

    if workflow.is_async:

        async def call_awaited(*args: Any, **kwargs: Any) -> Any:
            lane = _lane()
            life, done = await asyncio.to_thread(begin, lane, args, kwargs)  # the loop does not wait for the disk
            return value_of(done or await go_through_awaited(life), lane)

        function: Any = call_awaited
    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            lane = _lane()
            life, done = begin(lane, args, kwargs)
            return value_of(done or go_through(life), lane)

        function = call
    function.__signature__ = workflow.parameters.signature
    made: Step[..., Any] = Step(
        function, name=workflow.name, output=workflow.name, append=False, external=False, unknown="ask", retry=None,
        timeout=None, ignore=(),
    )  # fmt: skip
    return made


def _lane() -> Lane:
    lane = here()
    assert lane is not None  # noqa: S101 - a step's body runs in its lane
    return lane
