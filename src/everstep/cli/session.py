"""What every command has: which trail, for whom it prints, and the options that say so."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from everstep.cli import exits
from everstep.cli.launching import LEFT_OUT, typed, url_of
from everstep.cli.output import Output
from everstep.errors import EverstepError, UnreadableError
from everstep.trail.late import Late
from everstep.trail.naming import DEFAULT, MEMORY, POSTGRES, SQLITE, TRAIL, folder_of, is_url, without_password

if TYPE_CHECKING:
    from everstep.model import Run
    from everstep.trail.trail import Trail

F = TypeVar("F", bound=Callable[..., Any])

_IDS = 200  # that a shell is offered
# A command that becomes a program opens no trail.
_MODEL, _BASE = Late("everstep.model"), Late("everstep.store.base")
_OWNER, _TRAIL = Late("everstep.trail.owner"), Late("everstep.trail.trail")


class NotThereError(click.ClickException):
    """What was asked for is not there."""

    exit_code = exits.NOT_FOUND


class Session:
    """One command at work."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.named: str | None = options.get("trail")
        self.url: str = url_of(self.named)
        self.shown = self.named and without_password(self.named)  # in commands that we tell of
        self.on_server = self.url.startswith(POSTGRES)
        self.output = Output(as_json=bool(options.get("json")))
        self._noted = False  # that a password is missing in a command

    @cached_property
    def path(self) -> Path:
        """The file of the trail, or its folder."""
        if self.url in {MEMORY, SQLITE + MEMORY}:
            raise click.UsageError("a trail in memory is gone when its program ends; name a file with --trail.")
        if self.url.startswith(SQLITE):
            return Path(unquote(self.url.removeprefix(SQLITE)))
        return folder_of(self.url) or Path(self.url).expanduser()

    def open(self, *, write: bool = False) -> Trail:
        """The trail, closed when the command ends. One that is not there is an error: nothing is made."""
        is_local = self.url.startswith(SQLITE) or folder_of(self.url) is not None or not is_url(self.url)
        if is_local and not _is_there(self.path):
            raise UnreadableError(str(self.path.absolute()), "there is no trail", _way_to_one(self.path))
        trail: Trail = _TRAIL.open(self.url, read_only=not write)
        click.get_current_context().call_on_close(trail.close)
        return trail

    def command(self, *words: object) -> str:
        """A command line of ours that works where this one was typed."""
        if self.shown != self.named and not self._noted:
            self._noted = True
            click.get_current_context().call_on_close(lambda: self.output.talk(LEFT_OUT))
        return typed(words, self.shown)


def _way_to_one(missing: Path) -> str:
    """Where the trail may be that was meant: here, or where the project begins."""
    here = Path.cwd()
    places = [folder / name for folder in (here, *here.parents) for name in (DEFAULT, Path(DEFAULT).name)]
    found = next((place for place in places if os.path.isfile(place) and place != missing.absolute()), None)  # noqa: PTH113 - a folder that may not be read is no error
    if found is None:
        return f"Name one with --trail, or in {TRAIL}; else it is {DEFAULT}."
    near = os.path.relpath(found)
    at = near if near.startswith(os.pardir) else os.path.join(os.curdir, near)  # noqa: PTH118 - a Path drops the dot
    return f"There is one at {at}: --trail {shlex.quote(near)}"


def _is_there(path: Path) -> bool:
    """Whether there is something where a trail is looked for. Nothing in a folder, or in a file, is none."""
    try:
        if path.is_dir():
            return any(path.iterdir())
        return path.exists() and (not path.is_file() or path.stat().st_size > 0 or Path(f"{path}-wal").exists())
    except PermissionError:  # of which the store tells
        return True


def options(command: F) -> F:
    """Give a command --trail and --json."""
    where = click.option("--trail", metavar="URL", expose_value=False, callback=_keep, help=_TRAIL_HELP)
    return where(json_option(command))


def json_option(command: F) -> F:
    """Give a command --json alone."""
    return click.option("--json", is_flag=True, expose_value=False, callback=_keep, help=_JSON_HELP)(command)


_TRAIL_HELP = f"The trail: a path or a URL. Else ${TRAIL}, else {DEFAULT}."
_JSON_HELP = "Print one JSON object."


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Note an option, wherever on the line it stands."""
    kept: dict[str, Any] = context.find_root().ensure_object(dict)
    if parameter.name is not None and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        kept[parameter.name] = value
    return value


def session() -> Session:
    """The session of the command at work."""
    return Session(click.get_current_context().find_root().ensure_object(dict))


def paged(default: int) -> Callable[[F], F]:
    """Give a list --limit and --cursor."""

    def wrap(command: F) -> F:
        cursor = click.option("--cursor", metavar="CURSOR", help="Go on where the last page ended.")
        limit = click.option(
            "--limit", type=click.IntRange(min=1), metavar="N", default=default, show_default=True, help=_LIMIT_HELP
        )
        return limit(cursor(command))

    return wrap


_LIMIT_HELP = "How many at most."


class StepNumber(click.IntRange):
    """The number of a step."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or what is wrong with it."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r:.60} is no step's number; `everstep steps RUN` lists them.", param, ctx)


def position(cursor: str | None) -> int:
    """Where a page begins, from the cursor of the one before."""
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > 18:
        raise click.UsageError(f"{cursor!r} is no cursor; pass on the one that the last page gave.")
    return int(cursor)


def about(trail: Trail, run_id: str) -> Mapping[str, Any]:
    """What was said of a run when it began; nothing where that is gone."""
    run = trail.run(run_id)
    return {} if run.oldest or run.head < 0 else trail.step(run_id, 0, view=True).metadata or {}


def run_ids(context: click.Context, _: click.Parameter, incomplete: str) -> Iterable[CompletionItem]:
    """The newest runs whose ids begin with what was typed, for a shell."""
    url = url_of(context.find_root().ensure_object(dict).get("trail"))
    try:
        with _TRAIL.open(url, read_only=True) as trail:
            # Those inside others, of which a map has many, are offered once the id of one that has some was typed.
            asked = trail.runs(parent=_BASE.ANY if "/" in incomplete else None, limit=_IDS)
            found = [run for run in asked if run.id.startswith(incomplete)]
    except EverstepError:
        return []
    return [CompletionItem(run.id, help=f"{run.workflow} {run.status}".strip()) for run in found]


def address(trail: Trail, text: str) -> tuple[str, int | None]:
    """A run, or `run@seq`, as its id and its seq."""
    found: tuple[str, int | None] = _TRAIL.address_of(trail, text)
    return found


def is_interrupted(trail: Trail, run: Run) -> bool:
    """Whether a run that has not ended is at work nowhere."""
    return run.status is _MODEL.Status.ACTIVE and not _OWNER.is_at_work(run.owner, trail.store.run(run.id).lease)


def standing(trail: Trail, run: Run) -> str:
    """How a run stands, in a word: as its status says, unless it is not all there, or at work nowhere."""
    if _OWNER.is_copy(run.owner):
        return "half copied"
    return "interrupted" if is_interrupted(trail, run) else str(run.status)
