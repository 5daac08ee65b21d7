"""What a run tells of its steps while it is at work: to handlers of events, and to its log."""

from __future__ import annotations

from typing import Any

from everstep.codec import chain
from everstep.codec.record import StepRecord
from everstep.codec.values import view
from everstep.model import Status
from everstep.run.asked import Ask
from everstep.run.lanes import CURRENT, OUTSIDE
from everstep.run.log import RunLog
from everstep.run.pen import Pen
from everstep.trail.events import Event, Events, hide
from everstep.trail.failure import str_of

hide(CURRENT, OUTSIDE)  # what a handler of events calls is no step of the run


class Telling:
    """The part of a run that others look at."""

    name: str
    run_id: str
    pen: Pen | None

    def __init__(self, events: Events | None) -> None:
        super().__init__()
        self.events = events
        self.log: list[tuple[Any, ...]] = []  # what the run log is made of
        self.child_logs: dict[str, RunLog] = {}  # of the runs that steps of this one are

    def tell(self, name: str, entry: chain.Entry | None = None, error: BaseException | None = None) -> None:
        """Tell whoever wants to know what happened."""
        if self.events and self.pen is not None:
            step = None if entry is None else StepRecord(self.run_id, entry, self.pen.scribe.fetch)
            said = None if error is None else str_of(error)
            self.events.emit(Event(name, self.run_id, self.name, step, said))

    def tell_outcome(self, ask: Ask, error: BaseException | None) -> None:
        """Tell how a step ended."""
        self.tell("step_completed" if error is None else "step_failed", ask.entry, error)

    def tell_chunk(self, node: str, chunk: Any) -> None:
        """Tell what a node that streams has just given, as it will be stored."""
        if self.events and self.pen is not None:
            given = view(self.pen.scribe.gate.gate(chunk))
            self.events.emit(Event("chunk", self.run_id, self.name, node_name=node, chunk=given))

    def note(
        self,
        ask: Ask,
        span: int,
        duration: float,
        status: Status,
        error: BaseException | None,
        child: str | None = None,
    ) -> None:
        """Add a step to the run log."""
        about = None if ask.call is None else ask.call.logged()  # not the call itself, which has what it gave
        self.log.append((ask.name, span, ask.lane.scope, duration, status, error, about, child))
