"""The command that draws a graph, and a recorded run over it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import unquote

import click

from everstep.cli import exits
from everstep.cli.app import AppError, load, module_of
from everstep.cli.output import Cell
from everstep.cli.session import NotThereError, Session, options, run_ids, session
from everstep.codec.record import StepRecord
from everstep.errors import RunNotFoundError
from everstep.graph.graph import Graph
from everstep.graph.picture import Picture, Visits, Wire, picture
from everstep.model import END, Kind, Run, Status
from everstep.run.log import NodeRecord, RunLog
from everstep.store.base import ALL
from everstep.trail.inside import is_map, items_of
from everstep.trail.outline import Node, outline
from everstep.trail.trail import Trail

_KEY = re.compile(r"(?P<name>.+?)(?::[0-9a-f]{8,})?#\d+")  # of a child run, below its parent: the node that it is
# For a terminal that can show no more than ASCII.
_ASCII = str.maketrans({
    "→": "->", "⇢": "~>", "▶": ">", "×": "x", "·": "-", "…": "~", "│": "|", "┊": ":", "─": "-", "┄": ".", "╭": "+",  # noqa: RUF001 - the sign that is drawn
    "╰": "+", "┬": "+", "┴": "+", "┼": "+", "↻": "@", "�": "?",
})  # fmt: skip


class OtherWorkflowError(click.ClickException):
    """The run is not one of the graph."""

    exit_code = exits.DIFFERENT


@click.command()
@click.argument("named", metavar="FILE[:NAME]")
@click.option("--mermaid", "form", flag_value="mermaid", help="Print it as a flowchart in Mermaid.")
@click.option("--svg", "form", flag_value="svg", help="Print it as an SVG.")
@click.option("--run", metavar="RUN", shell_complete=run_ids, help="Draw this run of the trail over it.")
@options
def graph(named: str, form: str | None, run: str | None) -> None:
    """Draw the graph that a file, or a module (MODULE:NAME), has under a name; without a name, its only one."""
    here = session()
    if form is not None and here.output.as_json:
        raise click.UsageError(f"--{form} prints no JSON; give one of the two.")
    found = _graph(named)
    log = None if run is None else _recorded(here, found, run)
    if here.output.as_json:
        here.output.data(graph=_data(found, picture(found, log)))
    elif form is not None:
        drawn = found.to_svg(log) if form == "svg" else found.to_mermaid(log)
        click.echo(drawn if here.output.unicode else drawn.encode("ascii", "xmlcharrefreplace").decode(), nl=False)
    else:
        drawn = found.to_text(log)
        for line in (drawn if here.output.unicode else drawn.translate(_ASCII)).split("\n"):
            here.output.line(Cell(line))


def _graph(named: str) -> Graph:
    """The graph that somebody named. What its code prints is no data of ours."""
    place, _, name = named.rpartition(":") if ":" in named else (named, "", "")
    if not place:
        raise click.UsageError(f"{named!r} names no graph; give FILE:NAME, or MODULE:NAME.")
    with redirect_stdout(sys.stderr):
        module, _ = load(module_of(place))
        known = {name: value for name, value in vars(module).items() if isinstance(value, Graph)}
        if not name:
            return _only(place, known)
        if not hasattr(module, name.partition(".")[0]):
            raise NotThereError(f"{place!r} has no {name!r}. Its graphs: {', '.join(known) or 'none'}.")
        _, found = load(f"{module.__name__}:{name}")
    if not isinstance(found, Graph):
        raise AppError(f"{named!r} is no graph but of type {type(found).__name__}.")
    return found


def _only(place: str, known: dict[str, Graph]) -> Graph:
    """The graph of a module of which none was named."""
    if not known:
        raise NotThereError(f"{place!r} has no graph. Name the file, or the module, that has one.")
    if len({id(graph) for graph in known.values()}) > 1:
        several = ", ".join(f"{place}:{name}" for name in known)
        raise click.UsageError(f"{place!r} has {len(known)} graphs. Name one: {several}.")
    return next(iter(known.values()))


def _data(graph: Graph, drawn: Picture) -> dict[str, Any]:
    """A graph as JSON has it; with a run, what it did at each node, and how often each choice was taken."""
    visits = {box.name: box.visits for box in drawn.boxes if box.node is not None}
    choices = [wire for wire in drawn.wires if wire.kind == "choice"]
    taken = {(drawn.boxes[wire.source].name, _target(drawn, wire)): wire.taken for wire in choices}
    return {
        "name": graph.name,
        "inputs": list(graph.inputs),
        "required": [name for name in graph.inputs if name in graph.required],
        "bound": list(drawn.bound),
        "outputs": list(graph.outputs),
        "nodes": [
            {
                "name": node.name, "kind": node.kind, "inputs": list(dict.fromkeys(node.inputs.values())),
                "outputs": list(node.outputs), "targets": list(node.targets), "run": _visits(visits[node.name]),
            }
            for node in graph.nodes
        ],
        "edges": [
            {
                "source": edge.source, "target": edge.target, "value": edge.value,
                "taken": taken[edge.source, edge.target] if edge.value is None else None,
            }
            for edge in dict.fromkeys(graph.edges)
        ],
    }  # fmt: skip


def _target(drawn: Picture, wire: Wire) -> str:
    box = drawn.boxes[wire.targets[0]]
    return END if box.kind == "end" else box.name


def _visits(found: Visits | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found) | {"ms": round(found.ms, 3)}


# A recorded run.


def _recorded(here: Session, graph: Graph, run_id: str) -> RunLog:
    """What a run did, as the trail has it."""
    trail = here.open()
    run = trail.run(run_id)
    if run.workflow != graph.name:
        raise OtherWorkflowError(
            f"run {run_id!r} is one of {run.workflow!r}, not of graph {graph.name!r}: draw it over the graph that it "
            "is a run of."
        )
    log = _log(trail, run) if not is_map(_start(trail, run)) else _log_of_items(here, trail, run)
    names = dict.fromkeys(step.node_name for step in log.steps if step.parent_span_id is None)
    strange = [name for name in names if name not in graph.shape.nodes]
    if strange:
        here.output.talk(f"not drawn, as the graph has no such node any more: {', '.join(map(repr, strange))}.")
    return log


def _start(trail: Trail, run: Run) -> StepRecord | None:
    return None if run.oldest or run.head < 0 else trail.step(run.id, 0, view=True)


def _log_of_items(here: Session, trail: Trail, run: Run) -> RunLog:
    """What all items of a map did, as if one run had. What went worst comes last: that is how a node stands."""
    items = items_of(trail, run.id)[::-1]
    here.output.talk(f"drawn over one another: what all {len(items):,} items of {run.id} did.")
    logs = [(item.id, _log(trail, item)) for item in items]
    steps = tuple(_known_as(item, step) for item, log in logs for step in log.steps)
    return RunLog(run.workflow, run.id, sum(log.total_duration_ms for _, log in logs), steps)


def _known_as(item: str, step: NodeRecord) -> NodeRecord:
    """A step of an item, told apart from those of the others."""
    above = step.parent_span_id
    return replace(step, span_id=f"{item}:{step.span_id}", parent_span_id=None if above is None else f"{item}:{above}")


def _log(trail: Trail, run: Run) -> RunLog:
    nodes = [node for _, node in outline(trail.steps(run.id, view=True)).walk() if node.kind is Kind.STEP]
    rows = [_row(trail, run, node) for node in sorted(nodes, key=lambda node: node.seq)]
    ended = {node.record.child_run_id for node in nodes}
    rows += [
        row
        for child in trail.runs(parent=run.id, limit=ALL)
        if child.id not in ended
        for row in _open_row(trail, run, child, nodes)
    ]
    spent = sum(node.duration_ms or 0.0 for node in nodes if node.parent is None)  # of a run that has not ended
    return RunLog.of(run.workflow, run.id, spent if run.duration_ms is None else run.duration_ms, rows)


def _open_row(trail: Trail, run: Run, child: Run, nodes: list[Node]) -> Iterator[tuple[Any, ...]]:
    """A graph inside that has not ended: the run that it is in has no row of it, only its child has the name of it."""
    first, *deeper = child.id.removeprefix(f"{run.id}/").split("/")
    key = _KEY.fullmatch(first)
    if key is None:
        return
    name = unquote(key["name"])
    holder = next((node for node in nodes if deeper and node.name == name and node.open), None)
    status = Status.PAUSED if child.status is Status.PAUSED else Status.ACTIVE
    yield (
        name if holder is None else child.workflow, None, 0.0, status, child.id, None, False, None, _log(trail, child),
        None if holder is None else str(holder.begun.seq),
    )  # fmt: skip


def _row(trail: Trail, run: Run, node: Node) -> tuple[Any, ...]:
    """A step as the log of a run has it. What is open while the run is paused waits too."""
    record = node.record
    status = Status.PAUSED if node.status is Status.ACTIVE and run.status is Status.PAUSED else node.status
    parent = None if node.parent is None else str(node.parent.begun.seq)
    child = None if record.child_run_id is None else _child(trail, record.child_run_id)
    return (
        node.name, record.superstep, node.duration_ms or 0.0, status, str(node.begun.seq), node.error, record.cached,
        record.decision, child, parent,
    )  # fmt: skip


def _child(trail: Trail, run_id: str) -> RunLog | None:
    try:
        return _log(trail, trail.run(run_id))
    except RunNotFoundError:  # it was dropped
        return None
