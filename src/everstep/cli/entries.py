"""The command that lists the entries of a run: steps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import click

from everstep.cli import plain
from everstep.cli.output import Cell, Column
from everstep.cli.reading import WIDE, ending, words_of
from everstep.cli.session import Session, StepNumber, options, paged, position, run_ids, session
from everstep.cli.style import result_of, status_cell
from everstep.cli.text import duration, stamp
from everstep.codec.record import StepRecord
from everstep.model import Run, Status
from everstep.trail.trail import Trail

_STATUSES = [str(word) for word in Status if word is not Status.UNKNOWN]  # which is what no entry says of itself
_AT_ONCE = 1_000  # entries that are read together while some are looked for
_LANE = 12  # characters of a lane that a person is shown: its end, which tells it from others
_NUMBERS = frozenset({"seq", "superstep", "took"})
_SPARE = {"started": 1, "kind": 2}  # which a narrow window goes without: the result is what is looked for


@click.command()
@click.argument("run", shell_complete=run_ids)
@click.option("--name", metavar="NAME", help="Only steps with this name.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only entries with this status.")
@click.option("--from", "begin", type=StepNumber(), metavar="SEQ", help="Begin at this step.")
@click.option("--superstep", type=click.IntRange(min=0), metavar="N", help="How the nodes of one superstep ended.")
@paged(100)
@options
def steps(
    run: str,
    name: str | None,
    status: str | None,
    begin: int | None,
    superstep: int | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List the steps of a run as they were recorded, every entry of the log."""
    here = session()
    trail = here.open()
    found = trail.run(run)
    first = position(cursor)
    if superstep is None:
        entries = _entries(
            trail, found, max(first, begin or 0), limit + 1 if name is None and status is None else _AT_ONCE
        )
    else:
        entries = (row for row in trail.get_steps(run, superstep, view=True) if row.seq >= max(first, begin or 0))
    rows, following = list[StepRecord](), None
    for row in entries:
        if (name is not None and row.name != name) or (status is not None and str(row.status) != status):
            continue
        if len(rows) == limit:
            following = str(row.seq)
            break
        rows.append(row)
    if here.output.as_json:
        here.output.data(steps=[plain.step(row) for row in rows], cursor=following)
        return
    here.output.table(*_table(here, rows, found.created_at))
    words = words_of(name=name, status=status, superstep=superstep)
    if not rows and (words or begin):
        here.output.talk(f"no such step there. All of them: {here.command('steps', run)}")
    else:
        ending(here, "step", len(rows), following, run, *words)


def _entries(trail: Trail, run: Run, first: int, at_once: int) -> Iterator[StepRecord]:
    """The entries of a run from one on, read some at a time: whoever has enough stops."""
    first = max(first, run.oldest)
    while first <= run.head:
        last = min(first + at_once - 1, run.head)
        yield from trail.steps(run.id, first, last, view=True)
        first = last + 1


def _table(here: Session, rows: list[StepRecord], began: datetime) -> tuple[list[Column], list[list[Cell | str]]]:
    """The entries under their titles; for a person with the time since `began`, and no lanes where all are in one."""
    person = here.output.person
    in_graph = any(row.superstep is not None for row in rows)
    without = {"superstep"} if not in_graph else set()
    if person and len({row.lane for row in rows} - {""}) < 2:
        without.add("lane")
    cells = [_cells(here, row, began if person else None) for row in rows]
    titles = [title for title in _TITLES if title not in without]
    columns = [Column(title, right=title in _NUMBERS, spare=_SPARE.get(title, 0)) for title in titles]
    return columns, [[each[title] for title in titles] for each in cells]


_TITLES = ("seq", "kind", "status", "superstep", "step", "lane", "started", "took", "result")


def _cells(here: Session, row: StepRecord, began: datetime | None) -> dict[str, Cell | str]:
    """The cells of an entry, by title."""
    since = None if began is None else (row.started_at - began) / timedelta(milliseconds=1)
    return {
        "seq": Cell(str(row.seq), "dim"),
        "kind": str(row.kind),
        "status": status_cell(str(row.status)),
        "superstep": "" if row.superstep is None else str(row.superstep),
        "step": Cell(row.name, "bold"),
        "lane": _lane(here, row.lane),
        "started": stamp(row.started_at) if since is None else f"+{duration(max(0.0, since))}",
        "took": duration(row.duration_ms or None),
        "result": result_of(row, WIDE),
    }


def _lane(here: Session, lane: str) -> str:
    if not here.output.person or len(lane) <= _LANE:
        return lane or "-"
    dots = "…" if here.output.unicode else "..."
    return dots + lane[len(dots) - _LANE :]
