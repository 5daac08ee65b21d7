"""The code that a run is resumed with. A person names it, here or in pyproject.toml; a trail never does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from everstep.capturing.command import CAPTURED
from everstep.cli import exits, project
from everstep.cli.session import NotThereError

app_option = click.option(
    "--app",
    metavar="MODULE[:WORKFLOW]",
    help="Where its code is, a module or a file; else `app` in [tool.everstep] of ./pyproject.toml.",
)


class AppError(click.ClickException):
    """The named code could not be loaded."""

    exit_code = exits.ERROR


def configured() -> str | None:
    """The app that `[tool.everstep]` of ./pyproject.toml names; None where there is none, or nothing can be read."""
    try:
        found = project.configured("app")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, str) and found else None


def named(app: str | None) -> str:
    """The app that a person named, here or in pyproject.toml."""
    found = app or configured()
    if found is None:
        raise click.UsageError(
            "name the module, or the file, with the run's workflow: --app MODULE, or app in [tool.everstep]."
        )
    return found


def still_to_name(about: Mapping[str, Any] | None = None) -> list[str]:
    """What is to be added to a command that runs code: nothing if pyproject.toml names the app.

    With what is said of a run: of a program, how it was called.
    """
    typed = (about or {}).get(CAPTURED)
    if typed is not None:
        return ["--", *map(str, typed)]
    return [] if configured() else ["--app", "MODULE"]


def apart(*, as_json: bool) -> AbstractContextManager[object]:
    """Within it, what the code prints stays out of our data."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def load(app: str) -> tuple[ModuleType, Any]:
    """The module that `module[:attribute]` names, and the attribute if named. A file names the module that it is.

    Modules are found from the working directory too, and from the folder of the file.
    """
    name, _, attribute = app.partition(":")
    if not name:
        raise click.UsageError(f"{app!r} names no module; give MODULE or FILE.py, or one with :WORKFLOW.")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = module_of(name)
    try:
        module = import_module(name)
        found: Any = module if attribute else None
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part, None)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:  # one that it imports itself
            raise AppError(f"cannot load {app!r}: {type(error).__name__}: {error}.") from error
        near = get_close_matches(name, [file.stem for file in Path.cwd().glob("*.py")], 1)
        meant = f" Did you mean {near[0]!r}?" if near else " Name a module, or a FILE.py."
        raise AppError(
            f"cannot load {app!r}: there is no such module in {folder}, nor where Python looks.{meant}"
        ) from None
    except (Exception, SystemExit) as error:  # it is somebody else's code: whatever it raises is the answer
        raise AppError(f"cannot load {app!r}: {type(error).__name__}: {error}.") from error
    if attribute and found is None:
        out = "Leave it out to have the workflow found by its name."
        raise NotThereError(f"module {name!r} has no {attribute!r}. {out}")
    return module, found


def module_of(place: str) -> str:
    """The name of the module that a file is, found from its folder from now on; what is no file names one itself."""
    if not place.endswith(".py"):
        return place
    file = Path(place).resolve()
    if not file.is_file():
        raise NotThereError(f"there is no file {place!r}.")
    sys.path.insert(0, str(file.parent))
    found = find_spec(file.stem) if "." not in file.stem else None
    if found is None or found.origin is None or Path(found.origin).resolve() != file:
        raise AppError(f"cannot load {place!r}: Python finds another module under the name of the file. Rename it.")
    return file.stem


def workflow_in(module: ModuleType, named: Any, workflow: str, kind: type) -> Any:
    """The workflow of a run: the one that was named, or the one in the module that has the name."""
    if named is not None:
        if not isinstance(named, kind):
            raise AppError(f"{named!r:.80} is no workflow; decorate it with @everstep.workflow.")
        return named
    found: list[Any] = list({id(value): value for value in vars(module).values() if isinstance(value, kind)}.values())
    fitting = [value for value in found if value.name == workflow]
    if not fitting:
        names = ", ".join(sorted(repr(value.name) for value in found)) or "none"
        raise NotThereError(f"module {module.__name__!r} has no workflow {workflow!r}. It has: {names}.")
    if len(fitting) > 1:
        raise AppError(f"module {module.__name__!r} has {len(fitting)} workflows {workflow!r}; say MODULE:WORKFLOW.")
    return fitting[0]
