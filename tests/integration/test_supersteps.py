"""A graph's run, superstep by superstep: what ran, what the values were, where it can be gone back to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

import everstep
from everstep import END, AsyncTrail, Graph, Retry, Runner, Trail, node, route
from everstep.errors import PrunedError, StepNotFoundError
from tests.integration.stories import FAILING, STORY, broken, look_up, told, written


@pytest.fixture(autouse=True)
def nothing_fails() -> None:
    FAILING.clear()


# Steps


def test_a_step_is_counted_once_for_each_outcome_and_the_rows_that_keep_it_safe_are_not(trail: Trail) -> None:
    written(trail)
    first, second, *later = told(trail.get_steps("s"))
    assert {first, second} == {(0, "measure", "completed"), (0, "read", "completed")}
    assert later[:2] == [(1, "write", "completed"), (2, "enough", "completed")]
    assert len(trail.get_steps("s")) == 2 + 2 * 4
    assert len(trail.steps("s")) > len(trail.get_steps("s"))


def test_a_failure_and_the_success_after_it_are_two_steps(trail: Trail) -> None:
    broken(trail)
    before = told(trail.get_steps("s"))
    assert before[-1][1:] == ("write", "failed")
    written(trail)
    after = told(trail.get_steps("s"))
    assert after[: len(before)] == before
    assert after[len(before)][1:] == ("write", "completed")
    assert after[len(before)][0] > before[-1][0]  # type: ignore[operator] # both are numbers


def test_failed_attempts_at_a_node_are_steps_too(trail: Trail) -> None:
    tries = []

    @node(output="page", retry=Retry(attempts=3, backoff=0))
    def fetch() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("gone")
        return "page"

    Runner(trail).run(Graph([fetch], name="fetching"), id="f")
    assert told(trail.get_steps("f")) == [(0, "fetch", "failed"), (0, "fetch", "failed"), (0, "fetch", "completed")]
    assert [step.attempt for step in trail.get_steps("f", 0)] == [1, 2, 3]


def test_the_steps_of_a_superstep_are_those_that_ended_in_it(trail: Trail) -> None:
    broken(trail)
    written(trail)
    everything = trail.get_steps("s")
    numbers = sorted({step.superstep for step in everything if step.superstep is not None})
    assert [step for number in numbers for step in trail.get_steps("s", number)] == everything
    assert {step.name for step in trail.get_steps("s", 0)} == {"read", "measure"}


def test_of_a_plain_workflow_the_steps_at_the_top_are_counted(trail: Trail) -> None:
    @everstep.step
    def outer(text: str) -> str:
        return look_up(text)

    @everstep.workflow
    def plain() -> str:
        return outer("a") + look_up("b")

    Runner(trail).run(plain, id="p")
    assert told(trail.get_steps("p")) == [(None, "outer", "completed"), (None, "look_up", "completed")]
    with pytest.raises(StepNotFoundError, match="no superstep 0; it counts none, as only runs of graphs do"):
        trail.get_state("p", superstep=0)
    assert trail.get_state("p") == trail.state("p")


def test_an_address_names_the_newest_step_there_and_a_run_id_may_hold_colons(trail: Trail) -> None:
    written(trail, "a:7:b")
    step = trail.step_at("a:7:b:1:write")
    assert (step.run_id, step.superstep, step.name) == ("a:7:b", 1, "write")
    with pytest.raises(StepNotFoundError, match="no step 'read' in superstep 1; what ended in it is write"):
        trail.step_at("a:7:b:1:read")
    with pytest.raises(StepNotFoundError, match="no superstep 99"):
        trail.step_at("a:7:b:99:write")
    for wrong in ("a", "a:b", "a:x:b", ""):
        with pytest.raises(ValueError, match="`run:superstep:node`"):
            trail.step_at(wrong)
    recorder = trail.record("twice")
    recorder.step("n", superstep=0, set={"x": 1})
    recorder.step("n", superstep=0, set={"x": 2})
    assert trail.step_at("twice:0:n").values == {"x": 2}


# Values


def test_the_values_after_each_superstep_are_the_fold_of_the_steps_up_to_it(trail: Trail) -> None:
    broken(trail)
    result = written(trail)
    folded: dict[str, Any] = {}
    numbers = sorted({step.superstep for step in trail.get_steps("s") if step.superstep is not None})
    for number in numbers:
        for step in trail.get_steps("s", number):
            folded.update(step.values if step.status == "completed" else {})
        assert trail.get_state("s", superstep=number) == folded
    assert trail.get_state("s") == folded == result.values


def test_every_superstep_of_a_long_run_is_found_among_rows_of_steps_inside(trail: Trail) -> None:
    @node(output="count")
    def tick(count: int = 0) -> int:
        for number in range(count % 7 * 9):  # more rows inside than are looked at together
            look_up(str(number))
        return count + 1

    @route(targets=["tick", END])
    def more(count: int) -> str:
        return END if count >= 40 else "tick"

    Runner(trail).run(Graph([tick, more], name="ticking"), id="t")
    newest = max(step.superstep or 0 for step in trail.get_steps("t"))
    for superstep in range(newest + 1):
        assert trail.get_state("t", superstep) == {"count": superstep // 2 + 1}
        assert [step.name for step in trail.get_steps("t", superstep)] == [["tick"], ["more"]][superstep % 2]


def test_a_superstep_that_does_not_exist_yet_is_an_error_that_tells_the_newest(trail: Trail) -> None:
    written(trail)
    newest = max(step.superstep or 0 for step in trail.get_steps("s"))
    for superstep in (newest + 1, 10**9, -1):
        with pytest.raises(StepNotFoundError, match=f"no superstep {superstep}; its newest is {newest}") as caught:
            trail.get_state("s", superstep)
        assert caught.value.head == newest
        with pytest.raises(StepNotFoundError):
            trail.get_steps("s", superstep)
        with pytest.raises(StepNotFoundError):
            trail.get_checkpoint("s", superstep)
    with pytest.raises(TypeError, match="counted from 0"):
        trail.get_state("s", superstep=True)


def test_a_superstep_that_was_pruned_is_an_error_that_says_so(trail: Trail) -> None:
    written(trail)
    whole = trail.get_state("s", 5)
    newest = trail.run("s").head
    last = max(step.seq for step in trail.get_steps("s") if step.superstep == 4)
    trail.prune("s", keep=newest - last + 1)
    for ask in (trail.get_state, trail.get_steps, trail.get_checkpoint):
        with pytest.raises(PrunedError, match="superstep 4 of run 's' was pruned; what is kept begins at superstep 5"):
            ask("s", 4)
    assert trail.get_state("s", 5) == whole
    assert [point.name for point in trail.checkpoints("s")][-1] == "superstep 5"
    assert min(step.superstep or 0 for step in trail.get_steps("s")) == 5
    with pytest.raises(PrunedError):
        trail.get_run_inputs("s")
    trail.prune("s", keep=1)
    with pytest.raises(PrunedError, match="No superstep is left of it"):
        trail.get_state("s", 5)
    assert trail.get_state("s")["draft"] == "AGTA"


def test_a_superstep_that_may_have_lost_some_of_its_steps_counts_as_pruned(trail: Trail) -> None:
    recorder = trail.record("r")
    for superstep in range(3):
        for name in "ab":
            recorder.step(name, superstep=superstep, set={name: superstep})
    trail.prune("r", keep=3)  # one of superstep 1, and both of superstep 2
    with pytest.raises(PrunedError, match="superstep 1 of run 'r' was pruned; what is kept begins at superstep 2"):
        trail.get_steps("r", 1)
    assert [step.superstep for step in trail.get_steps("r")] == [2, 2]
    assert len(trail.get_steps("r", 2)) == len(trail.get_checkpoint("r", 2).steps) == 2
    trail.prune("r", keep=1)
    for superstep in (1, 2):
        with pytest.raises(PrunedError, match="No superstep is left of it"):
            trail.get_state("r", superstep)
    assert (trail.get_steps("r"), trail.checkpoints("r")) == ([], [])
    assert trail.get_state("r") == {"a": 2, "b": 2}


def test_a_run_can_be_asked_while_it_is_at_work(trail: Trail) -> None:
    seen = []

    @node(output="two")
    def second(one: int) -> int:
        seen.append((trail.get_state("w", 0), trail.checkpoints("w")))
        return one + 1

    @node(output="one")
    def first(start: int) -> int:
        return start + 1

    Runner(trail).run(Graph([first, second], name="counting"), {"start": 1}, id="w")
    assert seen == [({"one": 2}, [])]


def test_a_fork_has_the_supersteps_that_it_shares(trail: Trail) -> None:
    written(trail)
    [point] = [point for point in trail.checkpoints("s") if point.name == "superstep 3"]
    trail.fork("s", point.seq, id="other").step("by hand", superstep=4, set={"draft": "changed"})
    assert trail.get_state("other", 3) == trail.get_state("s", 3)
    assert trail.get_state("other", 4)["draft"] == "changed"
    assert trail.get_run_inputs("other") == trail.get_run_inputs("s") == {"text": "all good tides"}


# Lists of runs


def test_workflows_are_listed_and_a_filter_left_out_is_another_thing_than_none(trail: Trail) -> None:
    @node(output="drafts")
    def collect(draft: str) -> list[str]:
        return [draft]

    nested = Graph([STORY.as_node(), collect], name="nested")
    Runner(trail).run(nested, {"text": "all good tides"}, id="n")
    children = [run.id for run in trail.list_workflows(parent="n")]
    assert len(children) == 1
    assert [run.id for run in trail.list_workflows(parent=None)] == ["n"]
    assert {run.id for run in trail.list_workflows()} == {"n", *children}
    assert [run.id for run in trail.list_workflows(workflow="story", status="completed")] == children


def test_since_is_inclusive_and_a_naive_time_is_utc(trail: Trail) -> None:
    written(trail)
    began = trail.run("s").created_at
    assert len(trail.list_workflows(since=began)) == 1
    assert len(trail.list_workflows(since=began.replace(tzinfo=None))) == 1
    assert trail.list_workflows(since=began + timedelta(microseconds=1)) == []


def test_filters_come_before_the_limit(trail: Trail) -> None:
    written(trail, "old")
    for number in range(3):
        trail.record(f"new-{number}", workflow="other").finish()
    assert [run.id for run in trail.list_workflows(workflow="story", limit=1)] == ["old"]


# The awaited twin


def test_the_twin_for_event_loops_gives_the_same(trail: Trail) -> None:
    written(trail)

    async def ask(twin: AsyncTrail) -> list[Any]:
        return [
            await twin.get_steps("s", 1), await twin.get_state("s", superstep=1), await twin.get_checkpoint("s", 1),
            await twin.get_run_inputs("s"), await twin.list_workflows(parent=None), await twin.step_at("s:1:write"),
            await twin.checkpoints("s"),
        ]  # fmt: skip

    assert asyncio.run(ask(AsyncTrail(trail))) == [
        trail.get_steps("s", 1), trail.get_state("s", superstep=1), trail.get_checkpoint("s", 1),
        trail.get_run_inputs("s"), trail.list_workflows(parent=None), trail.step_at("s:1:write"),
        trail.checkpoints("s"),
    ]  # fmt: skip


# What is stored


class Colour(Enum):
    RED = "red"


VALUES: list[Any] = [
    datetime(2026, 11, 15, 12, tzinfo=UTC), (1, (2, [3])), {1, 2}, frozenset({"a"}), b"bytes", Colour.RED, UUID(int=7),
    Decimal("1.10"), {1: "one", (2, 3): "pair"}, 1 << 200, None, END,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_a_node_gives_is_stored_as_it_is_and_counted(trail: Trail, value: Any) -> None:
    """Promise 7: the live value, the stored one and the one of a restored run are the same, and no row is missing."""

    @node(output="found")
    def give() -> Any:
        return value

    @node(output=("first", "second"))
    def split(found: Any) -> Any:
        return found, [found]

    graph = Graph([give, split], name="giving")
    live = Runner(trail).run(graph, id="g")
    expected = {"found": value, "first": value, "second": [value]}
    for found in (live.values, trail.get_state("g"), Runner(trail).run(graph, id="g").values):
        assert found == expected
        assert type(found["first"]) is type(value)
    assert [step.values for step in trail.get_steps("g")] == [{"found": value}, {"first": value, "second": [value]}]
    assert trail.run("g").step_count == len(trail.steps("g"))


def test_a_decision_to_end_is_end_when_it_is_read(trail: Trail) -> None:
    written(trail)
    last = trail.get_steps("s")[-1]
    assert (last.name, last.decision) == ("enough", END)


def test_search_finds_what_nodes_gave_and_can_be_held_to_one_part_of_a_step(trail: Trail) -> None:
    broken(trail)
    written(trail)
    assert {step.name for step in trail.search("tides", "values")} == {"read"}
    assert {step.name for step in trail.search("tides", field="inputs")} == {"story", "look_up"}
    assert {step.name for step in trail.search("ink", field="error")} == {"write", "end"}
    assert {step.name for step in trail.search("measure", "name")} == {"measure"}
    assert trail.search("measure", field="output") == []
    assert len(trail.search("write", "name", limit=2)) == 2
    with pytest.raises(ValueError, match="use one of name, inputs, output, values, error"):
        trail.search("x", field="elsewhere")  # type: ignore[arg-type] # the point of the test
