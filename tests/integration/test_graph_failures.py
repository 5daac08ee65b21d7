"""Runs of graphs that fail: what was done stays done, what failed is done again, and both are on record."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from typing import Any

import pytest

import everstep
from everstep import END, AsyncRunner, Graph, Kind, Retry, Runner, Status, Trail, gate, node, route, step
from everstep.errors import GraphInputError, LoopLimitError, StepTimeoutError
from tests.integration.graphing import CHAIN, both, calls, gives, nodes_of, statuses
from tests.integration.running import crashed


def until_written(trail: Trail, name: str) -> None:
    """Wait until the record has a row of this name: then what follows comes after it."""
    while not any(row.name.endswith(name) for row in trail.steps("r")):
        time.sleep(0.001)


# Failure, then success.


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_failure_and_the_success_that_followed_are_two_rows(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Rule 9 of the seeds; the retry has a later superstep."""
    calls.fail = {"two"}
    with pytest.raises(ValueError, match="two"):
        Runner(trail).run(CHAIN, {"x": "x"}, id="r")
    assert trail.run("r").status is Status.FAILED
    calls.forget()
    runner: Any = AsyncRunner(trail) if on_a_loop else Runner(trail)
    result = asyncio.run(runner.run(CHAIN, id="r")) if on_a_loop else runner.run(CHAIN, id="r")
    assert result["v_three"] == "xonetwothree"
    assert calls == ["two", "three"]
    assert statuses(trail, "r") == [
        ("one", 0, "completed"), ("two", 1, "failed"), ("two", 2, "completed"), ("three", 3, "completed"),
    ]  # fmt: skip
    assert trail.verify().ok


def test_a_crash_after_a_run_was_taken_up_again_numbers_supersteps_as_if_there_was_none(trail: Trail) -> None:
    nodes = [gives("one", "x"), gives("two", "v_one"), gives("also", "v_one"), gives("end", "v_two", "v_also")]
    graph = Graph(nodes, name="g")
    calls.fail = {"two", "also"}
    with pytest.raises(ValueError, match=r"two|also"):
        Runner(trail).run(graph, {"x": "x"}, id="r")
    calls.forget()
    calls.crash = {"also"}
    crashed(trail, graph, id="r")
    assert sorted(calls.taken()) == ["also", "two"]
    Runner(trail).run(graph, id="r")
    assert calls == ["also", "end"]
    done = {(row.name, row.superstep) for row in nodes_of(trail, "r") if row.status is Status.COMPLETED}
    assert done == {("one", 0), ("two", 2), ("also", 2), ("end", 3)}


def test_siblings_of_a_failed_node_finish_and_are_not_run_again(trail: Trail) -> None:
    """Also those with steps inside, which end after it has failed (promise 2)."""

    @step
    async def slow(at: int) -> int:
        await asyncio.sleep(0)
        return int(calls(at))

    async def steps(x: str) -> int:
        calls("steps")
        first = await slow(1)
        await asyncio.to_thread(until_written, trail, "fails")
        return first + await slow(2) + await slow(3)

    async def fails(x: str) -> int:
        await asyncio.to_thread(until_written, trail, "slow")
        return len(calls("fails"))

    graph = Graph([node(output="a")(steps), node(output="b")(fails)], name="g")
    calls.fail = {"fails"}
    with pytest.raises(ValueError, match="fails"):
        asyncio.run(AsyncRunner(trail).run(graph, {"x": "x"}, id="r"))
    assert sorted(map(str, calls.taken())) == ["1", "2", "3", "fails", "steps"]
    calls.forget()
    assert asyncio.run(AsyncRunner(trail).run(graph, id="r")).values == {"a": 6, "b": 5}
    assert calls == ["fails"]


def test_a_failed_node_keeps_the_steps_that_it_took_and_those_that_came_after_it(trail: Trail) -> None:
    @step
    def inside(at: int) -> int:
        return int(calls(at))

    def fails(x: str) -> int:
        found = inside(1) + inside(2)
        until_written(trail, "one")
        calls("fails")
        return found

    def one(x: str) -> str:
        until_written(trail, "inside")
        return f"{x}one"

    graph = Graph([node(output="a")(fails), node(output="v_one")(one), gives("two", "v_one"), gives("three", "v_two")])
    calls.fail = {"fails"}
    result = Runner(trail).run(graph, {"x": "x"}, id="r", error_handling="continue")
    assert result.values == {"v_one": "xone", "v_two": "xonetwo", "v_three": "xonetwothree"}
    calls.forget()
    assert Runner(trail).run(graph, id="r")["a"] == 3
    assert calls == ["fails"]


# Going on past a failure.


WIDE = Graph(
    [gives("good", "x"), gives("bad", "x"), gives("after_good", "v_good"), gives("after_bad", "v_bad"),
     gives("both", "v_after_good", "v_after_bad")],
    name="wide",
)  # fmt: skip


def test_going_on_gives_partial_values_and_taking_it_up_runs_only_what_failed_and_what_hangs_on_it(
    trail: Trail,
) -> None:
    calls.fail = {"bad"}
    result = Runner(trail).run(WIDE, {"x": "x"}, id="r", error_handling="continue")
    assert (result.status, result.failed, result.completed) == (Status.PARTIAL, True, False)
    assert result.values == {"v_good": "xgood", "v_after_good": "xgoodafter_good"} == trail.state("r")
    assert isinstance(result.error, ValueError)
    assert [each.node_name for each in result.log.errors] == ["bad"]
    assert sorted(calls.taken()) == ["after_good", "bad", "good"]
    calls.forget()
    again = Runner(trail).run(WIDE, id="r")
    assert calls == ["bad", "after_bad", "both"]
    assert again.completed
    assert again.values == Runner(trail).run(WIDE, id="r").values == trail.state("r")
    assert again["v_both"] == "xgoodafter_goodxbadafter_badboth"


@pytest.mark.parametrize(("first", "inputs"), [(["kept"], {}), ({"kept"}, {}), (["kept"], {"book": ["kept"]})])
def test_what_a_node_changed_in_place_before_it_failed_is_in_no_value(trail: Trail, first: Any, inputs: Any) -> None:
    """What later nodes and the result see is what is on record."""

    def clear(what: Any) -> Any:
        what.clear()
        raise ValueError("no")

    write = node(output="book", name="write")(lambda book=None: first if book is None else clear(book))
    again = gate(when_true="write", when_false=END, name="again")(lambda book: True)
    spoil = node(output="page", name="spoil")(lambda book, v_two: clear(book))
    later = node(output="seen", name="later")(lambda book, v_four: sorted(book))
    graph = Graph(
        [write, again, spoil, *CHAIN.shape.nodes.values(), gives("four", "v_three"), later], inputs=["x", *inputs]
    )
    result = Runner(trail).run(graph, {"x": ""} | inputs, id="r", error_handling="continue")
    assert {each.node_name for each in result.log.errors} == {"spoil", "write"}
    assert sorted(result.values.get("book", first)) == result["seen"] == ["kept"]
    assert result.values == trail.state("r")


def test_when_nothing_could_be_done_the_run_failed(trail: Trail) -> None:
    calls.fail = {"one"}
    result = Runner(trail).run(CHAIN, {"x": "x"}, id="r", error_handling="continue")
    assert (result.status, result.values) == (Status.FAILED, {})


def test_several_failures_are_told_of_together_and_all_are_done_again(trail: Trail) -> None:
    calls.fail = {"good", "bad"}
    with pytest.raises(ValueError, match=r"good|bad") as caught:
        Runner(trail).run(WIDE, {"x": "x"}, id="r")
    assert any("another node failed too, with ValueError" in note for note in caught.value.__notes__)
    calls.forget()
    assert Runner(trail).run(WIDE, id="r").completed
    assert sorted(calls) == ["after_bad", "after_good", "bad", "both", "good"]


@pytest.mark.parametrize("on_a_loop", [False, True])
def test_nodes_that_fail_with_the_same_object_are_all_done_again(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Some libraries have one exception for all."""
    same, broken = OSError("away"), [True]

    def fails(x: str) -> str:
        if broken:
            raise same
        return x

    graph = Graph([node(output=name, name=name)(fails) for name in ("one", "two", "three")], name="g")
    with pytest.raises(OSError, match="away"):
        both(trail, graph, {"x": "x"}, id="r", on_a_loop=on_a_loop)
    broken.clear()
    assert both(trail, graph, id="r", on_a_loop=on_a_loop).values == {"one": "x", "two": "x", "three": "x"}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("on_a_loop", [False, True])
def test_a_node_that_lets_a_stop_iteration_out_fails(trail: Trail, on_a_loop: bool, is_async: bool) -> None:  # noqa: FBT001 - parameters of the test
    """No future can hold one: whoever waits for the node would wait for ever."""

    def stops(x: str) -> Any:
        return next(iter(()))

    async def awaited(x: str) -> str:
        return x

    graph = Graph([node(output="y")(stops), *([node(output="z")(awaited)] if is_async else [])], name="g")
    with pytest.raises((StopIteration, RuntimeError)):
        both(trail, graph, {"x": "x"}, id="r", on_a_loop=on_a_loop)
    assert ("stops", 0, "failed") in statuses(trail, "r")


def test_a_run_that_took_too_many_supersteps_goes_on_with_more(trail: Trail) -> None:
    def loop(most: int) -> Graph:
        grow = node(output="n", name="grow")(lambda n=0: calls(n) + 1)
        again = gate(when_true="grow", when_false=END, name="again")(lambda n: n < 15)
        return Graph([grow, again], name="g", max_supersteps=most)

    with pytest.raises(LoopLimitError):
        Runner(trail).run(loop(10), id="r")
    assert Runner(trail).run(loop(100), id="r")["n"] == 15
    assert calls == list(range(15))


def test_what_was_done_because_of_a_failure_is_superseded(trail: Trail) -> None:
    """A route that went another way without the value that was missing: what came of it is gone, on record too."""
    choose = route(targets=["with_it", "without"], name="choose", inputs={"bad": "v_bad", "good": "v_good"})(
        lambda good, bad=None: "without" if bad is None else "with_it"
    )
    without = node(output=("way", "other"), name="without", inputs={"a": "v_good"})(lambda a: (calls("without"), 1))
    with_it = node(output="way", name="with_it", inputs={"a": "v_good"})(lambda a: calls("with_it"))
    graph = Graph([gives("good", "x"), gives("bad", "x"), choose, without, with_it, gives("last", "way")], name="g")
    calls.fail = {"bad"}
    partly = Runner(trail).run(graph, {"x": "x"}, id="r", error_handling="continue")
    assert partly.values == {"v_good": "xgood", "way": "without", "other": 1, "v_last": "withoutlast"}
    calls.forget()
    result = Runner(trail).run(graph, id="r")
    assert calls == ["bad", "with_it", "last"]
    assert result.values == {"v_good": "xgood", "v_bad": "xbad", "way": "with_it", "v_last": "with_itlast"}
    assert Runner(trail).run(graph, id="r").values == result.values == trail.state("r")


def test_a_loop_that_went_on_without_a_value_goes_again_with_it(trail: Trail) -> None:
    """Its list is on record as it is, not with what superseded turns added; its child runs are new ones."""

    def grow(x: str, log: list[str] | None = None, bad: str = "-") -> list[str]:
        return [*(log or []), calls(bad)]

    child = Graph([node(output="size", name="count")(lambda log: [len(log)][0])], name="child")
    more = gate(when_true="grow", when_false=END, name="more")(lambda log: len(log) < 4)
    growing = node(output="log", inputs={"bad": "v_bad"})(grow)
    graph = Graph([gives("bad", "x"), growing, more, child.as_node()], name="g")
    calls.fail = {"bad"}
    partly = Runner(trail).run(graph, {"x": "x"}, id="r", error_handling="continue")
    assert partly["log"] == ["-"] * 4
    calls.forget()
    result = Runner(trail).run(graph, id="r")
    assert result["log"] == ["-", "xbad", "xbad", "xbad"]
    assert result["size"] == 4
    assert Runner(trail).run(graph, id="r").values == result.values == trail.state("r")
    assert trail.verify().ok


def test_items_that_failed_together_are_done_again_together(trail: Trail) -> None:
    async def each(item: int) -> int:
        await asyncio.sleep(0)
        return int(calls(item))

    one = Graph([node(output="value")(each)], name="one")
    graph = Graph([one.as_node("all", inputs={"item": "items"}, map_over="item")], name="g")
    calls.fail = {2, 4}
    with pytest.raises(ExceptionGroup, match="2 items of node 'all' failed") as caught:
        asyncio.run(AsyncRunner(trail).run(graph, {"items": [1, 2, 3, 4]}, id="r"))
    assert [type(error) for error in caught.value.exceptions] == [ValueError, ValueError]
    calls.forget()
    assert asyncio.run(AsyncRunner(trail).run(graph, id="r"))["value"] == [1, 2, 3, 4]
    assert sorted(calls) == [2, 4]


def test_a_node_over_what_is_no_list_fails_as_a_node_does(trail: Trail) -> None:
    one = Graph([node(output="value", name="each")(lambda item: item)], name="one")
    graph = Graph([one.as_node("all", inputs={"item": "items"}, map_over="item")], name="g")
    with pytest.raises(GraphInputError, match="node 'all' is to go over 'item', which is a int"):
        Runner(trail).run(graph, {"items": 7}, id="r")
    assert statuses(trail, "r") == [("all", 0, "failed")]


# Retry and timeout.


def test_a_node_is_tried_again_as_its_policy_says(trail: Trail) -> None:
    left = ["no", "no"]

    def flaky(x: str) -> int:
        if left:
            raise OSError(left.pop())
        return everstep.current().attempt

    result = Runner(trail).run(Graph([node(output="n", retry=Retry(attempts=3, backoff=0))(flaky)]), {"x": "x"}, id="r")
    assert result["n"] == 3
    kinds = [(row.kind, row.attempt, row.status) for row in trail.steps("r") if row.name == "flaky"]
    assert kinds == [
        (Kind.ATTEMPT, 1, Status.FAILED), (Kind.ATTEMPT, 2, Status.FAILED), (Kind.STEP, 3, Status.COMPLETED),
    ]  # fmt: skip


@pytest.mark.parametrize("on_a_loop", [False, True])
@pytest.mark.parametrize(
    ("first", "change", "output"),
    [
        (["a"], lambda book: book.append("b"), "book"),
        ({"a": 1}, lambda book: book.update(b=2), "book"),
        (["a"], lambda book: book.append("b"), "page"),
        ({"a"}, lambda book: book.add("b"), "page"),
    ],
)
def test_an_attempt_is_given_what_the_one_before_it_was_given(
    trail: Trail, on_a_loop: bool, first: Any, change: Any, output: str  # noqa: FBT001 - a parameter of the test
) -> None:  # fmt: skip
    """Whatever that changed in place before it failed: a run that crashed between them would not have seen it."""
    seen: list[Any] = []

    def write(book: Any) -> Any:
        seen.append(sorted(book))
        if output == "book" or len(seen) < 3:
            change(book)
        if len(seen) < 3:
            raise OSError("no")
        return book

    ends = gate(when_true="write", when_false=END, name="ends")(lambda book: len(seen) < 3)
    graph = Graph([node(output=output, retry=Retry(attempts=3, backoff=0))(write), ends], inputs=["book"])
    result = both(trail, graph, {"book": copy.copy(first)}, on_a_loop=on_a_loop, id="r")
    assert seen == [["a"]] * 3
    assert sorted(result[output]) == (["a", "b"] if output == "book" else ["a"])
    assert result.values == trail.state("r")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_node_that_takes_too_long_fails(trail: Trail, is_async: bool) -> None:  # noqa: FBT001 - a parameter of the test
    async def waits(x: str) -> None:
        await asyncio.sleep(60)

    def blocks(x: str) -> None:
        gone.wait(60)

    gone = threading.Event()
    slow: Any = waits if is_async else blocks
    graph = Graph([node(output="n", timeout=0.05, name="slow")(slow)])
    with pytest.raises(StepTimeoutError, match="slow"):
        asyncio.run(AsyncRunner(trail).run(graph, {"x": "x"}, id="r")) if is_async else Runner(trail).run(
            graph, {"x": "x"}, id="r"
        )
    gone.set()
    assert statuses(trail, "r") == [("slow", 0, "failed")]
