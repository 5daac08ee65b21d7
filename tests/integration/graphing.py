"""What the tests of graphs share: nodes that say that they were called, either runner, and the rows of nodes."""

from __future__ import annotations

import asyncio
from inspect import Parameter, Signature
from typing import Any

from everstep import AsyncRunner, Graph, Kind, Runner, RunResult, StepRecord, Trail, node
from everstep.run.lanes import NODES
from tests.integration.running import Calls

calls = Calls()


def gives(name: str, *takes: str, **more: Any) -> Any:
    """A node that says that it was called, and gives what it took with its own name."""

    def function(a: Any = None, b: Any = None) -> str:
        calls(name)
        return "".join(filter(None, (a, b, name)))

    inputs = dict(zip("ab", takes, strict=False))
    parameters = [Parameter(each, Parameter.KEYWORD_ONLY) for each in inputs]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # functions have room for it
    return node(output=f"v_{name}", name=name, inputs=inputs, **more)(function)


CHAIN = Graph([gives("one", "x"), gives("two", "v_one"), gives("three", "v_two")], name="chain")


def both(trail: Trail, graph: Graph, *args: Any, on_a_loop: bool, **options: Any) -> RunResult[Any]:
    """Run a graph by either runner."""
    if on_a_loop:
        return asyncio.run(AsyncRunner(trail).run(graph, *args, **options))
    return Runner(trail).run(graph, *args, **options)


def nodes_of(trail: Trail, run_id: str) -> list[StepRecord]:
    """The outcomes of nodes, in the order of the record."""
    return [row for row in trail.steps(run_id) if row.kind is Kind.STEP and row.lane == NODES]


def told(trail: Trail, run_id: str) -> list[Any]:
    """What must be the same however often a run was interrupted."""
    return [
        (row.name, row.index, row.superstep, row.input_versions, row.decision, row.status)
        for row in nodes_of(trail, run_id)
    ]


def statuses(trail: Trail, run_id: str) -> list[tuple[str, int | None, str]]:
    """By node: its superstep, and how it ended."""
    return [(row.name, row.superstep, str(row.status)) for row in nodes_of(trail, run_id)]
