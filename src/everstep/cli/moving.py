"""The commands that move runs: export, to a file or as a test, and import."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from everstep.cli import exits
from everstep.cli.app import AppError, apart, load, named, workflow_in
from everstep.cli.capturing import typed_before
from everstep.cli.session import Session, options, run_ids, session
from everstep.cli.text import count
from everstep.errors import DamagedFileError, RunExistsError
from everstep.model import Run
from everstep.run.workflows import Workflow
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

SUFFIX = ".everstep"


class ThereError(click.ClickException):
    """There is a run with that id."""

    exit_code = exits.CONFLICT


_TEST = '''"""Replays a recorded run against today's code. Written by `everstep export --as-test`; it is yours now."""

import pytest
from {module} import {first}


@pytest.mark.everstep_replay({file}, workflow={workflow})
def test_{name}() -> None:
    """Fails where the code does not do what is on record."""
'''


@click.command()
@click.argument("run", shell_complete=run_ids)
@click.option(
    "-o", "--output", "file", metavar="FILE", type=click.Path(dir_okay=False), help="Where to; else ./RUN.everstep."
)
@click.option("--as-test", is_flag=True, help="Write a test that replays it, too, beside the file.")
@click.option(
    "--app",
    metavar="MODULE[:WORKFLOW]",
    help="For the test, where its code is, a module or a file; else `app` in [tool.everstep] of ./pyproject.toml.",
)
@options
def export(run: str, file: str | None, app: str | None, *, as_test: bool) -> int:
    """Write a run, with its children, to a file that stands alone: to review, to keep beside the code, to replay."""
    here = session()
    if app is not None and not as_test:
        raise click.UsageError("--app is for the test: add --as-test.")
    trail = here.open()
    found = trail.run(run)
    words = typed_before(trail, found.id)
    if as_test and words is not None:  # before anything is loaded: to import a program is to run it
        again = here.command("replay", found.id, "--", *(words or ["python", "PROGRAM"]))
        raise click.UsageError(
            f"{found.id} is the run of a program: leave out --as-test, and have a test run {again}\n"
            "One to copy: docs/how-to/turn-a-failed-run-into-a-test.md, under `Of a recorded program`."
        )
    place = Path(file or f"{_name(found.id, '-')}{SUFFIX}")
    with apart(as_json=here.output.as_json):
        test = _test(place, named(app), found.workflow) if as_test else None
    place.parent.mkdir(parents=True, exist_ok=True)
    trail.export(run, place)
    kept = test is not None and test[0].exists()  # somebody may have gone on writing it
    if test is not None and not kept:
        test[0].write_text(test[1], "utf-8")
    _tell(here, place, found.step_count, None if test is None else test[0], kept=kept)
    return exits.OK


def _tell(here: Session, place: Path, rows: int, test: Path | None, *, kept: bool) -> None:
    if here.output.as_json:
        here.output.data(export={"file": str(place), "bytes": place.stat().st_size, "test": test and str(test)})
        return
    here.output.talk(f"wrote {place}: {count(rows, 'row')}.")
    if test is not None:
        here.output.talk(f"{test} is there, and was left alone." if kept else f"wrote {test}.")
        here.output.talk(f"next: python -m pytest {test}")


def _name(text: str, sign: str) -> str:
    """A text as part of the name of a file or a function: no path can be in it."""
    return re.sub(r"\W+", sign, text, flags=re.ASCII).strip(sign)[:80] or "run"


def _test(place: Path, app: str, workflow: str) -> tuple[Path, str]:
    """The file of the test, and its text. The code in it is what a person named: nothing of it comes from the trail."""
    module, attribute = load(app)
    found = workflow_in(module, attribute, workflow, Workflow)
    path = app.partition(":")[2] or next(name for name, value in vars(module).items() if value is found)
    if not all(part.isidentifier() for part in path.split(".")):
        raise AppError(f"{path!r} is no name that a test can import; say MODULE:WORKFLOW.")
    name = _name(place.stem, "_").lower()
    text = _TEST.format(
        module=module.__name__, first=path.partition(".")[0], workflow=path, file=_quoted(place.name), name=name
    )
    return place.with_name(f"test_{name}.py"), text


def _quoted(name: str) -> str:
    return f'"{name}"' if re.fullmatch(r"[\w .-]+", name, flags=re.ASCII) else repr(name)


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@click.option("--id", "new_id", metavar="ID", help="The id of the run; else the one it had.")
@options
def import_(files: tuple[str, ...], new_id: str | None) -> int:
    """Read exported runs into the trail, which is made if it is not there. Every line is checked first."""
    here = session()
    if new_id is not None and len(files) > 1:
        raise click.UsageError("--id is for one file.")
    trail = _made(here)
    found = []
    for file in files:
        run = _imported(here, trail, file, new_id)
        found.append({"file": file, "run": run.id, "workflow": run.workflow, "status": str(run.status)})
        if not here.output.as_json:
            here.output.talk(f"{run.id}: {run.status}, {count(run.step_count, 'row')}.")
    if here.output.as_json:
        data: dict[str, Any] = {"import": found}
        here.output.data(**data)
    else:
        here.output.talk(f"next: {here.command('show', found[0]['run'])}")
    return exits.OK


def _imported(here: Session, trail: Trail, file: str, new_id: str | None) -> Run:
    try:
        return trail.import_run(file, id=new_id)
    except RunExistsError as error:
        again = here.command("import", file, "--id", "ID")
        raise ThereError(f"a run {error.run_id!r} exists already. Import it under another id: {again}") from None
    except DamagedFileError:
        with Path(file).open("rb") as opened:
            if opened.read(1) == b"{":  # as what is exported begins
                raise
        raise AppError(f"{file!r} is no exported run. Give a file that `everstep export` wrote.") from None


def _made(here: Session) -> Trail:
    """The trail to read into."""
    trail = open_trail(here.url)
    click.get_current_context().call_on_close(trail.close)
    return trail
