"""The commands that go through a run again: replay, and fork."""

from __future__ import annotations

from typing import Any

import click

from everstep.capturing.command import CAPTURED
from everstep.cli import exits, plain
from everstep.cli.advising import go_on_with
from everstep.cli.again import done_again, warning
from everstep.cli.app import apart, app_option, configured, load, named, still_to_name, workflow_in
from everstep.cli.capturing import (
    ask_for_program,
    checked,
    children_option,
    command_argument,
    launch,
    leave_out,
    replayed,
    run_of,
)
from everstep.cli.once import Once
from everstep.cli.output import Cell
from everstep.cli.session import Session, StepNumber, about, options, run_ids, session
from everstep.cli.typed import error_of, value_of
from everstep.cli.values import keys_to
from everstep.model import Status
from everstep.run.workflows import Workflow
from everstep.trail.forking import Forking
from everstep.trail.inputs import are_parameters
from everstep.trail.inside import is_map
from everstep.trail.replayed import ReplayReport
from everstep.trail.trail import Trail
from everstep.trail.versions import CODE

_REUSE = "Use what the run did later, where the same is asked for; a person is asked again."
_SEALED = "Of a program: what is refused if it is not on record; hard: in a network of its own, too. Else calls."


@click.command(cls=Once)
@click.argument("run", shell_complete=run_ids)
@command_argument
@app_option
@click.option(
    "--mode",
    type=click.Choice(["recorded", "verify", "lenient"]),
    help="From the record alone; by the code, up to the first difference; by the code, all differences.",
)
@click.option("--rerun", metavar="NAME", multiple=True, help="Call this leaf too, and compare what it gives.")
@click.option("--sealed", is_flag=True, help="Of a program: refuse to write files, too.")
@click.option("--seal", type=click.Choice(["off", "calls", "files", "hard"]), help=_SEALED)
@click.option("--allow", metavar="FOLDER", multiple=True, help="Where a sealed program may write.")
@options
def replay(
    run: str,
    command: tuple[str, ...],
    app: str | None,
    mode: str | None,
    rerun: tuple[str, ...],
    seal: str | None,
    allow: tuple[str, ...],
    *,
    sealed: bool,
) -> int:
    """Go through a run again: leaves from the record, the code between them as it is today. Nothing is written.

    Of a workflow by its code, which --app names; of a program by the program, named after two dashes.
    """
    here = session()
    if sealed and seal in {"off", "calls"}:
        raise click.UsageError(f"--sealed refuses more than --seal {seal}: leave one of the two out.")
    seal = seal or ("files" if sealed else None)
    if command:
        leave_out("a workflow", {"--app": app, "--rerun": rerun})
        replayed(here, run, command, mode, seal, allow)
    trail = here.open()
    run_of(here, trail, "replay", run, command)
    words = [] if seal is None else ["--sealed"] if seal == "files" else ["--seal", seal]
    wanted = mode or ("verify" if app or configured() else "recorded")
    if wanted != "recorded" or words or allow:  # before anything is loaded: to import a program is to run it
        again = [*(["--mode", mode] if mode == "lenient" else []), *words]
        ask_for_program(here, "replay", trail, run, *again, *(word for each in allow for word in ("--allow", each)))
    leave_out("a program", {"".join(words[:1]): seal, "--allow": allow})
    place = None if wanted == "recorded" else named(app)
    with apart(as_json=here.output.as_json):
        workflow = None
        if place is not None:
            module, attribute = load(place)
            workflow = workflow_in(module, attribute, trail.run(run).workflow, Workflow)
        report = trail.replay(run, workflow, mode=wanted, rerun=rerun)  # type: ignore[arg-type] # click has seen that it is one of them
    if here.output.as_json:
        here.output.data(replay=report.to_dict(plain.change))
    else:
        _tell(here, report)
        said = about(trail, run)
        if wanted == "recorded" and (CODE in said or CAPTURED in said):  # what was recorded by hand has no code
            here.output.talk(f"to compare it with the code: {here.command('replay', run, *still_to_name(said))}")
    return exits.OK if report.identical else exits.DIFFERENT


def _tell(here: Session, report: ReplayReport) -> None:
    for line in str(report).splitlines():
        here.output.line(Cell(line, whole=True))
    if report.first is not None and report.first.seq is not None:
        at = f"{report.first.run_id}@{report.first.seq}"
        here.output.talk(f"next: {here.command('show', at)}")
        here.output.talk(f"      {here.command('fork', report.first.run_id, '--at', str(report.first.seq - 1))}")


@click.command(cls=Once)
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@command_argument
@click.option("--at", type=StepNumber(), metavar="SEQ", help="The last step that is shared; else the newest.")
@click.option("--id", "new_id", metavar="ID", help="The id of the new run; else one is made.")
@click.option(
    "--set", "changes", metavar="PATH=VALUE", multiple=True, help="Change the state there: `note`, `pages[-1].title`."
)
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="Change an input, from there on.")
@click.option("--outcome", metavar="SEQ=VALUE", help="Fork at this step, as if it had given VALUE.")
@click.option(
    "--failure",
    metavar="SEQ=TEXT",
    help="As if it had failed with TEXT, or TYPE: TEXT, as `2=httpx.ReadTimeout: slow`.",
)
@click.option("--reuse", is_flag=True, help=_REUSE)
@children_option
@options
def fork(
    run: str,
    command: tuple[str, ...],
    at: int | None,
    new_id: str | None,
    changes: tuple[str, ...],
    inputs: tuple[str, ...],
    outcome: str | None,
    failure: str | None,
    *,
    reuse: bool,
    children: bool,
) -> int:
    """Make a run that shares the steps of another up to a point, and can go on otherwise. VALUE is JSON, or text."""
    here = session()
    trail = here.open(write=True)
    run_id, seq = run_of(here, trail, "fork", run, command)
    if None not in (seq, at):
        raise click.UsageError("say the step once: RUN@SEQ, or --at SEQ.")
    point = seq if at is None else at
    said: Forking = {"id": new_id, "reuse": reuse}
    if changes:
        before = trail.state(run_id, point, view=True)
        pairs = _pairs("--set", changes)
        said["set"] = {keys_to(before, path): value for path, value in pairs.items()}
    if inputs:
        said["inputs"] = _pairs("--input", inputs)
    if outcome is not None or failure is not None:
        point, said["outcome"] = _outcome(outcome, failure, point)
    _check(here, trail, run_id, point, said)
    children = checked(trail, run_id, command, children=children)  # before it is made
    made = _made(trail, run_id, point, said)
    shared = trail.run(made).fork_seq or 0
    again = done_again(trail, run_id, shared + ("outcome" in said), reuse=reuse)
    if not here.output.as_json or command:
        here.output.talk(f"made {made}, which shares {run_id} up to step {shared}.")
        if again:
            here.output.talk(warning(run_id, made, again, reuse=reuse))
    if command:
        trail.close()
        launch(here, command, {"id": made, "children": children})
    if here.output.as_json:
        repeated = [each.data() for each in again]
        here.output.data(fork={"run": made, "forked_from": run_id, "at": shared, "again": repeated})
    elif oldest := trail.run(made).oldest:
        here.output.talk(
            f"what is kept of it begins at step {oldest}, so it cannot be resumed: that takes all steps. "
            "It can be looked at, and recorded to."
        )
        here.output.talk(f"next: {here.command('state', made)}")
    else:
        start = trail.step(made, 0, view=True)
        words = still_to_name(start.metadata)
        here.output.talk(go_on_with(made) if is_map(start) else f"next: {here.command('resume', made, *words)}")
    return exits.OK


def _made(trail: Trail, run_id: str, at: int | None, said: Forking) -> str:
    recorder = trail.fork(run_id, at, **said)
    recorder.release()
    return recorder.run_id


def _check(here: Session, trail: Trail, run_id: str, at: int | None, asked: Forking) -> None:
    """Refuse what nothing would be done with: inputs, state and reuse, where that is so."""
    found, said = trail.run(run_id), about(trail, run_id)
    if asked.get("reuse") and CAPTURED in said:
        raise click.UsageError(
            "a program makes its calls anew from the fork on, and takes nothing over: leave out --reuse."
        )
    if asked.get("set") and CAPTURED in said:
        raise click.UsageError(
            "a program reads nothing of the state, which is what it printed: leave out --set. What a call gave is "
            "changed with --outcome."
        )
    if not asked.get("inputs"):
        return
    if CAPTURED in said:
        raise click.UsageError(
            "the inputs of a program are the words that it is called with, and a run keeps them: leave out --input, "
            "and record it with others as a new run."
        )
    ended = found.status is Status.COMPLETED and (at is None or at >= found.head)
    if ended and are_parameters(said):  # of a graph, the nodes that take them are called again
        raise click.UsageError(
            f"{run_id} has completed, and no step of it comes after {found.head} that could be asked otherwise: inputs "
            f"that are changed count from the fork on. Say where that is: --at 0 begins anew, and "
            f"`{here.command('steps', run_id)}` lists what there is."
        )


def _outcome(outcome: str | None, failure: str | None, at: int | None) -> tuple[int, Any]:
    if outcome is not None and failure is not None:
        raise click.UsageError("a step gives something, or fails: use --outcome or --failure.")
    seq, value = _pair(outcome or failure or "", text=outcome is None)
    if not seq.isdecimal():
        raise click.UsageError(f"{seq!r} is no step; say SEQ=VALUE.")
    if at is not None and at != int(seq):
        raise click.UsageError(f"a fork that changes what step {seq} gave is made there: leave out --at {at}.")
    return int(seq), error_of(value) if outcome is None else value


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in map(_pair, given):
        if name in found:
            raise click.UsageError(f"{option} {name}=... is given twice, and one of them would count: leave one out.")
        found[name] = value
    return found


def _pair(given: str, *, text: bool = False) -> tuple[str, Any]:
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{given!r} says no value; write NAME=VALUE, and SEQ=VALUE for an outcome.")
    return name, value if text else value_of(value)
