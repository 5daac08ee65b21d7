"""A graph as a node of another: a child run, or one for each item of a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from everstep.errors import GraphError
from everstep.graph.nodes import Node
from everstep.run.items import Items

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
        self.outer = dict(outputs) if isinstance(outputs, Mapping) else {each: each for each in outputs}
        unknown = [each for each in self.outer if each not in graph.outputs]
        unknown += [each for each in map_over if each not in graph.inputs]
        if unknown:
            raise GraphError(
                f"node {name!r}", f"knows no {unknown[0]!r}",
                f"Graph {graph.name!r} takes {', '.join(graph.inputs)} and gives {', '.join(graph.outputs)}.",
            )  # fmt: skip
        super().__init__(graph._plain, kind="graph", name=name, inputs=inputs, outputs=tuple(self.outer.values()))  # noqa: SLF001 - its code
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
        outputs = self.outer if output is None else output
        return GraphNode(self.graph, name or self.name, {**self.inputs, **(inputs or {})}, outputs, self.map_over)

    def by_name(self, value: Any) -> dict[str, Any]:
        """What the child run gave, under the names it has here. What it did not give is not there."""
        return {outer: value[inner] for inner, outer in self.outer.items() if inner in value}

    def body(self, child: Callable[..., Any], given: dict[str, Any]) -> Callable[[], Any]:
        """The call: `child` runs the graph as a child run; for each item, the graph itself is called."""
        given = {name: value for name, value in given.items() if value is not _OMITTED}
        if not self.map_over:
            return lambda: child(**given)
        if not self.is_async:
            return lambda: self._collected([self.graph(**item) for item in self._items(given)])

        async def each_awaited() -> dict[str, list[Any]]:
            limit = asyncio.Semaphore(_AT_ONCE)

            async def one(item: dict[str, Any]) -> Any:
                async with limit:
                    return await self.graph(**item)

            one.__qualname__ = "item"  # the lane of its task is named after it, and so is the child run
            return self._collected(await asyncio.gather(*map(one, self._items(given)), return_exceptions=True))

        return each_awaited

    def _items(self, given: dict[str, Any]) -> Items:
        return Items(f"node {self.name!r}", given, self.map_over)

    def _collected(self, results: Sequence[Any]) -> dict[str, list[Any]]:
        errors = [each for each in results if isinstance(each, BaseException)]
        if errors:  # of all items: each is tried again when the run is taken up
            failures = [each for each in errors if isinstance(each, Exception)]
            if len(errors) == 1 or len(failures) < len(errors):
                raise next((each for each in errors if not isinstance(each, Exception)), errors[0])
            raise ExceptionGroup(f"{len(failures)} items of node {self.name!r} failed", failures)
        return {inner: [result.get(inner) for result in results] for inner in self.outer}
