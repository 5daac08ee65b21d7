"""The family of a run: the runs it was forked from, and all that were forked from them, as a tree."""

from __future__ import annotations

from collections.abc import Iterator

from everstep.cli import plain
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, is_interrupted, standing
from everstep.cli.style import status_cell
from everstep.cli.text import count, indent
from everstep.model import Run
from everstep.trail.trail import Trail


def show_family(here: Session, trail: Trail, run_id: str) -> None:
    """Print the tree that a run belongs to. Each run stands below the one it was forked from, the oldest fork first."""
    found = list(_family(trail, run_id))
    if here.output.as_json:
        runs = [{"depth": depth, **plain.run(run, interrupted=is_interrupted(trail, run))} for depth, run in found]
        here.output.data(tree=runs)
        return
    rows: list[list[Cell | str]] = [
        [
            Cell(indent(depth) + run.id, "bold" if run.id == run_id else "", whole=True),
            "" if run.fork_seq is None else str(run.fork_seq),
            status_cell(standing(trail, run)),
            count(run.step_count, "entry"),
        ]
        for depth, run in found
    ]
    here.output.table([Column("run"), Column("forked at", right=True), Column("status"), Column("length")], rows)


def _family(trail: Trail, run_id: str) -> Iterator[tuple[int, Run]]:
    waiting = [(0, trail.lineage(run_id)[0])]
    while waiting:
        depth, run = waiting.pop()
        yield depth, run
        line = trail.lineage(run.id)
        own = next(place for place, one in enumerate(line) if one.id == run.id)
        waiting += ((depth + 1, fork) for fork in reversed(line[own + 1 :]))
