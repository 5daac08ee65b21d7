"""`python -m everstep.capturing PROGRAM ...`: a program under capture, as EVERSTEP_CAPTURE says."""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from everstep.capturing.exchange import Halted
from everstep.capturing.output import kept_output
from everstep.capturing.program import Target, status_of
from everstep.capturing.session import capture
from everstep.errors import ProgramError
from everstep.trail.trail import open as open_trail

VARIABLE = "EVERSTEP_CAPTURE"


def main(words: list[str], said: dict[str, Any]) -> int:
    """Run a program, and exit as it would."""
    target = Target(words)
    with open_trail(said["trail"]) as trail:
        try:
            with capture(
                trail, said.get("id"), name=target.name, command=words, code=target.code(), mode=said["mode"],
                unknown=said.get("unknown", "ask"), durability=said.get("durability"), tags=said.get("tags"),
            ) as session, kept_output() as (out, err):  # fmt: skip
                status = _run(target)
                session.life.run.corrections = {"set": {"stdout": out.text(), "stderr": err.text(), "exit": status}}
                if status:
                    raise ProgramError(status)
        except ProgramError as failed:
            return failed.status
    return 0


def _run(target: Target) -> int:
    try:
        target.run()
    except Halted:
        raise
    except SystemExit as exit_:
        return status_of(exit_)
    except Exception as error:  # noqa: BLE001 - as Python does
        _print(error)
        return 1
    return 0


def _print(error: Exception) -> None:
    """Print an exception as Python would, without what stands between Python and the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("everstep."):
        trace = trace.tb_next
    if sys.excepthook is sys.__excepthook__:
        traceback.print_exception(type(error), error, trace)
    else:
        sys.excepthook(type(error), error, trace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], json.loads(os.environ.pop(VARIABLE))))
