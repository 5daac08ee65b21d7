"""The process of a captured program: it runs the program, then says what came of it."""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from everstep.capturing.command import VARIABLE
from everstep.capturing.running import run_program
from everstep.capturing.session import Session
from everstep.cli import exits
from everstep.cli.launching import LEFT_OUT, in_trail, typed
from everstep.codec.shown import count
from everstep.errors import (
    DivergenceError,
    EverstepError,
    ProgramError,
    RunExistsError,
    RunFinishedError,
    RunNotFoundError,
    RunStoppedError,
    UnknownOutcomeError,
)
from everstep.model import Status
from everstep.trail import answers
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

if TYPE_CHECKING:
    from everstep.run.replaying import Replay

_python_warned = warnings.formatwarning
# Of capture().
_HOW = ("mode", "unknown", "durability", "tags", "prices", "seal", "allow", "clock", "entropy", "parent")


def main() -> int:
    """Run the program of this process. Its own status, or that of what kept it from running as it should."""
    words, said = sys.argv[1:], json.loads(os.environ.pop(VARIABLE))
    warnings.formatwarning = _warned
    try:
        with open_trail(said["trail"], read_only=said.get("mode") is not None) as trail:  # it has one in a replay alone
            try:
                return _ran(trail, words, said)
            except RunFinishedError as error:  # whoever starts a program again until it is done sees that it is
                return _told(trail, error.run_id, said, exits.OK, "had completed before: nothing was executed")
    except EverstepError as error:
        return _failed(error, said)
    except KeyboardInterrupt:
        sys.excepthook = lambda *_: None  # it was printed; and Python ends the process as the signal would
        raise


def _ran(trail: Trail, words: list[str], said: dict[str, Any]) -> int:
    run_id = said.get("id")
    if said.get("new") and run_id is not None:
        _refuse_known(trail, run_id)
    stdout = sys.stdout
    if said.get("json"):
        sys.stdout = sys.stderr  # what the program prints stays out of our data
    how = {name: said[name] for name in _HOW if said.get(name) is not None}
    if "prices" in how:
        how["prices"] = import_module("everstep.models.prices").PriceTable(how["prices"])
    if said.get("children"):
        how["children"] = said["trail"]
    if said.get("parent") and _is_completed(trail, run_id):
        how |= {"mode": "verify", "seal": "off"}  # the process around it is started again: it is to say the same again

    def told(session: Session, error: BaseException | None) -> int:
        sys.stdout = stdout
        if session.replays and session.report is not None:
            return _came_of_replay(session, said, session.compared.get("exit", exits.OK))
        if error is None or isinstance(error, ProgramError):  # it left by os._exit
            return _told(trail, session.id, said, session.compared["exit"])
        if isinstance(error, KeyboardInterrupt | SystemExit) and not said.get("quiet"):
            _say_interrupted(session, said)
        return _failed(error, said) if isinstance(error, EverstepError) else exits.ERROR

    try:
        status, session = run_program(trail, words, run_id, told=told, typed=said["words"], **how)
    finally:
        sys.stdout = stdout
    return _came_of_replay(session, said, status) if session.replays else _told(trail, session.id, said, status)


def _came_of_replay(session: Session, said: dict[str, Any], status: int) -> int:
    """Say what came of a replay. Its status, or that of the program where a process around it wants that."""
    if said.get("parent") and session.report is not None and session.report.identical:
        return status
    return _told_replay(session, said)


def _warned(message: Any, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    """A warning as Python shows it; of ours, what it says: the line of a library that it came of helps nobody."""
    if category.__module__ == EverstepError.__module__:
        return f"everstep: warning: {exits.words_of(message)}\n"
    return _python_warned(message, category, filename, lineno, line)


def _is_completed(trail: Trail, run_id: str | None) -> bool:
    with suppress(RunNotFoundError):
        return run_id is not None and trail.run(run_id).status is Status.COMPLETED
    return False


def _refuse_known(trail: Trail, run_id: str) -> None:
    """Raise RunExistsError if there is such a run: whoever records a program means a new one."""
    try:
        trail.run(run_id)
    except RunNotFoundError:
        return
    raise RunExistsError(run_id)


def _told(trail: Trail, run_id: str, said: dict[str, Any], status: int, words: str | None = None) -> int:
    """Say what became of a run. The status that the program exits with."""
    run = trail.run(run_id)
    if said.get("json"):
        _output(said).data(record={"run": run.id, "status": str(run.status), "exit": status, "entries": run.step_count})
    elif not said.get("quiet") and run.status is Status.FAILED:
        _say(f"everstep: {run.id} failed. Find out why: {_command(said, 'why', run.id)}")
        if said.get("unknown") == "fail":
            waiting = answers.waiting(trail, trail.store.run(run.id))
            for step in waiting[:1]:
                _say_what_settles(said, run.id, step.seq, several=len(waiting) > 1)
    elif run.status is Status.ACTIVE:  # its end could not be written: the disk is full, or another goes on with it
        _say(f"everstep: {run.id} has not ended. Go on with it: {_resuming(said, run.id)}")
    elif not said.get("quiet"):
        _say(f"everstep: {run.id} {words or f'is {run.status}'}. Look at it: {_command(said, 'show', run.id)}")
    return status


def _told_replay(session: Session, said: dict[str, Any]) -> int:
    report = session.report
    assert report is not None  # noqa: S101 - it was replayed
    if said.get("json"):
        _output(said).data(replay=report.to_dict(import_module("everstep.cli.plain").change))
    else:
        _say(report)
        if report.first is not None and report.first.seq is None:  # it makes a call more than there are on record
            head = cast("Trail", session.run.trail).run(session.id).head
            _say(f"next: {_forking(said, session.id, session.fork_at(head))}")
        if report.first is not None and report.first.seq is not None:
            _say(f"next: {_command(said, 'show', f'{session.id}@{report.first.seq}')}")
            first = min(each.seq for each in report.divergences if each.seq is not None)  # lenient goes on to others
            words = ["--", *said["words"]]  # which a run keeps: with others it is another, and no fork of it
            forks = _forking(said, session.id, session.fork_at(first))
            _say(f"      {_command(said, 'record', *words) if cast('Replay', session.life).given else forks}")
    return exits.OK if report.identical else exits.DIFFERENT


def _say_interrupted(session: Session, said: dict[str, Any]) -> None:
    """Say how to go on. With a replay nobody can: how far it came, and where it had parted."""
    if not session.replays:
        _say(f"everstep: {session.id} was interrupted. Go on with it: {_resuming(said, session.id)}")
        return
    replay: Any = session.run
    differed = [*replay.found, *(hit.told for hit in session.refused)]
    far = (
        f"{count(len(replay.steps), 'step')} answered from the record, and {'this' if differed else 'nothing'} differed"
    )
    _say(f"everstep: the replay of {session.id} was interrupted; {far}{':' if differed else ''}")
    for each in differed:
        _say(each)


def _failed(error: EverstepError, said: dict[str, Any]) -> int:
    text = exits.words_of(error)
    if isinstance(error, UnknownOutcomeError):  # whose commands follow, as they work here
        text = text.partition(" Look there")[0] + " Look there, then say what it gave, or have it made again."
    text = in_trail(text, said.get("named"))
    if said.get("json"):
        _output(said).data(error={"type": type(error).__name__, "message": text})
    _say(f"everstep: {text}")
    if isinstance(error, RunStoppedError) and not said.get("quiet"):
        _say(f"next: {_resuming(said, error.run_id)}")
    if isinstance(error, DivergenceError) and error.fork_at is not None:
        _say(f"next: {_forking(said, error.run_id, error.fork_at)}")
    if isinstance(error, UnknownOutcomeError):
        with open_trail(said["trail"], read_only=True) as trail:
            several = len(answers.waiting(trail, trail.store.run(error.run_id))) > 1
        _say_what_settles(said, error.run_id, error.seq, several=several)
    return exits.code_of(error)


def _say_what_settles(said: dict[str, Any], run_id: str, seq: int, *, several: bool) -> None:
    """Say the commands for a call of which nobody knows how it ended; it may be one of several."""
    which = ["--pause", seq] if several else []
    _say(f"what was asked for: {_command(said, 'show', f'{run_id}@{seq}')}")
    _say(f"next: {_command(said, 'answer', run_id, 'VALUE', *which)}")
    _say(f"  or: {_command(said, 'answer', run_id, '--retry', *which)}")
    _say(f"then: {_resuming(said, run_id)}")


def _forking(said: dict[str, Any], run_id: str, at: int) -> str:
    """How to go on with the program as it is."""
    return _command(said, "fork", run_id, "--at", at, "--", *said["words"])


def _resuming(said: dict[str, Any], run_id: str) -> str:
    return _command(said, "resume", run_id, "--", *said["words"])


def _command(said: dict[str, Any], *words: object) -> str:
    """A command line of ours that works where this program was named."""
    if said.get("named") and said["named"] != said["trail"] and not said.get("noted"):
        said["noted"] = True
        _say(LEFT_OUT)
    return typed(words, said.get("named"))


def _say(text: object) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - what a program prints is on stdout, and our words beside it


def _output(said: dict[str, Any]) -> Any:
    return import_module("everstep.cli.output").Output(as_json=bool(said.get("json")))
