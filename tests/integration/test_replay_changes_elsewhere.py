"""A change is told wherever it is: in tasks and threads, child runs, questions and graphs."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep import END, Graph, Runner, Trail, node, pause, route, unordered, workflow
from tests.integration.running import act, act_later, calls, run
from tests.integration.test_replay_changes import told

_word = "tea"


@workflow
async def tasks_flow() -> Any:
    return await asyncio.gather(*(act_later(each) for each in ("a", _word, "c")))


@workflow
def unordered_flow() -> Any:
    with ThreadPoolExecutor(2) as pool, unordered():
        return sorted(pool.map(act, ("a", _word, "c")))


@workflow
def child_flow(word: str) -> Any:
    return act(word)


@workflow
def parent_flow() -> Any:
    return [child_flow("a"), child_flow("a" + _word)]


@workflow
def inner_flow() -> Any:
    return [act("a"), act(_word)]


@workflow
def outer_flow() -> Any:
    return inner_flow()


@workflow
def pause_flow() -> Any:
    return act(pause(f"{_word}?"))


@pytest.mark.parametrize(
    ("flow", "expected", "run_id"),
    [
        (tasks_flow, ("changed argument", "act_later", None), "r"),
        (unordered_flow, ("changed argument", "act", None), "r"),
        (parent_flow, ("changed argument", "child_flow", 2), "r"),
        (outer_flow, ("changed argument", "act", 2), "r/inner_flow#0"),
        (pause_flow, ("changed argument", "pause", 1), "r"),
    ],
)
def test_a_change_is_told_wherever_it_is(
    trail: Trail, flow: Any, expected: Any, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 6: in tasks and threads, child runs and questions."""
    paused = run(trail, flow, id="r").paused
    if paused:
        run(trail, flow, id="r", answer="yes")
    calls.forget()
    assert trail.replay("r", flow).identical
    monkeypatch.setattr(sys.modules[__name__], "_word", "milk")
    report = trail.replay("r", flow)
    cause, name, seq = told(report)
    assert (cause, name) == expected[:2], str(report)
    assert seq == expected[2] or (expected[2] is None and trail.step("r", seq or 0).inputs == {"what": "tea"})
    assert report.first is not None
    assert report.first.run_id == run_id


@node(output="draft")
def write(topic: str, draft: str = "") -> str:
    return f"{draft}{calls(topic)} "


@node(output="words")
def count(draft: str) -> int:
    return len(str(act(draft)).split()) + len(_word) - 3


@route(targets=["write", END])
def enough(words: int) -> str:
    return "write" if words < len(_word) else END


graph = Graph([write, count, enough], name="changing")


def test_a_changed_route_and_a_changed_node_are_told(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 6."""
    Runner(trail).run(graph, topic="tea", id="r")
    calls.forget()
    assert trail.replay("r", graph).identical
    monkeypatch.setattr(sys.modules[__name__], "_word", "milk")
    report = trail.replay("r", graph)
    cause, name, seq = told(report)
    assert (cause, name) == ("changed result", "count")
    assert seq is not None
    assert trail.step("r", seq).name == "count"
    assert "~ result.words: 1 -> 2" in str(report)


@route(targets=["write", END])
def enough_sooner(words: int) -> str:
    return "write" if words < 2 else END


def test_a_changed_decision_is_told(trail: Trail) -> None:
    Runner(trail).run(graph, topic="tea", id="r")
    calls.forget()
    sooner = Graph([write, count, enough_sooner.renamed("enough")], name="changing")
    report = trail.replay("r", sooner)
    cause, name, _ = told(report)
    assert (cause, name) == ("changed result", "enough")
    assert f"~ result: 'write' -> {END!r}" in str(report)


def test_a_node_that_is_gone_and_one_that_is_new_are_told(trail: Trail) -> None:
    Runner(trail).run(graph, topic="tea", id="r")
    calls.forget()
    report = trail.replay("r", Graph([write], name="changing"))
    assert told(report)[:2] == ("missing step", "count")

    @node(output="title")
    def entitle(topic: str) -> str:
        return str(calls(topic))

    report = trail.replay("r", Graph([write, count, enough, entitle], name="changing"))
    assert told(report)[:2] == ("extra step", "entitle")
