"""What happens when the code asks for a step, without waiting for anything: two drivers wait for what this says.

A flow yields what is to be done next, as (what, with): call the function in a lane, wait until rows are durable,
sleep, wait for the outcome's turn, or suspend. What the driver got is sent back in, and so is what it raised.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.errors import (
    EverstepError,
    MutatedArgumentError,
    RunStoppedError,
    StepTimeoutError,
    UnknownOutcomeError,
    ValueRefused,
)
from everstep.model import Kind, Status
from everstep.run import faults
from everstep.run.arguments import Inputs
from everstep.run.asked import Ask
from everstep.run.effects import announce
from everstep.run.execution import Execution
from everstep.run.lanes import Lane, Scope
from everstep.run.outcomes import is_outcome, not_an_outcome
from everstep.run.pen import Waiter
from everstep.run.placing import moved
from everstep.run.restoring import check_form, serve
from everstep.run.stopping import RESTARTING, Suspended
from everstep.store.turns import enter_turn
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.run.steps import Step

    AnyStep = Step[..., Any]

CALL, WAIT, SLEEP, DELIVER, SUSPEND, FOREVER, RESTART = range(7)
Flow = Generator[tuple[int, Any], Any, Any]
Loop: TypeAlias = "asyncio.AbstractEventLoop | None"  # None where the code does not await
Broken: TypeAlias = tuple[Lane, float | None, BaseException]  # where it was tried, how long that took if it returned
_PATIENCE = 5.0  # seconds for a lane to come to a step that it has on record


def step_flow(lane: Lane, step: AnyStep, args: Any, kwargs: Any, loop: Loop) -> Flow:
    """One awaited step, from the request to its outcome."""
    if lane.run.stopping == RESTARTING and not lane.stopped:
        # Not refused: for an error a task group would cancel the steps at work beside it. But on its way out it is.
        yield RESTART, None
    run = lane.run
    return (yield from (run.flow or ask_flow)(run, asked(lane, step, args, kwargs), step, loop))


def asked(lane: Lane, step: AnyStep, args: Any, kwargs: Any) -> Ask:
    """Ask for a step."""
    run = lane.run
    return run.ask(lane, step.name, inputs_of(run, step, args, kwargs))


def is_new(run: Execution, ask: Ask) -> bool:
    """Whether nothing is on record that a step could have to do with: so it is with nearly every one."""
    if ask.recorded is not None or run.forked.reusable:
        return False
    return ask.lane.track is not None or not run.journal.scopes


def ask_flow(run: Execution, ask: Ask, step: AnyStep, loop: Loop) -> Flow:
    """A step that was asked for, up to its outcome."""
    if is_new(run, ask):
        return attempts(run, ask, step, loop)  # with one generator less around it
    return _recorded_flow(run, ask, step, loop)


def _recorded_flow(run: Execution, ask: Ask, step: AnyStep, loop: Loop) -> Flow:
    """A step of a run that has something on record: perhaps this one."""
    lane, recorded = ask.lane, ask.recorded
    if recorded is not None:
        if recorded.cancelled is not None:
            yield FOREVER, None
        check_form(run, ask, is_stream=False)
        if recorded.outcome is not None and run.serves(ask):
            if loop is not None and ask.call is None:
                try:
                    yield DELIVER, recorded.outcome.seq
                except asyncio.CancelledError as error:  # it was not when this was recorded: a failure was set right
                    ask.scope = Scope(lane, ask.name, ask.index, recorded.attempt + 1)
                    ask.scope.id = recorded.id
                    broken_off(run, ask, error, loop)
                    raise
            return serve(run, ask)
        if recorded.intent and step.external:
            yield from _unknown(run, ask, step)
    again = run.forked.take(ask.name, ask.digest) if run.forked.reusable and recorded is None else None
    if recorded is None and run.journal.scopes:
        yield from in_place(run, ask)
    return (yield from attempts(run, ask, step, loop, again))


def in_place(run: Execution, ask: Ask) -> Flow:
    """Let the lanes around a new one come to what they have on record, if it is what this one asks for, too.

    Raises DivergenceError if they do not come: then they wait for this one, and their code is not what it was.
    """
    if ask.recorded is not None or ask.lane.track is not None or run.flow is not None:
        return
    until, pause = time.monotonic() + _PATIENCE, 0.0
    try:
        while True:
            error = moved(ask)
            (run.held.discard if error is None else run.held.add)(ask)
            if not run.held:
                return
            if error is not None and time.monotonic() > until:
                found = [error, *filter(None, map(moved, tuple(run.held)))]
                raise run.diverged(min(found, key=lambda each: each.seq or 0))  # whose time is over first is chance
            yield SLEEP, pause  # also if only others are held: it may have moved with them
            pause = min(pause + 1e-3, 0.05)
            yield from _going_on(run, ask)
    finally:
        run.held.discard(ask)


def _going_on(run: Execution, ask: Ask) -> Flow:
    """See that the run has not been stopped while this waited."""
    if run.stopping == RESTARTING:
        yield RESTART, None
    if run.stopping is not None:
        run.check_stopped(ask.lane, ask.name)


def _reused(run: Execution, ask: Ask, step: AnyStep, entry: Entry, loop: Loop) -> Flow:
    """Record what another run had for this step, as its own."""
    inner = run.enter(ask, 1)
    value = run.payload(entry)[record.OUTPUT]
    waiter = completed(run, ask, step, inner, value, run.leave(ask), loop, flags=record.CACHED)
    yield from settled(run, ask, waiter, loop)
    return value


def attempts(
    run: Execution,
    ask: Ask,
    step: AnyStep,
    loop: Loop,
    again: Entry | None = None,
    made: int = 0,
) -> Flow:
    """Call the function until it succeeds, or its policy is exhausted; unless there is a row to be used `again`.

    Of a new step, so many attempts were `made` before.
    """
    recorded = ask.recorded
    reopened = None if recorded is None else recorded.reopened  # then the attempts before that count no more
    attempt = made if recorded is None else recorded.attempt
    try:
        if again is not None:
            return (yield from _reused(run, ask, step, again, loop))
        while True:
            attempt += 1
            inner, returned = run.enter(ask, attempt), None
            try:
                if loop is not None or step.external:
                    yield from _ready(run, ask, step, inner, loop, again=reopened is not None)
                value = yield CALL, inner
                returned = run.leave(ask)
                if ask.recorded is not None and ask.recorded.outcome is not None:
                    return (yield from _reopened(run, ask, inner, ask.recorded.outcome.seq, loop))
                waiter = completed(run, ask, step, inner, value, returned, loop)
                yield from settled(run, ask, waiter, loop)
                return value  # noqa: TRY300 - what comes after it is about failures
            except BaseException as error:  # what it means is decided there
                if (yield from gives_up(run, ask, step, (inner, returned, error), attempt - (reopened or 0), loop)):
                    raise
    except BaseException as error:  # noted, and raised again
        ended_by(run, ask, error, loop)
        raise
    finally:
        ask.scope = None  # they know each other: left so, the garbage collector would have to find every step


def ended_by(run: Execution, ask: Ask, error: BaseException, loop: Loop) -> None:
    """Note how a step was left: what is no Exception ends most of them without an outcome."""
    if not isinstance(error, Exception) and ask.scope is not None:
        broken_off(run, ask, error, loop)


def gives_up(run: Execution, ask: Ask, step: AnyStep, broken: Broken, attempt: int, loop: Loop) -> Flow:
    """Record an attempt that failed, if that is an outcome. Whether the step ends with it; if not, after a pause."""
    inner, returned, error = broken
    duration = run.leave(ask) if returned is None else returned
    if not is_outcome(run, error, inner):
        not_an_outcome(run, ask, error)
        return True
    # What a function did is not done again because of what it returned.
    is_last = returned is not None or attempt >= step.retry.attempts or not step.retry.applies(error)
    yield from _failed(run, ask, inner, error, duration, loop, is_last=is_last)
    if is_last:
        ask.scope = None  # it is not broken off, whatever it ended with
    else:
        yield SLEEP, step.retry.delay(inner.scope.attempt)
        ask.recorded = None
    return is_last


def _reopened(run: Execution, ask: Ask, inner: Lane, seq: int, loop: Loop) -> Flow:
    """A step whose code was gone through for the sake of tasks that it left at work: its outcome is known."""
    run.check_left(inner.scope)
    if loop is not None and ask.call is None:
        yield DELIVER, seq
    return serve(run, ask)


def _ready(run: Execution, ask: Ask, step: AnyStep, inner: Lane, loop: Loop, *, again: bool) -> Flow:
    """Wait until the loop has time for a step, then announce an effect. Raises RunStoppedError if it came too late."""
    inner.scope.external = step.external
    turn = None if loop is None else enter_turn(loop)
    if turn is not None:
        yield WAIT, turn
        yield from _going_on(run, ask)
        ask.began = time.perf_counter()
    if step.external and run.pen is not None and (inner.scope.start or again):
        yield WAIT, announce(run, ask, step, inner, loop)


def _failed(
    run: Execution, ask: Ask, inner: Lane, error: BaseException, duration: float, loop: Any, *, is_last: bool
) -> Flow:
    """Record an attempt that failed, with the last one the step. Raises MutatedArgumentError if it changed what it got.

    A graph sets that right for its nodes. Nobody else can: the next attempt, or the code, would go on with other values
    than after a crash.
    """
    known = ask.call is not None or isinstance(error, MutatedArgumentError)
    mutated = None if known else mutation(run, ask)
    if not is_last and mutated is None:
        yield WAIT, failed(run, ask, inner, error, duration, loop, kind=Kind.ATTEMPT)
        if ask.call is not None:
            ask.call.begin_again()
        return
    outcome = mutated or error
    yield from settled(run, ask, failed(run, ask, inner, outcome, duration, loop), loop, outcome)
    if mutated is not None:
        raise mutated from error


def settled(
    run: Execution,
    ask: Ask,
    waiter: Waiter,
    loop: Loop,
    error: BaseException | None = None,
) -> Flow:
    """Wait until an outcome is durable, tell of it, then wait for its turn."""
    if waiter is not None:
        yield WAIT, waiter
    if run.events:
        run.tell_outcome(ask, error)
    if run.restarts:
        yield RESTART, None
    if loop is not None and ask.call is None:  # in which order the nodes of a superstep end means nothing
        yield DELIVER, None


def inputs_of(run: Execution, step: AnyStep, args: Any, kwargs: Any) -> Inputs | None:
    """What a call is given, as it will be stored; None where nothing is stored."""
    if run.trail is None:
        return None
    if step.reached != run.reach.number:  # else it was called in this run before
        run.reach.add(step.function)
        step.reached = run.reach.number
    if step.bound_to or step.bound_by_name:
        args, kwargs = (*step.bound_to, *args), {**step.bound_by_name, **kwargs}
    return Inputs(run.trail.gate, step.name, step.parameters.bind(args, kwargs))


def completed(
    run: Execution,
    ask: Ask,
    step: AnyStep,
    inner: Lane,
    value: Any,
    duration: float,
    loop: Any,
    *,
    flags: int = 0,
) -> Waiter:
    """Record what a step gave. What to wait for, before it is delivered."""
    scope = inner.scope
    if scope.refused:  # its code went on without a step that it needs
        raise RunStoppedError(run.run_id, step.name, run.stopping or "waits for an answer")
    if run.closing:
        run.closing.close(scope)
    if ask.inputs is not None and not ask.inputs.fixed and (mutated := mutation(run, ask)) is not None:
        raise mutated
    if scope.lanes or run.divergence is not None:
        run.check_left(scope)
        if scope.at_work and scope.lanes:
            flags |= record.OPEN
    if loop is not None and not flags & record.PARTIAL and ask.call is None:
        flags |= record.AWAITED
    if step.external:
        flags |= record.EXTERNAL
    try:
        return run.put_outcome(ask, step, scope, value, duration, flags, loop)
    except ValueRefused as refused:  # where the code picks its tools by name, its line does not tell which one it was
        refused.add_note(f"everstep: this was the outcome of step {step.name!r}")
        raise


def mutation(run: Execution, ask: Ask) -> MutatedArgumentError | None:
    """What to raise if a step changed what it was given."""
    if ask.inputs is None or run.trail is None:
        return None
    changed = ask.inputs.changed(run.trail.gate)
    return None if changed is None else MutatedArgumentError(ask.name, changed)


def failed(
    run: Execution,
    ask: Ask,
    inner: Lane,
    error: BaseException,
    duration: float,
    loop: Any,
    *,
    kind: Kind = Kind.STEP,
    chunks: list[Any] | None = None,
) -> Any:
    """Record a failure, of one attempt or of the step. What to wait for."""
    scope = inner.scope
    if isinstance(error, StepTimeoutError):
        run.give_up(scope)  # what is left of it goes on in a thread that cannot be ended
    elif run.closing:
        run.closing.close(scope)
    seq, waiter = run.put(
        ask, loop, whole=scope.id is None, kind=kind, status=Status.FAILED, error=error, duration_ms=duration,
        output=chunks, child_run_id=scope.child, usage=scope.usage,
        attempt=scope.attempt, id=scope.id,
        flags=(record.AWAITED if loop is not None else 0) | (record.STREAM if chunks is not None else 0),
        **run.failed_row(error, inner),
    )  # fmt: skip
    if kind is Kind.STEP:
        faults.mark(error, ask.lane.scope, seq)
        run.note(ask, scope.id or seq, duration, Status.FAILED, error, scope.child)
    return waiter


def broken_off(run: Execution, ask: Ask, error: BaseException, loop: Any, **detail: Any) -> None:
    """Note that the code did not get a step's outcome: the step was cancelled, or the program was told to end.

    `detail`: what its row has of what the code did get.
    """
    if isinstance(error, asyncio.CancelledError):
        if run.is_dropped():  # a loop that ends cancels all tasks at once: this was not the code
            run.interrupt(error)
        if loop is not None:
            cancelled(run, ask, loop, **detail)
    elif not isinstance(error, Suspended | GeneratorExit):
        run.interrupt(error)


def cancelled(run: Execution, ask: Ask, loop: Any, **detail: Any) -> None:
    """Note that a step was cancelled, if anything is still noted."""
    scope = ask.scope
    if scope is not None and run.stopping is None and run.pen is not None:
        with suppress(EverstepError):  # what is wrong is told by the next row; and nobody can wait for this one
            run.put(
                ask, loop, unawaited=True, whole=scope.id is None and ask.entry is None, kind=Kind.CANCELLED,
                status=Status.CANCELLED, attempt=scope.attempt, id=scope.id, **detail,
            )  # fmt: skip


def _unknown(run: Execution, ask: Ask, step: AnyStep) -> Flow:
    """An external effect was announced, and has no outcome."""
    recorded = ask.recorded
    if recorded is None or step.unknown == "retry":
        return
    if step.unknown == "fail":
        error = UnknownOutcomeError(run.run_id, step.name, recorded.seq)
        inner = run.enter(ask, recorded.attempt + 1)
        yield from settled(run, ask, failed(run, ask, inner, error, run.leave(ask), None), None, error)
        raise error
    yield SUSPEND, recorded.id or recorded.seq
