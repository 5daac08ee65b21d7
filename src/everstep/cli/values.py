"""The commands that show values: state and diff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from everstep.cli import exits, plain
from everstep.cli.output import Cell, Output
from everstep.cli.session import NotThereError, address, options, run_ids, session
from everstep.cli.text import brief, count, label, leaves, parts_of, whole
from everstep.trail.compare import MISSING, Change

_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_FEW = 8  # items of a list, and their own, that a person is shown
_LEVELS = 3
_LINE = 160


@click.command()
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@click.argument("path", required=False)
@click.option("--at", type=click.IntRange(min=0), metavar="SEQ", help="After this step; else after the newest.")
@click.option("--all", "everything", is_flag=True, help="Every value, also on a terminal.")
@options
def state(run: str, path: str | None, at: int | None, *, everything: bool) -> None:
    """Show the values of a run, or the one at PATH, such as `pages[3].title`."""
    here = session()
    trail = here.open()
    run_id, seq = (run, at) if at is not None else address(trail, run)
    values = trail.state(run_id, seq, view=True)
    found = values if path is None else at_path(values, path)
    if here.output.as_json:
        where = {"run": run_id, "at": trail.run(run_id).head if seq is None else seq, "path": path}
        here.output.data(state={**where, "values": plain.plain(found)})
        return
    if not values:
        here.output.talk("the state is empty there.")
    elif here.output.person and not everything:
        show_value(here.output, found)
    else:
        show_leaves(here.output, found, "" if path is None else path)


def at_path(values: dict[str, Any], path: str) -> Any:
    """The value at a path. Raises NotThereError with what there is instead."""
    found: Any = values
    for name, index in _PART.findall(path.removeprefix("state.")):
        parts = {str(key): item for key, item in parts_of(found)}
        key = name or index.strip("'\"")
        if key not in parts:
            known = brief(list(parts), _LINE) if parts else "no parts"
            raise NotThereError(f"there is nothing at {path!r:.80}: no {key!r:.60} in {known}.")
        found = parts[key]
    return found


def show_leaves(output: Output, value: Any, path: str) -> None:
    """Print every value on a line of its own, with the path to it."""
    for place, text in leaves(value, path):
        output.line(f"{place.removeprefix('.') or 'value'} = {text}")


def show_value(output: Output, value: Any, depth: int = 0) -> None:
    """Print a value for a person: what fits a line in a line, the rest below one another, long lists cut."""
    for indent, key, text, style in sketch(value, depth):
        space = "  " * indent
        output.line(*([Cell(space + key, "cyan"), Cell(text, style)] if key else [Cell(space + text, style)]))


def sketch(value: Any, depth: int = 0) -> Iterator[tuple[int, str, str, str]]:
    """The lines of a value: how deep, which key, what stands there, in which style."""
    parts = parts_of(value)
    if not parts:
        yield depth, "", brief(value, _LINE), ""
        return
    listed = isinstance(value, list | tuple)
    few = parts[:_FEW] if listed else parts
    for key, item in few:
        inner, name = parts_of(item), label(key).removeprefix(".")
        line = brief(item, _LINE)
        if listed or not inner or len(line) <= _LINE // 2 or depth >= _LEVELS:
            yield depth, name, line, ""
        else:
            yield depth, name, f"{type_word(item)} of {count(len(inner), 'item')}", "dim"
            yield from sketch(item, depth + 1)
    if len(parts) > len(few):
        yield depth, "", f"... {len(parts) - len(few):,} more", "dim"


def type_word(value: Any) -> str:
    """What kind of value it is, in a word."""
    return str(getattr(value, "name", "")).rpartition(".")[2] or type(value).__name__


@click.command()
@click.argument("a", metavar="A[@SEQ]", shell_complete=run_ids)
@click.argument("b", metavar="B[@SEQ]", shell_complete=run_ids)
@options
def diff(a: str, b: str) -> int:
    """Show how the state at B differs from that at A. Exits with 4 if it does."""
    here = session()
    changes = here.open().diff(a, b)
    if here.output.as_json:
        here.output.data(diff={"a": a, "b": b, "changes": [plain.change(change) for change in changes]})
    else:
        for change in changes:
            here.output.line(*_change(change, _LINE // 2 if here.output.person else None))
        if not changes:
            here.output.talk("the states are the same.")
    return exits.DIFFERENT if changes else exits.OK


def _change(change: Change, width: int | None) -> list[Cell]:
    where = "".join(label(part) for part in change.path).removeprefix(".")
    old, new = (whole(side) if width is None else brief(side, width) for side in (change.old, change.new))
    if change.old is MISSING:
        return [Cell("+", "green"), Cell(where, "bold"), Cell(new, "green")]
    if change.new is MISSING:
        return [Cell("-", "red"), Cell(where, "bold"), Cell(old, "red")]
    return [Cell("~", "yellow"), Cell(where, "bold"), Cell(old, "red"), Cell("->", "dim"), Cell(new, "green")]
