"""What peers take for the same work, driven through their storage interface alone (W1s) and by many at once (W2).

Needs the environment that `make bench` makes. Every step is `put_writes` and then `put`, as the peer's own loop
does it; both commit. The peer's default for durability is kept, made explicit, and checked: WAL and FULL.
"""

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

import aiosqlite
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks import workloads
from benchmarks.floor import require_wal_full
from benchmarks.report import Case

WRITERS = 100
DURABILITY = "WAL, FULL, 2 commits per step"

Change = tuple[dict[str, Any], dict[str, Any]]


class Thread:
    """One conversation as the peer's loop keeps it: the growing state, and the checkpoint it stands at."""

    def __init__(self, name: str, document: str | None) -> None:
        self.config: dict[str, Any] = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self.values: dict[str, Any] = {"messages": [], "scratchpad": {}}
        if document is not None:
            self.values["document"] = document
        self.versions: dict[str, str | int | float] = {}
        self.step = -1

    def first(self) -> tuple[Any, ...]:
        """The arguments of the `put` that starts the thread."""
        return self._checkpoint("input", list(self.values))

    def take(self, change: Change) -> tuple[tuple[Any, ...], Callable[[], tuple[Any, ...]]]:
        """The arguments of `put_writes`, and those of the `put` that follows it."""
        message, scratchpad = change
        writes = [("messages", message), ("scratchpad", scratchpad)]

        def then() -> tuple[Any, ...]:
            self.values["messages"].append(message)
            self.values["scratchpad"] = scratchpad
            return self._checkpoint("loop", ["messages", "scratchpad"])

        return (self.config, writes, f"task-{self.step}"), then

    def _checkpoint(self, source: str, changed: list[str]) -> tuple[Any, ...]:
        self.step += 1
        new = dict.fromkeys(changed, f"{self.step + 1:032}.0")
        self.versions.update(new)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = self.values
        checkpoint["channel_versions"] = self.versions
        checkpoint["versions_seen"] = {"node": self.versions}
        return self.config, checkpoint, {"source": source, "step": self.step, "parents": {}}, new


def sqlite_saver(directory: Path, steps: int) -> list[float]:
    """W1 through SqliteSaver: the seconds of each step."""
    changes = workloads.w1(steps)
    seconds = []
    with closing(sqlite3.connect(directory / "saver.db", check_same_thread=False)) as connection:
        connection.execute("pragma synchronous = full")
        saver = SqliteSaver(connection)
        saver.setup()
        require_wal_full(
            *(connection.execute(f"pragma {name}").fetchone()[0] for name in ("journal_mode", "synchronous"))
        )
        thread = Thread("w1", workloads.document())
        thread.config = saver.put(*thread.first())
        for change in changes:
            start = perf_counter()
            writes, then = thread.take(change)
            saver.put_writes(*writes)
            thread.config = saver.put(*then())
            seconds.append(perf_counter() - start)
    return seconds


async def _open(path: Path) -> tuple[Any, Any]:
    connection = await aiosqlite.connect(path)
    await connection.execute("pragma synchronous = full")
    saver = AsyncSqliteSaver(connection)
    await saver.setup()
    found = [await (await connection.execute(f"pragma {name}")).fetchone() for name in ("journal_mode", "synchronous")]
    require_wal_full(*(row[0] for row in found))
    return connection, saver


async def _step(saver: Any, thread: Thread, change: Change) -> None:
    writes, then = thread.take(change)
    await saver.aput_writes(*writes)
    thread.config = await saver.aput(*then())


def async_sqlite_saver(directory: Path, steps: int) -> list[float]:
    """W1 through AsyncSqliteSaver: the seconds of each step."""

    async def main() -> list[float]:
        changes = workloads.w1(steps)
        connection, saver = await _open(directory / "saver.db")
        seconds = []
        try:
            thread = Thread("w1", workloads.document())
            thread.config = await saver.aput(*thread.first())
            for change in changes:
                start = perf_counter()
                await _step(saver, thread, change)
                seconds.append(perf_counter() - start)
        finally:
            await connection.close()
        return seconds

    return asyncio.run(main())


def async_sqlite_saver_fleet(directory: Path, steps: int) -> list[float]:
    """W2 through AsyncSqliteSaver: 100 threads of `steps` steps at once, no document.

    Gives the seconds from each acknowledged step to the next, whoever took it: they add up to the time of the whole.
    """

    async def main() -> list[float]:
        changes = list(workloads.w1(WRITERS * steps))
        connection, saver = await _open(directory / "saver.db")
        marks: list[float] = []

        async def write(thread: Thread, mine: list[Change]) -> None:
            for change in mine:
                await _step(saver, thread, change)
                marks.append(perf_counter())

        try:
            threads = [Thread(f"w2-{number}", None) for number in range(WRITERS)]
            for thread in threads:
                thread.config = await saver.aput(*thread.first())
            marks.append(perf_counter())
            async with asyncio.TaskGroup() as group:
                for number, thread in enumerate(threads):
                    group.create_task(write(thread, changes[number::WRITERS]))
        finally:
            await connection.close()
        return [after - before for before, after in pairwise(marks)]

    return asyncio.run(main())


class _State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]
    scratchpad: dict[str, Any]
    number: int


def graph_fleet(directory: Path, steps: int) -> list[float]:
    """W2 by the peer's own loop: 100 graphs of one node that goes round `steps` times, with AsyncSqliteSaver."""

    async def main() -> list[float]:
        changes = list(workloads.w1(WRITERS * steps))
        marks: list[float] = []

        async def node(state: _State) -> dict[str, Any]:
            message, scratchpad = changes[state["number"]]
            marks.append(perf_counter())
            return {"messages": [message], "scratchpad": scratchpad, "number": state["number"] + 1}

        def more(state: _State) -> str:
            return END if state["number"] % steps == 0 else "agent"

        connection, saver = await _open(directory / "saver.db")
        try:
            builder: Any = StateGraph(_State)
            builder.add_node("agent", node)
            builder.add_edge(START, "agent")
            builder.add_conditional_edges("agent", more)
            graph = builder.compile(checkpointer=saver)
            marks.append(perf_counter())
            async with asyncio.TaskGroup() as group:
                for number in range(WRITERS):
                    config = {"configurable": {"thread_id": f"g-{number}"}, "recursion_limit": steps + 5}
                    first = {"messages": [], "scratchpad": {}, "number": number * steps}
                    group.create_task(graph.ainvoke(first, config, durability="sync"))
            marks.append(perf_counter())
        finally:
            await connection.close()
        return [after - before for before, after in pairwise(marks)]

    return asyncio.run(main())


SQLITE_SAVER = Case("SqliteSaver", sqlite_saver, DURABILITY)
ASYNC_SQLITE_SAVER = Case("AsyncSqliteSaver", async_sqlite_saver, DURABILITY)
ASYNC_SQLITE_SAVER_FLEET = Case("AsyncSqliteSaver, 100 writers", async_sqlite_saver_fleet, DURABILITY)
GRAPH_FLEET = Case("its graph loop, 100 graphs", graph_fleet, "WAL, FULL, durability=sync")
