"""How far a run had come, and the way on from there: the last good place, the last step, the commands to try."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.codec.record import StepRecord
from everstep.errors import EverstepError
from everstep.model import Kind, Run, Status
from everstep.trail.inside import Failed
from everstep.trail.why.calls import Call
from everstep.trail.why.items import answers, command, is_unknown
from everstep.trail.why.report import Failure, Point, Suspect
from everstep.trail.why.tracing import Trace

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_TRIED = 3  # failed items, and runs inside, that are worth a look
_REPLACEABLE = frozenset({Kind.STEP, Kind.ANSWER})  # rows that a fork can give another outcome


def last_good(trace: Trace, suspect: Call | None) -> Point | None:
    """The newest checkpoint before the first suspect, or before the failure; else the step before it."""
    bad = suspect or (trace.path[-1] if trace.path else None)
    run_id = bad.run_id if bad is not None else trace.story.run.id
    begun = bad.begun if bad is not None else trace.ends[-1].seq
    story = trace.story_of(run_id)
    marks = [node for node in story.marks if node.seq < begun and node.kind is Kind.CHECKPOINT]
    before = [call for call in story.calls if call.seq < begun and call.completed]
    if bad is not None and bad.superstep is not None:
        before = [call for call in before if call.superstep is None or call.superstep < bad.superstep]
    if marks:
        return Point(run_id, marks[-1].seq, marks[-1].name, is_checkpoint=True)
    return Point(run_id, before[-1].seq, before[-1].name, is_checkpoint=False) if before else None


def last_done(trace: Trace) -> Point | None:
    """The last step that completed, of the run that was asked about."""
    done = [call for call in trace.story.calls if call.completed]
    return Point(done[-1].run_id, done[-1].seq, done[-1].name, is_checkpoint=False) if done else None


def under_way(trail: Trail, run: Run) -> tuple[str, ...]:
    """The innermost runs inside one that has not ended that have not, either: what it did last is on record there."""
    found, runs = list[str](), [run.id] if run.status is Status.ACTIVE else []
    for each in runs:
        below = trail.runs(status=Status.ACTIVE, parent=each, limit=_TRIED)
        runs += [child.id for child in reversed(below)]
        if not below and each != run.id:
            found.append(each)
    return tuple(found[:_TRIED])


def nexts(
    trail: Trail,
    trace: Trace,
    failure: Failure | None,
    suspects: list[tuple[Call, Suspect]],
    failed: list[Run | Failed],
    asked: list[StepRecord],
    inside: tuple[str, ...],
) -> Iterator[str]:
    """Commands that are worth typing: those that only look, then those that go on."""
    yield from (command("why", child) for child in inside)
    for each in failed[:_TRIED]:
        yield command("show", f"{each.run_id}@{each.seq}") if isinstance(each, Failed) else command("why", each.id)
    if suspects:
        yield command("show", suspects[0][1].id)
        child = suspects[0][0].node.record.child_run_id
        if child is not None:
            yield command("why", child)
    if failure is not None and (not suspects or failure.seq != suspects[0][1].seq):
        yield command("show", f"{failure.run_id}@{failure.seq}")
    good = last_good(trace, suspects[0][0]) if suspects and failure is not None else None
    if good is not None and not trace.story_of(good.run_id).is_of_a_program:
        yield command("state", good.id)
        if _changed(trail, good, suspects[0][0]):
            yield command("diff", good.id, suspects[0][1].id)
    yield from _on(trace, _fork(trace, good, suspects), failed, asked)


def _changed(trail: Trail, good: Point, suspect: Call) -> bool:
    """Whether a step changed the state since the last good place: else there is nothing to see."""
    try:
        return bool(suspect.node.record.ops) and bool(trail.diff(good.id, f"{suspect.run_id}@{suspect.seq}"))
    except EverstepError:
        return False  # pruned, erased or damaged


def _fork(trace: Trace, good: Point | None, suspects: list[tuple[Call, Suspect]]) -> list[object]:
    """How one tries it otherwise: with another outcome of the suspect, or from the last good place on."""
    run_id = trace.story.run.id
    if good is None or good.run_id != run_id:
        return []
    row = suspects[0][0].node.record
    # What a call of a program gave is a whole answer, with its head: nobody types that.
    if row.kind in _REPLACEABLE and row.run_id == run_id and not trace.story.is_of_a_program:
        return ["fork", run_id, "--outcome", f"{row.seq}=VALUE"]
    return ["fork", run_id, "--at", good.seq]


def _on(trace: Trace, fork: list[object], failed: list[Run | Failed], asked: list[StepRecord]) -> Iterator[str]:
    """How the run goes on."""
    run = trace.story.run
    if trace.at_work:
        yield command("show", run.id)  # whoever wants to go on with it is refused
    elif run.status is Status.PAUSED or is_unknown(asked):
        yield from answers(run, asked)
    elif trace.is_map:
        yield from (command("resume", each.id) for each in failed[:1] if isinstance(each, Run))
    elif run.status is not Status.COMPLETED and trace.story.is_of_a_workflow:
        yield from answers(run, asked) if asked else ()
        if fork:
            yield command(*fork)
        yield command("resume", run.id)
