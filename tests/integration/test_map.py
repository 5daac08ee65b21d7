"""One workflow or graph over many items: what is given, how many at once, what is refused, what comes back."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from everstep import AsyncRunner, Graph, Runner, Status, Trail, node, step, workflow
from everstep.errors import GraphInputError, MapDiffersError
from everstep.testing import always_replay
from tests.integration.mapping import KINDS, PATIENCE, graph, mapped, plain
from tests.integration.running import calls


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
@pytest.mark.parametrize("flow", KINDS, ids=["plain", "awaited", "graph", "graph awaited"])
class TestEveryKind:
    def test_every_item_is_a_child_run_and_results_stand_in_the_order_of_the_items(
        self, trail: Trail, flow: Any, runner: Any
    ) -> None:
        many = mapped(trail, flow, {"x": list("cab"), "y": "!"}, runner, id="b", tags={"user": "ada"})
        assert many["z"] == ["c!", "a!", "b!"]
        assert (many.status, many.run_id, many.map_over, many.mode) == ("completed", "b", ("x",), "zip")
        assert (many.requested_count, many.restored_count, many.unstarted) == (3, 0, ())
        batch = trail.run("b")
        assert (batch.status, batch.workflow, batch.tags, batch.owner) == (
            "completed",
            flow.name,
            {"user": "ada"},
            None,
        )
        children = trail.runs(parent="b")
        assert {child.id for child in children} == {result.run_id for result in many}
        assert {(child.status, child.parent_run_id, child.workflow) for child in children} == {
            (Status.COMPLETED, "b", flow.name)
        }

    def test_what_is_stored_of_the_map_is_how_it_went_and_no_item(self, trail: Trail, flow: Any, runner: Any) -> None:
        mapped(trail, flow, {"x": list("cab"), "y": "!"}, runner, id="b")
        assert trail.step("b", 0).inputs == {"map_over": ["x"], "mode": "zip"}
        assert trail.state("b") == {"items": 3, "completed": 3, "failed": 0, "waiting": 0}
        assert trail.run("b").step_count == 2

    def test_without_a_trail_it_works_the_same_and_nothing_is_restored(
        self, trail: Trail, flow: Any, runner: Any
    ) -> None:
        for _ in range(2):
            many = mapped(None, flow, {"x": list("cab")}, runner, id="b", max_concurrency=2)
            assert (many["z"], many.restored_count) == (["c", "a", "b"], 0)
        assert sorted(calls) == list("aabbcc")

    def test_a_map_over_nothing_has_completed(self, trail: Trail, flow: Any, runner: Any) -> None:
        many = mapped(trail, flow, {"x": []}, runner, id="b")
        assert (list(many), many.status, trail.run("b").status) == ([], "completed", "completed")


@pytest.mark.parametrize("flow", KINDS, ids=["plain", "awaited", "graph", "graph awaited"])
def test_items_that_are_gone_through_anew_after_every_step_give_the_same(trail: Trail, flow: Any) -> None:
    with always_replay():
        for where in (trail, None):
            assert mapped(where, flow, {"x": list("ab")}, AsyncRunner)["z"] == ["a", "b"]
    assert sorted(calls) == list("aabb")


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
@pytest.mark.parametrize("flow", KINDS, ids=["plain", "awaited", "graph", "graph awaited"])
def test_events_tell_of_the_map_and_of_every_item(trail: Trail, flow: Any, runner: Any) -> None:
    told = list[tuple[str, str]]()
    for event in ("run_started", "run_resumed", "run_completed", "run_partial"):
        trail.on(event)(lambda event: told.append((event.name, event.run_id)))
    calls.fail = {"b"}
    many = mapped(trail, flow, {"x": list("ab")}, runner, id="m", error_handling="continue")
    assert told[0] == ("run_started", "m")
    assert told[-1] == ("run_partial", "m")
    assert ("run_completed", many[0].run_id) in told
    calls.forget()
    told.clear()
    mapped(trail, flow, {"x": list("ab")}, runner, id="m")
    resumed = [("run_resumed", run_id) for run_id in ("m", many[1].run_id)]
    assert told == [*resumed, ("run_completed", many[1].run_id), ("run_completed", "m")]


# What is given.


def test_lists_go_side_by_side_or_each_with_each(trail: Trail) -> None:
    values = {"x": ["a", "b"], "y": [1, 2]}
    assert mapped(trail, plain, values, map_over=["x", "y"])["z"] == ["a1", "b2"]
    assert mapped(trail, plain, values, map_over=["x", "y"], mode="product")["z"] == ["a1", "a2", "b1", "b2"]
    assert mapped(trail, plain, values, map_over=("y", "x"), mode="product")["z"] == ["a1", "b1", "a2", "b2"]


def test_items_may_come_from_whatever_can_be_gone_through_once(trail: Trail) -> None:
    assert mapped(trail, plain, {"x": (each for each in "ab")})["z"] == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "how", "said"),
    [
        ({"x": "abc"}, {}, "'x', which is a str"),
        ({"x": {"a": 1}}, {}, "'x', which is a dict"),
        ({"x": 3}, {}, "'x', which is a int"),
        ({"y": [1]}, {}, "'x', which it was not given"),
        ({"x": [1, 2], "y": [1]}, {"map_over": ["x", "y"]}, "'x' has 2, 'y' has 1"),
        ({"x": [1]}, {"map_over": ()}, "go over nothing"),
    ],
)
def test_what_cannot_be_gone_over_is_refused_and_nothing_is_begun(
    trail: Trail, values: Any, how: Any, said: str
) -> None:
    with pytest.raises(GraphInputError, match=said):
        mapped(trail, plain, values, **how)
    assert not trail.runs()


@pytest.mark.parametrize("how", [{"mode": "zap"}, {"max_concurrency": 0}, {"max_concurrency": True}])
def test_other_ways_to_map_are_refused(trail: Trail, how: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(how))):
        mapped(trail, plain, {"x": [1]}, **how)


def test_what_is_no_workflow_cannot_be_mapped(trail: Trail) -> None:
    with pytest.raises(TypeError, match="not a workflow"):
        Runner(trail).map(len, {"x": [1]}, map_over="x")  # type: ignore[arg-type] # that is the point


@node(output="z")
def number(x: int) -> int:
    return int(calls(x))


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_an_item_that_does_not_fit_is_named_before_any_other_is_begun(trail: Trail, runner: Any) -> None:
    numbers = Graph([number], name="numbers")
    with pytest.raises(GraphInputError, match="takes int") as refused:
        mapped(trail, numbers, {"x": [1, 2, "three"]}, runner, id="b")
    assert refused.value.__notes__ == ["everstep: these are the inputs of item 2; no item was begun"]
    assert (calls, trail.runs()) == ([], [])


def test_both_spellings_of_an_id_are_one_and_two_ids_are_refused(trail: Trail) -> None:
    for act_of in (
        lambda **ids: mapped(trail, plain, {"x": [1]}, **ids),
        lambda **ids: Runner(trail).run(plain, 1, **ids),
        lambda **ids: asyncio.run(AsyncRunner(trail).run(plain, 1, **ids)),
    ):
        name = f"r-{len(trail.runs())}"
        assert act_of(workflow_id=name).run_id == act_of(id=name).run_id == act_of(id=name, workflow_id=name).run_id
        with pytest.raises(ValueError, match="give one of them"):
            act_of(id=name, workflow_id="another")


def test_a_map_is_not_taken_for_a_run_nor_a_run_for_a_map(trail: Trail) -> None:
    for flow in (plain, graph):
        mapped(trail, flow, {"x": [1]}, id=f"{flow.name}-b")
        calls.fail = {2}
        with pytest.raises(ValueError, match="2"):
            mapped(trail, flow, {"x": [2]}, id=f"{flow.name}-failed")
        calls.fail = set()
        Runner(trail).run(flow, x=1, id=f"{flow.name}-r")
        for batch in ("b", "failed"):
            with pytest.raises(MapDiffersError, match="is a map over many items"):
                Runner(trail).run(flow, id=f"{flow.name}-{batch}")
            with pytest.raises(MapDiffersError):
                Runner(trail).run(flow, x=1, id=f"{flow.name}-{batch}")
        with pytest.raises(MapDiffersError, match="is no map"):
            mapped(trail, flow, {"x": [1]}, id=f"{flow.name}-r")
        assert trail.run(f"{flow.name}-failed").owner is None


# How many at once.


class Meeting:
    """Counts who is at work, and lets them go on when as many as may be are."""

    def __init__(self, size: int) -> None:
        self.size, self.here, self.most = size, 0, 0
        self.lock = threading.Lock()
        self.all_here = threading.Barrier(size)

    def __call__(self) -> None:
        with self.lock:
            self.here += 1
            self.most = max(self.most, self.here)
        self.all_here.wait(PATIENCE)
        with self.lock:
            self.here -= 1


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_as_many_plain_items_are_at_work_as_may_be_and_never_more(trail: Trail, runner: Any) -> None:
    meeting = Meeting(3)

    @step
    def meet(x: int) -> int:
        meeting()
        return x

    @workflow
    def flow(x: int) -> int:
        return meet(x)

    for where in (trail, None):
        many = mapped(where, flow, {"x": range(12)}, runner, max_concurrency=3)
        assert (many.values, meeting.most) == (list(range(12)), 3)


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_as_many_awaited_items_are_at_work_as_may_be_and_never_more(trail: Trail, runner: Any) -> None:
    meeting, met = Meeting(1), []

    @node(output="y")
    async def meet(x: int) -> int:
        met.append(x)
        meeting.here += 1
        meeting.most = max(meeting.most, meeting.here)
        while len(met) < (x // 4 + 1) * 4:  # noqa: ASYNC110 - until all of its four have come, whichever loop this is
            await asyncio.sleep(0)
        meeting.here -= 1
        return x

    many = mapped(trail, Graph([meet]), {"x": range(12)}, runner, max_concurrency=4)
    assert (many["y"], meeting.most) == (list(range(12)), 4)


def test_a_runner_takes_one_item_after_the_other(trail: Trail) -> None:
    for flow in KINDS:
        calls.forget()
        mapped(trail, flow, {"x": list("dcba")})
        assert calls == list("dcba")


# The result.


def test_the_result_is_a_sequence_that_can_be_asked_for_one_value_of_all(trail: Trail) -> None:
    calls.fail = {"c"}
    many = mapped(trail, graph, {"x": list("abcd")}, id="m", error_handling="continue")
    assert (len(many), many[0]["z"], many[-1]["z"]) == (4, "a", "d")
    assert [result["z"] for result in many[:2]] == ["a", "b"]
    assert [result.run_id for result in many] == [result.run_id for result in many.results]
    assert (many[0] in many, many.index(many[1])) == (True, 1)
    assert (many["z"], many["nothing"]) == (["a", "b", None, "d"], [None] * 4)
    assert (many.workflow_id, many.graph_name, many.map_mode) == ("m", "graph", "zip")


def test_stats_and_the_slowest_leave_out_what_was_restored(trail: Trail) -> None:
    calls.fail = {"b", "c"}
    mapped(trail, graph, {"x": list("abcd")}, id="m", error_handling="continue")
    calls.fail = {"c"}
    many = mapped(trail, graph, {"x": list("abcd")}, id="m", error_handling="continue")
    assert many.restored_count == 2
    assert many.node_stats["first"].to_dict().items() >= {"count": 2, "errors": 1, "succeeded": 1}.items()
    assert many.node_stats["second"].count == 1
    assert {result.run_id for result in many.slowest()} == {many[1].run_id, many[2].run_id}
    slowest = many.slowest(1)[0].log.total_duration_ms
    assert slowest == max(result.log.total_duration_ms for result in many)


def test_what_is_told_of_it_holds_no_values_and_no_text_of_errors(trail: Trail) -> None:
    calls.fail = {"a secret"}
    many = mapped(trail, graph, {"x": ["a value", "a secret"]}, id="m", error_handling="continue")
    told = json.dumps(many.to_dict())
    assert "secret" not in told
    assert "value" not in told
    found = json.loads(told)
    assert (found["status"], found["failures"], found["map_over"], found["mode"]) == ("partial", [1], ["x"], "zip")
    assert [item["error"] for item in found["items"]] == [None, "ValueError"]
    assert "\n" not in many.summary()
    assert many.summary().startswith("graph m: partial, 2 items in ")
    assert repr(many) == f"<MapResult {many.summary()}>"


def test_printed_it_is_a_table_of_the_items_with_every_failure_in_it(trail: Trail) -> None:
    calls.fail = {"<30>"}
    many = mapped(trail, plain, {"x": [f"<{number}>" for number in range(100)]}, error_handling="continue")
    lines = str(many).splitlines()
    assert (lines[0], lines[1].split()) == (many.summary(), ["item", "status", "ms"])
    assert lines[22:25] == ["  ... 10 more items", lines[23], "  ... 49 more items"]
    assert lines[23].endswith("ValueError: <30>")
    html = many._repr_html_()
    assert "<th>item</th>" in html
    assert "ValueError: &lt;30&gt;" in html
    assert "59 more" in html
