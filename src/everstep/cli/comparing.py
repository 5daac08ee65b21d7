"""The command that compares two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from everstep.cli import exits, plain
from everstep.cli.output import Cell, Column, Output
from everstep.cli.session import Session, is_interrupted, options, run_ids, session
from everstep.cli.style import result_of, status_cell
from everstep.cli.text import count, duration, money
from everstep.model import Kind, Status
from everstep.trail.compare import Change
from everstep.trail.comparing import Comparison, Side, StepPair, Verdict
from everstep.trail.differing import Difference
from everstep.trail.trail import Trail
from everstep.trail.wording import IN_A_OR_B, shown

_STYLES = {Verdict.CHANGED: "yellow", Verdict.INSERTED: "green", Verdict.REMOVED: "red", Verdict.MOVED: "cyan"}
_SHORT = 20  # steps that are shown whole
_MOST = 40  # differences that are shown
_FEW = 6  # changes of one step, or of the state
_WIDE = 80  # characters that one side of a change may take
_RESULT = 120
_DEEP = 12  # levels that are indented
_WAITS, _INTERRUPTED = "waits for an answer", "interrupted"  # what is said of steps that have not ended

Words = tuple[dict[str, str], dict[str, str]]  # of both runs: what is said for the word of the record


@click.command()
@click.argument("a", metavar="A[@SEQ]", shell_complete=run_ids)
@click.argument("b", metavar="B[@SEQ]", shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="Every step and every change: nothing is folded.")
@options
def compare(a: str, b: str, *, everything: bool) -> int:
    """Show how run B differs from run A, step by step. Exits with 4 if it does."""
    here = session()
    trail = here.open()
    found = trail.compare(a, b)
    if here.output.as_json:
        told = found.to_dict(plain.change)
        if not everything:
            told["steps"] = [pair for pair in told["steps"] if pair["verdict"] != Verdict.SAME]
        here.output.data(compare=told)
    else:
        _tell(here, found, (_open_words(trail, found.a), _open_words(trail, found.b)), everything=everything)
    return exits.OK if found.identical else exits.DIFFERENT


def _tell(here: Session, found: Comparison, words: Words, *, everything: bool) -> None:
    output = here.output
    output.table([Column(""), Column("a"), Column("b")], _figures(found.a, found.b, words))
    for note in found.notes:
        output.talk(f"note: {note}.")
    if found.identical:
        output.talk(f"identical: {count(found.a.steps, 'step')} and the state they led to.")
        return
    if found.first is not None:
        output.line()
        output.line(Cell("first", "dim"), _where(found.first), Cell(", ".join(found.first.what), "yellow", whole=True))
        output.line()
        columns = [Column(""), Column("a", right=True), Column("b", right=True), Column("step"), Column("")]
        shown_lines = _lines(found.steps, everything=everything)
        output.table(columns, [row for line in shown_lines for row in _rows(line, words)])
    if found.changes:
        output.line()
        _show_changes(output, found, everything=everything)
    if found.children:
        output.line()
        lines = [str(two) for two in found.children]
        for line in lines if everything else _few(lines, "child run"):
            output.line(Cell(line, whole=True))
    _advise(here, found)


def _figures(a: Side, b: Side, words: Words) -> Iterator[list[Cell | str]]:
    yield ["run", Cell(a.run_id, "bold", whole=True), Cell(b.run_id, "bold", whole=True)]
    yield ["step", str(a.at), str(b.at)]
    interrupted = [known.get(str(Status.ACTIVE)) == _INTERRUPTED for known in words]
    stand = [_INTERRUPTED if lost else str(side.status) for side, lost in zip((a, b), interrupted, strict=True)]
    yield ["status", *map(status_cell, stand)]
    yield ["steps", f"{a.steps:,}", f"{b.steps:,}"]
    if a.errors or b.errors:
        yield ["failed", f"{a.errors:,}", f"{b.errors:,}"]
    if a.tokens or b.tokens:
        yield ["tokens", f"{a.tokens:,}", f"{b.tokens:,}"]
    if a.cost is not None or b.cost is not None:
        yield ["cost", *("-" if side.cost is None else money(side.cost) for side in (a, b))]
    yield ["took", duration(a.duration_ms), duration(b.duration_ms)]


def _open_words(trail: Trail, side: Side) -> dict[str, str]:
    """What is said of steps of a run that have not ended: as far as it is known, what they wait for."""
    run = trail.run(side.run_id)
    if side.at != run.head:
        return {}
    active, paused = str(Status.ACTIVE), str(Status.PAUSED)
    if run.status is Status.PAUSED:
        return {active: _WAITS, paused: _WAITS}
    return {active: _INTERRUPTED, paused: _WAITS} if is_interrupted(trail, run) else {paused: _WAITS}


def _where(pair: StepPair) -> Cell:
    seqs = "/".join("-" if row is None else str(row.seq) for row in (pair.a, pair.b))
    return Cell(f"{pair.name} ({seqs}) {pair.verdict}", "bold")


# Which lines are shown.

_Line = StepPair | str  # a step, or what is said of those that are not shown


def _lines(pairs: Sequence[StepPair], *, everything: bool) -> Iterator[_Line]:
    """The steps to show: all of a short run; of a long one those that differ, and what stands around them."""
    kept = range(len(pairs)) if everything or len(pairs) <= _SHORT else sorted(_kept(pairs))
    before = -1
    for at in [*kept, len(pairs)]:
        hidden = pairs[before + 1 : at]
        differ = sum(pair.verdict is not Verdict.SAME for pair in hidden)
        if differ:
            yield f"... {count(differ, 'more step')} of {len(hidden):,} differ"
        elif len(hidden) > 1:
            yield f"... {len(hidden):,} are the same"
        else:
            yield from hidden
        if at < len(pairs):
            yield pairs[at]
        before = at


def _kept(pairs: Sequence[StepPair]) -> set[int]:
    """The first differences, with the steps next to them and those that they ran in."""
    found, around, left = set[int](), list[int](), _MOST
    for at, pair in enumerate(pairs):
        del around[pair.depth :]
        if pair.verdict is not Verdict.SAME:
            found.update({*around, at, *(near for near in (at - 1, at + 1) if 0 <= near < len(pairs))})
            left -= 1
            if not left:
                break
        around.append(at)
    return found


def _rows(line: _Line, words: Words) -> Iterator[list[Cell | str]]:
    if isinstance(line, str):
        yield ["", "", "", Cell(line, "dim"), ""]
        return
    pair, style = line, _STYLES.get(line.verdict, "dim")
    indent = "  " * min(pair.depth, _DEEP)
    name = f"{indent}run {pair.kind}" if pair.kind in {Kind.START, Kind.END} else indent + pair.name
    seqs = [Cell("" if row is None else str(row.seq), "dim") for row in (pair.a, pair.b)]
    first, *rest = _texts(pair, words)
    yield [Cell(pair.sign, style), *seqs, Cell(name, style if style != "dim" else ""), first]
    for text in rest:
        yield ["", "", "", "", text]


def _texts(pair: StepPair, words: Words) -> list[Cell]:
    """What is said of a step, line by line."""
    row = pair.b or pair.a
    told = [_in_words(each, words) if each.part == "status" else each for each in pair.differences]
    lines = [Cell(text, whole=True) for each in told for text in _few(each.lines(_WIDE), "change")]
    if pair.duration_ms is not None:
        lines.append(Cell("took {} -> {}".format(*map(duration, pair.duration_ms)), "dim"))
    if row is not None and pair.verdict is not Verdict.CHANGED:
        style = "dim" if pair.verdict is Verdict.SAME else _STYLES[pair.verdict]
        lines.insert(0, Cell(result_of(row, _RESULT).text, style))
    return lines or [Cell("")]


def _in_words(status: Difference, words: Words) -> Difference:
    """How a step stands on both sides. What the record calls active may wait for an answer, or be at work nowhere."""
    a, b = words
    changed = [Change(one.path, a.get(one.old, one.old), b.get(one.new, one.new)) for one in status.changes]
    return Difference(status.part, tuple(changed))


def _few(lines: list[str], what: str) -> list[str]:
    more = len(lines) - _FEW
    return lines if more < 1 else [*lines[:_FEW], f"... {count(more, f'more {what}')}"]


def _show_changes(output: Output, found: Comparison, *, everything: bool) -> None:
    width = None if everything else _WIDE
    lines = [shown(change, width=width, alone=IN_A_OR_B) for change in found.changes]
    for line in lines if everything else _few(lines, "change"):
        output.line(Cell(line, whole=True))


def _advise(here: Session, found: Comparison) -> None:
    """Say which commands are worth typing next."""
    first, inside = found.first, next((two for two in found.children if None not in two), None)
    if first is None and found.changes:
        here.output.talk(f"next: {here.command('diff', found.a.address, found.b.address)}")
    for row in () if first is None else (first.a, first.b):
        if row is not None:
            here.output.talk(f"next: {here.command('show', f'{row.run_id}@{row.seq}')}")
    if inside is not None:
        here.output.talk(f"next: {here.command('compare', *inside)}")
