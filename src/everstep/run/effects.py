"""Effects on the world outside are announced before they happen: what a crash leaves without an outcome is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.journal.track import OUTPUT
from everstep.model import Kind, Status
from everstep.run.asked import Ask
from everstep.run.execution import Execution
from everstep.run.lanes import Lane

if TYPE_CHECKING:
    from everstep.run.steps import Step

    AnyStep = Step[..., Any]


def announce(run: Execution, ask: Ask, step: AnyStep, inner: Lane, loop: Any) -> Any:
    """Record that an external effect is about to happen. What to wait for, whatever the run's durability."""
    inner.scope.start = False
    inner.scope.id, waiter = run.put(
        ask, loop, now=True, kind=Kind.INTENT, status=Status.ACTIVE, attempt=inner.scope.attempt, external=True,
        id=inner.scope.id, metadata=_where_to(run, ask, step),
    )  # fmt: skip
    return waiter


def _where_to(run: Execution, ask: Ask, step: AnyStep) -> dict[str, Any] | None:
    """Where the outcome goes in the state, for whoever answers what it was; the state of a graph is its nodes'."""
    if ask.call is not None:
        names = list(ask.call.names)
        return {OUTPUT: [names[0] if len(names) == 1 else names, False]} if names else None
    return None if step.output is None or run.is_graph else {OUTPUT: [step.output, step.append]}
