"""A program under capture, from its first line to its exit status."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from types import TracebackType
from typing import Any

from everstep.capturing.halting import Halted
from everstep.capturing.output import Kept, flush, kept_output
from everstep.capturing.program import Target, finish, status_of
from everstep.capturing.session import How, Program, Session, captured
from everstep.capturing.stdin import recorded_input
from everstep.capturing.stubborn import Leaving
from everstep.errors import DivergenceError, ProgramError, SealedError
from everstep.trail.trail import Trail

Told = Callable[[Session, BaseException | None], int]  # says what came of a run, and with which status to exit


def run_program(
    trail: Trail,
    words: Sequence[str],
    run_id: str | None,
    *,
    typed: Sequence[str] = (),
    parent: str | None = None,
    children: str | None = None,
    told: Told | None = None,
    **how: Any,
) -> tuple[int, Session]:
    """Run a program, as `Program` and `How` say. The status that it exits with, and the session, which is over.

    What it prints, and its status, become the state of the run. A replay that differs raises nothing: its report tells.
    A program that does not leave a run that cannot go on is ended, with the status that `told` gives.
    """
    target = Target(words)
    program = Program(target.name, target.command, target.code(), typed, parent, children)
    session, status, cause = None, 0, None
    try:
        with (
            captured(trail, run_id, program, How(**how)) as session,
            kept_output() as (out, err),
            recorded_input() if parent is None else nullcontext(),  # of a child it is what its parent says
        ):
            session.stubborn = leaving = Leaving(partial(_ended, session, told))
            with leaving.exits(partial(_exited, session, out, err, told)):
                try:
                    status, cause = _run(target, session)
                finally:
                    finish()
                leaving.leave_copy(status, flush=True)
            _check_left(session, cause)
            flush(sys.stdout)
            _keep(session, out, err, status)
            _raise(cause if status else None)
    except (DivergenceError, SealedError):
        if session is None or not session.replays:
            raise
        return 1, session
    except (KeyboardInterrupt, SystemExit) as ended:
        by_signal = isinstance(ended, KeyboardInterrupt) or (session is not None and session.run.interrupted is ended)
        if session is not None and told is not None and by_signal:  # the run was left for another to continue
            told(session, ended)
        raise
    except Exception as error:  # the program's own was printed, and is on record
        if error is not cause or session is None:
            raise
    return status, session


def _keep(session: Session, out: Kept, err: Kept, status: int) -> None:
    """Have what a program printed, and its status, in the state of its run when that ends."""
    printed = {"stdout": out.text(), "stderr": err.text(), "exit": status}
    session.ends_with(printed, compared=("stdout", "exit"))


def _exited(session: Session, out: Kept, err: Kept, told: Told | None, status: int) -> int:
    """End the run of a program that leaves by `os._exit`, as one that exits. The status of its process."""
    _keep(session, out, err, status)
    cause = ProgramError(status) if status else None
    found: BaseException | None = None
    try:
        session.end(cause)
    except BaseException as raised:  # noqa: BLE001 - it is told
        found = raised
    if told is not None:
        return told(session, found)
    return status if found is cause else 1


def _ended(session: Session, told: Told | None, error: BaseException) -> int:
    """End the run of a program that does not leave. The status of its process."""
    found: BaseException | None = None
    try:
        session.end(error)
    except SystemExit as exit_:
        return status_of(exit_)
    except BaseException as raised:  # noqa: BLE001 - it is told
        found = raised
    return 1 if told is None else told(session, found)


def _run(target: Target, session: Session) -> tuple[int, Exception | None]:
    """The status that a program exits with, and what it failed with."""
    status = 0
    error: Exception | None = None
    try:
        target.run()
    except Halted:
        raise
    except KeyboardInterrupt as raised:
        session.run.interrupt(raised)  # its other threads make no further call
        _print(raised)
        raise
    except SystemExit as exit_:
        said = "" if exit_.code is None or isinstance(exit_.code, int) else str(exit_.code)  # sys.exit("no key")
        status = exit_.code = status_of(exit_)
        error = _failed(status, said, exit_) if status or session.broken.is_left_by(exit_) else None
    except Exception as raised:  # noqa: BLE001 - as Python does
        _print(raised)
        status, error = 1, raised
    return status, error


def _check_left(session: Session, cause: Exception | None) -> None:
    """Leave the run for another to continue, if its program was taken out of a call, and made no other after that."""
    exit_ = None if cause is None else cause.__cause__
    if isinstance(exit_, SystemExit) and session.broken.is_left_by(exit_):
        raise exit_


def _raise(cause: Exception | None) -> None:
    if cause is not None:
        raise cause


def _failed(status: int, said: str, exit_: SystemExit) -> ProgramError:
    """What a run fails with whose program exited; with what led to it, for whoever takes the run up."""
    error = ProgramError(status, said)
    error.__cause__ = exit_
    return error


def _print(error: BaseException) -> None:
    """Print an exception as Python would, without what stands between Python and the program."""
    trace = error.__traceback__
    while trace is not None and _is_ours(trace):
        trace = trace.tb_next
    last = trace
    while isinstance(error, KeyboardInterrupt) and last is not None and last.tb_next is not None:
        if _is_ours(last.tb_next):  # where the signal was heard
            last.tb_next = None
        last = last.tb_next
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, trace)
    else:
        sys.excepthook(type(error), error, trace)


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("everstep.")
