"""What the tests of maps share: workflows and graphs of every kind, and a map of either runner."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep import Graph, MapResult, Runner, Trail, node, workflow
from tests.integration.running import act, act_later, calls

PATIENCE = 30.0  # seconds until a test that hangs is said to


@workflow
def plain(x: Any, y: Any = "") -> Any:
    return {"z": f"{act(x)}{y}"}


@workflow
async def awaited(x: Any, y: Any = "") -> Any:
    return {"z": f"{await act_later(x)}{y}"}


@node(output="w")
def first(x: Any) -> Any:
    return calls(x)


@node(output="w")
async def first_later(x: Any) -> Any:
    await asyncio.sleep(0)
    return calls(x)


@node(output="z")
def second(w: Any, y: Any = "") -> str:
    return f"{w}{y}"


graph, graph_awaited = Graph([first, second], name="graph"), Graph([first_later, second], name="graph")
KINDS = [plain, awaited, graph, graph_awaited]


def mapped(trail: Trail | None, flow: Any, values: dict[str, Any], runner: Any = Runner, **how: Any) -> MapResult:
    found: Any = runner(trail).map(flow, values, **{"map_over": "x", **how})
    result: MapResult = found if runner is Runner else asyncio.run(found)
    return result
