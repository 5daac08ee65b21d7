"""All commands. Each is loaded when it is called: `--help` knows them by this page alone."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from types import MappingProxyType
from typing import Any, NoReturn

import click

_COMMANDS = {  # the module of each, and what it does in a line
    "demo": ("demo", "the whole story in a minute, offline"),
    "record": ("capturing", "run any Python program, and keep its calls"),
    "runs": ("reading", "list runs"),
    "show": ("showing", "one run: summary, lineage, steps; or one step"),
    "steps": ("entries", "the steps of a run, every entry"),
    "why": ("explaining", "why a run failed, and where to look"),
    "state": ("values", "the values of a run at any step"),
    "diff": ("values", "how two states differ"),
    "compare": ("comparing", "how two runs differ, step by step"),
    "bisect": ("bisecting", "the step after which a test fails"),
    "checkpoints": ("reading", "list named points"),
    "graph": ("drawing", "draw a graph, and a run over it"),
    "search": ("reading", "find steps by their words"),
    "verify": ("checking", "check the hash chain"),
    "doctor": ("doctor", "what is installed, and whether the trail is sound"),
    "cancel": ("acting", "cancel a run (it can be resumed)"),
    "drop": ("acting", "let go of runs, for good"),
    "stop": ("acting", "stop a graph after the superstep at work"),
    "answer": ("acting", "answer a run that waits"),
    "resume": ("acting", "go on with a run"),
    "replay": ("repeating", "go through a run again, and compare"),
    "fork": ("repeating", "branch off a run, with something changed"),
    "export": ("moving", "a run as a file, and as a test"),
    "import": ("moving", "read exported runs"),
    "copy": ("copying", "take runs to another trail"),
    "completion": ("completing", "complete commands in your shell"),
}
_DROP = "`everstep drop RUN` lets go of a run."
_INSTEAD = {  # what people type who know other tools
    **dict.fromkeys(("list", "ls"), "`everstep runs` lists runs."),
    **dict.fromkeys(("delete", "remove", "rm"), _DROP),
    "prune": f"{_DROP} Of all but its newest steps: trail.prune in Python, see docs/how-to/retention.md.",
}
_DEV = "This is a bug in everstep. To see where it happened: python -X dev -m everstep ..."


class Cli(click.Group):
    """A group that loads its commands when they are used, and ends every one of them with an exit code."""

    given: Mapping[str, Any] = MappingProxyType({})  # the options that every command has, as far as they were read

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        """All names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as click calls it
        """One command, its module loaded now."""
        if cmd_name not in _COMMANDS:
            return None
        name = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        command: click.Command = getattr(import_module(f"everstep.cli.{_COMMANDS[cmd_name][0]}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words begin with. Raises UsageError with what may have been meant."""
        if args[0] in _COMMANDS or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if args[0] in _INSTEAD:
            raise click.UsageError(f"there is no command {args[0]!r}. {_INSTEAD[args[0]]}", ctx)
        near = import_module("difflib").get_close_matches(args[0], _COMMANDS, 1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"there is no command {args[0]!r:.80}.{meant} `everstep --help` lists them.", ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """The list of commands, none of them loaded for it."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A reader that has seen enough (`| head`) is no error."""
        self.given = ctx.ensure_object(dict)
        try:
            code = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            _let_go_of_stdout()
            return 0
        return code

    def main(  # type: ignore[override]  # it never returns
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run what the command line says and exit."""
        given = list(sys.argv[1:] if args is None else args)
        if given[:1] == ["help"]:
            given = [*given[1:], "--help"]
        extra.pop("standalone_mode", None)
        with warnings.catch_warnings():
            # Ours are: damage that did not stand in the way, and the like.
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _warner()
            try:
                code = super().main(given, prog_name or "everstep", standalone_mode=False, **extra)
            except (click.Abort, KeyboardInterrupt):
                sys.exit(130)  # exits.INTERRUPTED, with nothing loaded for it
            except Exception as error:  # noqa: BLE001 - whatever it is, a person gets a sentence and not a traceback
                code = _failed(error, as_json="--json" in given, trail=self.given.get("trail"))
        sys.exit(code if isinstance(code, int) else 0)


def _failed(error: Exception, *, as_json: bool, trail: str | None) -> int:
    """Say what went wrong, and with which code to exit."""
    if isinstance(error, click.ClickException):
        code, text = error.exit_code, f"{error.format_message()}{_hint(error)}"
        if isinstance(error, click.MissingParameter):  # which puts choices below one another, with tabs
            text = " ".join(text.split())
        text = _in_trail(text, trail)
        is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)  # which says the usage itself
        context = error.ctx if isinstance(error, click.UsageError) and not is_help else None
        shown = f"{context.get_usage()}\n{text}" if context is not None else text
    else:
        exits = import_module("everstep.cli.exits")
        known = import_module("everstep.errors").EverstepError
        if sys.flags.dev_mode and not isinstance(error, known):
            raise error
        code, text = exits.code_of(error), _in_trail(exits.words_of(error), trail)
        shown = text if isinstance(error, known | OSError) else f"{type(error).__name__}: {text}. {_DEV}"
    output = import_module("everstep.cli.output")
    try:
        if as_json:
            output.Output(as_json=True).data(error={"type": type(error).__name__, "message": text})
        output.talk(f"everstep: {shown}" if "\n" not in shown else shown)
    except BrokenPipeError:
        _let_go_of_stdout()
    return int(code)


def _in_trail(text: str, trail: str | None) -> str:
    """What is said, with commands that work where the command line named a trail."""
    if trail is None:
        return text
    shown = import_module("everstep.trail.naming").without_password(trail)
    said: str = import_module("everstep.cli.launching").in_trail(text, shown)
    return said


def _hint(error: click.ClickException) -> str:
    """What is said beside the words of the library: where ids come from, and how a step is named."""
    missing = error.param if isinstance(error, click.MissingParameter) else None
    if missing is not None and missing.name in {"run", "runs", "a", "b"}:
        return " `everstep runs` lists them."
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and not error.possibilities and context and "RUN" in context.get_usage():
        return " The id of a run that begins with a dash goes last, after two dashes."
    extra = re.fullmatch(r"Got unexpected extra argument \((\d+)\)", error.format_message())
    if context is None or extra is None or "RUN[@SEQ]" not in context.get_usage():
        return ""
    return f". One step of it is {context.params.get('run')}@{extra[1]}."


def _warner() -> Callable[..., None]:
    """What tells of warnings: of each once, however many calls of a command meet it."""
    told: set[str] = set()

    def warn(message: Warning | str, *_: Any) -> None:
        if str(message) not in told:
            told.add(str(message))
            import_module("everstep.cli.output").talk(f"warning: {message}")

    return warn


def _let_go_of_stdout() -> None:
    """Give what is left to nobody, so that Python does not complain about it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):
        sys.stdout = None  # as Python has it when there is none


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - as click calls it
    if wanted:
        click.echo(f"everstep {import_module('importlib.metadata').version('everstep')}")
        context.exit()


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value:
        context.ensure_object(dict)[parameter.name] = value
    return value


@click.group("everstep", cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--trail", metavar="URL", expose_value=False, callback=_keep, help="The trail, as with every command.")
@click.option("--json", is_flag=True, expose_value=False, callback=_keep, help="Print one JSON object.")
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="What this is.")
def cli() -> None:
    """Look at what agents did, and go on with it."""
