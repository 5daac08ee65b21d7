"""A map that is taken up again: after a failure, an interrupt or an answer, with other items, with other code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, MapResult, Runner, Secret, Trail, node, pause, workflow
from everstep.errors import CodeChangedWarning, GraphChangedError, ItemsDifferError
from tests.integration.mapping import PATIENCE
from tests.integration.running import Crash, act, act_later, calls


@workflow
def plain(x: Any) -> Any:
    return act(x)


@workflow
async def awaited(x: Any) -> Any:
    return await act_later(x)


def over(trail: Trail, items: Any, flow: Any = plain, **how: Any) -> MapResult:
    return Runner(trail).map(flow, {"x": list(items)}, map_over="x", id="m", **how)


def failed_at(trail: Trail, items: Any, *fail: Any) -> None:
    """A map that has failed in these items, and completed in the others."""
    calls.fail = set(fail)
    over(trail, items, error_handling="continue")
    calls.forget()


# Which items are which.


def test_only_what_did_not_complete_is_executed_again(trail: Trail) -> None:
    """Promise 2: what completed is restored."""
    failed_at(trail, "abcd", "b", "d")
    many = over(trail, "abcd")
    assert (many.values, calls) == (list("abcd"), ["b", "d"])
    assert [result.restored for result in many] == [True, False, True, False]
    assert (many.restored_count, many.requested_count, many.status) == (2, 4, "completed")


def test_reordered_items_are_restored_wherever_they_stand(trail: Trail) -> None:
    failed_at(trail, "abcd", "b")
    many = over(trail, "dbca")
    assert (many.values, calls, many.restored_count) == (list("dbca"), ["b"], 3)


def test_changed_items_are_new_and_removed_ones_are_left_alone(trail: Trail) -> None:
    failed_at(trail, "abcd", "b")
    before = {run.id: run for run in trail.runs(parent="m")}
    many = over(trail, "aXd")
    assert (many.values, calls, many.restored_count) == (list("aXd"), ["X"], 2)
    after = {run.id: run for run in trail.runs(parent="m")}
    assert len(after) == 5
    assert {run_id: after[run_id] for run_id in before} == before


def test_the_same_item_twice_is_two_runs_and_each_serves_once(trail: Trail) -> None:
    failed_at(trail, "aab", "b")
    assert len(trail.runs(parent="m")) == 3
    many = over(trail, "abaa", error_handling="continue")
    assert (many.values, calls.taken(), many.restored_count) == (list("abaa"), ["b", "a"], 2)
    assert len({result.run_id for result in many}) == 4
    assert (over(trail, "aaab").restored_count, calls) == (4, [])
    with pytest.raises(ItemsDifferError, match="the first at 3"):
        over(trail, "aaaa")


def test_items_are_the_same_whatever_the_order_of_their_keys(trail: Trail) -> None:
    calls.fail = {"end"}
    over(trail, [{"a": 1, "b": {"c": [2], "d": 3}}, "end"], error_handling="continue")
    calls.forget()
    many = over(trail, ["end", {"b": {"d": 3, "c": [2]}, "a": 1}])
    assert (calls, many.restored_count) == (["end"], 1)


def test_items_of_other_types_are_others(trail: Trail) -> None:
    failed_at(trail, [1, "1", 1.0, True, "end"], "end")
    assert (over(trail, [True, 1.0, "1", 1, "end"]).values, calls) == ([True, 1.0, "1", 1, "end"], ["end"])
    assert len(trail.runs(parent="m")) == 5


def test_another_mode_or_another_list_finds_the_items_that_are_the_same(trail: Trail) -> None:
    @workflow
    def both(x: str, y: str = "1") -> str:
        return str(act(x + y))

    calls.fail = {"b1"}
    with pytest.raises(ValueError, match="b1"):
        Runner(trail).map(both, {"x": ["a", "b"]}, map_over="x", id="m")
    calls.forget()
    many = Runner(trail).map(
        both, {"x": ["a", "b"], "y": ["1", "2"]}, map_over=["x", "y"], mode="product", id="m"
    )  # fmt: skip
    assert (many.values, calls) == (["a1", "a2", "b1", "b2"], ["a2", "b1", "b2"])


def test_items_that_are_secrets_are_known_again_and_are_nowhere_on_disk(tmp_path: Path) -> None:
    """Promise 10: not in the id of an item's run either."""

    @workflow
    def login(password: Any) -> int:
        return len(calls(password.reveal()))

    words = ["correct horse", "battery staple"]
    with everstep.open(tmp_path / "trail.db") as trail:
        calls.crash = {words[1]}
        with pytest.raises(Crash):
            Runner(trail).map(login, {"password": list(map(Secret, words))}, map_over="password", id="m")
        calls.forget()
        Runner(trail).map(login, {"password": list(map(Secret, words))}, map_over="password", id="m")
        assert calls == [words[1]]
        assert trail.run("m").status == "completed"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(word.encode() in stored for word in words)


# A map that has completed.


@pytest.mark.parametrize("flow", [plain, awaited])
def test_a_map_that_has_completed_gives_its_results_and_executes_nothing(trail: Trail, flow: Any) -> None:
    first = over(trail, "abc", flow)
    calls.forget()
    rows = {run.id: run for run in trail.runs()}
    many = over(trail, "cb", flow)
    assert (many.values, many.restored_count, many.status, calls) == (["c", "b"], 2, "completed", [])
    assert [result.run_id for result in many] == [first[2].run_id, first[1].run_id]
    assert {run.id: run for run in trail.runs()} == rows
    twin = asyncio.run(AsyncRunner(trail).map(flow, {"x": list("ab")}, map_over="x", id="m"))
    assert (twin.values, twin.restored_count) == (["a", "b"], 2)


def test_items_that_a_completed_map_did_not_have_are_refused_and_point_to_a_new_id(trail: Trail) -> None:
    over(trail, "abc")
    calls.forget()
    with pytest.raises(ItemsDifferError, match="under a new id") as refused:
        over(trail, "aXcY")
    assert (refused.value.run_id, refused.value.indexes, calls) == ("m", (1, 3), [])


def test_an_item_that_was_left_behind_unfinished_is_none_of_a_completed_map(trail: Trail) -> None:
    failed_at(trail, "ab", "b")
    over(trail, "a")
    with pytest.raises(ItemsDifferError):
        over(trail, "ab")


# How the run of the map stands.


def test_a_map_that_is_taken_up_is_active_while_it_works(trail: Trail) -> None:
    seen = []

    @workflow
    def flow(x: str) -> str:
        seen.append((trail.run("m").status, trail.run("m").owner is not None))
        return str(act(x))

    calls.fail = {"b"}
    for status in ("partial", "partial"):
        assert over(trail, "ab", flow, error_handling="continue").status == status
    assert seen == [("active", True)] * 3
    assert trail.run("m").owner is None


@workflow
def asking(x: str) -> str:
    act(x)
    return f"{x} {pause(f'What of {x}?')}" if x in "bd" else x


def test_an_answer_to_one_item_lets_that_item_go_on_and_no_other(trail: Trail) -> None:
    many = over(trail, "abcd", asking)
    assert (many.status, calls.taken()) == ("paused", list("abcd"))
    trail.answer(many[3].run_id, "yes")
    many = over(trail, "abcd", asking)
    assert (many.values, many.status, many.restored_count) == (["a", None, "c", "d yes"], "paused", 2)
    assert trail.state("m") == {"items": 4, "completed": 3, "failed": 0, "waiting": 1}
    trail.answer("m", "no")  # the only question that is left
    many = over(trail, "abcd", asking)
    assert (many.values, many.status, many.restored_count) == (["a", "b no", "c", "d yes"], "completed", 3)
    assert calls == []


@pytest.mark.parametrize("how", [{}, {"error_handling": "continue"}, {"max_concurrency": 3}])
def test_to_map_again_without_an_answer_adds_nothing(trail: Trail, how: Any) -> None:
    over(trail, "abcd", asking)
    rows = {run.id: run.head for run in trail.runs()}
    for _ in range(2):
        many = over(trail, "abcd", asking, **how)
        assert (many.status, len(many.pauses)) == ("paused", 2)
    assert {run.id: run.head for run in trail.runs()} == rows


def test_what_failed_beside_an_item_that_waits_is_tried_again_with_it(trail: Trail) -> None:
    calls.fail = {"c"}
    many = over(trail, "abc", asking, error_handling="continue")
    assert (many.status, [result.status for result in many]) == ("paused", ["completed", "paused", "failed"])
    calls.forget()
    many = over(trail, "abc", asking, error_handling="continue")
    assert (many.status, calls) == ("paused", ["c"])


def test_changed_code_is_told_once_and_not_for_every_item(trail: Trail) -> None:
    failed_at(trail, "abcd", *"abcd")

    @workflow(name="plain")
    def changed(x: Any) -> Any:
        found = act(x)
        return found * 2

    with pytest.warns(CodeChangedWarning, match="since run 'm' began") as told:
        assert over(trail, "abcd", changed)["none"] == [None] * 4
    assert len(told) == 1


def test_a_changed_graph_is_refused_before_any_item_is_taken_up(trail: Trail) -> None:
    @node(output="y")
    def first(x: str) -> Any:
        return calls(x)

    @node(output="z")
    def second(y: str) -> str:
        return y

    calls.fail = {"a"}
    with pytest.raises(ValueError, match="a"):
        over(trail, "ab", Graph([first], name="g"))
    calls.forget()
    with pytest.raises(GraphChangedError, match="'second' is new"):
        over(trail, "ab", Graph([first, second], name="g"))
    assert (calls, trail.run("m").owner) == ([], None)


@pytest.mark.parametrize("how", [{}, {"max_concurrency": 2}])
def test_what_is_no_failure_gives_the_map_up_for_another_to_go_on_with(trail: Trail, how: Any) -> None:
    calls.crash = {"b"}
    with pytest.raises(Crash):
        over(trail, "abc", **how)
    assert (trail.run("m").status, trail.run("m").owner) == ("active", None)
    assert not trail.runs(parent="m", status="failed")
    assert over(trail, "abc").values == list("abc")


def test_a_task_that_is_cancelled_leaves_its_map_to_be_gone_on_with(trail: Trail) -> None:
    async def cancelled(flow: Any) -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        tell.append(lambda: loop.call_soon_threadsafe(begun.set))
        mapping = asyncio.create_task(
            AsyncRunner(trail).map(flow, {"x": list("abcd")}, map_over="x", id=flow.name, max_concurrency=2)
        )
        await begun.wait()
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping

    tell: list[Any] = []
    hold = True

    @workflow
    async def hanging(x: str) -> str:
        if x == "b" and hold:
            tell[-1]()
            await asyncio.Event().wait()
        return str(await act_later(x))

    @workflow
    def hanging_plain(x: str) -> str:
        if x == "b" and hold:
            tell[-1]()
            everstep.sleep(PATIENCE)
        return str(act(x))

    asyncio.run(cancelled(hanging))
    asyncio.run(cancelled(hanging_plain))
    for name in ("hanging", "hanging_plain"):
        assert (trail.run(name).status, trail.run(name).owner) == ("active", None)
        assert {run.owner for run in trail.runs(parent=name)} == {None}
    hold = False
    many = Runner(trail).map(hanging, {"x": list("abcd")}, map_over="x", id="hanging")
    assert (many.values, many.status) == (list("abcd"), "completed")
