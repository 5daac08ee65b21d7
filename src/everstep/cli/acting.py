"""The commands that act on a run: cancel, drop, stop, answer, resume."""

from __future__ import annotations

import sys
from contextlib import suppress
from shutil import get_terminal_size
from types import ModuleType
from typing import Any

import click

from everstep.cli import exits, plain
from everstep.cli.advising import go_on_with
from everstep.cli.app import apart, app_option, load, named, still_to_name, workflow_in
from everstep.cli.capturing import (
    ask_for_program,
    children_option,
    command_argument,
    leave_out,
    resumed,
    run_of,
    unknown_option,
)
from everstep.cli.output import Cell
from everstep.cli.questions import Questions
from everstep.cli.session import Session, StepNumber, about, options, run_ids, session
from everstep.cli.text import brief, count, whole
from everstep.cli.typed import value_of
from everstep.codec.record import StepRecord
from everstep.errors import NotWaitingError, RunNotFoundError
from everstep.model import FINISHED, Kind, Run, Status
from everstep.run.log import RunLog
from everstep.run.result import PauseInfo, RunResult
from everstep.run.runner import Runner
from everstep.run.workflows import Workflow
from everstep.trail import answers, asking
from everstep.trail.answers import question_text
from everstep.trail.inside import failed_so_far, is_map, items_of, outermost
from everstep.trail.outline import outline
from everstep.trail.owner import is_at_work, is_copy
from everstep.trail.trail import Trail
from everstep.trail.versions import CODE, MAP, NODES

_WIDE = 200  # characters of what a run gave
_SHORT = 60  # of an answer that is repeated
_YES_OR_NO = frozenset({"y", "yes", "n", "no", "true", "false"})


class ConflictError(click.ClickException):
    """The run does not stand where it would have to."""

    exit_code = exits.CONFLICT


@click.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--yes", is_flag=True, help="Do it without asking.")
@options
def cancel(run: str, *, yes: bool) -> int:
    """End a run until it is resumed. Who works on it is asked to: what is at work is kept, nothing more is begun."""
    here = session()
    trail = here.open(write=True)
    found = trail.run(run)
    if not yes and found.status not in FINISHED and not _agreed(here, f"cancel {run} ({found.status})?"):
        return exits.ERROR
    trail.cancel(run)
    status = "cancelled" if trail.run(run).status is Status.CANCELLED else "asked"
    if here.output.as_json:
        here.output.data(cancel={"run": run, "status": status})
    else:
        owner = f"; {found.owner} was asked to end it" if status == "asked" else ""
        here.output.talk(f"{run} is {'still active' if owner else status}{owner}.")
    return exits.OK


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, shell_complete=run_ids)
@click.option("--yes", is_flag=True, help="Do it without asking.")
@options
def drop(runs: tuple[str, ...], *, yes: bool) -> int:
    """Let go of runs, with those inside them. It cannot be taken back."""
    here = session()
    trail = here.open(write=True)
    found = [trail.run(run) for run in dict.fromkeys(runs)]  # one that is not there is told before any is gone
    for each in found:
        if not is_copy(each.owner) and is_at_work(each.owner, trail.store.run(each.id).lease):
            end = here.command("cancel", each.id)
            raise ConflictError(f"{each.id} is at work, by {each.owner}. Wait until it is over, or end it: {end}")
    meant = f"{found[0].id} ({found[0].status})" if len(found) == 1 else f"{len(found):,} runs"
    if not yes and not _agreed(here, f"drop {meant}? It cannot be taken back."):
        return exits.ERROR
    gone: list[dict[str, Any]] = []
    for each in found:
        with suppress(RunNotFoundError):  # it was inside one that was named before it
            counts = trail.drop(each.id)
            gone.append({"run": each.id, "runs": counts.runs, "entries": counts.steps})
    if here.output.as_json:
        here.output.data(drop=gone)
        return exits.OK
    for one in gone:
        inside = f", with {count(one['runs'] - 1, 'run')} inside it" if one["runs"] > 1 else ""
        shared = "" if one["runs"] else " What its forks share stays until the last of them goes."
        here.output.talk(f"dropped {one['run']}{inside}: {count(one['entries'], 'entry')}.{shared}")
    return exits.OK


@click.command()
@click.argument("run", shell_complete=run_ids)
@options
def stop(run: str) -> int:
    """Ask whoever works on a run to stop when the superstep at work is over. Resume it to go on.

    What is no graph has no supersteps, and is cancelled.
    """
    here = session()
    trail = here.open(write=True)
    owner = trail.run(run).owner
    status = "asked" if trail.stop(run) else "not at work"
    if here.output.as_json:
        here.output.data(stop={"run": run, "status": status})
    else:
        here.output.talk(f"{owner} was asked to stop {run}." if status == "asked" else f"nobody works on {run}.")
        said = about(trail, run)
        if status == "asked" and CODE in said and not {MAP, NODES} & said.keys():
            here.output.talk(f"{run} is no graph: it is cancelled; resume it to go on.")
            here.output.talk(f"then: {_to_resume(here, trail, run)}")
    return exits.OK


def _agreed(here: Session, question: str) -> bool:
    if here.output.as_json or not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask at; add --yes.")
    if click.confirm(question, err=True):
        return True
    here.output.talk("nothing was done.")
    return False


@click.command()
@click.argument("run", shell_complete=run_ids)
@click.argument("value", required=False)
@click.option("--pause", type=StepNumber(), metavar="SEQ", help="Which question, where there are several.")
@click.option("--retry", is_flag=True, help="Try an external step again whose outcome is not known.")
@options
def answer(run: str, value: str | None, pause: int | None, *, retry: bool) -> int:
    """Answer what a run waits for: VALUE is JSON, or text; - reads it from stdin."""
    if value is not None and retry:
        raise click.UsageError("give a VALUE or --retry, not both.")
    here = session()
    trail = here.open(write=True)
    asked = _question(trail, run, pause)
    if value is None and not retry:
        raise _without_value(here, trail, run, pause, asked)
    given = sys.stdin.read().rstrip("\n") if value == "-" else value
    if given is not None and asked is not None and asked.kind is Kind.INTENT and given.lower() in _YES_OR_NO:
        raise click.UsageError(
            f"{given!r} is hardly what {asked.name!r} returned. If it took effect, give what it returned (if that is "
            f"the text {given!r}, quote it: '\"{given}\"'); if it did not, use --retry."
        )
    meant = None if given is None else _meant(asked, given)
    try:
        trail.answer(run, meant, pause=pause, retry=retry)
    except NotWaitingError as error:
        raise _say_which(here, trail, run, pause, value) or _way_on(here, trail, run, error) from error
    if here.output.as_json:
        found = None if asked is None else f"{asked.run_id}@{asked.seq}"
        here.output.data(answer={"run": run, "pause": found, "value": plain.plain(meant), "retry": retry})
    else:
        taken = "to be tried again" if retry else brief(meant, _SHORT)
        here.output.talk(f"taken: {taken}")
        top = trail.run(outermost(trail, run))
        left = Questions(trail, top, outline(trail.steps(top.id, view=True)), at_work=False)
        for words in left.nexts():
            here.output.talk(f"next: {here.command(*words)}")
        here.output.talk(f"next: {_to_resume(here, trail, top.id)}")
    return exits.OK


def _without_value(here: Session, trail: Trail, run: str, pause: int | None, asked: StepRecord | None) -> Exception:
    """What is asked, and what may be answered."""
    if asked is None:
        nothing = NotWaitingError(run, "it has no open question")
        return _say_which(here, trail, run, pause, "VALUE") or _way_on(here, trail, run, nothing)
    which = ["--pause", pause] if pause is not None else []
    again = here.command("answer", run, "VALUE", *which)
    if asked.kind is Kind.INTENT:
        return click.UsageError(
            f"{question_text(asked)}\n  {again}\n  {here.command('answer', run, '--retry', *which)}"
        )
    pause_of = asked.pause or {}
    takes = "" if answers.allowed(pause_of.get("options"), pause_of.get("schema")) else "\nVALUE is JSON, or text."
    return click.UsageError(f"{run} asks: {question_text(asked)}\n  {again}{takes}")


def _say_which(here: Session, trail: Trail, run: str, pause: int | None, value: str | None) -> ConflictError | None:
    """For each of several questions, the command that answers it; None where there are not several."""
    found = trail.run(run)
    asked = Questions(trail, found, outline(trail.steps(found.id, view=True)), at_work=False)
    if pause is not None or len(asked.rows) < 2:
        return None
    given = "--retry" if value is None else value
    lines = [
        here.command(*(given if word == "VALUE" else word for word in words)) + f"  # {question_text(row)}"
        for words, row in zip(asked.commands(), asked.rows, strict=False)
    ]
    return ConflictError("\n  ".join([f"{run} has {len(asked.rows):,} open questions; say which:", *lines]))


def _way_on(here: Session, trail: Trail, run_id: str, error: NotWaitingError) -> NotWaitingError:
    """The same error, with the command for a run that waits for nothing: nobody is to guess that it was answered."""
    found = trail.store.run(run_id)
    if answers.questions(trail, found):
        return error
    done = trail.run(run_id).status is Status.COMPLETED
    way = (
        f"`{here.command('show', run_id)}` shows it" if done else f"`{_to_resume(here, trail, run_id)}` goes on with it"
    )
    return NotWaitingError(run_id, f"{error.reason}; {way}")


def _to_resume(here: Session, trail: Trail, run_id: str) -> str:
    return here.command("resume", run_id, *still_to_name(about(trail, run_id)))


def _meant(asked: StepRecord | None, text: str) -> Any:
    """What was typed, as the question allows it; where nothing says what it allows, JSON or text."""
    if asked is None or asked.pause is None:
        return value_of(text)
    if asked.pause.get("schema") is None and asked.pause.get("options") is None:
        value_of(text)  # which refuses what breaks off
    return asking.parse(asked.pause, text)


def _question(trail: Trail, run_id: str, pause: int | None) -> StepRecord | None:
    """What a run, or else a child of it, waits for; None where that is nothing, or not one thing."""
    row = trail.store.run(trail.run(run_id).id)
    while True:
        found = [step for step in answers.waiting(trail, row) if pause in {None, step.seq, step.id}]
        if found:
            return found[0] if len(found) == 1 else None
        children = trail.runs(status=Status.PAUSED, parent=row.id, limit=1)
        if not children:
            return None
        row = trail.store.run(children[0].id)


@click.command()
@click.argument("run", shell_complete=run_ids)
@command_argument
@app_option
@unknown_option
@children_option
@options
def resume(run: str, command: tuple[str, ...], app: str | None, unknown: str | None, *, children: bool) -> int:
    """Go on with a run that was interrupted, failed or paused. What has completed is not run again.

    Of a workflow by its code, which --app names; of a program by the program, named after two dashes.
    """
    here = session()
    if command:
        leave_out("a workflow", {"--app": app})
        resumed(here, run, command, unknown, children=children)
    trail = here.open(write=True)
    run_id, seq = run_of(here, trail, "resume", run, command)
    given = [*(["--unknown", unknown] if unknown else []), *(["--children"] if children else [])]
    ask_for_program(here, "resume", trail, run_id, *given)
    leave_out("a program", {"--unknown": unknown, "--children": children})
    place = named(app)
    found = trail.run(run_id)
    _refuse_a_map(here, trail, found)
    if seq is not None and seq != found.head:
        raise ConflictError(
            f"{run_id} stands at step {found.head}, and goes on from there; to go on from {seq}, fork it."
        )
    with apart(as_json=here.output.as_json):
        module, attribute = load(place)
        workflow = workflow_in(module, attribute, found.workflow, Workflow)
        try:
            result = _gone_on_with(_opened_there(module, trail), found, workflow)
        except (KeyboardInterrupt, SystemExit):  # by a signal: it was left where it stands
            again = here.command("resume", run_id, *(["--app", app] if app else []))
            here.output.talk(f"{run_id} was interrupted. Go on with it: {again}")
            raise
    value = None
    if result.completed and workflow.gives_state:
        value = trail.state(run_id, view=True)
    elif result.completed:
        value = trail.step(run_id, trail.run(run_id).head, view=True).output
    return _tell(here, trail, result, value)


def _gone_on_with(trail: Trail, run: Run, workflow: Workflow[..., Any]) -> RunResult[Any]:
    """What comes of a run that goes on as in a program: past failures only if it has gone past some before."""
    runner: Any = Runner(trail)
    if run.status is Status.PARTIAL:
        return runner.run(workflow, id=run.id, error_handling="continue")  # type: ignore[no-any-return] # what a runner gives
    try:
        return runner.run(workflow, id=run.id)  # type: ignore[no-any-return] # as above
    except (Exception, SystemExit) as error:  # whatever the program raised is told with what became of its run
        now = trail.run(run.id)
        if now.status not in FINISHED or now.head == run.head:
            raise  # it did not go on
        return RunResult(run.id, now.status, RunLog(run.workflow, run.id, 0.0), error=error)


def _refuse_a_map(here: Session, trail: Trail, run: Run) -> None:
    """A map is gone on with by the program, which has all of its items. Each that was begun is a run as others are."""
    if run.oldest or run.head < 0 or not is_map(trail.step(run.id, 0, view=True)):
        return
    worst = next((each for each in items_of(trail, run.id) if each.status is not Status.COMPLETED), None)
    one = "" if worst is None else f" Or go on with one of them: {here.command('resume', worst.id, *still_to_name())}"
    raise ConflictError(f"{run.id} is a map over many items; {go_on_with(run.id)}{one}")


def _opened_there(module: ModuleType, trail: Trail) -> Trail:
    """The trail as the app itself has opened it, if it did: with the rules by which it keeps secrets out."""
    theirs = (value for value in vars(module).values() if isinstance(value, Trail))
    return next((value for value in theirs if value.store.where == trail.store.where), trail)


def _tell(here: Session, trail: Trail, result: RunResult[Any], value: Any) -> int:
    error = result.error
    if here.output.as_json:
        here.output.data(
            resume={
                "run": result.run_id,
                "status": str(result.status),
                "restored": result.restored,
                "value": plain.plain(value),
                "error": None if error is None else {"type": type(error).__qualname__, "message": str(error)},
                "pauses": [_pause(pause) for pause in result.pauses],
            }
        )
    elif result.completed:
        _tell_value(here, trail, result.run_id, value)
        here.output.talk(
            f"{result.run_id} {'had completed before: nothing was executed' if result.restored else 'completed'}."
        )
    else:
        _tell_why(here, trail, result)
    return exits.OK if result.completed else exits.WAITING if result.paused else exits.ERROR


def _tell_value(here: Session, trail: Trail, run_id: str, value: Any) -> None:
    """Print what a run gave: all of it, or for a person what fits a line, and where the rest is."""
    text = brief(value, _WIDE) if here.output.person else whole(value)
    here.output.line(Cell(text))
    if here.output.person and (text.endswith("...") or len(text) > get_terminal_size().columns):
        head = trail.step(run_id, trail.run(run_id).head, view=True)
        place = ["show", f"{run_id}@{head.seq}"] if head.output is not None else ["state", run_id]
        here.output.talk(f"the whole of it: {here.command(*place, '--all')}")


def _pause(pause: PauseInfo) -> dict[str, Any]:
    return {
        "run": pause.run_id, "pause": pause.seq, "name": pause.name, "prompt": pause.prompt, "schema": pause.schema,
        "options": pause.options, "deadline": pause.deadline,
    }  # fmt: skip


def _tell_why(here: Session, trail: Trail, result: RunResult[Any]) -> None:
    """Say why a run went no further."""
    if result.paused:  # what failed beside a question ends the run only when that was answered
        run = trail.run(result.run_id)
        for each in failed_so_far(trail, run, outline(trail.steps(run.id, view=True))):
            here.output.talk(f"{each.name} failed: {each.error or 'erased'}")
            here.output.talk(f"next: {here.command('show', f'{each.run_id}@{each.seq}')}")
    if result.error is not None:
        here.output.talk(f"{result.run_id} failed: {type(result.error).__qualname__}: {result.error}")
        here.output.talk(f"next: {here.command('why', result.run_id)}")
    several = len(result.pauses) > 1
    for pause in result.pauses:
        which = ["--pause", pause.seq] if several else []
        here.output.talk(f"{pause.run_id} waits: {pause.prompt}{answers.allowed(pause.options, pause.schema)}")
        here.output.talk(f"next: {here.command('answer', pause.run_id, 'VALUE', *which)}")
        if pause.name != "pause":  # an external step
            here.output.talk(f"  or: {here.command('answer', pause.run_id, '--retry', *which)}")
