"""Random graphs: layers, branches, loops, nested graphs, questions, streams and steps inside nodes, from a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from inspect import Parameter, Signature
from random import Random
from typing import Any, Protocol

from everstep import END, Decision, Graph, gate, interrupt, node, route, step
from everstep.graph.nodes import Node
from tests.programs.world import number

PLAIN, AWAITED = "plain", "awaited"
_MISSING: Any = object()


class Boom(Exception):  # noqa: N818 - it is raised on purpose
    """What nodes fail with. Its text is their name."""


class Outside(Protocol):
    """What nodes and steps meet when they are executed."""

    def execute(self, name: str) -> None:
        """Note that this is executed."""

    def fail(self, name: str) -> None:
        """Raise what this fails with, if it shall."""


def graph(family: str, seed: int, outside: Outside) -> tuple[Graph, dict[str, Any], list[str]]:
    """A graph, what a run of it is given, and the names of nodes that may be made to fail."""
    made = _Maker(Random(f"graph {family} {seed}"), outside, is_async=family == AWAITED)
    inputs = {"in0": seed % 97, "in1": [seed % 7, 1, 2], "in2": ("t", seed)}
    built = made.graph("top", dict(inputs), depth=2)
    return built, {name: value for name, value in inputs.items() if name in built.inputs}, made.fallible


class _Maker:
    """Makes nodes out of chance. Every name is used once."""

    def __init__(self, chance: Random, outside: Outside, *, is_async: bool) -> None:
        self.chance, self.outside, self.is_async = chance, outside, is_async
        self.fallible: list[str] = []
        self._count = 0

    def graph(self, name: str, given: Mapping[str, Any], depth: int) -> Graph:
        """A graph of some blocks, of which each may take what those before it gave."""
        part = _Part(self, list(given), depth)
        blocks = [part.layer, part.layer, part.branch, part.until, part.while_, part.ask, part.stream, part.optional]
        blocks += [part.nested, part.mapped] if depth > 0 else []
        for _ in range(self.chance.randint(1, 4 if depth == 2 else 2)):
            self.chance.choice(blocks)()
        if not part.nodes:
            part.layer()
        built = Graph(part.nodes, name=name)
        taken = [each for each in built.inputs if each.startswith("bound")]
        return built.bind(**{each: number(each) % 10 for each in taken}) if taken else built

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def function(self, name: str, takes: Mapping[str, Any], make: Callable[[dict[str, Any]], Any]) -> Any:
        """A function with these parameters, some with a default: plain or async, with steps inside or without."""
        outside, chance = self.outside, self.chance
        steps = chance.choice([0, 0, 0, 2]) if make is not _prompt else 0
        if self.is_async and chance.random() < 0.5:

            async def awaited(**given: Any) -> Any:
                outside.execute(name)
                if steps:
                    await asyncio.gather(*(_inside_later(outside, name, each) for each in range(steps)))
                await asyncio.sleep(0)
                outside.fail(name)
                return make(given)

            function: Any = awaited
        else:

            def plain(**given: Any) -> Any:
                outside.execute(name)
                for each in range(steps):
                    _inside(outside, name, each)
                outside.fail(name)
                return make(given)

            function = plain
        function.__signature__ = Signature([
            Parameter(each, Parameter.KEYWORD_ONLY, default=Parameter.empty if default is _MISSING else default)
            for each, default in takes.items()
        ])  # fmt: skip
        return function


class _Part:
    """The nodes of one graph, as they are made."""

    def __init__(self, maker: _Maker, names: list[str], depth: int) -> None:
        self.maker, self.chance, self.depth = maker, maker.chance, depth
        self.names = names  # of the values there may be
        self.nodes: list[Node | Graph] = []

    def _some(self, most: int = 2) -> dict[str, Any]:
        found = self.chance.sample(self.names, min(len(self.names), self.chance.randint(1, most)))
        return dict.fromkeys(found, _MISSING)

    def _node(self, takes: Mapping[str, Any], output: str | tuple[str, ...], make: Any = None, **more: Any) -> str:
        name = self.maker.name("n")
        kind = self.chance.choice(list(_KINDS))
        function = self.maker.function(name, takes, make or (lambda given: _KINDS[kind](number(name, _told(given)))))
        self.nodes.append(node(output=output, name=name, **more)(function))
        self.maker.fallible.append(name)
        return name

    def layer(self) -> None:
        """Nodes that can run at the same time."""
        given = []
        for _ in range(self.chance.randint(1, 3)):
            value = self.maker.name("v")
            if self.chance.random() < 0.2:
                other = self.maker.name("v")
                self._node(self._some(), (value, other), lambda given: (number(_told(given)), [len(given)]))
                given.append(other)
            else:
                self._node(self._some(), value)
            given.append(value)
        self.names += given

    def optional(self) -> None:
        """A node that runs with defaults, and again when there is more; or one with a bound value."""
        value, bound = self.maker.name("v"), self.maker.name("bound")
        takes = self._some(1) | ({bound: _MISSING} if self.chance.random() < 0.4 else {})
        takes |= {each: None for each in self._some() if each not in takes}
        self._node(takes, value)
        self.names.append(value)

    def branch(self) -> None:
        """A route or a gate, and what it chooses between."""
        many, size = self.chance.random() < 0.3, self.chance.randint(2, 3)
        shared = self.maker.name("v") if self.chance.random() < 0.5 and not many else None
        takes, name = self._some(1), self.maker.name("r")
        outputs = [shared or self.maker.name("v") for _ in range(size)]
        targets = [self._node(self._some(), output) for output in outputs]
        ends = self.chance.random() < 0.15
        options = [*targets, END] if ends else targets
        default = self.chance.choice([None, targets[0]])

        def choose(given: dict[str, Any]) -> Any:
            found = number(name, _told(given))
            if many:
                return [each for at, each in enumerate(options) if found >> at & 1]
            if found % 7 == 0:
                return None
            return Decision(options[found % len(options)], f"because of {found}")

        if size == 2 and not many and self.chance.random() < 0.5:
            function = self.maker.function(name, takes, lambda given: number(name, _told(given)) % 2)
            self.nodes.append(gate(when_true=targets[0], when_false=targets[1], name=name)(function))
        else:
            function = self.maker.function(name, takes, choose)
            self.nodes.append(route(targets=options, many=many, default=default, name=name)(function))
        self.names += dict.fromkeys(outputs)

    def until(self) -> None:
        """A loop that ends when its route says so: a list grows, a dict is edited or a list gets shorter in it."""
        count, grown, name, limit = self.maker.name("c"), self.maker.name("g"), self.maker.name("r"), self._limit()
        body, is_own = self._body(count, grown)
        if self.chance.random() < 0.4:  # longer way round
            between = self.maker.name("v")
            self._node({grown: _MISSING, count: _MISSING}, between)
            takes = {between: _MISSING, count: _MISSING}
        else:
            takes = {count: _MISSING}
        after = self._after(grown)
        function = self.maker.function(name, takes, lambda given: body if given[count] < limit else after)
        self.nodes.append(route(targets=[body] if after is None else [body, after], name=name)(function))
        self.names += [count] if is_own else [count, grown]

    def while_(self) -> None:
        """A loop whose gate is asked first."""
        count, grown, name, limit = self.maker.name("c"), self.maker.name("g"), self.maker.name("r"), self._limit()
        (body, is_own), after = self._body(count, grown), self._after(grown, default=None) or END
        function = self.maker.function(name, {count: 0}, lambda given: given[count] < limit)
        self.nodes.append(gate(when_true=body, when_false=after, name=name)(function))
        self.names += [] if after == END else [count] if is_own else [count, grown]

    def _limit(self) -> int:
        return self.chance.randint(1, 4)

    def _body(self, count: str, grown: str) -> tuple[str, bool]:
        """The node that goes round, and whether it changes its value in place: then nobody else may look at it."""
        changes: list[Callable[[Any, int], Any]] = [_longer, _edited, _shorter, _longer_in_place, _edited_in_place]
        change = self.chance.choice(changes)
        takes = {count: 0, grown: None, **self._some(1)}
        name = self._node(
            takes, (count, grown), lambda given: (given[count] + 1, change(given[grown], number(_told(given))))
        )
        return name, change in {_longer_in_place, _edited_in_place}

    def _after(self, grown: str, default: Any = _MISSING) -> str | None:
        if self.chance.random() < 0.4:
            return None
        value = self.maker.name("v")
        after = self._node({grown: default}, value)
        self.names.append(value)
        return after

    def ask(self) -> None:
        """A question to a person."""
        name, answer = self.maker.name("q"), self.maker.name("v")
        function = self.maker.function(name, self._some(1), _prompt)
        self.nodes.append(interrupt(output=answer, name=name)(function))
        self.names.append(answer)

    def stream(self) -> None:
        """A node that yields."""
        name, value, outside, takes = self.maker.name("s"), self.maker.name("v"), self.maker.outside, self._some(1)

        def chunks(**given: Any) -> Any:
            outside.execute(name)
            for at in range(3):
                yield [at, number(name, _told(given)) % 100]

        chunks.__signature__ = Signature([Parameter(each, Parameter.KEYWORD_ONLY) for each in takes])  # type: ignore[attr-defined] # functions have room for it
        self.nodes.append(node(output=value, name=name)(chunks))
        self.names.append(value)

    def nested(self) -> None:
        """A graph in the place of a node, with names of its own."""
        name, inner = self.maker.name("sub"), {self.maker.name("p"): _MISSING for _ in range(2)}
        built = self.maker.graph(name, inner, self.depth - 1)
        outer = {each: self.chance.choice(self.names) for each in built.inputs if each in inner}
        outputs = {each: self.maker.name("v") for each in built.outputs if self.chance.random() < 0.7}
        self.nodes.append(built.as_node(name, inputs=outer, outputs=outputs))
        self.names += outputs.values()

    def mapped(self) -> None:
        """A graph for each item of a list."""
        items, name, param = self.maker.name("v"), self.maker.name("sub"), self.maker.name("p")
        size = self.chance.randint(0, 3)
        self._node(self._some(1), items, lambda given: [number(_told(given)) % 50 + at for at in range(size)])
        built = self.maker.graph(name, {param: _MISSING}, self.depth - 1)
        outputs = {each: self.maker.name("v") for each in built.outputs}
        if param in built.inputs:
            self.nodes.append(built.as_node(name, inputs={param: items}, outputs=outputs, map_over=param))
            self.names += outputs.values()


def _told(given: dict[str, Any]) -> str:
    return repr(sorted(given.items(), key=lambda item: item[0]))


def _prompt(given: dict[str, Any]) -> str:
    return f"what about {number(_told(given))}?"


def answer_to(prompt: str) -> int:
    """What a person says."""
    return number("answer", prompt) % 1000


def _longer(value: list[int] | None, chance: int) -> list[int]:
    return [*(value or []), chance % 1000]


def _edited(value: dict[str, Any] | None, chance: int) -> dict[str, Any]:
    before = value or {"a": [1, 2, 3], "b": {"c": 0}, "d": "text"}
    return before | ({"b": {"c": chance}} if chance % 2 else {"a": [*before["a"][:1], chance, *before["a"][1:]]})


def _longer_in_place(value: list[Any] | None, chance: int) -> list[Any]:
    made = [] if value is None else value
    made.append({"n": chance % 1000})
    return made


def _edited_in_place(value: dict[str, Any] | None, chance: int) -> dict[str, Any]:
    made: dict[str, Any] = {"a": [], "b": {}} if value is None else value
    made["a"].append(chance % 9)
    made["b"][str(chance % 3)] = chance
    return made


def _shorter(value: list[int] | None, chance: int) -> list[int]:
    return list(range(chance % 5 + 3)) if not value else value[1:] if chance % 2 else value[:-1]


_KINDS: dict[str, Callable[[int], Any]] = {
    "int": lambda chance: chance,
    "list": lambda chance: [chance % 9, {"k": chance}],
    "tuple": lambda chance: (chance % 9, ("in", None)),
    "date": lambda chance: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=chance % 10**6),
    "dict": lambda chance: {chance % 5: "x", "y": (1,)},
    "end": lambda _: END,
}


@step(output=None)
def _inside(outside: Outside, name: str, at: int) -> int:
    outside.execute(f"{name}.{at}")
    return at


@step(output=None)
async def _inside_later(outside: Outside, name: str, at: int) -> int:
    outside.execute(f"{name}.{at}")
    await asyncio.sleep(0)
    return at
