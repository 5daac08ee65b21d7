"""The commands that show values: state and diff."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from everstep.cli import exits, plain
from everstep.cli.once import Once
from everstep.cli.output import Cell, Column, Output
from everstep.cli.session import NotThereError, StepNumber, address, options, run_ids, session
from everstep.cli.text import brief, count, label, leaves, parts_of, size, whole
from everstep.trail.compare import MISSING, Change
from everstep.trail.detail import Path
from everstep.trail.supersteps import Supersteps
from everstep.trail.wording import inline, is_long

_PART = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")
_PATH = re.compile(rf"[^.\[\]]+(?:{_PART.pattern})*")
_FROM_END = re.compile(r"-\d{1,18}")  # an index that counts from the end of a list
_FEW = 8  # items of a list that a person is shown; of longer ones those at both ends
_ENDS = 3
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
    """Show the values of a run, or the one at PATH, such as `pages[3].title` or `pages[-1]`."""
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
    """The value at a path; `[-1]` is the last of a list. Raises NotThereError with what there is instead."""
    found: Any = values
    so_far = ""
    for name, index in _PART.findall(path.removeprefix("state.")):
        parts = {str(key): item for key, item in parts_of(found)}
        key = _key(found, name or index)
        if key not in parts:
            raise NotThereError(f"there is nothing at {path!r:.80}: {_instead(found, so_far, key)}.")
        found, so_far = parts[key], so_far + (f".{name}" if name else f"[{index}]")
    return found


def keys_to(values: dict[str, Any], path: str) -> Path:
    """The keys along a path where something may be new. Raises NotThereError before the beginning of a list."""
    if _PATH.fullmatch(path) is None:
        raise click.UsageError(f"{path!r:.80} is no path; write one such as pages[3].title or pages[-1].")
    found: Any = values
    keys: list[Any] = []
    for name, index in _PART.findall(path):
        parts, key = {str(key): (key, item) for key, item in parts_of(found)}, _key(found, name or index)
        if isinstance(found, list | tuple) and key.startswith("-"):
            raise NotThereError(f"there is nothing at {path!r:.80}: that list has {count(len(found), 'item')}.")
        new = int(key) if key.isdecimal() and keys else key
        key, found = parts.get(key, (new, None))
        keys.append(key)
    return keys[0] if len(keys) == 1 else tuple(keys)


def _key(found: Any, word: str) -> str:
    """A part of a path as the key that it names."""
    key = word.strip("'\"")
    from_end = isinstance(found, list | tuple) and _FROM_END.fullmatch(key)
    return str(len(found) + int(key)) if from_end else key


def _instead(found: Any, path: str, key: str) -> str:
    """What there is where a key is not."""
    parts, where = parts_of(found), path.removeprefix(".") or "the state"
    if isinstance(found, list | tuple):
        return f"{where} has {count(len(parts), 'item')}, 0 to {len(parts) - 1}" if parts else f"{where} is empty"
    known = brief([str(key) for key, _ in parts], _LINE) if parts else "no parts"
    return f"no {key!r:.60} in {known}"


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
    hidden = range(_ENDS, len(parts) - _ENDS) if listed and len(parts) > _FEW else range(0)
    for at, (key, item) in enumerate(parts):
        if at in hidden:
            if at == hidden.start:
                yield depth, "", f"... {len(hidden):,} more", "dim"
            continue
        inner, name = parts_of(item), _name(key)
        line = brief(item, _LINE)
        if listed or not inner or len(line) <= _LINE // 2 or depth >= _LEVELS:
            yield depth, name, line, ""
        else:
            yield depth, name, f"{type_word(item)} of {count(len(inner), 'item')}", "dim"
            yield from sketch(item, depth + 1)


def type_word(value: Any) -> str:
    """What kind of value it is, in a word."""
    return str(getattr(value, "name", "")).rpartition(".")[2] or type(value).__name__


@click.command()
@click.argument("a", metavar="A[@SEQ]", shell_complete=run_ids)
@click.argument("b", metavar="B[@SEQ]", shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="Every item of a list, also on a terminal.")
@options
def diff(a: str, b: str, *, everything: bool) -> int:
    """Show how the state at B differs from that at A. Exits with 4 if it does."""
    here = session()
    changes = here.open().diff(a, b)
    if here.output.as_json:
        here.output.data(diff={"a": a, "b": b, "changes": [plain.change(change) for change in changes]})
        return exits.DIFFERENT if changes else exits.OK
    folded = False
    for stretch in _stretches(changes):
        if here.output.person and not everything and len(stretch) > _FEW:
            here.output.line(*_many(stretch))
            folded = True
            continue
        for change in stretch:
            here.output.line(*_change(change, _LINE // 2 if here.output.person else None))
    if folded:
        here.output.talk(f"next: {here.command('diff', a, b, '--all')}")
    if not changes:
        here.output.talk("the states are the same.")
    return exits.DIFFERENT if changes else exits.OK


def _stretches(changes: Sequence[Change]) -> list[list[Change]]:
    """The changes, those together that add items which follow one another in a list, or take such away."""
    found: list[list[Change]] = []
    for change in changes:
        if found and _follows(found[-1][-1], change):
            found[-1].append(change)
        else:
            found.append([change])
    return found


def _follows(before: Change, change: Change) -> bool:
    """Whether a change adds the next item of the list that the one before it added to; or takes it away, likewise."""
    *holder, last = before.path or (None,)
    if type(last) is not int or change.path != (*holder, last + 1):
        return False
    return (before.old is MISSING and change.old is MISSING) or (before.new is MISSING and change.new is MISSING)


def _many(stretch: list[Change]) -> list[Cell]:
    sign, style = ("+", "green") if stretch[0].old is MISSING else ("-", "red")
    first, last = (_where(change) for change in (stretch[0], stretch[-1]))
    return [
        Cell(sign, style),
        Cell(f"{first} ... {last}", "bold"),
        Cell(count(len(stretch), "item"), style, whole=True),
    ]


def _where(change: Change) -> str:
    return "".join(label(part) for part in change.path).removeprefix(".")


def _change(change: Change, width: int | None) -> list[Cell]:
    where = _where(change)
    old, new = (whole(side) if width is None else brief(side, width) for side in (change.old, change.new))
    if change.old is MISSING:
        return [Cell("+", "green"), Cell(where, "bold"), Cell(new, "green", whole=True)]
    if change.new is MISSING:
        return [Cell("-", "red"), Cell(where, "bold"), Cell(old, "red", whole=True)]
    if width is not None and is_long(change.old) and is_long(change.new):
        return [Cell("~", "yellow"), Cell(where, "bold"), Cell(inline(change.old, change.new), whole=True)]
    sides = [Cell(old, "red", whole=True), Cell("->", "dim"), Cell(new, "green", whole=True)]
    return [Cell("~", "yellow"), Cell(where, "bold"), *sides]
