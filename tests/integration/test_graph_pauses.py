"""Graphs that ask a person: as the first node, beside others, inside a nested graph, in a loop, several at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import everstep
from everstep import END, AsyncRunner, Graph, Kind, Runner, Status, Trail, gate, interrupt, node
from everstep.errors import AnswerError, InputsDifferError, NotWaitingError
from tests.integration.graphing import both, statuses
from tests.integration.running import Calls, crashed

calls = Calls()
either = pytest.mark.parametrize("on_a_loop", [False, True], ids=["waiting", "awaiting"])


@interrupt(output="approved", options=["yes", "no"])
def approve(draft: str) -> str:
    calls("approve")
    return f"send {draft!r}?"


@node(output="sent")
def send(draft: str, approved: str) -> str:
    calls("send")
    return f"{draft}: {approved}"


@node(output="size")
def measure(draft: str) -> int:
    calls("measure")
    return len(draft)


@node(output="weight")
async def weigh(draft: str) -> int:
    await asyncio.sleep(0)
    calls("weigh")
    return len(draft) * 2


ASKING = Graph([approve, send], name="asking")
BESIDE = Graph([approve, measure, send], name="beside")
BESIDE_LATER = Graph([approve, measure, weigh, send], name="beside")


@either
def test_a_question_may_be_the_first_node(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Trap 27."""
    result = both(trail, ASKING, {"draft": "d"}, id="r", on_a_loop=on_a_loop)
    assert (result.status, result.values) == (Status.PAUSED, {})
    assert result.pause is not None
    assert (result.pause.prompt, result.pause.options) == ("send 'd'?", ["yes", "no"])
    result = both(trail, ASKING, id="r", answer="yes", on_a_loop=not on_a_loop)
    assert result.values == {"approved": "yes", "sent": "d: yes"}
    assert calls == ["approve", "approve", "send"]  # the question's own code is gone through again, to its answer


@either
@pytest.mark.parametrize("graph", [ASKING, BESIDE, BESIDE_LATER])
def test_a_paused_run_without_an_answer_adds_no_row(trail: Trail, graph: Graph, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Trap 21, however often it is run."""
    first = both(trail, graph, {"draft": "d"}, id="r", on_a_loop=on_a_loop)
    head = trail.run("r").head
    for _ in range(3):
        again = both(trail, graph, id="r", on_a_loop=on_a_loop)
        assert (again.status, again.pauses, again.values) == (Status.PAUSED, first.pauses, first.values)
    assert trail.run("r").head == head
    assert trail.run("r").status is Status.PAUSED


@either
def test_siblings_of_a_question_finish_and_are_not_run_again(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    result = both(trail, BESIDE_LATER, {"draft": "draft"}, id="r", on_a_loop=on_a_loop)
    assert result.paused
    assert result.values == {"size": 5, "weight": 10}
    assert sorted(calls.taken()) == ["approve", "measure", "weigh"]
    result = both(trail, BESIDE_LATER, id="r", answer="no", on_a_loop=on_a_loop)
    assert result["sent"] == "draft: no"
    assert calls == ["approve", "send"]
    assert {name: superstep for name, superstep, _ in statuses(trail, "r")} == {
        "measure": 0, "weigh": 0, "approve": 0, "send": 1,
    }  # fmt: skip


def test_an_answer_that_is_none_of_the_options_is_refused_and_the_first_that_is_counts(trail: Trail) -> None:
    Runner(trail).run(ASKING, {"draft": "d"}, id="r")
    with pytest.raises(AnswerError):
        Runner(trail).run(ASKING, id="r", answer="perhaps")
    assert Runner(trail).run(ASKING, id="r", answer="yes").completed
    with pytest.raises(NotWaitingError):
        trail.answer("r", "no")


def test_a_paused_run_takes_no_other_values(trail: Trail) -> None:
    Runner(trail).run(ASKING, {"draft": "d"}, id="r")
    with pytest.raises(InputsDifferError):
        Runner(trail).run(ASKING, {"draft": "other"}, id="r")


INNER = Graph([measure, approve, send], name="inner")
OUTER = Graph([INNER.as_node("ask"), node(output="end", name="end")(lambda sent: calls(f"end {sent}"))], name="outer")
TWICE = Graph([OUTER.as_node("deep"), node(output="top", name="top")(lambda end: calls("top"))], name="twice")


@either
@pytest.mark.parametrize(("graph", "child"), [(OUTER, "r/ask#0"), (TWICE, "r/deep#0/ask#0")])
def test_a_question_inside_a_nested_graph_is_asked_of_the_run_that_has_it(
    trail: Trail,
    graph: Graph,
    child: str,
    on_a_loop: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    result = both(trail, graph, {"draft": "d"}, id="r", on_a_loop=on_a_loop)
    assert result.pause is not None
    assert result.pause.run_id == child
    assert trail.run(child).status is Status.PAUSED
    rows = {each.id: each.head for each in trail.runs(limit=10)}
    assert both(trail, graph, id="r", on_a_loop=on_a_loop).paused
    assert {each.id: each.head for each in trail.runs(limit=10)} == rows
    calls.clear()
    trail.answer(result.pause.run_id, "yes", pause=result.pause.seq)
    result = both(trail, graph, id="r", on_a_loop=on_a_loop)
    assert result["end"] == "end d: yes"
    assert calls[:3] == ["approve", "send", "end d: yes"]
    assert {each.status for each in trail.runs(limit=10)} == {Status.COMPLETED}


@either
def test_two_questions_at_once_are_answered_one_after_the_other(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    legal = approve.renamed("legal", output="legal_ok")
    last = node(output="both", name="last")(lambda approved, legal_ok: calls(f"{approved} {legal_ok}"))
    graph = Graph([approve, legal, last], name="two")
    result = both(trail, graph, {"draft": "d"}, id="r", on_a_loop=on_a_loop)
    assert len(result.pauses) == 2
    first, second = result.pauses
    trail.answer("r", "yes", pause=first.seq)
    result = both(trail, graph, id="r", on_a_loop=on_a_loop)
    assert [each.seq for each in result.pauses] == [second.seq]
    assert len(result.values) == 1
    trail.answer("r", "no", pause=second.seq)
    assert sorted(both(trail, graph, id="r", on_a_loop=on_a_loop)["both"].split()) == ["no", "yes"]
    assert len([row for row in trail.steps("r") if row.kind is Kind.PAUSE]) == 2


def test_a_question_in_a_loop_is_asked_for_each_turn(trail: Trail) -> None:
    def ask(turn: int = 0) -> str:
        return f"turn {turn}: go on?"

    count = node(output="turn", name="count")(lambda answer, turn=0: turn + 1)
    again = gate(when_true="ask", when_false=END, name="again")(lambda turn, answer: answer == "yes")
    graph = Graph([interrupt(output="answer")(ask), count, again], name="loop")
    result = Runner(trail).run(graph, id="r")
    prompts = []
    for answer in ("yes", "yes", "no"):
        assert result.pause is not None
        prompts.append(result.pause.prompt)
        result = Runner(trail).run(graph, id="r", answer=answer)
    assert prompts == ["turn 0: go on?", "turn 1: go on?", "turn 2: go on?"]
    assert result.values == {"answer": "no", "turn": 3}


def test_a_crash_after_the_answer_asks_nobody_again(trail: Trail) -> None:
    calls.crash = {"send"}
    Runner(trail).run(BESIDE, {"draft": "d"}, id="r")
    crashed(trail, BESIDE, id="r", answer="yes")
    result = Runner(trail).run(BESIDE, id="r")
    assert result["sent"] == "d: yes"
    assert len([row for row in trail.steps("r") if row.kind is Kind.ANSWER]) == 1


def test_a_sibling_that_fails_beside_a_question_fails_the_run_once_it_is_answered(trail: Trail) -> None:
    calls.fail = {"measure"}
    assert Runner(trail).run(BESIDE, {"draft": "d"}, id="r").paused
    with pytest.raises(ValueError, match="measure"):
        Runner(trail).run(BESIDE, id="r", answer="yes")
    calls.forget()
    assert Runner(trail).run(BESIDE, id="r").values == {"approved": "yes", "size": 1, "sent": "d: yes"}
    assert calls == ["measure", "send"]


def test_items_of_a_nested_graph_each_ask(trail: Trail) -> None:
    async def check(draft: str) -> str:
        return f"{draft}?"

    one = Graph([interrupt(output="approved")(check), send], name="one")
    graph = Graph([one.as_node("all", inputs={"draft": "drafts"}, map_over="draft")], name="g")
    result = asyncio.run(AsyncRunner(trail).run(graph, {"drafts": ["a", "b", "c"]}, id="r"))
    assert sorted(each.prompt for each in result.pauses) == ["a?", "b?", "c?"]
    for each in result.pauses:
        trail.answer(each.run_id, each.prompt.upper(), pause=each.seq)
    result = asyncio.run(AsyncRunner(trail).run(graph, id="r"))
    assert result["sent"] == ["a: A?", "b: B?", "c: C?"]


def test_a_question_without_a_trail_is_refused() -> None:
    graph: Any = ASKING
    with pytest.raises(everstep.errors.JournalError, match="cannot pause"):
        Runner().run(graph, {"draft": "d"})
