"""A fork may go on with another structure of its graph, as the error of a changed graph says."""

from __future__ import annotations

import pytest

import everstep
from everstep import Graph, Runner, interrupt, node
from everstep.errors import CodeChangedWarning, GraphChangedError, GraphInputError

RAN: list[str] = []


@node(output="a")
def first(q: int) -> int:
    RAN.append("first")
    return q + 1


@node(output="n", name="second")
def second(a: int) -> int:
    RAN.append("second")
    return a * 2


@node(output=("n", "m"), name="second")
def second_with_more(a: int) -> tuple[int, int]:
    RAN.append("second with more")
    return a * 3, 7


@node(output="z")
def third(n: int) -> int:
    RAN.append("third")
    return n + 1


@interrupt(output="ok")
def ask(z: int) -> str:
    return f"{z}?"


BEFORE, AFTER = (Graph([first, each, third, ask], name="g") for each in (second, second_with_more))


def test_a_changed_node_and_what_hangs_on_it_run_again_once() -> None:
    """Promise 2 holds for the fork: what it has done with the new structure is not done again."""
    with everstep.open(":memory:") as trail:
        runner = Runner(trail)
        runner.run(BEFORE, q=1, id="r")
        with pytest.raises(GraphChangedError, match="node 'second' was changed"):
            runner.run(AFTER, id="r")
        trail.fork("r", at=3, id="f").release()
        RAN.clear()
        with pytest.warns(CodeChangedWarning):
            assert runner.run(AFTER, id="f").values == {"a": 2, "n": 6, "m": 7, "z": 7}
        assert RAN == ["second with more", "third"]
        with pytest.warns(CodeChangedWarning):
            done = runner.run(AFTER, id="f", answer="yes")
        assert (done.completed, done["ok"]) == (True, "yes")
        assert RAN == ["second with more", "third"]


def test_an_input_that_was_not_given_before_can_be_given_to_a_fork_and_one_that_nobody_takes_is_refused() -> None:
    greet = node(output="text", name="greet")(_greet)
    graph = Graph([greet], name="greeting")
    with everstep.open(":memory:") as trail:
        Runner(trail).run(graph, who="Ada", id="r")
        trail.fork("r", at=1, id="f", inputs={"word": "Good day"}).release()
        assert Runner(trail).run(graph, id="f")["text"] == "Good day, Ada"
        trail.fork("r", at=1, id="g", inputs={"wrod": "Hi"}).release()
        with pytest.raises(GraphInputError, match=r"changes 'wrod', which no node of graph 'greeting' takes or gives"):
            Runner(trail).run(graph, id="g")


def _greet(who: str, word: str = "Hello") -> str:
    return f"{word}, {who}"
