"""What a graph that waits for an answer has given so far."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import END, AsyncRunner, Graph, Runner, RunResult, Trail, gate, interrupt, node, pause


@interrupt(output="verdict")
def ask(topic: str) -> str:
    return f"{topic}?"


@node(output="facts")
def search(topic: str) -> list[str]:
    return [topic]


@node(output="facts")
async def search_later(topic: str) -> list[str]:
    return [topic]


@node(output="text")
def write(facts: list[str]) -> str:
    return " ".join(facts)


def run(trail: Trail, graph: Graph, *, awaited: bool, **given: Any) -> RunResult[Any]:
    if awaited:
        return asyncio.run(AsyncRunner(trail).run(graph, id="r-1", **given))
    return Runner(trail).run(graph, id="r-1", **given)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("beside", [search, search_later])
def test_what_ran_beside_a_question_is_among_the_values(trail: Trail, beside: Any, *, awaited: bool) -> None:
    graph = Graph([ask, beside, write], name="asking")

    asked = run(trail, graph, awaited=awaited, topic="tides")
    assert (asked.status, asked.values) == ("paused", {"facts": ["tides"]})

    again = run(trail, graph, awaited=awaited)
    assert (again.status, again.values) == ("paused", {"facts": ["tides"]})
    assert again.values == trail.state("r-1")

    done = run(trail, graph, awaited=awaited, answer="yes")
    assert done.values == {"verdict": "yes", "facts": ["tides"], "text": "tides"}


def test_what_a_node_changed_in_place_before_it_asked_is_not_among_the_values(trail: Trail) -> None:
    @node(output="facts")
    def add(facts: list[str] | None = None) -> list[str]:
        if facts is None:
            return ["tides"]
        facts.append("sea")
        return [*facts, pause("More?")]

    again = gate(when_true="add", when_false=END, name="again")(lambda facts: len(facts) < 2)
    graph = Graph([add, again], name="asking")
    asked = run(trail, graph, awaited=False)
    assert (asked.status, asked.values) == ("paused", {"facts": ["tides"]})
    assert run(trail, graph, awaited=False, answer="moon").values == {"facts": ["tides", "sea", "moon"]}
