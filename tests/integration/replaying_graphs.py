"""Runs worth replaying: those of graphs, and forks of all kinds."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from everstep import (
    END,
    AsyncRunner,
    Cache,
    EverstepError,
    Graph,
    Kind,
    Runner,
    Trail,
    gate,
    interrupt,
    node,
    route,
    workflow,
)
from tests.integration.replaying import Recorded, both_later, scenario
from tests.integration.replaying_ends import ending_flow, parent_flow
from tests.integration.running import act, calls, crashed, run

# Graphs.


@node(output="draft")
def write(topic: str, draft: str = "") -> str:
    return f"{draft}{calls(topic)} "


@node(output="words")
def count(draft: str) -> int:
    return len(str(act(draft)).split())


@route(targets=["write", END])
def enough(words: int) -> str:
    return "write" if words < 3 else END


@node(output="title")
def entitle(topic: str) -> str:
    return str(calls(topic)).title()


writing = Graph([write, count, enough, entitle], name="writing")


def _both_runners(trail: Trail, graph: Graph, *, on_a_loop: bool, **inputs: Any) -> Recorded:
    if on_a_loop:
        asyncio.run(AsyncRunner(trail).run(graph, id="r", **inputs))
    else:
        Runner(trail).run(graph, id="r", **inputs)
    return graph, "r"


@scenario
def a_graph_that_loops(trail: Trail) -> Recorded:
    return _both_runners(trail, writing, on_a_loop=False, topic="tea")


@scenario
def a_graph_on_a_loop(trail: Trail) -> Recorded:
    return _both_runners(trail, writing, on_a_loop=True, topic="tea")


@node(output="checked")
async def check_later(words: int) -> str:
    return str(await both_later(f"{words} words", "fine"))


@interrupt(output="verdict")
def ask(checked: str) -> str:
    return f"{checked}?"


@gate(when_true="publish", when_false=END)
def allowed(verdict: str) -> bool:
    return verdict == "yes"


@node(output="page")
def publish(draft: str, verdict: str) -> str:
    return str(act(f"{draft}{verdict}"))


reviewing = Graph([writing.as_node(), check_later, ask, allowed, publish], name="reviewing")


@scenario
def a_nested_graph_that_waits(trail: Trail) -> Recorded:
    return _both_runners(trail, reviewing, on_a_loop=True, topic="tea")


@scenario
def a_nested_graph(trail: Trail) -> Recorded:
    _both_runners(trail, reviewing, on_a_loop=True, topic="tea")
    return _both_runners(trail, reviewing, on_a_loop=True, answer="yes")


over_many = Graph([writing.as_node("many", map_over="topic")], name="over_many")


@scenario
def a_graph_that_maps(trail: Trail) -> Recorded:
    return _both_runners(trail, over_many, on_a_loop=False, topic=["tea", "milk", "tea"])


@node(output="answer", cache=Cache())
def look_up(question: str) -> str:
    return f"about {calls(question)}"


@node(output="said")
def say(answer: str) -> str:
    return str(act(answer))


looking_up = Graph([look_up, say], name="looking_up")


@scenario
def a_cache_hit(trail: Trail) -> Recorded:
    Runner(trail).run(looking_up, question="tea", id="before")
    return _both_runners(trail, looking_up, on_a_loop=False, question="tea")


@node(output="draft")
def failing_write(topic: str) -> str:
    return str(act(topic))


@node(output="title")
def failing_title(topic: str) -> str:
    return str(act(f"title of {topic}"))


failing = Graph([failing_write, failing_title, count], name="failing")


@scenario
def a_graph_that_failed(trail: Trail) -> Recorded:
    calls.fail = {"tea"}
    with suppress(ValueError):
        Runner(trail).run(failing, topic="tea", id="r")
    return failing, "r"


@scenario
def a_graph_that_failed_and_was_taken_up(trail: Trail) -> Recorded:
    a_graph_that_failed(trail)
    calls.fail = set()
    Runner(trail).run(failing, id="r")
    return failing, "r"


@scenario
def a_graph_that_went_on_past_a_failure(trail: Trail) -> Recorded:
    calls.fail = {"title of tea"}
    Runner(trail).run(failing, topic="tea", id="r", error_handling="continue")
    return failing, "r"


@scenario
def an_interrupted_graph(trail: Trail) -> Recorded:
    calls.crash = {"tea tea "}
    crashed(trail, writing, topic="tea", id="r")
    return writing, "r"


@node(output="log")
def note(topic: str, log: list[str] | None = None) -> list[str]:
    kept = [] if log is None else log
    kept.append(str(act(topic)))
    return kept


@route(targets=["note", END])
def noted(log: list[str]) -> str:
    return "note" if len(log) < 4 else END


noting = Graph([note, noted], name="noting")


@scenario
def a_value_that_is_changed_in_place(trail: Trail) -> Recorded:
    return _both_runners(trail, noting, on_a_loop=False, topic="tea")


@node(output=("low", "high"))
def bounds(topic: str) -> Any:
    return str(act(topic))  # one value, and two are expected


wrong = Graph([bounds], name="wrong")


@scenario
def a_node_that_gave_the_wrong_thing(trail: Trail) -> Recorded:
    with suppress(EverstepError):
        Runner(trail).run(wrong, topic="tea", id="r")
    return wrong, "r"


# Forks.


@scenario
def a_fork(trail: Trail) -> Recorded:
    run(trail, ending_flow, id="parent")
    trail.fork("parent", at=3, id="r").release()
    run(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_fork_with_another_outcome(trail: Trail) -> Recorded:
    run(trail, ending_flow, id="parent")
    trail.fork("parent", at=2, id="r", outcome="won").release()
    run(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_fork_that_was_not_gone_on_with(trail: Trail) -> Recorded:
    run(trail, ending_flow, id="parent")
    trail.fork("parent", at=3, id="r").release()
    return ending_flow, "r"


@workflow
def inputs_flow(topic: str, tone: str = "calm") -> list[Any]:
    return [act(topic), act(f"{topic}, {tone}"), act("end")]


@scenario
def a_fork_with_another_input(trail: Trail) -> Recorded:
    run(trail, inputs_flow, "tea", id="parent")
    trail.fork("parent", at=1, id="r", inputs={"tone": "loud"}).release()
    run(trail, inputs_flow, id="r")
    return inputs_flow, "r"


@scenario
def a_fork_that_uses_what_was_done(trail: Trail) -> Recorded:
    run(trail, inputs_flow, "tea", id="parent")
    trail.fork("parent", at=1, id="r", inputs={"tone": "loud"}, reuse=True).release()
    run(trail, inputs_flow, id="r")
    return inputs_flow, "r"


@scenario
def a_fork_of_a_graph(trail: Trail) -> Recorded:
    Runner(trail).run(writing, topic="tea", id="parent")
    trail.fork("parent", at=2, id="r", set={"draft": "milk "}).release()
    Runner(trail).run(writing, id="r")
    return writing, "r"


@scenario
def a_fork_of_a_graph_with_another_outcome(trail: Trail) -> Recorded:
    Runner(trail).run(writing, topic="tea", id="parent")
    seq = next(row.seq for row in trail.steps("parent") if row.name == "count" and row.kind is Kind.STEP)
    trail.fork("parent", at=seq, id="r", outcome=2).release()
    Runner(trail).run(writing, id="r")
    return writing, "r"


@scenario
def a_fork_of_a_graph_with_another_input(trail: Trail) -> Recorded:
    Runner(trail).run(writing, topic="tea", id="parent")
    trail.fork("parent", at=3, id="r", inputs={"topic": "milk"}).release()
    Runner(trail).run(writing, id="r")
    return writing, "r"


@scenario
def a_fork_of_a_fork(trail: Trail) -> Recorded:
    a_fork_of_a_graph(trail)
    trail.fork("r", at=trail.run("r").head - 2, id="deeper", set={"words": 1}).release()
    Runner(trail).run(writing, id="deeper")
    return writing, "deeper"


@scenario
def a_fork_that_shares_child_runs(trail: Trail) -> Recorded:
    run(trail, parent_flow, id="parent")
    seq = max(row.seq for row in trail.steps("parent") if row.name == "child_flow")
    trail.fork("parent", at=seq, id="r", outcome="another").release()
    run(trail, parent_flow, id="r")
    return parent_flow, "r"


@scenario
def a_fork_that_shares_nested_graphs(trail: Trail) -> Recorded:
    a_nested_graph_that_waits(trail)
    trail.fork("r", id="fork").release()
    asyncio.run(AsyncRunner(trail).run(reviewing, id="fork", answer="yes"))
    return reviewing, "fork"


@scenario
def a_fork_that_shares_mapped_graphs(trail: Trail) -> Recorded:
    a_graph_that_maps(trail)
    trail.fork("r", at=trail.run("r").head - 1, id="fork").release()
    Runner(trail).run(over_many, id="fork")
    return over_many, "fork"
