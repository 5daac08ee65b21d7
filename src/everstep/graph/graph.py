"""The graph: nodes joined by the names of what they give and take. It is a workflow, run as any other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from inspect import Parameter, Signature
from typing import Any

from everstep.codec.values import encode
from everstep.errors import GraphChangedError, GraphError, GraphInputError, UnstorableError
from everstep.graph.going import go, go_awaited
from everstep.graph.mermaid import to_mermaid
from everstep.graph.nested import GraphNode
from everstep.graph.nodes import Node, names, node
from everstep.graph.picture import LogOrResult, picture
from everstep.graph.printed import to_text
from everstep.graph.shape import Edge, Shape
from everstep.graph.svg import to_svg
from everstep.graph.types import described, fits
from everstep.run.arguments import name_of
from everstep.run.workflows import Workflow, code_of
from everstep.trail.forking import TARGETS
from everstep.trail.versions import NODES


class Graph(Workflow[..., Any]):
    """Nodes that run when what they take is there. Raises GraphError if they do not fit together.

    `inputs` declares what a run may be given: then a parameter that nobody provides is refused when the graph is
    built. Without it, whatever no node gives is an input.
    """

    gives_state = True

    def __init__(
        self,
        nodes: Iterable[Node | Graph | Callable[..., Any]],
        *,
        name: str = "graph",
        inputs: Sequence[str] | None = None,
        bind: Mapping[str, Any] | None = None,
        max_supersteps: int = 10_000,
    ) -> None:
        if not isinstance(nodes, Iterable):
            raise TypeError(f"Graph({nodes!r:.60}): give its nodes in a list, as in Graph([first, second])")
        self.name = name
        self.shape = Shape(name, [_node(name, each) for each in nodes], inputs, frozenset(bind or {}))
        self.bound: dict[str, Any] = dict(bind or {})
        self.max_supersteps = max_supersteps
        self.is_async = any(each.is_async for each in self.shape.nodes.values())
        self.parameters: Any = GraphParameters(self)
        self._declared = inputs
        self._init_workflow(self._awaited if self.is_async else self._plain)

    # What it is made of.

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.shape.nodes.values())

    @property
    def edges(self) -> list[Edge]:
        """Who gives what to whom, and who chooses whom."""
        return self.shape.edges()

    @property
    def inputs(self) -> tuple[str, ...]:
        """What a run may be given."""
        return self.shape.inputs

    @property
    def required(self) -> frozenset[str]:
        """What a run must be given."""
        return self.shape.required

    @property
    def outputs(self) -> tuple[str, ...]:
        """What its nodes give."""
        return tuple(self.shape.producers)

    def bind(self, **values: Any) -> Graph:
        """The same graph with these values fixed: clients, settings. They are no inputs then, and are not stored."""
        return Graph(
            self.nodes, name=self.name, inputs=self._declared, bind={**self.bound, **values},
            max_supersteps=self.max_supersteps,
        )  # fmt: skip

    def as_node(
        self,
        name: str | None = None,
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | Sequence[str] | None = None,
        map_over: str | Sequence[str] | None = None,
    ) -> GraphNode:
        """The graph as a node of another one: a child run. `inputs` and `outputs` say what its values are called there.

        With `map_over` it runs once for each item of these inputs, and gives lists.
        """
        return GraphNode(self, name or self.name, inputs, outputs, names(map_over))

    # As a workflow.

    def _plain(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return go(self, self.parameters.bind(args, kwargs))

    async def _awaited(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return await go_awaited(self, self.parameters.bind(args, kwargs))

    def functions(self) -> list[Callable[..., Any]]:
        """The functions whose classes can be found when values are read."""
        found = [each.function for each in self.nodes]
        for each in self.nodes:
            found += each.graph.functions() if isinstance(each, GraphNode) else []
        return found

    def fingerprint(self) -> dict[str, Any]:
        """What its results may depend on beside its inputs: its structure, its code, and the Python that runs it."""
        targets = {name: list(each.targets) for name, each in self.shape.nodes.items() if each.targets}
        return {**super().fingerprint(), NODES: self._digests(), **({TARGETS: targets} if targets else {})}

    def _code(self) -> str:
        return _digest("".join(code_of(each.function) for each in self.nodes).encode())

    def _digests(self) -> dict[str, str]:
        found = {name: _digest(encode(_structure(each))) for name, each in self.shape.nodes.items()}
        for name, value in self.bound.items():
            try:
                found[f"={name}"] = _digest(encode(value))
            except UnstorableError:  # a client, or the like: only its class is known
                found[f"={name}"] = _digest(name_of(type(value)).encode())
        return found

    def changed_since(self, about: Mapping[str, Any]) -> frozenset[str]:
        """The nodes that were others when a run began."""
        was, now = about.get(NODES) or {}, self._digests()
        return frozenset(name for name in now if name in was and was[name] != now[name])

    def check_structure(self, run_id: str, about: Mapping[str, Any]) -> None:
        """Raise GraphChangedError if a run was begun with another structure."""
        was, now = about.get(NODES) or {}, self._digests()
        changes = [f"{_said(name)} is new" for name in now if name not in was]
        changes += [f"{_said(name)} is gone" for name in was if name not in now]
        changes += [f"{_said(name)} was changed" for name in now if name in was and was[name] != now[name]]
        if changes:
            raise GraphChangedError(run_id, self.name, tuple(changes))

    # As a picture.

    def to_mermaid(self, log: LogOrResult | None = None) -> str:
        """The graph as a flowchart in Mermaid; with a log or result, a run over it."""
        return to_mermaid(picture(self, log))

    def to_svg(self, log: LogOrResult | None = None) -> str:
        """The graph as an SVG that stands alone; with a log or result, a run over it."""
        return to_svg(picture(self, log))

    def to_text(self, log: LogOrResult | None = None) -> str:
        """The graph as lines of text, 100 columns at most; with a log or result, a run over it."""
        return to_text(picture(self, log))

    def _repr_svg_(self) -> str:  # what a notebook shows
        return self.to_svg()

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return f"<graph {self.name!r} of {len(self.shape.nodes)} nodes>"


class GraphParameters:
    """What a graph takes, given as one mapping, by keyword, or both."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.signature = Signature([
            Parameter(name, Parameter.KEYWORD_ONLY, default=Parameter.empty if name in graph.required else None)
            for name in graph.inputs
        ])  # fmt: skip

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The values by name. Raises GraphInputError."""
        graph = self._graph
        if len(args) > 1 or (args and not isinstance(args[0], Mapping)):
            raise self._refused(f"takes one mapping of values, not {args!r:.60}", "Give it {'name': value, ...}.")
        given = {**(args[0] if args else {}), **kwargs}
        for name in given:
            if name not in graph.inputs:
                raise self._refused(*self._unknown(name))
        missing = [name for name in graph.inputs if name in graph.required and name not in given]
        if missing:
            takers = ", ".join(map(repr, graph.shape.consumers[missing[0]]))
            raise self._refused(
                f"needs {', '.join(map(repr, missing))}, which it was not given",
                f"{missing[0]!r} is taken by {takers}; it takes {', '.join(map(repr, graph.inputs))}.",
            )
        self._check_types(given)
        return {name: given[name] for name in graph.inputs if name in given}

    @staticmethod
    def spread(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Values by name as a call takes them."""
        return (), dict(values)

    def _refused(self, what: str, way_out: str) -> GraphInputError:
        return GraphInputError(f"graph {self._graph.name!r}", what, way_out)

    def _unknown(self, name: str) -> tuple[str, str]:
        graph = self._graph
        if name in graph.bound:
            return f"was bound to its own {name!r}", "Leave it out, or build the graph without it."
        if name in graph.shape.producers:
            return (
                f"was given {name!r}, which its node {graph.shape.producers[name][0]!r} gives",
                f"Leave it out, or declare it: Graph(..., inputs=[{name!r}, ...]).",
            )
        near = difflib.get_close_matches(str(name), graph.inputs, 1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        return f"takes no {name!r}", f"{hint}It takes {', '.join(map(repr, graph.inputs)) or 'nothing'}."

    def _check_types(self, given: dict[str, Any]) -> None:
        shape = self._graph.shape
        for value, found in given.items():
            for taker in shape.consumers.get(value, ()):
                each = shape.nodes[taker]
                for param, taken in each.inputs.items():
                    if taken == value and param in each.types and not fits(found, each.types[param]):
                        raise self._refused(
                            f"was given a {type(found).__name__} as {value!r}, and its node {taker!r} takes "
                            f"{described(each.types[param])}",
                            "Give it one.",
                        )


def _node(graph: str, each: Any) -> Node:
    if isinstance(each, Node):
        return each
    if isinstance(each, Graph):
        return each.as_node()
    if callable(each):
        raise GraphError(
            f"graph {graph!r}", f"was given the function {getattr(each, '__qualname__', each)!r}, which is no node",
            "Decorate it with @node(output='...'), @route, @gate or @interrupt.",
        )  # fmt: skip
    raise TypeError(f"{each!r:.60} is no node")


def _structure(each: Node) -> list[Any]:
    """What a run depends on that is no code."""
    defaults = {}
    for name, value in each.defaults.items():
        try:
            encode(value)
            defaults[name] = value
        except UnstorableError:
            defaults[name] = type(value).__qualname__
    inner = None
    if isinstance(each, GraphNode):
        inner = [each.graph._digests(), list(each.outer), list(each.map_over)]  # noqa: SLF001 - a graph of this module
    return [each.kind, each.inputs, list(each.outputs), list(each.targets), each.many, each.default, defaults, inner]


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=4).hexdigest()


def _said(name: str) -> str:
    return f"the bound value {name[1:]!r}" if name.startswith("=") else f"node {name!r}"


__all__ = ["Graph", "GraphNode", "node"]
