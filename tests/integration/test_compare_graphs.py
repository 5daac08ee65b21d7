"""Comparing two runs of graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep
from everstep import END, Decision, Graph, Runner, Trail, gate, node, route
from tests.integration.comparing import knobs, verdicts


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    knobs.clear()
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


@node(output="n")
def count(n: int) -> int:
    return n + 1


@route(targets=["count", END])
def more(n: int) -> Decision:
    return Decision("count", f"{n} is few") if n < knobs.get("top", 3) else Decision(END, "enough")


def test_a_decision_differs_with_its_reason_and_the_rounds_after_it_are_inserted(trail: Trail) -> None:
    loop = Graph([count, more], name="loop")
    Runner(trail).run(loop, {"n": 0}, id="a")
    Runner(trail).run(loop, {"n": 0}, id="same")
    knobs["top"] = 5
    Runner(trail).run(loop, {"n": 0}, id="b")
    assert trail.compare("a", "same").identical
    found = trail.compare("a", "b")
    assert verdicts(found) == ["~more 7 7 decision", "+count - 8", "+more - 9", "+count - 10", "+more - 11"]
    assert found.first is not None
    assert str(found.first).splitlines()[1:] == [
        "    decision.target: '__end__' -> 'count'",
        "    decision.reason: 'enough' -> '3 is few'",
    ]
    assert [str(change) for change in found.changes] == ["~ state.n: 3 -> 5"]


def test_a_node_that_was_inserted_does_not_change_the_supersteps_of_those_after_it(trail: Trail) -> None:
    @node(output="y")
    def first(x: int) -> int:
        return x

    @node(output="z")
    def second(y: int) -> int:
        return y

    @node(output="w")
    def third(z: int) -> int:
        return z

    @gate(when_true="first", when_false="first")
    def ready(x: int) -> bool:
        return x > 0

    Runner(trail).run(Graph([first, second, third], name="g"), {"x": 1}, id="a")
    Runner(trail).run(Graph([ready, first, second, third], name="g"), {"x": 1}, id="b")
    assert verdicts(trail.compare("a", "b")) == ["+ready - 1"]


def test_a_nested_graph_names_the_runs_to_compare_next(trail: Trail) -> None:
    inner = Graph([count], name="inner")
    outer = Graph([inner.as_node()], name="outer")
    Runner(trail).run(outer, {"n": 1}, id="a")
    Runner(trail).run(outer, {"n": 2}, id="b")
    pair = next(pair for pair in trail.compare("a", "b").steps if pair.name == "inner")
    assert pair.what == ("output",)
    assert pair.a is not None
    assert pair.b is not None
    assert trail.compare(str(pair.a.child_run_id), str(pair.b.child_run_id)).first is not None
