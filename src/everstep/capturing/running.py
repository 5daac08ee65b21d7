"""A program under capture, from its first line to its exit status."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from everstep.capturing.exchange import Halted
from everstep.capturing.output import kept_output
from everstep.capturing.program import Target, status_of
from everstep.capturing.session import Session, capture
from everstep.errors import DivergenceError, ProgramError, SealedError
from everstep.trail.trail import Trail


def run_program(trail: Trail, words: Sequence[str], run_id: str | None, **how: Any) -> tuple[int, Session]:
    """Run a program with `how` of capture(). The status that it exits with, and the session, which is over.

    What it prints, and its status, become the state of the run. A replay that differs raises nothing: its report tells.
    """
    target = Target(words)
    session = None
    try:
        with (
            kept_output() as (out, err),
            capture(
                trail, run_id, name=target.name, command=list(words), code=target.code(), whole_process=True, **how
            ) as session,
        ):
            status, cause = _run(target)
            sys.stdout.flush()
            printed = {"stdout": out.text(), "stderr": err.text(), "exit": status}
            session.ends_with(printed, compared=("stdout", "exit"))
            _check(status, cause)
    except ProgramError as failed:
        assert session is not None  # noqa: S101 - it ran
        return failed.status, session
    except (DivergenceError, SealedError):
        if session is None or not session.replays:
            raise
        return 1, session
    return 0, session


def _check(status: int, cause: BaseException | None) -> None:
    if status:
        raise ProgramError(status) from cause


def _run(target: Target) -> tuple[int, BaseException | None]:
    """The status that a program exits with, and what led to it."""
    try:
        target.run()
    except Halted:
        raise
    except SystemExit as exit_:
        return status_of(exit_), exit_
    except Exception as error:  # noqa: BLE001 - as Python does
        _print(error)
        return 1, error
    return 0, None


def _print(error: Exception) -> None:
    """Print an exception as Python would, without what stands between Python and the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("everstep."):
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, trace)
    else:
        sys.excepthook(type(error), error, trace)
