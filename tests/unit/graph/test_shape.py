"""Graphs that cannot work are refused when they are built, in words; all others are built, and quickly."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import Any

import pytest

from everstep import END, Graph, gate, interrupt, node, route
from everstep.errors import GraphError
from everstep.graph.nodes import Node
from everstep.graph.shape import Shape


def gives(name: str, output: Any = None, *takes: str, **optional: str) -> Node:
    """A node that takes these values, and those named after `optional` parameters if they are there."""
    inputs = {f"p{at}": value for at, value in enumerate(takes)} | {f"o_{param}": v for param, v in optional.items()}
    return node(output=output, name=name, inputs=inputs)(_function(len(takes), list(optional)))


def chooses(name: str, targets: list[str], *takes: str, **more: Any) -> Node:
    inputs = {f"p{at}": value for at, value in enumerate(takes)}
    return route(targets=targets, name=name, inputs=inputs, **more)(_function(len(takes), []))


def _function(size: int, optional: list[str]) -> Any:
    def function(**_: Any) -> None: ...

    required = [Parameter(f"p{at}", Parameter.KEYWORD_ONLY) for at in range(size)]
    rest = [Parameter(f"o_{param}", Parameter.KEYWORD_ONLY, default=None) for param in optional]
    function.__signature__ = Signature([*required, *rest])  # type: ignore[attr-defined] # functions have room for it
    return function


def refused(*nodes: Node, **options: Any) -> str:
    with pytest.raises(GraphError) as caught:
        Graph(nodes, name="g", **options)
    return str(caught.value)


# Refused.


def test_a_target_that_is_no_node_is_refused_with_the_nearest_name() -> None:
    said = refused(gives("answer", "a", "q"), chooses("check", ["anwser", END], "a"))
    assert said == (
        "graph 'g' has a route 'check' to 'anwser', which is none of its nodes. Did you mean 'answer'? Its nodes are "
        "'answer', 'check'; END ends the run."
    )


def test_a_gate_to_no_node_is_refused_too() -> None:
    gated = gate(when_true="yes", when_false="b", name="g1")(lambda x: x)
    assert "has a gate 'g1' to 'yes', which is none of its nodes." in refused(gated, gives("b", "b", "x"))


def test_two_producers_in_one_path_are_refused() -> None:
    assert refused(gives("one", "v", "x"), gives("two", "v", "x")) == (
        "graph 'g' has two producers of 'v' in one path: 'one' and 'two'. Give one of them another output, or let a "
        "route or gate choose between them."
    )


def test_two_producers_behind_one_target_are_refused() -> None:
    """Both run when the target is chosen."""
    nodes = [
        chooses("r", ["a", "b"], "x"), gives("a", "pa", "x"), gives("b", "pb", "x"),
        gives("a1", "v", "pa"), gives("a2", "v", "pa"),
    ]  # fmt: skip
    assert "two producers of 'v' in one path: 'a1' and 'a2'" in refused(*nodes)


def test_two_producers_that_a_route_may_choose_together_are_refused() -> None:
    nodes = [chooses("r", ["a", "b"], "x", many=True), gives("a", "v", "x"), gives("b", "v", "x")]
    assert "two producers of 'v' in one path: 'a' and 'b'" in refused(*nodes)


def test_two_producers_that_two_routes_choose_are_refused() -> None:
    nodes = [
        chooses("r", ["a", END], "x"), chooses("s", ["b", END], "x"), gives("a", "v", "x"), gives("b", "v", "x"),
    ]  # fmt: skip
    assert "two producers of 'v' in one path" in refused(*nodes)


def test_an_input_that_nobody_gives_is_refused_where_inputs_are_declared() -> None:
    assert refused(gives("one", "v", "query"), inputs=["qery"]) == (
        "graph 'g' gives its node 'one' no 'query': no node produces it and it is not among the inputs. Did you mean "
        "'qery'? Add it to inputs=, bind it, or give the parameter a default."
    )


def test_a_declared_input_that_nobody_takes_is_refused() -> None:
    said = refused(gives("one", "v", "x"), inputs=["x", "y"])
    assert said == "graph 'g' declares the input 'y', which none of its nodes takes. Leave it out."


def test_a_bound_value_that_nobody_takes_is_refused() -> None:
    said = refused(gives("one", "v", "x"), bind={"client": 1})
    assert said == "graph 'g' is bound to 'client', which none of its nodes takes. Leave it out."


def test_a_cycle_without_an_entry_is_refused() -> None:
    nodes = [gives("a", "va", "vb"), gives("b", "vb", "va"), chooses("r", ["a", END], "vb")]
    assert refused(*nodes) == (
        "graph 'g' has a cycle that nothing can enter: 'a', 'b', 'r' wait for each other. Give a parameter a default, "
        "or declare 'vb' or 'va' as an input with inputs=[...]."
    )


def test_a_node_that_nobody_can_choose_is_refused() -> None:
    """Two that could choose each other, and nobody chooses either."""
    nodes = [gives("start", "v", "x"), chooses("r", ["s"], "v"), chooses("s", ["r"], "v")]
    said = refused(*nodes)
    assert said == (
        "graph 'g' can never reach its node 'r': 's' cannot choose it. Let a node that runs choose it, or take it out."
    )


def test_a_cycle_that_never_ends_is_refused() -> None:
    assert refused(gives("a", "va", "x", b="vb"), gives("b", "vb", "va")) == (
        "graph 'g' has a cycle that never ends: a -> b -> .... Let a route or gate decide whether it goes round again."
    )


def test_two_nodes_of_one_name_are_refused() -> None:
    said = refused(gives("a", "v", "x"), gives("a", "w", "x"))
    assert said == "graph 'g' has two nodes named 'a'. Rename one with .renamed('...')."


def test_a_graph_of_nothing_is_refused() -> None:
    assert refused() == "graph 'g' has no nodes. Give it at least one."


def test_a_function_that_is_no_node_is_refused() -> None:
    def plain(x: int) -> int:
        return x

    with pytest.raises(GraphError, match=r"the function '.*plain', which is no node\. Decorate it with @node"):
        Graph([plain])
    with pytest.raises(TypeError, match="7 is no node"):
        Graph([7])  # type: ignore[list-item] # what is tested


# Built.


def test_exclusive_branches_may_give_one_value() -> None:
    built = Graph([chooses("r", ["a", "b"], "x"), gives("a", "v", "x"), gives("b", "v", "x"), gives("c", "w", "v")])
    assert built.inputs == ("x",)
    assert built.outputs == ("v", "w")


def test_exclusive_branches_may_give_one_value_further_down() -> None:
    Graph([
        chooses("r", ["a", "b", END], "x"), gives("a", "pa", "x"), gives("b", "pb", "x"), gives("a1", "v", "pa"),
        gives("b1", "qb", "pb"), gives("b2", "v", "qb"),
    ])  # fmt: skip


def test_exclusive_branches_within_exclusive_branches_may_give_one_value() -> None:
    Graph([
        chooses("r", ["s", "c"], "x"), chooses("s", ["a", "b"], "x"), gives("a", "v", "x"), gives("b", "v", "x"),
        gives("c", "v", "x"),
    ])  # fmt: skip


def test_a_loop_that_asks_afterwards_begins_with_its_first_node() -> None:
    built = Graph([gives("draft", "text", "topic", f="feedback"), chooses("judge", ["draft", END], "text")])
    assert built.shape.open_first == {"draft"}
    assert built.inputs == ("topic", "feedback")
    assert built.required == {"topic"}


def test_a_loop_that_asks_first_begins_with_its_gate() -> None:
    gated = gate(when_true="body", when_false=END, name="more", inputs={"n": "n"})(lambda n=0: n < 3)
    built = Graph([gated, gives("body", "n", "x", own="n")])
    assert built.shape.open_first == frozenset()


def test_a_loop_over_what_a_node_gave_itself_needs_something_to_begin_with() -> None:
    built = Graph([gives("grow", "items", "items"), chooses("r", ["grow", END], "items")])
    assert built.inputs == ("items",)
    assert built.required == {"items"}


def test_a_loop_of_several_nodes_with_a_declared_input_is_entered_there() -> None:
    nodes = [gives("a", "va", "vb"), gives("b", "vb", "va"), chooses("r", ["a", END], "vb")]
    built = Graph(nodes, inputs=["vb"])
    assert built.required == {"vb"}


def test_a_loop_in_a_loop_is_built() -> None:
    Graph([
        gives("outer", "o", "x", own="o"), gives("inner", "i", "o", own="i"), chooses("again", ["inner", "out"], "i"),
        chooses("out", ["outer", END], "i"),
    ])  # fmt: skip


def test_a_route_may_choose_a_route_and_itself() -> None:
    Graph([gives("a", "v", "x"), chooses("r", ["s", "r"], "v"), chooses("s", [END], "v")])


def test_an_interrupt_may_be_the_only_node() -> None:
    built = Graph([interrupt(output="answer", name="ask")(lambda: "what?")])
    assert built.inputs == ()
    assert built.outputs == ("answer",)


def test_a_default_that_a_node_gives_later_is_no_input() -> None:
    built = Graph([gives("a", "v", "x"), gives("b", "w", "x", v="v")])
    assert built.inputs == ("x",)


def test_what_is_bound_is_no_input() -> None:
    assert Graph([gives("a", "v", "x", "client")], bind={"client": 1}).inputs == ("x",)


def test_edges_say_who_gives_what_to_whom() -> None:
    built = Graph([gives("a", "v", "x"), chooses("r", ["b", END], "v"), gives("b", "w", "v")])
    assert built.edges == [("a", "r", "v"), ("a", "b", "v"), ("r", "b", None), ("r", END, None)]


def test_what_a_loop_gives_is_known_as_given_repeatedly() -> None:
    nodes = [gives("first", "t", "x"), gives("draft", "text", "t"), chooses("judge", ["draft", END], "text")]
    assert Graph(nodes).shape.repeated == {"text"}


# Large ones.


@pytest.mark.parametrize("turn", [1, -1])
def test_a_chain_of_three_thousand_nodes_is_built_without_recursion(turn: int) -> None:
    nodes = [gives(f"n{at}", f"v{at + 1}", f"v{at}") for at in range(3000)]
    assert len(Graph(nodes[::turn]).nodes) == 3000


def test_a_ring_of_three_thousand_nodes_is_built_without_recursion() -> None:
    nodes = [gives(f"n{at}", f"v{at + 1}", f"v{at}") for at in range(3000)]
    built = Graph([gives("first", "v0", "x"), *nodes, chooses("r", ["first", END], "v3000")])
    assert len(built.shape.repeated) == 3001


def _looks(monkeypatch: pytest.MonkeyPatch, nodes: list[Node]) -> int:
    """How often a graph is gone through to build it: what takes the time where there is much of it."""
    count, look = [0], Shape._startable

    def counting(*args: Any, **options: Any) -> set[str]:
        count[0] += 1
        return look(*args, **options)

    monkeypatch.setattr(Shape, "_startable", counting)
    Graph(nodes)
    return count[0]


def test_a_chain_of_a_thousand_routes_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = []
    for at in range(1000):
        nodes.append(gives(f"n{at}", f"v{at + 1}", f"v{at}"))
        nodes.append(chooses(f"r{at}", [f"n{at + 1}" if at < 999 else END], f"v{at + 1}"))
    assert _looks(monkeypatch, nodes) < 10


def test_a_choice_between_many_producers_of_one_value_is_looked_at_once_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    targets = [f"t{at}" for at in range(200)]
    assert _looks(monkeypatch, [chooses("r", targets, "x"), *(gives(each, "v", "x") for each in targets)]) < 210
