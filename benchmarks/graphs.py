"""A long chain and a long loop as graphs: everstep's, and the same by the peer with its own loop and SqliteSaver."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

import everstep
from benchmarks import workloads
from benchmarks.floor import require_wal_full
from benchmarks.report import Case
from everstep import Graph, RunLog, Status, node, route
from everstep.run.asked import Ask
from everstep.run.execution import Execution
from everstep.run.noted import log_row

OURS = "WAL, FULL, 1 commit per node"
PEERS = "WAL, FULL, durability=sync"


def _said(steps: int) -> list[dict[str, Any]]:
    """What is said at each turn, made beforehand: to make it is no part of going round."""
    return [workloads.message(number) for number in range(steps)]


def _loop(steps: int, marks: list[float]) -> Graph:
    """One node that goes round, its list one message longer each time."""
    said = _said(steps)

    @node(output="messages")
    def turn(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        marks.append(perf_counter())
        return [*messages, said[len(messages)]]

    @route(targets=["turn", everstep.END])
    def more(messages: list[dict[str, Any]]) -> str:
        return "turn" if len(messages) < steps else everstep.END

    return Graph([turn, more], name="loop")


def _link(number: int, marks: list[float]) -> Any:
    """A node of a chain: it takes what the one before gave."""
    before, after = f"v{number}", f"v{number + 1}"

    @node(name=f"n{number}", inputs={"value": before}, output=after)
    def link(value: str) -> str:  # noqa: ARG001 - what counts is that it is given
        marks.append(perf_counter())
        return workloads.content(number)

    return link


def _chain(steps: int, marks: list[float]) -> Graph:
    return Graph([_link(number, marks) for number in range(steps)], name="chain")


def _run(build: Callable[[int, list[float]], Graph], first: dict[str, Any]) -> Callable[[Path, int], list[float]]:
    def run(directory: Path, steps: int) -> list[float]:
        marks: list[float] = []
        graph = build(steps, marks)
        with everstep.open(directory / "trail.db") as trail:
            everstep.Runner(trail).run(graph, first, id="g")
            marks.append(perf_counter())
        return [after - before for before, after in pairwise(marks)]

    return run


class _Messages(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


def _peer(directory: Path, builder: Any, first: dict[str, Any], steps: int, marks: list[float]) -> list[float]:
    with closing(sqlite3.connect(directory / "saver.db", check_same_thread=False)) as connection:
        connection.execute("pragma synchronous = full")
        saver = SqliteSaver(connection)
        saver.setup()
        require_wal_full(
            *(connection.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
        )
        graph = builder.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "g"}, "recursion_limit": steps + 5}
        graph.invoke(first, config, durability="sync")
        marks.append(perf_counter())
    return [after - before for before, after in pairwise(marks)]


def _peer_loop(directory: Path, steps: int) -> list[float]:
    marks: list[float] = []
    said = _said(steps)

    def turn(state: _Messages) -> dict[str, Any]:
        marks.append(perf_counter())
        return {"messages": [said[len(state["messages"])]]}

    def more(state: _Messages) -> str:
        return "turn" if len(state["messages"]) < steps else END

    builder: Any = StateGraph(_Messages)
    builder.add_node("turn", turn)
    builder.add_edge(START, "turn")
    builder.add_conditional_edges("turn", more)
    return _peer(directory, builder, {"messages": []}, steps, marks)


def _peer_chain(directory: Path, steps: int) -> list[float]:
    marks: list[float] = []

    def link(number: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def run(state: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - what counts is that it is given
            marks.append(perf_counter())
            return {f"v{number + 1}": workloads.content(number)}

        return run

    state: Any = TypedDict("state", {f"v{number}": str for number in range(steps + 1)})  # type: ignore[misc] # made here
    builder: Any = StateGraph(state)
    for number in range(steps):
        builder.add_node(f"n{number}", link(number))
        builder.add_edge(START if number == 0 else f"n{number - 1}", f"n{number}")
    return _peer(directory, builder, {"v0": "begin"}, steps, marks)


def without_store(steps: int) -> float:
    """Microseconds for a node of a chain that is not stored, with the log that is always kept."""
    marks: list[float] = []
    graph = _chain(steps, marks)
    start = perf_counter()
    everstep.Runner().run(graph, {"v0": "begin"})
    return (perf_counter() - start) / steps * 1e6


def log_cost(steps: int) -> float:
    """Microseconds that the log takes for a node: to note it, and its share of making the log at the end."""
    run = Execution("log", "log")
    ask = Ask(run.root, "empty", (0, 0), None)
    start = perf_counter()
    for number in range(steps):
        run.note(ask, number, 0.0, Status.COMPLETED, None)
    made = RunLog.of("log", "log", 0.0, (log_row(row, {}) for row in run.log)).steps  # and read: else it is not made
    return (perf_counter() - start) / len(made) * 1e6


LOOP = Case("everstep, loop", _run(_loop, {"messages": []}), OURS)
CHAIN = Case("everstep, chain", _run(_chain, {"v0": "begin"}), OURS)
PEER_LOOP = Case("StateGraph, loop", _peer_loop, PEERS)
PEER_CHAIN = Case("StateGraph, chain", _peer_chain, PEERS)
