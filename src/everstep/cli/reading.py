"""The commands that list: runs, checkpoints, search."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from click.core import ParameterSource

from everstep.cli import plain
from everstep.cli.finding import match_of
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, is_interrupted, options, paged, position, run_ids, session
from everstep.cli.style import result_of, status_cell, tags_text
from everstep.cli.text import ago, brief, duration, stamp
from everstep.codec.record import StepRecord
from everstep.errors import RunNotFoundError
from everstep.model import FINISHED, Checkpoint, CheckpointKind, Kind, Run, Status
from everstep.store.base import ALL, RunQuery
from everstep.trail.listing import INTERRUPTED
from everstep.trail.owner import is_copy
from everstep.trail.trail import Trail

_OF_RUNS = FINISHED | {Status.ACTIVE, Status.PAUSED}
_STATUSES = [*(str(word) for word in Status if word in _OF_RUNS), INTERRUPTED]
# How a row stands that only begins something: its status is of then, and how it ended stands in another row.
_BEGINNINGS = {Kind.INTENT: "begun", Kind.COMPOSITE_START: "begun", Kind.PAUSE: "asked"}
WIDE = 200  # characters that a value may take in a list
_NUMBERS = frozenset({"entries", "errors", "took", "children"})
_SPARE = ("entries", "took", "errors", "tags")  # which go first in a narrow window: the id must be there to copy


def _tags(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, sign, _value in pairs:
        if not name or not sign:
            raise click.BadParameter("give NAME=VALUE.")
    return {name: value for name, _sign, value in pairs}


def _since(_: click.Context, __: click.Parameter, given: str | None) -> datetime | None:
    """A time as people type it, and as we print it."""
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(f"{given!r:.60} is no time; give 2026-11-15, or 2026-11-15T14:36, in UTC.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


tag_option = click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=_tags, help="Only with this tag."
)


@click.command()
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs with this status.")
@click.option("--workflow", metavar="NAME", help="Only of this workflow.")
@tag_option
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Begun then or later: 2026-11-15, or 2026-11-15T14:36:02, in UTC.",
)
@click.option(
    "--parent", metavar="RUN", shell_complete=run_ids, help="Those inside this run: children, items of a map."
)
@click.option("--all", "everything", is_flag=True, help="Those inside others too.")
@paged(50)
@options
def runs(
    status: str | None,
    workflow: str | None,
    tags: dict[str, str],
    since: datetime | None,
    parent: str | None,
    limit: int,
    cursor: str | None,
    *,
    everything: bool,
) -> None:
    """List runs, newest first: those at the top, with how many are inside each."""
    here = session()
    trail = here.open()
    position(cursor)
    if parent is not None and everything:
        raise click.UsageError("--parent asks for the runs inside one, --all for every one; give one of the two.")
    wanted: dict[str, Any] = {"workflow": workflow, "tags": tags, "since": since}
    if not everything:
        wanted["parent"] = None if parent is None else trail.run(parent).id
    found = trail.runs(status=status, limit=limit, cursor=cursor, **wanted)
    rows = [(run, is_interrupted(trail, run), _inside(trail, run)) for run in found]
    if here.output.as_json:
        listed = [{**plain.run(run, interrupted=lost), "children": inside} for run, lost, inside in rows]
        here.output.data(runs=listed, cursor=found.cursor)
        return
    with_children = any(inside for _, _, inside in rows)
    counted = ["children"] if with_children else []
    columns = ["run", "workflow", "status", "started", "took", *counted, "entries", "errors", "tags"]
    here.output.table(
        [
            Column(title, right=title in _NUMBERS, spare=_SPARE.index(title) + 1 if title in _SPARE else 0)
            for title in columns
        ],
        [_run_row(here, run, inside if with_children else None, interrupted=lost) for run, lost, inside in rows],
    )
    words = words_of(status=status, workflow=workflow, tag=tags, since=since, parent=parent)
    if not rows and words and parent is None and not everything:
        here.output.talk(f"no run there. Runs inside others: {here.command('runs', *words, '--all')}")
    else:
        ending(here, "run", len(rows), found.cursor, *words, *(["--all"] if everything else []))


def _inside(trail: Trail, run: Run) -> int:
    return len(trail.store.runs(RunQuery(parent=run.id, limit=ALL)))


def words_of(**given: Any) -> list[str]:
    """What was asked for, as it is typed again."""
    words = list[str]()
    for name, value in given.items():
        if isinstance(value, dict):
            words += [word for tag, text in value.items() for word in (f"--{name}", f"{tag}={text}")]
        elif value is not None:
            words += [f"--{name}", value.isoformat() if isinstance(value, datetime) else str(value)]
    return words


def _run_row(here: Session, run: Run, inside: int | None, *, interrupted: bool) -> list[Cell | str]:
    return [
        Cell(run.id, "bold", whole=True),
        run.workflow or "-",
        status_cell("interrupted" if interrupted else "half copied" if is_copy(run.owner) else str(run.status)),
        ago(run.created_at) if here.output.person else stamp(run.created_at),
        duration(run.duration_ms),
        *([] if inside is None else [str(inside) if inside else "-"]),
        str(run.step_count),
        Cell(str(plain.errors(run)), "red" if plain.errors(run) else ""),
        Cell(tags_text(run.tags), "dim"),
    ]


def ending(here: Session, what: str, count: int, cursor: str | None, *words: str) -> None:
    """Say that there is nothing, or how to see more."""
    if count == 0:
        here.output.talk(f"no {what} there.")
    elif cursor is not None:
        context = click.get_current_context()
        is_asked_for = context.get_parameter_source("limit") is ParameterSource.COMMANDLINE
        limit = ["--limit", context.params["limit"]] if is_asked_for else []
        here.output.talk(f"more: {here.command(context.info_name, *words, *limit, '--cursor', cursor)}")


@click.command()
@click.argument("run", required=False, shell_complete=run_ids)
@click.option("--kind", type=click.Choice([str(word) for word in CheckpointKind]), help="Only made for this.")
@tag_option
@paged(50)
@options
def checkpoints(run: str | None, kind: str | None, tags: dict[str, str], limit: int, cursor: str | None) -> None:
    """List named points, newest first, of one run or of all."""
    here = session()
    trail, first = here.open(), position(cursor)
    found = _checkpoints(trail, run, kind, tags, first + limit + 1)
    page, following = found[first : first + limit], str(first + limit) if len(found) > first + limit else None
    if here.output.as_json:
        here.output.data(checkpoints=[plain.checkpoint(point) for point in page], cursor=following)
        return
    here.output.table(
        [Column(title) for title in ("checkpoint", "name", "kind", "made", "metadata")],
        [
            [
                Cell(point.id, "bold", whole=True), point.name, str(point.kind),
                ago(point.created_at) if here.output.person else stamp(point.created_at),
                brief(point.metadata, WIDE) if point.metadata else "-",
            ]
            for point in page
        ],
    )  # fmt: skip
    words = [*([run] if run is not None else []), *words_of(kind=kind, tag=tags)]
    if page:
        ending(here, "checkpoint", len(page), following, *words)
    else:
        here.output.talk('no checkpoints. `everstep.current().checkpoint("name")` in a workflow makes one.')


def _checkpoints(trail: Trail, run: str | None, kind: str | None, tags: dict[str, str], limit: int) -> list[Checkpoint]:
    if not tags:
        return trail.checkpoints(run, kind=kind, limit=limit)
    cursor, found = None, list[Checkpoint]()
    while True:
        page = trail.runs(tags=tags, limit=1_000, cursor=cursor)
        for one in page:
            if run in {None, one.id} and one.head >= 0:
                found += trail.checkpoints(one.id, kind=kind, limit=limit)
        cursor = page.cursor
        if cursor is None:
            break
    return sorted(found, key=lambda point: point.created_at, reverse=True)[:limit]


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--run", "run_id", metavar="RUN", shell_complete=run_ids, help="Only in this run.")
@paged(20)
@options
def search(words: tuple[str, ...], run_id: str | None, limit: int, cursor: str | None) -> None:
    """Find steps that hold all the WORDS, best first. "Quoted words" stand together; a star is any end."""
    here = session()
    trail, first = here.open(), position(cursor)
    text = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    with here.output.busy("reading the words of this trail"):
        found = _found(trail, text, run_id, first + limit + 1)
    page, following = found[first : first + limit], str(first + limit) if len(found) > first + limit else None
    if here.output.as_json:
        hits = [(row, match_of(row, text)) for row in page]
        found_in = [None if match is None else match._asdict() for _, match in hits]
        listed = [{**plain.step(row), "match": match} for (row, _), match in zip(hits, found_in, strict=True)]
        here.output.data(search=listed, cursor=following)
        return
    here.output.table(
        [Column("step"), Column("name"), Column("status", spare=1), Column("match")], [_hit(row, text) for row in page]
    )
    ending(here, "step with these words", len(page), following, *words, *words_of(run=run_id))


def _found(trail: Trail, text: str, run_id: str | None, limit: int) -> list[StepRecord]:
    """The steps with the words, best first; of one run those that it shares with what it was forked from, too."""
    if run_id is None:
        return trail.search(text, limit=limit)
    run = trail.run(run_id)
    last = {run.id: run.head}
    while run.forked_from is not None and run.fork_seq is not None and run.forked_from not in last:
        last[run.forked_from] = min(run.fork_seq, last[run.id])
        try:
            run = trail.run(run.forked_from)
        except RunNotFoundError:  # it was dropped; what it shared is found under other names
            break
    found = [row for row in trail.search(text, limit=ALL) if row.seq <= last.get(row.run_id, -1)]
    return found[:limit]


def _hit(row: StepRecord, words: str) -> list[Cell | str]:
    """A step that was found, with what was found in it; where that is its name, with what came of it."""
    match = match_of(row, words)
    found = result_of(row, WIDE) if match is None else Cell(f"{match.where}: {match.text}", whole=True)
    status = _BEGINNINGS.get(row.kind, str(row.status))
    return [Cell(f"{row.run_id}@{row.seq}", "bold", whole=True), row.name, status_cell(status), found]
