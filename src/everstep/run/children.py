"""A workflow called inside a run: a run of its own, and one step of the run that called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from everstep.run.beginning import begun, new_run
from everstep.run.lanes import Lane, here
from everstep.run.life import Life
from everstep.run.steps import Step
from everstep.run.stopping import Suspended

if TYPE_CHECKING:
    from everstep.run.execution import Execution
    from everstep.run.result import RunResult
    from everstep.run.workflows import Workflow


def child_step(
    go_through: Callable[[Life], RunResult[Any]],
    go_through_awaited: Callable[[Life], Awaitable[RunResult[Any]]],
    workflow: Workflow[..., Any],
) -> Step[..., Any]:
    """The step that runs a workflow as a child. The child's id follows from the step's place: resume finds it again."""

    def begin(lane: Lane, life: Life, args: Any, kwargs: Any) -> RunResult[Any] | None:
        parent = lane.run
        lane.scope.child = parent.child_id(lane.scope)
        done = life.begin(lane.scope.child, args, kwargs, parent=parent.run_id if parent.trail is not None else None)
        if done is None:
            parent.children.append(life.run)
        return done

    def below(parent: Execution) -> Life:
        return (parent.life or Life)(parent.trail, parent.durability, parent.lease, workflow, parent.as_child)

    def value_of(result: RunResult[Any], lane: Lane) -> Any:
        lane.run.child_logs[result.run_id] = result.log
        if not result.paused:
            return result.value
        for pause in result.pauses:
            lane.run.waiting.append((pause.run_id, pause.seq))
        lane.run.suspend(lane, None, around=not workflow.is_async)
        raise Suspended

    if workflow.is_async:

        async def call_awaited(*args: Any, **kwargs: Any) -> Any:
            lane = _lane()
            life = below(lane.run)
            draft = partial(new_run, life, lane.run.child_id(lane.scope), args, kwargs, parent=lane.run.run_id)
            done = await begun(life, partial(begin, lane, life, args, kwargs), draft)
            return value_of(done or await go_through_awaited(life), lane)

        function: Any = call_awaited
    else:

        def call(*args: Any, **kwargs: Any) -> Any:
            lane = _lane()
            life = below(lane.run)
            return value_of(begin(lane, life, args, kwargs) or go_through(life), lane)

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
