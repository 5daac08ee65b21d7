"""The commands that show values: state and diff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from everstep.cli import exits, plain
from everstep.cli.once import Once
from everstep.cli.output import Cell, Column, Output
from everstep.cli.session import NotThereError, StepNumber, address, options, run_ids, session
from everstep.cli.text import brief, count, label, leaves, parts_of, size, whole
from everstep.trail.compare import MISSING, Change
from everstep.trail.supersteps import Supersteps
from everstep.trail.wording import inline, is_long

_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_FEW = 8  # items of a list, and their own, that a person is shown
_LEVELS = 3
_LINE = 160


@click.command(cls=Once)
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@click.argument("path", required=False)
@click.option("--at", type=StepNumber(), metavar="SEQ", help="After this step; else after the newest.")
@click.option("--superstep", type=click.IntRange(min=0), metavar="N", help="After this superstep of a graph.")
@click.option("--sizes", is_flag=True, help="How large each value is, and no contents.")
@click.option("--all", "everything", is_flag=True, help="Every value, also on a terminal.")
@options
def state(run: str, path: str | None, at: int | None, superstep: int | None, *, sizes: bool, everything: bool) -> None:
    """Show the values of a run, or the one at PATH, such as `pages[3].title`."""
    here = session()
    trail = here.open()
    run_id, seq = (run, at) if at is not None or superstep is not None else address(trail, run)
    if superstep is not None:
        if at is not None:
            raise click.UsageError("--at and --superstep name two points; give one.")
        seq = Supersteps(trail.store, trail.run(run_id).id).end_of(superstep)
    values = trail.state(run_id, seq, view=True)
    found = values if path is None else at_path(values, path)
    if here.output.as_json:
        where = {"run": run_id, "at": trail.run(run_id).head if seq is None else seq, "superstep": superstep}
        contents = {} if sizes else {"values": plain.plain(found)}
        here.output.data(state={**where, "path": path, "sizes": _sizes(found), **contents})
    elif not values:
        here.output.talk("the state is empty there.")
    elif sizes:
        here.output.table([Column("value"), Column("size", right=True), Column("what")], _size_rows(found, path or ""))
    elif not here.output.person or everything:
        show_leaves(here.output, found, "" if path is None else path)
    elif show_value(here.output, found, with_sizes=True):
        point = [] if seq is None else ["--at", seq]
        here.output.talk(f"next: {here.command('state', run_id, *([path] if path else []), *point, '--all')}")


def _sizes(value: Any) -> Any:
    """The bytes of each named part of a value; of one without names, its own."""
    return {str(key): plain.size_of(part) for key, part in _named_parts(value)} or plain.size_of(value)


def _size_rows(value: Any, path: str) -> list[list[str]]:
    parts = [(path + label(key), part) for key, part in _named_parts(value)] or [(path or "value", value)]
    return [[place.removeprefix("."), size(plain.size_of(part)), _what(part)] for place, part in parts]


def _named_parts(value: Any) -> list[tuple[Any, Any]]:
    return [] if isinstance(value, list | tuple) else parts_of(value)


def _what(value: Any) -> str:
    inner = parts_of(value)
    return f"{type_word(value)} of {count(len(inner), 'item')}" if inner else type_word(value)


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
        output.line(Cell(f"{place.removeprefix('.') or 'value'} = {text}", whole=True))


def show_value(output: Output, value: Any, depth: int = 0, *, with_sizes: bool = False) -> bool:
    """Print a value for a person: what fits a line in a line, the rest below one another, long lists cut.

    With sizes, that of each part comes before its contents. Whether something was cut.
    """
    sizes = {_name(key): size(plain.size_of(part)) for key, part in parts_of(value)} if with_sizes else {}
    is_cut = False
    for indent, key, text, style in sketch(value, depth):
        space, is_cut = "  " * indent, is_cut or text.endswith("...") or text.startswith("... ")
        before = [Cell(sizes[key], "dim")] if indent == depth and key in sizes else []
        output.line(*([Cell(space + key, "cyan"), *before] if key else []), Cell(text if key else space + text, style))
    return is_cut


def _name(key: Any) -> str:
    return label(key).removeprefix(".")


def sketch(value: Any, depth: int = 0) -> Iterator[tuple[int, str, str, str]]:
    """The lines of a value: how deep, which key, what stands there, in which style."""
    parts = parts_of(value)
    if not parts:
        yield depth, "", brief(value, _LINE), ""
        return
    listed = isinstance(value, list | tuple)
    few = parts[:_FEW] if listed else parts
    for key, item in few:
        inner, name = parts_of(item), _name(key)
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
        return [Cell("+", "green"), Cell(where, "bold"), Cell(new, "green", whole=True)]
    if change.new is MISSING:
        return [Cell("-", "red"), Cell(where, "bold"), Cell(old, "red", whole=True)]
    if width is not None and is_long(change.old) and is_long(change.new):
        return [Cell("~", "yellow"), Cell(where, "bold"), Cell(inline(change.old, change.new), whole=True)]
    sides = [Cell(old, "red", whole=True), Cell("->", "dim"), Cell(new, "green", whole=True)]
    return [Cell("~", "yellow"), Cell(where, "bold"), *sides]
