"""Nodes: what they take and give is read from their functions, and what cannot be is refused in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from everstep import END, Decision, Graph, Retry, gate, interrupt, node, route
from everstep.errors import GraphError
from everstep.graph.nodes import Interrupt, Node

if TYPE_CHECKING:
    from decimal import Decimal


def refused(make: Any) -> str:
    with pytest.raises(GraphError) as caught:
        make()
    return str(caught.value)


# What they take and give.


def test_a_node_takes_what_its_parameters_are_named_after() -> None:
    @node(output="docs")
    def retrieve(query: str, limit: int = 3) -> list[str]:
        return [query] * limit

    assert (retrieve.name, retrieve.outputs) == ("retrieve", ("docs",))
    assert retrieve.inputs == {"query": "query", "limit": "limit"}
    assert retrieve.defaults == {"limit": 3}
    assert retrieve.types == {"query": str, "limit": int}


def test_a_node_that_is_called_is_the_plain_function() -> None:
    assert node(output="y")(lambda x: x + 1)(2) == 3


def test_a_node_without_parentheses_gives_nothing() -> None:
    @node
    def tell(text: str) -> None: ...

    assert tell.outputs == ()
    assert tell.by_name("whatever it returned") == {}


def test_types_that_exist_for_type_checkers_only_are_not_looked_at() -> None:
    def cost(price: Decimal) -> Decimal:
        return price

    assert node(output="c")(cost).types == {}


def test_a_method_a_partial_and_an_object_can_be_nodes() -> None:
    class Tool:
        def use(self, text: str) -> str:
            return text

        def __call__(self, text: str) -> str:
            return text

    def fixed(text: str, suffix: str) -> str:
        return text + suffix

    assert node(output="a")(Tool().use).inputs == {"text": "text"}
    assert node(output="a", name="tool")(Tool()).inputs == {"text": "text"}
    assert node(output="a", name="part")(partial(fixed, suffix="!")).defaults == {"suffix": "!"}


def test_generators_are_streams_and_coroutines_are_awaited() -> None:
    def words(text: str) -> Iterator[str]:
        yield text

    async def later(text: str) -> AsyncIterator[str]:
        yield text

    assert [(each.is_stream, each.is_async) for each in (node(output="w")(words), node(output="w")(later))] == [
        (True, False), (True, True),
    ]  # fmt: skip


def test_a_node_is_used_twice_under_another_name() -> None:
    @node(output="y", retry=Retry(attempts=2), timeout=5.0, external=True, unknown="retry")
    def double(x: int) -> int:
        return 2 * x

    again = double.renamed("again", inputs={"x": "y"}, output="z")
    assert (again.name, again.inputs, again.outputs) == ("again", {"x": "y"}, ("z",))
    assert (again.step.retry.attempts, again.step.timeout, again.step.external) == (2, 5.0, True)
    assert Graph([double, again]).edges == [("double", "again", "y")]


def test_a_question_is_asked_twice_under_another_name() -> None:
    first = interrupt(output="a", options=["yes", "no"], name="ask")(lambda x: f"{x}?")
    again = first.renamed("again", inputs={"x": "a"}, output="b")
    assert (again.kind, again.options, again.inputs, again.outputs) == ("interrupt", ["yes", "no"], {"x": "a"}, ("b",))


# What cannot be a node.


def test_parameters_that_cannot_be_given_by_name_are_refused() -> None:
    def positional(x: int, /) -> int:
        return x

    for function, name in ((positional, "x"), (lambda *xs: xs, "xs"), (lambda **xs: xs, "xs")):
        said = refused(partial(Node, function, name="n"))
        assert said == (
            f"node 'n' takes {name!r}, which is not given by name. Name every parameter: values are passed by the "
            "names of the parameters."
        )


def test_a_parameter_that_is_renamed_and_not_there_is_refused() -> None:
    assert refused(partial(Node, lambda x: x, name="n", inputs={"y": "z"})) == (
        "node 'n' has no parameter 'y'. Its parameters are 'x'; `inputs` says which value each of them takes."
    )


@pytest.mark.parametrize("output", ["_hidden", "two words", "1st", "", ("a", "b"), 7])
def test_an_output_that_is_no_name_is_refused(output: Any) -> None:
    """Names with an underscore are those of decisions."""
    assert refused(partial(Node, lambda x: x, name="n", outputs=(output,))) == (
        f"node 'n' gives {output!r}, which is no name for a value. Use a name as for a variable that does not start "
        "with an underscore."
    )


def test_an_output_that_is_named_twice_is_refused() -> None:
    said = refused(partial(Node, lambda x: x, name="n", outputs=("a", "a")))
    assert said == "node 'n' gives one value twice. Name each output once."


@pytest.mark.parametrize("name", [END, "a/b"])
def test_a_name_that_means_something_else_is_refused(name: str) -> None:
    said = refused(partial(Node, lambda x: x, name=name))
    assert said == f"node {name!r} has a name that cannot be used. Give it another with name=."


def test_a_default_that_is_no_target_is_refused() -> None:
    assert refused(lambda: route(targets=["a", END], default="b", name="r")(lambda x: x)) == (
        "route 'r' falls back on 'b', which is not one of its targets. Add it to targets, or take one of 'a', END."
    )


def test_an_interrupt_without_a_place_for_the_answer_is_refused() -> None:
    said = refused(lambda: Interrupt(lambda: "?", name="ask"))
    assert said == "interrupt 'ask' has no output. Say where its answer goes with output=."


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="7 is no function, and a node is made of one"):
        node(output="x")(7)  # type: ignore[arg-type] # what is tested


def test_a_stream_cannot_be_retried_by_the_chunk_and_is_retried_whole() -> None:
    """It is collected, so retry and timeout are those of any node."""

    def words(text: str) -> Iterator[str]:
        yield text

    assert node(output="w", retry=Retry(attempts=2), timeout=1.0)(words).step.timeout == 1.0


# What a node returned.


def test_several_outputs_are_a_tuple_or_a_dict() -> None:
    pair = Node(lambda: None, name="n", outputs=("a", "b"))
    assert pair.by_name((1, 2)) == {"a": 1, "b": 2}
    assert pair.by_name({"b": 2, "a": 1}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("value", "described"), [((1,), "a tuple of 1"), ([1, 2], "a list of 2"), ({"a": 1}, "a dict of 1"), (7, "a int")]
)
def test_what_does_not_fit_the_outputs_is_refused(value: Any, described: str) -> None:
    pair = Node(lambda: None, name="n", outputs=("a", "b"))
    assert refused(lambda: pair.by_name(value)) == (
        f"node 'n' returned {described} for its outputs 'a', 'b'. Return a tuple with one value for each, in this "
        "order, or a dict with these keys."
    )


def test_one_output_is_whatever_was_returned() -> None:
    one = Node(lambda: None, name="n", outputs=("a",))
    assert one.by_name((1, 2)) == {"a": (1, 2)}
    assert one.by_name(None) == {"a": None}


# What a route chose.


def test_a_route_chooses_by_name_and_says_why() -> None:
    chooser = route(targets=["a", END], default="a", name="r")(lambda: None)
    assert chooser.choose("a") == Decision("a", "returned")
    assert chooser.choose(END) == Decision(END, "returned")
    assert chooser.choose(None) == Decision("a", "default")
    assert chooser.choose(Decision("a", "it is late")) == Decision("a", "it is late")


def test_a_route_without_a_default_may_choose_nothing() -> None:
    assert route(targets=["a"], name="r")(lambda: None).choose(None) == Decision(None, "none")


def test_a_gate_chooses_by_truth() -> None:
    chooser = gate(when_true="a", when_false=END, name="g")(lambda: None)
    assert chooser.choose([1]) == Decision("a", "true")
    assert chooser.choose("") == Decision(END, "false")
    assert chooser.choose(Decision(0, "no more")) == Decision(END, "no more")


def test_a_route_that_may_choose_several_gives_them_in_one_order() -> None:
    """A set has none."""
    chooser = route(targets=["a", "b", "c"], many=True, name="r")(lambda: None)
    assert chooser.choose({"c", "a"}) == Decision(["a", "c"], "returned")
    assert chooser.choose("b") == Decision(["b"], "returned")
    assert chooser.choose([]) == Decision([], "returned")


def test_what_is_no_target_is_refused() -> None:
    chooser = route(targets=["a", END], name="r")(lambda: None)
    for value in ("b", True, 7):
        assert refused(lambda value=value: chooser.choose(value)) == (
            f"route 'r' chose {value!r}, which is not one of its targets. Return one of 'a', END, or add it to targets."
        )
    assert refused(lambda: chooser.choose(["a"])) == (
        "route 'r' chose ['a'], which is not one of its targets. Declare it with many=True to choose several."
    )
