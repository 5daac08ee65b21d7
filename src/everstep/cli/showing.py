"""The command that shows: one run with its tree of steps, or one step with all it holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from everstep.capturing.command import CAPTURED
from everstep.cli import plain
from everstep.cli.advising import advise, to_finish
from everstep.cli.branches import row
from everstep.cli.flowing import sizes_taken
from everstep.cli.items import Items
from everstep.cli.lineage import show_family
from everstep.cli.one_step import show_step
from everstep.cli.output import Cell, Column
from everstep.cli.questions import Questions
from everstep.cli.session import Session, address, is_interrupted, options, run_ids, session, standing
from everstep.cli.style import STYLES, refused_with, status_cell, tags_text
from everstep.cli.text import ago, brief, count, duration, money, stamp
from everstep.cli.tree import Line, lines
from everstep.errors import DamagedError, ErasedError
from everstep.model import FINISHED, Kind, Run, Status
from everstep.store.base import ALL
from everstep.trail.forking import is_replaced
from everstep.trail.inputs import run_with
from everstep.trail.inside import Failed, failed_so_far, is_map
from everstep.trail.outline import Node, Outline, error_of, outline
from everstep.trail.owner import is_copy
from everstep.trail.trail import Trail
from everstep.trail.wording import shown

_WIDE = 200  # characters that a result may take
_SIDE = 60  # and each side of what a fork changed
_FIRST = 10  # failures that are shown
_CHILDREN = 10  # programs that it started, too


@click.command()
@click.argument("run", metavar="RUN[@SEQ]", shell_complete=run_ids)
@click.option(
    "--all", "everything", is_flag=True, help="Every step and item, and all of one: nothing is folded or cut."
)
@click.option("--tree", "family", is_flag=True, help="The runs it was forked from, and their forks, as a tree.")
@options
def show(run: str, *, everything: bool, family: bool) -> None:
    """Show a run: what it is, how it stands, and its steps. With @SEQ, one step with all it holds."""
    here = session()
    trail = here.open()
    run_id, seq = address(trail, run)
    if family:
        show_family(here, trail, run_id)
        return
    if seq is not None:
        show_step(here, trail, trail.step(run_id, seq, view=True), everything=everything)
        return
    _show_run(here, trail, trail.run(run_id), everything=everything)


def _show_run(here: Session, trail: Trail, run: Run, *, everything: bool) -> None:
    tree = outline(trail.steps(run.id, view=True))
    interrupted = is_interrupted(trail, run)
    at_work = run.status is Status.ACTIVE and not interrupted
    asked = Questions(trail, run, tree, at_work=at_work)
    failed = [] if run.status in FINISHED else failed_so_far(trail, run, tree)
    items = Items(trail, run, tree.start) if tree.start is not None and is_map(tree.start) else None
    took = sizes_taken(trail, run, tree)
    if here.output.as_json:
        here.output.data(
            show={
                "run": plain.run(run, interrupted=interrupted),
                "lineage": [one.id for one in trail.lineage(run.id)],
                "inputs": _inputs(tree),
                "output": _output(tree),
                "usage": _usage(trail, run.id),
                "error": plain.error(error_of(tree.end) if tree.end is not None else None),
                "failed": [_failed(each) for each in failed],
                "questions": asked.data(),
                "items": None if items is None else items.data(),
                "steps": [_node(depth, node, took.get(node)) for depth, node in tree.walk()],
            }
        )
        return
    standing = _standing(trail, run, interrupted=interrupted, asks=bool(asked.rows))
    head = _head(here, trail, run, tree, items, standing)
    here.output.fields([*head, *_failures(failed if items is None else []), *asked.fields()])
    if items is not None and items.runs:
        here.output.line()
        items.show(here, everything=everything)
    elif tree.steps:
        here.output.line()
        rows = [
            row(here.output, line, took.get(line.node) if isinstance(line, Line) else None, at_work=at_work)
            for line in lines(tree, everything=everything)
        ]
        here.output.table(*columns(rows))
    if is_copy(run.owner):
        here.output.talk(to_finish(here, run.id))
    else:
        advise(here, run, tree, asked, failed, items, at_work=at_work)


def columns(rows: list[list[Cell | str]]) -> tuple[list[Column], list[list[Cell | str]]]:
    """The table of a run's steps. Those of a graph have a superstep, and the sizes of what went in and came out."""
    titles = ["seq", "", "superstep", "step", "took", "in", "out", "result"]
    if not any(cells[2] for cells in rows):
        titles = [title for title in titles if title not in {"superstep", "in", "out"}]
        rows = [[*cells[:2], *cells[3:5], *cells[7:]] for cells in rows]
    return [Column(title, right=title in {"seq", "superstep", "took", "out"}) for title in titles], rows


def _inputs(tree: Outline) -> object:
    try:
        return plain.plain(run_with(tree)[0])
    except ErasedError:
        return None


def _output(tree: Outline) -> object:
    try:
        return None if tree.end is None else plain.plain(tree.end.output)
    except ErasedError:
        return None


def _node(depth: int, found: Node, took: dict[str, int] | None = None) -> dict[str, Any]:
    """A step as people see it. In a list of them, those inside a step follow it, one deeper."""
    return {
        "depth": depth, "seq": found.seq, "name": found.name, "kind": str(found.kind), "status": str(found.status),
        "superseded": found.superseded, "replaced": is_replaced(found.record),
        "started_at": plain.moment(found.started_at), "duration_ms": found.duration_ms, "attempts": found.attempts,
        "lane": found.lane, "error": plain.error(found.error), **plain.node(found.record), "input_sizes": took or {},
    }  # fmt: skip


# The head.


def _head(
    here: Session, trail: Trail, run: Run, tree: Outline, items: Items | None, standing: Cell
) -> Iterator[tuple[str, Cell | str]]:
    yield "run", Cell(run.id, "bold")
    if run.workflow:
        yield "workflow", run.workflow
    yield "status", standing
    started = stamp(run.created_at)
    yield "started", f"{started} ({ago(run.created_at)})" if here.output.person else started
    if run.duration_ms is not None:
        yield "took", duration(run.duration_ms)
    yield ("steps", _counts(run, tree)) if items is None else ("items", items.summary())
    yield from _models(trail, run)
    yield from _origin(trail, run)
    yield from _unnamed(trail, run, tree)
    if run.tags:
        yield "tags", tags_text(run.tags)
    if run.oldest:
        yield "pruned", f"what is kept begins at step {run.oldest}"
    yield from _values(tree)


def _values(tree: Outline) -> Iterator[tuple[str, Cell | str]]:
    """What went in, and what came out."""
    with suppress(ErasedError):
        inputs, changed = run_with(tree)
        if inputs is not None:
            yield "inputs", brief(inputs, _WIDE)
        for seq, change in changed:
            yield "changed", f"{shown(change, '', _SIDE).removeprefix('.')} (step {seq})"
        if tree.end is not None and tree.end.output is not None:
            yield "output", brief(tree.end.output, _WIDE)
    error = error_of(tree.end) if tree.end is not None else None
    if error is not None:
        yield "error", Cell(str(error), "red")


def _failures(failed: list[Failed]) -> Iterator[tuple[str, Cell | str]]:
    """What has failed of a run that has not ended: it will when what it waits for was answered."""
    for each in failed[:_FIRST]:
        yield "failed", Cell(f"{each.name}: {each.error or 'erased'} ({each.run_id}@{each.seq})", "red")
    if len(failed) > _FIRST:
        yield "", f"... and {len(failed) - _FIRST:,} more"


def _failed(found: Failed) -> dict[str, Any]:
    return {"run": found.run_id, "seq": found.seq, "name": found.name, "error": plain.error(found.error)}


def _standing(trail: Trail, run: Run, *, interrupted: bool, asks: bool) -> Cell:
    if interrupted and trail.step(run.id, trail.store.run(run.id).seq, view=True).kind is Kind.ANSWER:
        if asks:
            return Cell("answered in part: no process is working on it", STYLES["paused"])
        return Cell("answered, and to be resumed: no process is working on it", STYLES["interrupted"])
    if interrupted:
        return Cell("interrupted: no process is working on it", STYLES["interrupted"])
    if is_copy(run.owner):
        return Cell(
            f"half copied ({run.owner}, at work or cut off): what comes next is not here", STYLES["half copied"]
        )
    if run.owner is None:
        return status_cell(str(run.status))
    left = trail.store.run(run.id).lease - time.time()
    return Cell(
        f"{run.status}, owned by {run.owner} for another {duration(left * 1000)}", STYLES.get(str(run.status), "")
    )


def _counts(run: Run, tree: Outline) -> str:
    """How many steps the run has, and apart from them those that no longer count."""
    every = [node for _, node in tree.walk()]
    nodes = [node for node in every if not node.superseded]
    superseded = sum(node.superseded and node.kind in {Kind.STEP, Kind.PAUSE} for node in every)
    supersteps = len({node.record.superstep for node in nodes} - {None})
    failed = sum(node.status is Status.FAILED and node.kind is Kind.STEP for node in nodes)
    refused = sum(node.status is Status.COMPLETED and refused_with(node.record) is not None for node in nodes)
    parts = [
        count(sum(node.kind in {Kind.STEP, Kind.PAUSE} for node in nodes), "step"),
        count(supersteps, "superstep") if supersteps else "",
        f"{failed:,} failed" if failed else "",
        f"{refused:,} answered with an error" if refused else "",
        count(sum(len(node.earlier) for node in nodes), "failed attempt")
        if any(node.earlier for node in nodes)
        else "",
        f"{superseded:,} superseded" if superseded else "",
        count(run.step_count, "entry"),
    ]
    return ", ".join(filter(None, parts))


def _usage(trail: Trail, run_id: str) -> dict[str, Any] | None:
    try:
        return trail.usage(run_id).to_dict()
    except DamagedError:
        return None


def _models(trail: Trail, run: Run) -> Iterator[tuple[str, str]]:
    """What models were asked, in this run and those inside, and what that came to."""
    try:
        used = trail.usage(run.id)
    except DamagedError as damage:  # perhaps of a run inside: this one can be shown
        yield "models", f"what they were asked cannot be told: {damage}"
        return
    several = [used.total] if len(used.models) > 1 else []
    for each in (*used.models, *several):
        tokens = f"{each.input_tokens:,} in, {each.output_tokens:,} out"
        parts = [
            each.model if each is not used.total else "all",
            count(each.calls, "call"),
            f"{count(each.tokens, 'token')} ({tokens})" if each.input_tokens or each.output_tokens else "",
            f"cost {money(each.cost)}" if each.cost is not None else "",
            f"{count(each.unpriced, 'call')} of unknown cost" if each.unpriced and each.cost is not None else "",
        ]
        yield "models" if each is used.total else "model", ", ".join(filter(None, parts))


def _unnamed(trail: Trail, run: Run, tree: Outline) -> Iterator[tuple[str, str]]:
    """The runs inside that no step tells of: those that have not ended, while this one has not.

    Of a captured program all that it started: a process may be several.
    """
    if tree.start is None or is_map(tree.start):
        return
    if run.status is not Status.ACTIVE and CAPTURED not in tree.start.metadata:
        return
    named = {row.child_run_id for _, node in tree.walk() for row in (node.begun, node.record)}
    below = [child for child in trail.runs(parent=run.id, limit=ALL)[::-1] if child.id not in named]
    for child in below[:_CHILDREN]:
        yield "child", f"{child.id} ({standing(trail, child)})"
    if len(below) > _CHILDREN:
        yield "children", f"{len(below) - _CHILDREN:,} more: everstep runs --parent {run.id}"


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
