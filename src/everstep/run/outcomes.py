"""What a step can end with. What else its function raises is a stop of the run, and the step has no outcome."""

from __future__ import annotations

from everstep.errors import (
    EverstepError,
    JournalError,
    MutatedArgumentError,
    RecordedError,
    RunCancelledError,
    RunStoppedError,
    UnknownOutcomeError,
)
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.execution import Execution
from everstep.run.lanes import Lane
from everstep.run.stopping import RESTARTING
from everstep.trail.late import asyncio, running_loop

_OUTCOMES = (RecordedError, MutatedArgumentError, UnknownOutcomeError)  # journal errors that a step can end with


def is_outcome(run: Execution, error: BaseException, inner: Lane) -> bool:
    """Whether a step ended with this. Else the run is being stopped, or cannot go on, and the step has no outcome."""
    by_its_code = isinstance(error, Exception) or _cancels_itself(run, error, inner) or _exits(run, error, inner)
    if inner.scope.refused or not by_its_code:
        return False
    if run.stopping is not None and (inner.scope.lanes or isinstance(error, RunCancelledError)):
        return False
    if run.stopping not in {None, RESTARTING} and inner.scope.id is None:
        return False  # the code is not told: it is no more than a step that was cut off
    if run.pen is not None and run.pen.failure is not None:
        return False
    return not isinstance(error, JournalError) or isinstance(error, _OUTCOMES)


def not_an_outcome(run: Execution, ask: Ask, error: BaseException) -> None:
    """Note that a step was left without an outcome. Raises what kept it off the record: no code is told more."""
    if not isinstance(error, Exception):
        return
    ask.lane.scope.refuse()
    failure = None if run.pen is None else run.pen.failure
    if isinstance(failure, RunStoppedError):
        raise RunStoppedError(failure.run_id, ask.name, failure.why) from error
    if failure is not None:
        raise failure from error
    if run.stopping not in {None, RESTARTING} and not isinstance(error, EverstepError):
        raise RunStoppedError(run.run_id, ask.name, run.stopping) from error


def _cancels_itself(run: Execution, error: BaseException, inner: Lane) -> bool:
    """Whether a step ended with CancelledError and nobody has cancelled it: what it awaited was.

    Code may catch that. A graph does not: its run is left where that happened to a node. Of a captured program who
    cancelled what is not asked: its calls are cancelled once more when nothing else is left to come.
    """
    if not isinstance(error, asyncio.CancelledError) or run.stopping is not None or run.is_dropped():
        return False
    if inner.scope.ask.call is not None or run.captured is not None:
        return False
    task = None if running_loop() is None else asyncio.current_task()
    return task is None or not task.cancelling()


def _exits(run: Execution, error: BaseException, inner: Lane) -> bool:
    """Whether a step ended with `sys.exit()`, as a program does that it calls: code may catch that.

    Not where a signal is the reason, or in a task of its own: from there it ends the loop, whoever would catch it.
    """
    if not isinstance(error, SystemExit) or run.stopping not in {None, RESTARTING} or faults.is_by_signal(error):
        return False
    if inner.scope.ask.call is not None or run.captured is not None:
        return False
    return running_loop() is None or asyncio.current_task() not in run.turnstile.tasks
