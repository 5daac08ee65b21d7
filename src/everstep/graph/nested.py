"""A graph as a node of another: a child run, or one for each item of a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from everstep.errors import GraphError, GraphInputError
from everstep.graph.nodes import Node

if TYPE_CHECKING:
    from everstep.graph.graph import Graph

_OMITTED: Any = object()
_AT_ONCE = 32  # child runs of one node that are at work at the same time


class GraphNode(Node):
    """A graph in the place of a function."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        inputs: Mapping[str, str] | None,
        outputs: Mapping[str, str] | Sequence[str] | None,
        map_over: tuple[str, ...],
    ) -> None:
        self.graph = graph
        self.map_over = map_over
        if outputs is None:
            outputs = graph.outputs
        self._outer = dict(outputs) if isinstance(outputs, Mapping) else {each: each for each in outputs}
        unknown = [each for each in self._outer if each not in graph.outputs]
        unknown += [each for each in map_over if each not in graph.inputs]
        if unknown:
            raise GraphError(
                f"node {name!r}", f"knows no {unknown[0]!r}",
                f"Graph {graph.name!r} takes {', '.join(graph.inputs)} and gives {', '.join(graph.outputs)}.",
            )  # fmt: skip
        super().__init__(graph._plain, kind="graph", name=name, inputs=inputs, outputs=tuple(self._outer.values()))  # noqa: SLF001 - its code
        self.is_async = graph.is_async
        self.types = {}  # those of the nodes inside, which look for themselves

    def _signature(self) -> Signature:
        required = self.graph.required
        return Signature([
            Parameter(each, Parameter.KEYWORD_ONLY, default=Parameter.empty if each in required else _OMITTED)
            for each in self.graph.inputs
        ])  # fmt: skip

    def renamed(
        self, name: str | None = None, *, inputs: Mapping[str, str] | None = None, output: Any = None
    ) -> GraphNode:
        """The same graph under another name, with other values."""
        outputs = self._outer if output is None else output
        return GraphNode(self.graph, name or self.name, {**self.inputs, **(inputs or {})}, outputs, self.map_over)

    def by_name(self, value: Any) -> dict[str, Any]:
        """What the child run gave, under the names it has here. What it did not give is not there."""
        return {outer: value[inner] for inner, outer in self._outer.items() if inner in value}

    def body(self, child: Callable[..., Any], given: dict[str, Any]) -> Callable[[], Any]:
        """The call: `child` runs the graph as a child run; for each item, the graph itself is called."""
        given = {name: value for name, value in given.items() if value is not _OMITTED}
        if not self.map_over:
            return lambda: child(**given)
        items = self._items(given)
        if not self.is_async:
            return lambda: self._collected([self.graph(**item) for item in items])

        async def each_awaited() -> dict[str, list[Any]]:
            limit = asyncio.Semaphore(_AT_ONCE)

            async def one(item: dict[str, Any]) -> Any:
                async with limit:
                    return await self.graph(**item)

            return self._collected(await asyncio.gather(*map(one, items)))

        return each_awaited

    def _items(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return items_of(f"node {self.name!r}", given, self.map_over)

    def _collected(self, results: list[dict[str, Any]]) -> dict[str, list[Any]]:
        return {inner: [result.get(inner) for result in results] for inner in self._outer}


def items_of(where: str, given: Mapping[str, Any], map_over: Sequence[str], mode: str = "zip") -> list[dict[str, Any]]:
    """The inputs of each item: those mapped over, one of each list, and the others as they are."""
    lists: dict[str, list[Any]] = {}
    for name in map_over:
        if name not in given:
            raise GraphInputError(where, f"is to go over {name!r}, which it was not given", "Give it a list of items.")
        if isinstance(given[name], str | bytes | Mapping) or not hasattr(given[name], "__iter__"):
            raise GraphInputError(
                where, f"is to go over {name!r}, which is a {type(given[name]).__name__}", "Give it a list of items."
            )
        lists[name] = list(given[name])
    lengths = {name: len(items) for name, items in lists.items()}
    if mode == "zip" and len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise GraphInputError(where, f"goes over lists of different lengths: {said}", "Give each the same number.")
    rest = {name: value for name, value in given.items() if name not in lists}
    return [{**rest, **dict(zip(lists, values, strict=True))} for values in zip(*lists.values(), strict=True)]
