"""What a run of a graph cannot be given or go on with: it is refused at once, and named."""

from __future__ import annotations

from typing import Any

import pytest

from everstep import END, Graph, Runner, Trail, node, route
from everstep.errors import (
    CodeChangedWarning,
    GraphChangedError,
    GraphError,
    GraphInputError,
    InputsDifferError,
    LoopLimitError,
    UnstorableError,
)
from tests.integration.graphing import CHAIN, calls, gives, nodes_of, statuses
from tests.integration.running import crashed

# What a run is given.


def test_an_input_that_cannot_be_stored_fails_at_once_and_is_named(trail: Trail) -> None:
    """Rule 10 of the seeds: nothing was begun."""
    with pytest.raises(UnstorableError, match="'x'"):
        Runner(trail).run(CHAIN, {"x": object()}, id="r")
    assert trail.runs() == []
    assert calls == []


def test_other_inputs_for_a_run_that_exists_are_refused(trail: Trail) -> None:
    """Rule 6 of the seeds."""
    calls.fail = {"two"}
    with pytest.raises(ValueError, match="two"):
        Runner(trail).run(CHAIN, {"x": "x"}, id="r")
    with pytest.raises(InputsDifferError):
        Runner(trail).run(CHAIN, {"x": "y"}, id="r")
    calls.forget()
    assert Runner(trail).run(CHAIN, {"x": "x"}, id="r").completed
    with pytest.raises(InputsDifferError):
        Runner(trail).run(CHAIN, {"x": "y"}, id="r")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "graph 'chain' needs 'x', which it was not given. 'x' is taken by 'one'; it takes 'x'."),
        ({"x": 1, "v_two": 2}, r"was given 'v_two', which its node 'two' gives. Leave it out, or declare it"),
        ({"xx": 1}, "takes no 'xx'. Did you mean 'x'"),
        ([1], r"takes one mapping of values, not \(\[1\],\)"),
    ],
)
def test_values_that_a_graph_does_not_take_are_refused_in_words(trail: Trail, given: Any, said: str) -> None:
    with pytest.raises(GraphInputError, match=said):
        Runner(trail).run(CHAIN, given)
    assert trail.runs() == []


def test_a_value_of_another_type_is_refused(trail: Trail) -> None:
    def count(words: list[str], most: int | None = None, share: float = 0.5) -> int:
        return len(words)

    graph = Graph([node(output="n")(count)], name="g")
    with pytest.raises(GraphInputError, match="was given a str as 'words', and its node 'count' takes list"):
        Runner(trail).run(graph, {"words": "a b"})
    assert Runner(trail).run(graph, {"words": ["a"], "most": None, "share": 1})["n"] == 1


def test_an_output_that_cannot_be_stored_fails_the_node(trail: Trail) -> None:
    """Promise 7."""
    graph = Graph([node(output="thing", name="make")(lambda x: object())], name="g")
    with pytest.raises(UnstorableError, match=r"thing|output"):
        Runner(trail).run(graph, {"x": 1}, id="r")
    assert statuses(trail, "r") == [("make", 0, "failed")]


def test_what_does_not_fit_the_outputs_or_targets_fails_the_node(trail: Trail) -> None:
    pair = node(output=("a", "b"), name="pair")(lambda x: (1, 2, 3))
    chooser = route(targets=["pair", END], name="chooser")(lambda x: "elsewhere")
    for graph, name in ((Graph([pair]), "pair"), (Graph([chooser, pair]), "chooser")):
        with pytest.raises(GraphError, match=f"{name}' (returned a tuple of 3|chose 'elsewhere')"):
            Runner(trail).run(graph, {"x": 1}, id=name)
        assert statuses(trail, name) == [(name, 0, "failed")]


def test_a_loop_that_does_not_end_is_stopped(trail: Trail) -> None:
    grow = node(output="n", name="grow")(lambda n=0: n + 1)
    graph = Graph([grow, route(targets=["grow"], name="on")(lambda n: "grow")], name="g", max_supersteps=20)
    with pytest.raises(LoopLimitError, match="20"):
        Runner(trail).run(graph, id="r")
    assert len(nodes_of(trail, "r")) == 20


# Another graph.


def test_a_run_is_not_taken_up_with_another_structure(trail: Trail) -> None:
    """Rules 6 and 7 of the seeds: the node is named."""
    calls.fail = {"three"}
    with pytest.raises(ValueError, match="three"):
        Runner(trail).run(CHAIN, {"x": "x"}, id="r")
    calls.forget()
    nodes = [gives("one", "x"), gives("two", "v_one")]
    for changed, said in (
        ([*nodes, gives("three", "v_one")], "node 'three' was changed"),
        (nodes, "node 'three' is gone"),
        ([*nodes, gives("three", "v_two"), gives("four", "v_two")], "node 'four' is new"),
    ):
        with pytest.raises(GraphChangedError, match=said):
            Runner(trail).run(Graph(changed, name="chain"), id="r")
    assert calls == []
    assert Runner(trail).run(CHAIN, id="r").completed


def test_a_nested_graph_that_is_mapped_or_gives_something_else_is_another_structure(trail: Trail) -> None:
    inner = Graph([node(output="a", name="n1")(lambda x: x), node(output="b", name="n2")(lambda x: x)], name="inner")
    last = node(output="z", name="last", inputs={"y": "out"})(lambda y: calls("last"))
    calls.crash = {"last"}
    crashed(trail, Graph([inner.as_node(outputs={"a": "out"}), last], name="g"), {"x": [1]}, id="r")
    for other in (inner.as_node(outputs={"b": "out"}), inner.as_node(outputs={"a": "out"}, map_over="x")):
        with pytest.raises(GraphChangedError, match="node 'inner' was changed"):
            Runner(trail).run(Graph([other, last], name="g"), id="r")


def test_a_bound_value_that_changed_is_named(trail: Trail) -> None:
    graph = Graph([node(output="y", name="use")(lambda x, limit: calls("use"))], name="g")
    calls.crash = {"use"}
    crashed(trail, graph.bind(limit=3), {"x": 1}, id="r")
    with pytest.raises(GraphChangedError, match="the bound value 'limit' was changed"):
        Runner(trail).run(graph.bind(limit=4), id="r")


def test_changed_code_is_only_warned_of(trail: Trail) -> None:
    def one(x: str) -> str:
        return str(calls("old"))

    def other(x: str) -> str:
        return str(calls("new"))

    calls.crash = {"old"}
    crashed(trail, Graph([node(output="y", name="n")(one)], name="g"), {"x": "x"}, id="r")
    with pytest.warns(CodeChangedWarning, match="the code of 'g' has changed since run "):
        result = Runner(trail).run(Graph([node(output="y", name="n")(other)], name="g"), id="r")
    assert result["y"] == "new"
