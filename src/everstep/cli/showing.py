"""The command that shows: one run with its tree of steps, or one step with all it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from everstep.cli import plain
from everstep.cli.app import configured
from everstep.cli.output import Cell, Column, Output
from everstep.cli.session import Session, address, is_interrupted, options, run_ids, session
from everstep.cli.style import STYLES, prompt_of, result_of, status_cell, tags_text
from everstep.cli.text import ago, brief, count, duration, stamp
from everstep.cli.tree import Fold, Line, lines
from everstep.cli.values import show_leaves, show_value
from everstep.codec.record import StepRecord
from everstep.errors import ErasedError
from everstep.model import Kind, Run, Status
from everstep.trail.outline import Node, Outline, error_of, outline
from everstep.trail.trail import Trail

_WIDE = 200  # characters that a result may take
_DEEP = 12  # levels that are indented; deeper ones say how deep they are
_MARKS = {
    "completed": "✓", "failed": "✗", "active": "●", "interrupted": "◌", "paused": "‖", "unknown": "?",
    "cancelled": "∅", "checkpoint": "⚑", "save": "▪", "fork": "⑂", "end": "■",
}  # fmt: skip


@click.command()
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@click.option("--all", "everything", is_flag=True, help="Every step: nothing is folded.")
@options
def show(run: str, *, everything: bool) -> None:
    """Show a run: what it is, how it stands, and its steps. With @SEQ, one step with all it holds."""
    here = session()
    trail = here.open()
    run_id, seq = address(trail, run)
    if seq is not None:
        _show_step(here, trail.step(run_id, seq, view=True))
        return
    found = trail.run(run_id)
    tree = outline(trail.steps(run_id, view=True))
    interrupted = is_interrupted(trail, found)
    if here.output.as_json:
        here.output.data(
            show={
                "run": plain.run(found, interrupted=interrupted),
                "lineage": [one.id for one in trail.lineage(run_id)],
                "inputs": _inputs(tree),
                "error": plain.error(error_of(tree.end) if tree.end is not None else None),
                "steps": [plain.node(depth, node) for depth, node in tree.walk()],
            }
        )
        return
    here.output.fields(_head(here, trail, found, tree, interrupted=interrupted))
    if tree.steps:
        here.output.line()
        here.output.table(
            [Column("seq", right=True), Column(""), Column("step"), Column("took", right=True), Column("result")],
            [_row(here.output, line, interrupted=interrupted) for line in lines(tree, everything=everything)],
        )
    _advise(here, found, tree, interrupted=interrupted)


def _inputs(tree: Outline) -> object:
    try:
        return plain.plain(tree.start.inputs) if tree.start is not None else None
    except ErasedError:
        return None


# The head.


def _head(
    here: Session, trail: Trail, run: Run, tree: Outline, *, interrupted: bool
) -> Iterator[tuple[str, Cell | str]]:
    yield "run", Cell(run.id, "bold")
    if run.workflow:
        yield "workflow", run.workflow
    yield "status", _standing(trail, run, interrupted=interrupted)
    started = stamp(run.created_at)
    yield "started", f"{started} ({ago(run.created_at)})" if here.output.person else started
    if run.duration_ms is not None:
        yield "took", duration(run.duration_ms)
    yield "steps", _counts(run, tree)
    yield from _origin(trail, run)
    if run.tags:
        yield "tags", tags_text(run.tags)
    if run.oldest:
        yield "pruned", f"what is kept begins at step {run.oldest}"
    try:
        if tree.start is not None and tree.start.inputs is not None:
            yield "inputs", brief(tree.start.inputs, _WIDE)
        if tree.end is not None and tree.end.output is not None:
            yield "output", brief(tree.end.output, _WIDE)
    except ErasedError:
        pass
    error = error_of(tree.end) if tree.end is not None else None
    if error is not None:
        yield "error", Cell(str(error), "red")


def _standing(trail: Trail, run: Run, *, interrupted: bool) -> Cell:
    if interrupted:
        return Cell("interrupted (active, and at work nowhere)", STYLES["interrupted"])
    if run.owner is None:
        return status_cell(str(run.status))
    left = trail.store.run(run.id).lease - time.time()
    return Cell(
        f"{run.status}, owned by {run.owner} for another {duration(left * 1000)}", STYLES.get(str(run.status), "")
    )


def _counts(run: Run, tree: Outline) -> str:
    nodes = [node for _, node in tree.walk()]
    failed = sum(node.status is Status.FAILED and node.kind is Kind.STEP for node in nodes)
    parts = [
        count(sum(node.kind is Kind.STEP for node in nodes), "step"),
        f"{failed:,} failed" if failed else "",
        count(sum(len(node.earlier) for node in nodes), "failed attempt")
        if any(node.earlier for node in nodes)
        else "",
        count(run.step_count, "entry").replace("entrys", "entries"),
    ]
    return ", ".join(filter(None, parts))


def _origin(trail: Trail, run: Run) -> Iterator[tuple[str, str]]:
    if run.forked_from is not None:
        yield "forked from", f"{run.forked_from}@{run.fork_seq}"
    if run.parent_run_id is not None:
        yield "inside", run.parent_run_id
    if run.retry_of is not None:
        yield "retry of", run.retry_of + ("" if run.retry_index is None else f" (number {run.retry_index})")
    family = [one.id for one in trail.lineage(run.id)]
    forks = family[family.index(run.id) + 1 :]
    if forks:
        yield "forks", ", ".join(forks[:5]) + (f" and {len(forks) - 5:,} more" if len(forks) > 5 else "")


# The tree.


def _row(output: Output, line: Line | Fold, *, interrupted: bool) -> list[Cell | str]:
    indent = "  " * line.depth if line.depth <= _DEEP else "  " * _DEEP + f"({line.depth}) "
    if isinstance(line, Fold):
        return [
            "",
            "",
            Cell(f"{indent}...", "dim"),
            Cell(duration(line.duration_ms), "dim"),
            Cell(_folded(line), "dim"),
        ]
    node = line.node
    word = _word(node, interrupted=interrupted)
    mark = _MARKS.get(word, word) if output.person and output.unicode else word
    return [
        Cell(str(node.seq), "dim"),
        Cell(mark, STYLES.get(word, "cyan")),
        Cell(indent + node.name, "dim" if node.superseded else "bold" if node.kind is Kind.STEP else "cyan"),
        Cell(duration(node.duration_ms or None), "dim"),
        _result(line),
    ]


def _word(node: Node, *, interrupted: bool) -> str:
    """How a step stands, or what it is if that says more."""
    if node.kind in {Kind.CHECKPOINT, Kind.SAVE, Kind.FORK, Kind.END}:
        return str(node.kind)
    return "interrupted" if node.status is Status.ACTIVE and interrupted else str(node.status)


def _folded(fold: Fold) -> str:
    names = fold.names
    named = ", ".join(name if number == 1 else f"{name} x{number:,}" for name, number in names[:3])
    named += ", ..." if len(names) > 3 else ""
    inside = f", with {count(fold.inside, 'step')} inside" if fold.inside else ""
    return f"{len(fold.nodes):,} more" + (f" ({named})" if len(names) > 1 else "") + f", all completed{inside}"


def _result(line: Line) -> Cell:
    node = line.node
    found = _outcome(node)
    notes = [
        "superseded" if node.superseded else "",
        f"{node.attempts} attempts" if node.attempts > 1 else "",
        "partial" if node.record.partial else "",
        f"{count(line.inside, 'step')} inside" if line.inside else "",
        f"-> {node.record.child_run_id}" if node.record.child_run_id else "",
    ]
    text = "; ".join(filter(None, notes))
    return Cell(f"({text}) {found.text}" if text else found.text, "dim" if node.superseded else found.style)


def _outcome(node: Node) -> Cell:
    if node.kind is Kind.PAUSE:
        answer = result_of(node.record, _WIDE).text if not node.open else ""
        return Cell(f"{prompt_text(node.begun)}{' -> ' + answer if answer else ''}", "" if answer else "yellow")
    if node.status is Status.UNKNOWN:
        return Cell("it was begun, and how it ended is not known", STYLES["unknown"])
    if node.status is Status.ACTIVE:
        error = node.error
        return Cell(f"last: {error}" if error is not None else "", "red")
    return result_of(node.record, _WIDE)


def prompt_text(row: StepRecord) -> str:
    """What a pause asks, in one line."""
    try:
        asked = prompt_of(row)
    except ErasedError:
        return "(erased)"
    return asked[:_WIDE] if isinstance(asked, str) else brief(asked, _WIDE)


def _advise(here: Session, run: Run, tree: Outline, *, interrupted: bool) -> None:
    """Say which command is worth typing next."""
    app = [] if configured() else ["--app", "MODULE"]
    resume = here.command("resume", run.id, *app)
    if run.status is Status.PAUSED:
        nexts = [here.command("answer", run.id, "VALUE")]
    elif run.status is Status.FAILED:
        failed = [node for _, node in tree.walk() if node.status is Status.FAILED and not node.superseded]
        nexts = [here.command("show", f"{run.id}@{failed[-1].seq}")] if failed else []
        nexts.append(resume)
    elif interrupted or run.status in {Status.CANCELLED, Status.STOPPED}:
        nexts = [resume]
    elif run.status is Status.ACTIVE:
        nexts = [here.command("cancel", run.id)]
    else:
        nexts = [here.command("state", run.id)]
    here.output.talk("\n" * here.output.person + "\n".join(f"next: {line}" for line in nexts))


# One step.


def _show_step(here: Session, row: StepRecord) -> None:
    output = here.output
    if output.as_json:
        output.data(show={"step": plain.step(row)})
        return
    output.fields(_facts(row))
    try:
        for title, value in (("inputs", row.inputs), ("output", row.output), ("pause", row.pause)):
            if value is not None:
                output.line()
                _show_part(output, title, value)
        if row.ops:
            output.line()
            output.line(Cell("changes", "dim"))
            for op in row.ops:
                change = plain.operation(op)
                output.line(
                    f"  {change['op']}", "".join(f"[{part!r}]" for part in change["path"]), brief(op[2:], _WIDE)
                )
        if row.error is not None:
            output.line()
            output.line(Cell(str(row.error), "red"))
            for text in (row.error.traceback or "").splitlines():
                output.line(f"  {text}")
    except ErasedError:
        output.talk("its payload was erased; name, status and times remain.")
    output.talk(f"next: {here.command('state', f'{row.run_id}@{row.seq}')}")


def _show_part(output: Output, title: str, value: object) -> None:
    if output.person:
        output.line(Cell(title, "dim"))
        show_value(output, value, 1)
    else:
        show_leaves(output, value, title)


def _facts(row: StepRecord) -> Iterator[tuple[str, Cell | str]]:
    yield "step", Cell(f"{row.run_id}@{row.seq}", "bold")
    yield "name", row.name
    yield "kind", str(row.kind)
    yield "status", status_cell(str(row.status))
    yield "started", stamp(row.started_at)
    yield "took", duration(row.duration_ms)
    facts = {"inside": row.parent, "lane": row.lane, "attempt": row.attempt if row.attempt > 1 else None,
             "child run": row.child_run_id, "metadata": row.metadata and brief(row.metadata, _WIDE),
             "usage": row.usage and brief(row.usage, _WIDE), "external": row.external and "yes"}  # fmt: skip
    yield from ((name, str(value)) for name, value in facts.items() if value)
