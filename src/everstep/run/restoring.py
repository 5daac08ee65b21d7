"""What is on record of a step, given out again: its value, or its exception, and all that came with it."""

from __future__ import annotations

from typing import Any

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.record import read_ops, read_payload
from everstep.errors import BECAME_STREAM, NO_STREAM, DivergenceError
from everstep.journal.track import Recorded, flags_of
from everstep.model import STATUS_NUMBER, Status, StepError
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.execution import Execution
from everstep.run.lanes import Scope

_FAILED, _RESTORED = STATUS_NUMBER[Status.FAILED], Status.RESTORED


def serve(run: Execution, ask: Ask) -> Any:
    """The recorded outcome of a step: its value, or its exception, raised again."""
    value, error = restored(run, ask)
    if error is not None:
        raise error
    return value


def check_form(run: Execution, ask: Ask, *, is_stream: bool) -> None:
    """Raise DivergenceError if a step that gave its outcome whole is a stream now, or the other way round."""
    known = ask.recorded
    if known is None or known.outcome is None or ask.call is not None:
        return
    if bool(flags_of(known.outcome) & record.STREAM) is not is_stream:
        raise run.diverged(
            DivergenceError(
                BECAME_STREAM if is_stream else NO_STREAM, lane=ask.lane.path, position=ask.position, seq=known.seq,
                recorded=ask.name, requested=ask.name,
            )
        )  # fmt: skip


def restored(run: Execution, ask: Ask, payload: list[Any] | None = None) -> tuple[Any, BaseException | None]:
    """The recorded outcome of a step. It is logged and told of, and newer than what was set before it.

    With the payload of its row, if somebody has read that already.
    """
    recorded = ask.recorded
    entry = None if recorded is None else recorded.outcome
    assert recorded is not None and entry is not None  # noqa: PT018, S101 - whoever serves has looked
    lane = ask.lane
    lane.seen = max(lane.seen, entry.seq)
    is_failure, call, error = entry.status == _FAILED, ask.call, None
    if payload is None:
        payload = run.payload(entry) if is_failure or call is None else []  # a graph reads values when it needs them
    if call is not None:
        call.restore(entry)
    if is_failure:
        error = faults.raised_again(payload[record.ERROR], run.reach)
        faults.mark(error, lane.scope, entry.seq)
    inside: list[tuple[int, Recorded]] = []
    if recorded.id is not None:
        inside = sorted(run.journal.inside(recorded.id), key=_ended)
        run.log += [_logged(parent, step) for parent, step in inside]
    if lane.scope.place is not None and lane.scope.has_set():
        for _, step in (*inside, (0, recorded)):
            lane.scope.override(_names(step.outcome))
    child = None if call is None else call.child
    run.note(ask, recorded.id or entry.seq, entry.duration / 1000, _RESTORED, error, child)
    if run.events:
        run.tell("step_restored", entry)
    return payload[record.OUTPUT] if len(payload) > record.OUTPUT else None, error


def _ended(place: tuple[int, Recorded]) -> int:
    outcome = place[1].outcome
    return -1 if outcome is None else outcome.seq


def _names(entry: Entry | None) -> list[str]:
    """What a row set in the state."""
    paths = [] if entry is None else [op[1] for op in read_ops(entry)]
    return [path if isinstance(path, str) else path[0] for path in paths]


def _logged(parent: int, step: Recorded) -> tuple[Any, ...]:
    """A step inside a restored one, as the run's log has it."""
    scope, entry = Scope(None, "", 0, 1), step.outcome
    scope.id = parent
    assert entry is not None  # noqa: S101 - only what has an outcome is restored
    return step.name, step.id or entry.seq, scope, entry.duration / 1000, _RESTORED, failure_of(entry), None, None


def failure_of(entry: Entry) -> StepError | None:
    """What a row says of a failure."""
    if entry.status != _FAILED:
        return None
    kept = read_payload(entry, None)[record.ERROR]
    return StepError(*kept[:2])
