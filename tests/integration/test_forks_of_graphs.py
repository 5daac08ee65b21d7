"""Forks of graphs: inside a superstep, of a nested run, of an item; with other values, outcomes and decisions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everstep import END, AsyncRunner, Graph, Runner, Trail, interrupt, node, route
from tests.integration.running import act, calls
from tests.integration.test_forks import forked, kept, seq_of, trail

__all__ = ["trail"]  # fixtures


@node(output="draft")
def write(topic: str, draft: str = "") -> str:
    return f"{draft}{calls(topic)} "


@node(output="title")
def entitle(topic: str) -> str:
    return str(calls(f"title of {topic}"))


@node(output="words")
def count(draft: str) -> int:
    calls("count")
    return len(draft.split())


@route(targets=["write", END])
def enough(words: int) -> str:
    return "write" if words < 3 else END


writing = Graph([write, entitle, count, enough], name="writing")


@pytest.fixture
def written(trail: Trail) -> Trail:
    Runner(trail).run(writing, topic="tea", id="r")
    calls.clear()
    return trail


def test_a_fork_inside_a_superstep_does_the_rest_of_it(written: Trail) -> None:
    rows = [row for row in written.steps("r") if row.superstep == 0]
    assert {row.name for row in rows} == {"write", "entitle"}
    forked(written, writing, "r", at=min(row.seq for row in rows))
    done, left = (row.name for row in sorted(rows, key=lambda row: row.seq))
    words = {"write": "tea", "entitle": "title of tea"}
    assert calls[0] == words[left]
    assert done == "write" or words[done] not in calls
    assert written.state("f") == written.state("r")


@pytest.mark.parametrize("name", ["write", "entitle", "count"])
def test_another_outcome_of_a_node(written: Trail, name: str) -> None:
    other: dict[str, Any] = {"write": "a b c d", "entitle": "Other", "count": 7}
    gives = {"write": "draft", "entitle": "title", "count": "words"}
    seq = seq_of(written, "r", name)
    forked(written, writing, "r", at=seq, outcome=other[name])
    assert written.state("f", seq)[gives[name]] == other[name]
    assert written.state("f")["title"] == ("Other" if name == "entitle" else "title of tea")
    assert written.state("f")["words"] >= 3


def test_another_decision(written: Trail) -> None:
    assert forked(written, writing, "r", at=seq_of(written, "r", "enough"), outcome=END)["words"] == 1
    assert calls == []


def test_a_node_that_failed_is_let_have_worked_and_one_that_worked_have_failed(written: Trail) -> None:
    seq = seq_of(written, "r", "count", 1)
    written.fork("r", at=seq, id="f", outcome=ValueError("cannot count")).release()
    calls.clear()
    with pytest.raises(ValueError, match="cannot count"):
        Runner(written).run(writing, id="f", error_handling="raise")
    assert calls in ([], ["count"])


def test_another_value_and_another_input_of_a_graph(written: Trail) -> None:
    at = seq_of(written, "r", "enough")
    assert forked(written, writing, "r", at=at, id="a", set={"draft": "x y "})["draft"].startswith("x y tea ")
    assert forked(written, writing, "r", at=at, id="b", inputs={"topic": "milk"})["draft"].startswith("tea milk")


@interrupt(output="verdict")
def review(words: int) -> str:
    return f"{words} words?"


reviewing = Graph([writing.as_node(), review], name="reviewing")


def test_a_fork_of_a_nested_run_stands_alone(trail: Trail) -> None:
    Runner(trail).run(reviewing, topic="tea", id="r")
    Runner(trail).run(reviewing, id="r", answer="fine")
    [child] = trail.runs(parent="r")
    before = kept(trail, "r")
    seq = seq_of(trail, child.id, "count")
    assert forked(trail, writing, child.id, at=seq, outcome=5)["words"] == 5
    assert kept(trail, "r") == before


def test_a_fork_at_an_interrupt_can_be_answered_otherwise(trail: Trail) -> None:
    async def go() -> None:
        runner = AsyncRunner(trail)
        await runner.run(reviewing, topic="tea", id="r")
        trail.fork("r", id="f").release()
        await runner.run(reviewing, id="r", answer="fine")
        result = await runner.run(reviewing, id="f", answer="bad")
        assert result.values["verdict"] == "bad"

    asyncio.run(go())
    assert trail.state("r")["verdict"] == "fine"
    assert trail.replay("f", reviewing).identical


def test_a_fork_of_an_item_of_a_map(trail: Trail) -> None:
    Runner(trail).map(writing, {"topic": ["tea", "milk"]}, map_over="topic", id="m")
    item = min(found.id for found in trail.runs(parent="m"))
    assert forked(trail, writing, item, at=seq_of(trail, item, "entitle"), outcome="Other")["title"] == "Other"


@node(output=("low", "high"))
def bounds(text: str) -> tuple[int, int]:
    calls(text)
    return 1, len(text)


@node(output="width")
def width(low: int, high: int) -> int:
    return high - low


measuring = Graph([bounds, width], name="measuring")


@pytest.mark.parametrize("outcome", [(2, 9), {"low": 2, "high": 9}])
def test_another_outcome_of_a_node_with_several_values(trail: Trail, outcome: Any) -> None:
    Runner(trail).run(measuring, text="tides", id="r")
    assert forked(trail, measuring, "r", at=1, outcome=outcome) == {"low": 2, "high": 9, "width": 7}


@pytest.mark.parametrize("outcome", [5, (1, 2, 3), {"low": 2}, {"low": 1, "high": 2, "other": 3}, None])
def test_what_a_node_cannot_have_given_is_refused(trail: Trail, outcome: Any) -> None:
    Runner(trail).run(measuring, text="tides", id="r")
    with pytest.raises(TypeError, match="it gives low, high"):
        trail.fork("r", at=1, id="f", outcome=outcome)
    assert [found.id for found in trail.runs()] == ["r"]


@node(output="base")
def begin(size: int) -> list[int]:
    return [act(number) for number in range(size)]


@node(output="items")
def grow(base: list[int], items: list[int] | None = None) -> list[int]:
    return [*(items or base), act(len(items or base))]


@route(targets=["grow", END])
def more(items: list[int]) -> str:
    return "grow" if len(items) < 5 else END


growing = Graph([begin, grow, more], name="growing")


def test_a_fork_anywhere_changes_what_comes_after_it(trail: Trail) -> None:
    """Between the beginning of a node and its end too: what it gives then comes after the change."""
    Runner(trail).run(growing, size=2, id="r")
    for at in range(trail.run("r").head):
        assert forked(trail, growing, "r", at=at, id=f"f{at}") == trail.state("r")
        changed = forked(trail, growing, "r", at=at, id=f"g{at}", set={"items": [9, 9, 9]})
        assert changed == trail.state(f"g{at}")
        assert forked(trail, growing, "r", at=at, id=f"h{at}", inputs={"size": 3}) == trail.state(f"h{at}")
