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


def _with_default(tone: str) -> Graph:
    def write(topic: str, tone: str = tone) -> str:
        return f"{topic} {tone}"

    def count(text: str) -> int:
        return len(text)

    return Graph([node(output="text")(write), node(output="size")(count)], name="toned")


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("mode", ["verify", "lenient"])
def test_a_fork_that_went_on_with_a_changed_node_replays_with_it_and_not_without(at: int, mode: str) -> None:
    calm, loud = _with_default("calm"), _with_default("very loud")
    with everstep.open(":memory:") as trail:
        Runner(trail).run(calm, topic="tea", id="r")
        trail.fork("r", at=at, id="f").release()
        assert Runner(trail).run(loud, id="f")["text"] == "tea very loud"
        again = trail.replay("f", loud, mode=mode)  # type: ignore[arg-type] # one of its words
        assert again.identical, str(again)
        assert [step.name for step in again.steps] == ["write", "count"]
        first = trail.replay("f", calm, mode=mode).first  # type: ignore[arg-type] # as above
        assert first is not None
        assert (first.cause, first.step) == ("missing step", "write")


def test_a_fork_that_had_gone_on_before_a_node_was_changed_still_replays() -> None:
    calm, loud = _with_default("calm"), _with_default("very loud")
    with everstep.open(":memory:") as trail:
        Runner(trail).run(calm, topic="tea", id="r")
        trail.fork("r", at=1, id="f").release()
        Runner(trail).run(calm, id="f")
        for run_id in ("r", "f"):  # what a node is given by default is inside of the leaf
            assert trail.replay(run_id, loud).identical
