"""The command that explains: why a run failed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from shutil import get_terminal_size

import click

from everstep.cli.advising import to_finish
from everstep.cli.app import still_to_name
from everstep.cli.output import Cell
from everstep.cli.session import Session, about, options, run_ids, session
from everstep.trail.owner import is_copy
from everstep.trail.trail import Trail
from everstep.trail.why.report import Why

_STYLES = {"high:": "red", "likely:": "yellow", "weak:": "dim"}


@click.command()
@click.argument("run", shell_complete=run_ids)
@options
def why(run: str) -> None:
    """Tell why a run failed or does not go on: from the failure back to the step it came from."""
    here = session()
    trail = here.open()
    with here.output.busy(f"reading {run}"):
        found = trail.why(run)
    if here.output.as_json:
        here.output.data(why=found.to_dict() | {"next": list(_nexts(here, trail, found))})
        return
    room = {"width": get_terminal_size().columns} if here.output.person else {}
    for line in found.lines(commands=False, **room):
        style = next((style for word, style in _STYLES.items() if f" {word} it " in line), "")
        here.output.line(Cell(line, style))
    if is_copy(trail.run(run).owner):
        here.output.talk(f"{run} is half copied. {to_finish(here, run)}")
        return
    for line in _nexts(here, trail, found):
        here.output.talk(f"next: {line}")


def _nexts(here: Session, trail: Trail, found: Why) -> Iterator[str]:
    """The commands that are worth typing, as they work here: with the trail, and with the code or the program."""
    for words in (shlex.split(line)[1:] for line in found.next):
        code = still_to_name(about(trail, words[1])) if words[0] in {"resume", "fork"} else []
        if words[0] == "fork" and "--" not in code:  # of a workflow it is made first, and resumed then
            code = []
        yield here.command(*words, *code)
