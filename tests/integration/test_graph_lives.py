"""How runs of graphs live and end: owners, interrupts, cancellation, durability, replay after every step, events."""

from __future__ import annotations

import asyncio
import threading
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

import pytest

import everstep
from everstep import END, AsyncRunner, Event, Graph, Runner, Status, Trail, gate, interrupt, node, step
from everstep.errors import OwnedError, RunCancelledError
from everstep.run.lanes import here
from everstep.testing import always_replay
from tests.integration.graphing import both, nodes_of, statuses, told
from tests.integration.running import Calls
from tests.integration.workloads import lines, started, until

calls = Calls()
either = pytest.mark.parametrize("on_a_loop", [False, True], ids=["waiting", "awaiting"])


def named(name: str, *takes: str) -> Any:
    """A node that takes these values and gives its name."""

    def function(**_: Any) -> str:
        return str(calls(name))

    parameters = [Parameter(each, Parameter.KEYWORD_ONLY) for each in takes]
    function.__signature__ = Signature(parameters)  # type: ignore[attr-defined] # functions have room for it
    return node(output=f"v_{name}", name=name)(function)


# Owners.


def test_a_second_process_is_told_who_owns_the_run(tmp_path: Path) -> None:
    """Promise 4."""
    trail, side = tmp_path / "trail.db", tmp_path / "side"
    process = started("graph", trail, "r", side, 0.05)
    try:
        until(side, 3)
        with everstep.open(trail) as opened, pytest.raises(OwnedError):
            Runner(opened).run(Graph([named("other", "x")], name="research"), id="r")
    finally:
        _, wrong = process.communicate(timeout=30)
    assert process.returncode == 0, wrong
    assert lines(side)[-1].startswith("ack report")


# Interrupts.


@either
def test_ctrl_c_in_a_node_leaves_a_run_that_goes_on(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What siblings did is kept; the run has not ended, and nobody owns it."""
    pressed: list[int] = []

    def press(x: int) -> str:
        if not pressed:
            pressed.append(1)
            raise KeyboardInterrupt
        return "pressed"

    graph = Graph([named("one", "x"), node(output="p")(press), named("end", "v_one", "p")], name="g")
    with pytest.raises(KeyboardInterrupt):
        both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    run = trail.run("r")
    assert (run.status, run.owner) == (Status.ACTIVE, None)
    assert both(trail, graph, id="r", on_a_loop=on_a_loop)["v_end"] == "end"
    assert calls == ["one", "end"]


def test_a_graph_whose_task_is_cancelled_goes_on_later(trail: Trail) -> None:
    async def go() -> None:
        reached, calls.crash = asyncio.Event(), set()

        async def waits(x: int) -> str:
            if not reached.is_set():
                reached.set()
                await asyncio.sleep(60)
            return str(calls("waits"))

        graph = Graph([named("one", "x"), node(output="w")(waits), named("end", "v_one", "w")], name="g")
        task = asyncio.ensure_future(AsyncRunner(trail).run(graph, {"x": 1}, id="r"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        run = trail.run("r")
        assert (run.status, run.owner) == (Status.ACTIVE, None)
        assert (await AsyncRunner(trail).run(graph, id="r"))["v_end"] == "end"

    asyncio.run(go())
    assert sorted(calls) == ["end", "one", "waits"]


@pytest.mark.parametrize("alone", [False, True])
def test_a_plain_node_at_work_when_the_task_is_cancelled_is_waited_for_and_kept(trail: Trail, alone: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Else it would be at work twice when the run is taken up (promise 2)."""
    began, go_on = threading.Event(), threading.Event()

    def works(x: int) -> str:
        began.set()
        go_on.wait(20)
        return str(calls("works"))

    async def quick(x: int) -> str:
        return str(calls("quick"))

    first = [node(output="w")(works)] if alone else [node(output="w")(works), named("beside", "x")]
    graph = Graph([*first, node(output="q", inputs={"x": "w"})(quick)], name="g")

    async def go() -> None:
        task = asyncio.ensure_future(AsyncRunner(trail).run(graph, {"x": 1}, id="r"))
        await asyncio.to_thread(began.wait)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "works" in calls
        assert trail.run("r").owner is None

    asyncio.run(go())
    calls.clear()
    assert asyncio.run(AsyncRunner(trail).run(graph, id="r"))["q"] == "quick"
    assert calls == ["quick"]


@either
def test_a_node_that_is_cancelled_from_within_is_run_again(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """By a library of its own: a sibling that ended later does not mean that the run went on without it."""
    left = [asyncio.CancelledError()]

    async def cancelled(x: int) -> list[str]:
        found = [await tool("one")]
        if left:
            raise left.pop()
        return found

    graph = Graph([node(output="c")(cancelled), named("beside", "x")], name="g")
    with pytest.raises(asyncio.CancelledError):
        both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    assert both(trail, graph, id="r", on_a_loop=on_a_loop).values == {"c": ["tool one"], "v_beside": "beside"}
    assert sorted(calls) == ["beside", "tool one"]


@either
def test_a_cancelled_run_finishes_the_nodes_at_work_and_begins_no_other(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    def stop(x: int) -> str:
        trail.cancel("r")
        for _ in range(1000):
            if everstep.current().cancelled:
                break
            gone.wait(0.01)
        return str(calls("stop"))

    gone = threading.Event()
    graph = Graph([node(output="s")(stop), named("beside", "x"), named("end", "s")], name="g")
    with pytest.raises(RunCancelledError):
        both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    assert trail.run("r").status is Status.CANCELLED
    assert sorted(calls.taken()) == ["beside", "stop"]
    assert {name for name, *_ in statuses(trail, "r")} == {"beside", "stop"}


@either
def test_a_run_that_is_stopped_between_supersteps_goes_on_there(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    def ask_to_stop(x: int) -> str:
        if not calls:
            trail.stop("r")
            for _ in range(1000):
                if heard():
                    break
                gone.wait(0.01)
        return str(calls("first"))

    def heard() -> bool:
        lane = here()
        return lane is not None and lane.run.asked_to_stop

    gone = threading.Event()
    graph = Graph([node(output="f")(ask_to_stop), named("two", "f"), named("three", "v_two")], name="g")
    result = both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    assert (result.status, result.stopped, result.values) == (Status.STOPPED, True, {"f": "first"})
    assert trail.run("r").status is Status.STOPPED
    assert both(trail, graph, id="r", on_a_loop=on_a_loop).completed
    assert calls == ["first", "two", "three"]
    assert [superstep for _, superstep, _ in statuses(trail, "r")] == [0, 1, 2]


# Durability.


@node(output=("turn", "found"))
def grow(turn: int = 0, found: list[int] | None = None) -> tuple[int, list[int]]:
    calls(turn)
    return turn + 1, [*(found or []), turn]


@gate(when_true="grow", when_false=END)
def more(turn: int) -> bool:
    return turn < 5


LOOP = Graph([grow, more], name="loop")


@either
@pytest.mark.parametrize("durability", ["async", "exit"])
def test_runs_that_do_not_wait_for_the_disk_are_on_it_when_they_end(
    trail: Trail,
    durability: Literal["async", "exit"],
    on_a_loop: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    both(trail, LOOP, id="whole", on_a_loop=False)
    if on_a_loop:
        result = asyncio.run(AsyncRunner(trail, durability=durability).run(LOOP, id="r"))
    else:
        result = Runner(trail, durability=durability).run(LOOP, id="r")
    assert result.values == trail.state("r") == {"turn": 5, "found": [0, 1, 2, 3, 4]}
    assert told(trail, "r") == told(trail, "whole")
    assert trail.verify().ok


def test_without_a_trail_a_graph_gives_the_same(trail: Trail) -> None:
    stored = Runner(trail).run(LOOP)
    free = Runner().run(LOOP)
    awaited = asyncio.run(AsyncRunner().run(LOOP))
    assert stored.values == free.values == awaited.values
    assert [(each.node_name, each.superstep, each.decision) for each in stored.log.steps] == [
        (each.node_name, each.superstep, each.decision) for each in free.log.steps
    ]


# Replay after every step.


@step
async def tool(name: str) -> str:
    await asyncio.sleep(0)
    return str(calls(f"tool {name}"))


@node(output="tools")
async def tools(x: int) -> list[str]:
    return list(await asyncio.gather(tool("one"), tool("two")))


@node(output="v_one")
async def one_later(x: int) -> str:
    await asyncio.sleep(0)
    return str(calls("one"))


@pytest.mark.parametrize("first", [[named("one", "x"), named("two", "x")], [one_later, tools]], ids=["plain", "async"])
def test_a_graph_that_is_gone_through_anew_after_every_step_executes_nothing_twice(trail: Trail, first: Any) -> None:
    """Plain nodes by waiting, async ones by awaiting; with a loop and a nested graph."""

    def search(v_one: str, turn: int = 0, found: list[int] | None = None) -> tuple[int, list[int]]:
        return turn + 1, [*(found or []), calls(turn)]

    on = gate(when_true="search", when_false=END, name="on")(lambda turn: turn < 3)
    inner = Graph([node(output=("turn", "found"))(search), on, named("last", "found")], name="inner")
    graph = Graph([*first, inner.as_node(), named("end", "v_one", "v_last")], name="g")
    plain = both(trail, graph, {"x": 1}, id="plain", on_a_loop=graph.is_async)
    once = sorted(map(str, calls.taken()))
    with always_replay():
        again = both(trail, graph, {"x": 1}, id="again", on_a_loop=graph.is_async)
    assert again.values == plain.values
    assert sorted(map(str, calls)) == once
    assert sorted(told(trail, "again"), key=str) == sorted(told(trail, "plain"), key=str)


def later(name: str) -> Any:
    async def function(x: int) -> str:
        await asyncio.sleep(0.002 * int(name[1:]) * x)
        return str(calls(name))

    return node(output=f"v_{name}", name=name)(function)


def test_nodes_that_end_while_their_superstep_is_gone_through_anew_are_executed_once(trail: Trail) -> None:
    graph = Graph([*(later(f"l{at}") for at in range(8)), *(named(f"p{at}", "x") for at in range(8))], name="g")
    with always_replay():
        both(trail, graph, {"x": 1}, id="r", on_a_loop=True)
    assert sorted(row.name for row in nodes_of(trail, "r")) == sorted(calls) == sorted(graph.shape.nodes)


@either
def test_a_graph_that_is_gone_through_anew_goes_on_past_failures_and_with_what_a_fork_changed(
    trail: Trail,
    on_a_loop: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    graph = Graph([named("one", "x"), named("two", "v_one"), named("three", "v_one"), named("four", "v_three")])
    calls.fail = {"two"}
    with always_replay():
        result = both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop, error_handling="continue")
        assert set(result.values) == {"v_one", "v_three", "v_four"}
        calls.forget()
        trail.fork("r", 0, id="fork", inputs={"x": 2}).release()
        assert both(trail, graph, id="fork", on_a_loop=on_a_loop).completed
    assert [row.input_versions for row in nodes_of(trail, "fork") if row.name == "one"] == [{"x": 2}]


def test_a_question_is_asked_once_though_the_graph_is_gone_through_anew(trail: Trail) -> None:
    ask = interrupt(output="answer", name="ask")(lambda x: "what?")
    graph = Graph([ask, named("one", "x"), named("end", "answer")], name="g")
    with always_replay():
        assert Runner(trail).run(graph, {"x": 1}, id="r").paused
        assert Runner(trail).run(graph, id="r", answer="it")["v_end"] == "end"
    assert calls == ["one", "end"]


# Events.


@either
def test_listeners_are_told_of_nodes_and_of_what_is_restored(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Rule 5 of the seeds: no execution is told of where nothing was executed."""
    told_of: list[tuple[str, str | None]] = []

    @trail.on()
    def hear(event: Event) -> None:
        told_of.append((event.name, None if event.step is None else event.step.name))

    graph = Graph([named("one", "x"), named("two", "v_one"), named("three", "v_two")], name="g")
    calls.fail = {"two"}
    with pytest.raises(ValueError, match="two"):
        both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    assert ("step_failed", "two") in told_of
    told_of.clear()
    calls.forget()
    both(trail, graph, id="r", on_a_loop=on_a_loop)
    assert [each for each in told_of if each[1] is not None] == [
        ("step_restored", "one"), ("step_completed", "two"), ("step_completed", "three"),
    ]  # fmt: skip
    assert [each[0] for each in told_of if each[1] is None] == ["run_resumed", "run_completed"]


# Many at once.


@either
def test_a_hundred_nodes_of_one_superstep_are_all_kept(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    graph = Graph([named(f"n{at}", "x") for at in range(100)], name="wide")
    result = both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    assert len(result.values) == 100
    assert {row.superstep for row in nodes_of(trail, "r")} == {0}
    assert trail.verify().ok


@either
def test_a_chain_of_a_thousand_nodes_is_run_and_taken_up(trail: Trail, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    nodes = [
        node(output=f"v{at + 1}", name=f"n{at}", inputs={"a": f"v{at}"})(lambda a: calls(a + 1)) for at in range(1000)
    ]
    graph = Graph(nodes, name="chain")
    calls.fail = {700}
    with pytest.raises(ValueError, match="700"):
        both(trail, graph, {"v0": 0}, id="r", on_a_loop=on_a_loop)
    calls.forget()
    assert both(trail, graph, id="r", on_a_loop=on_a_loop)["v1000"] == 1000
    assert calls == list(range(700, 1001))
