"""The commands on programs that know nothing of runs: record; and resume, replay and fork where a program is named."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from everstep.capturing.command import CAPTURED, CHILDREN, parsed
from everstep.capturing.program import Target
from everstep.cli import launching
from everstep.cli.session import Session, about, address, options, session
from everstep.errors import RunNotFoundError, WorkflowDiffersError
from everstep.trail.beginning import check_inputs

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_PROGRAM = re.compile(r"(^|/)python[\d.]*$|\.py$")
_SETTINGS: dict[str, Any] = {"ignore_unknown_options": False, "allow_interspersed_args": False}

children_option = click.option("--children", is_flag=True, help="Record the Python programs that it starts, too.")


def _program(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """The words of a program. After `-- -RUN`, which only dashes keep from being an option, its own dashes are left."""
    return given[1:] if given[:1] == ("--",) else given


command_argument = click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ...]", callback=_program
)


@click.command(context_settings=_SETTINGS)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM ...")
@click.option("--id", "run_id", metavar="ID", help="The id of the run; else one is made.")
@click.option("--tag", "tags", metavar="NAME=TEXT", multiple=True, help="Say something of the run, to find it by.")
@click.option(
    "--durability", type=click.Choice(launching.DURABILITIES), help="When a step counts as kept; else by the trail."
)
@children_option
@click.option("--no-clock", is_flag=True, help="Leave it the clock of the world, which no replay has again.")
@click.option("--no-entropy", is_flag=True, help="Leave it the chance of the world, which no replay has again.")
@click.option("--quiet", is_flag=True, help="Say nothing of our own.")
@options
def record(
    command: tuple[str, ...],
    run_id: str | None,
    tags: tuple[str, ...],
    durability: str | None,
    *,
    children: bool,
    no_clock: bool,
    no_entropy: bool,
    quiet: bool,
) -> None:
    """Run a Python program, and keep every call that it makes to the outside. It need not know."""
    here = session()
    said = {"id": run_id, "tags": dict(map(_tag, tags)), "durability": durability, "children": children, "quiet": quiet}
    said |= {name: False for name, is_off in (("clock", no_clock), ("entropy", no_entropy)) if is_off}
    _ = "://" in here.url or here.path  # which says that one in memory does not do
    launching.launch_new(here.named, command, {**said, "json": here.output.as_json})


def launch(here: Session, command: tuple[str, ...], said: dict[str, Any]) -> None:
    """Become the program, under capture. Does not return."""
    launching.launch(here.named, command, {"json": here.output.as_json, **said})


def _tag(given: str) -> tuple[str, str]:
    name, sign, text = given.partition("=")
    if not sign or not name:
        raise click.UsageError(f"{given!r} says nothing; write NAME=TEXT.")
    return name, text


unknown_option = click.option(
    "--unknown",
    type=click.Choice(["ask", "retry", "fail"]),
    help="What becomes of a call whose answer a crash cut off.",
)


def resumed(here: Session, run: str, command: tuple[str, ...], unknown: str | None, *, children: bool) -> None:
    """Go on with the run of a program."""
    trail = here.open()
    run_id, _ = run_of(here, trail, "resume", run, command)
    children = _check_captured(trail, run_id, command, children=children)
    trail.close()
    launch(here, command, {"id": run_id, "unknown": unknown, "children": children})


def replayed(
    here: Session, run: str, command: tuple[str, ...], mode: str | None, seal: str | None, allow: tuple[str, ...]
) -> None:
    """Go through the run of a program again."""
    trail = here.open()
    run_id, _ = run_of(here, trail, "replay", run, command)
    _check_captured(trail, run_id, command)
    if mode == "recorded":
        raise click.UsageError("--mode recorded runs no program: leave out what stands after the dashes.")
    trail.close()
    launch(here, command, {"id": run_id, "mode": mode or "verify", "seal": seal, "allow": list(allow)})


def run_of(here: Session, trail: Trail, verb: str, run: str, command: tuple[str, ...]) -> tuple[str, int | None]:
    """A run, as its id and its seq. Raises RunNotFoundError, and UsageError if a program stands where its id should."""
    found = address(trail, run)
    try:
        trail.run(found[0])
    except RunNotFoundError:
        if _PROGRAM.search(run) is None:
            raise
        again = here.command(verb, "RUN", "--", run, *command)
        raise click.UsageError(
            f"the id of the run is missing before the dashes: {again}. `everstep runs` lists them."
        ) from None
    return found


def _check_captured(trail: Trail, run_id: str, command: tuple[str, ...], *, children: bool = False) -> bool:
    """Say what is wrong if a run is not one of a program. Whether what that starts is recorded, too."""
    if typed_before(trail, run_id) is None:
        raise click.UsageError(
            f"{run_id} is a run of workflow {trail.run(run_id).workflow!r}, not of a program: name its code with --app "
            f"instead of {shlex.join(command)!r}."
        )
    return children or with_children(trail, run_id)


def checked(trail: Trail, run_id: str, command: tuple[str, ...], *, children: bool) -> bool:
    """Say what is wrong if a run is not one of the program, so called. Whether what that starts is recorded, too."""
    if not command:
        return children
    children = _check_captured(trail, run_id, command, children=children)
    row, target = trail.store.run(run_id), Target(parsed(command, others=children).target)
    if target.name != row.workflow:
        raise WorkflowDiffersError(run_id, row.workflow, target.name, of_program=True)
    check_inputs(trail.store, trail.gate, row, {"command": target.command})
    return children


def typed_before(trail: Trail, run_id: str) -> list[str] | None:
    """How the program of a run was called; None if it is not the run of a program."""
    found = about(trail, run_id).get(CAPTURED)
    return None if found is None else [str(word) for word in found]


def with_children(trail: Trail, run_id: str) -> bool:
    """Whether the programs that a program starts were recorded, too: then they are when it goes on."""
    return bool(about(trail, run_id).get(CHILDREN))


def leave_out(whose: str, given: Mapping[str, Any]) -> None:
    """Refuse options that do nothing here: who gives one counts on it."""
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} is for the run of {whose}, and does nothing here: leave it out.")


def ask_for_program(here: Session, verb: str, trail: Trail, run_id: str, *options: str) -> None:
    """Refuse to do something with the run of a program that is not named: what a trail says is never executed.

    The options that were given stand in the command that does it.
    """
    words = typed_before(trail, run_id)
    if words is not None:
        again = here.command(verb, run_id, *options, "--", *(words or ["python", "PROGRAM"]))
        raise click.UsageError(f"{run_id} is the run of a program; say which one: {again}")
