"""Arguments that are wrong: told where they are given, by their names, with what they may be."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, Retry, Runner, capture, node, step, workflow
from everstep.errors import UnstorableError


def helper(city: str, at: int = 0) -> str:
    return f"{city} at {at}"


travel = workflow(name="travel")(helper)
any_step: Any = step
any_runner: Any = Runner
any_retry: Any = Retry
any_capture: Any = capture


@pytest.mark.parametrize("make", [step, node], ids=["step", "node"])
@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        ({"retry": 3}, TypeError, r"retry=3: give everstep\.Retry"),
        ({"timeout": "3"}, TypeError, r"timeout='3': give a number of seconds"),
        ({"timeout": True}, TypeError, r"timeout=True"),
        ({"timeout": -1}, ValueError, r"timeout=-1: give more than 0"),
        ({"timeout": float("nan")}, ValueError, r"timeout=nan"),
        ({"timeout": float("inf")}, ValueError, r"timeout=inf: give at most 1,000,000,000 seconds, or leave it out"),
        ({"timeout": 1e12}, ValueError, r"timeout=1000000000000.0: give at most"),
        ({"unknown": "maybe", "external": True}, ValueError, r"unknown='maybe': use one of ask, retry, fail"),
        ({"unknown": "retry"}, ValueError, r"unknown='retry' is for external effects: say external=True"),
    ],
)
def test_a_step_says_what_its_options_may_be(make: Any, wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make(**({"output": "said"} if make is node else {}), **wrong)(helper)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=r"append=True.*output=None"):
        any_step(append=True, output=None)(helper)
    with pytest.raises(TypeError, match=r"ignore='city': .*ignore=\['city'\]"):
        any_step(ignore="city")(helper)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": "3"},
        {"attempts": 2.5},
        {"backoff": None},
        {"factor": "x"},
        {"on": ["x"]},
        {"on": (ValueError, "x")},
    ],
)
def test_a_retry_says_which_of_its_fields_is_wrong(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(wrong))}="):
        Retry(**wrong)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, 1e12])
@pytest.mark.parametrize("name", ["backoff", "factor", "longest"])
def test_a_retry_waits_for_a_time_that_there_is(name: str, wrong: float) -> None:
    with pytest.raises(ValueError, match=r"makes no sense: .*none of the last three above 1,000,000,000"):
        any_retry(**{name: wrong})


def test_a_retry_of_many_attempts_waits_for_the_longest_time() -> None:
    assert Retry(attempts=5000, factor=3).delay(4999) == 60.0
    assert Retry(attempts=5000, backoff=0, factor=3).delay(4999) == 0.0
    assert [Retry(longest=5).delay(attempt) for attempt in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1, 1e12, "3", None])
def test_a_sleep_that_has_no_end_or_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot sleep for .* seconds: give a number from 0 to 1,000,000,000"):
        everstep.sleep(wrong)


def test_methods_are_no_workflows_and_static_ones_are_made_so_above() -> None:
    with pytest.raises(TypeError, match=r"'Agent\.run' is a method, and a workflow must be a function: .*as arguments"):

        class Agent:
            @workflow
            def run(self, city: str) -> str:
                return city

    for make, above in ((step, "@step"), (workflow, "@workflow"), (node, "above it")):
        with pytest.raises(TypeError, match=f"is no function.*@staticmethod.*{above}"):
            make(staticmethod(helper))

    class Tools:
        add = staticmethod(step(helper))
        flow = travel  # one that stands in a class is no method

    assert Tools().add("Rome") == Tools.flow("Rome") == Tools().flow("Rome") == "Rome at 0"


def test_a_keyword_may_be_named_self() -> None:
    def tells(self: str) -> str:
        return self

    for made in (step(tells), workflow(tells), node(tells)):
        assert made(self="Rome") == "Rome"
    with everstep.open(":memory:") as trail:
        assert Runner(trail).run(workflow(lambda: step(tells)(self="Rome"))).value == "Rome"


def test_a_graph_takes_its_nodes_in_a_list() -> None:
    wrong: Any = node(output="said")(helper)
    with pytest.raises(TypeError, match=r"give its nodes in a list, as in Graph\(\[first, second\]\)"):
        Graph(wrong)


def test_tags_are_names_and_their_values() -> None:
    wrong: Any = {"tags": "x"}
    for call in (
        lambda: Runner().run(travel, "Rome", **wrong),
        lambda: asyncio.run(AsyncRunner().run(travel, "Rome", **wrong)),
        lambda: Runner().map(travel, {"city": ["Rome"]}, map_over="city", **wrong),
        lambda: asyncio.run(AsyncRunner().map(travel, {"city": ["Rome"]}, map_over="city", **wrong)),
    ):
        with pytest.raises(TypeError, match=r"tags='x': give names and their values, as in tags=\{'team': 'search'\}"):
            call()


@pytest.mark.parametrize("taker", [Runner, AsyncRunner, capture])
def test_a_path_is_no_trail(taker: Callable[..., Any], tmp_path: Path) -> None:
    for wrong in ("t.db", tmp_path / "t.db", 5):
        with pytest.raises(TypeError, match=rf"{taker.__name__} takes a trail, .*everstep\.open"):
            taker(wrong)


def test_a_runner_says_which_words_there_are() -> None:
    with pytest.raises(ValueError, match=r"durability='fast': use one of sync, async, exit"):
        any_runner(durability="fast")
    with pytest.raises(TypeError, match="lease='5': give a number"):
        any_runner(lease="5")
    wrong: Any = {"error_handling": "contine"}
    for call in (
        lambda: Runner().run(travel, "Rome", **wrong),
        lambda: asyncio.run(AsyncRunner().run(travel, "Rome", **wrong)),
        lambda: Runner().map(travel, {"city": ["Rome"]}, map_over="city", **wrong),
    ):
        with pytest.raises(ValueError, match=r"error_handling='contine': use one of raise, continue"):
            call()
    wrong = {"mode": "zap"}
    with pytest.raises(ValueError, match=r"mode='zap': use one of zip, product"):
        Runner().map(travel, {"city": ["Rome"]}, map_over="city", **wrong)


@pytest.mark.parametrize(
    "wrong", [{"mode": "replay"}, {"mode": "recorded"}, {"seal": "soft"}, {"unknown": 1}, {"durability": "x"}]
)
def test_capture_says_which_words_there_are(wrong: dict[str, Any]) -> None:
    """Promise 13: a word that means nothing is not taken for another."""
    [(name, word)] = wrong.items()
    with everstep.open(":memory:") as trail, pytest.raises(ValueError, match=f"{name}={word!r}: use one of "):
        any_capture(trail, "r", **wrong)


# Calls.


@step
async def fetched(page: int) -> str:
    return f"page {page}"


@step
def kept(what: Any) -> Any:
    return what


left: list[Any] = []  # to be closed: Python warns of it whenever it is let go


def forgotten(page: int) -> Any:
    left.append(fetched(page))
    return left[-1]


@step
def given_on(page: int) -> Any:
    return forgotten(page)


@workflow
def calls_with(called: str, *args: Any) -> Any:
    if called == "too many":
        return kept(1, 2, 3)  # type: ignore[call-arg] # the point of it
    if called == "another name":
        return kept(page="x")  # type: ignore[call-arg] # the point of it
    if called == "not awaited":
        return kept([forgotten(1)])
    return given_on(1) if called == "given on" else forgotten(1)


def message(*args: Any, **kwargs: Any) -> str:
    with everstep.open(":memory:") as trail, pytest.raises((TypeError, UnstorableError)) as caught:
        Runner(trail).run(*args, **kwargs)
    return str(caught.value)


def test_a_call_that_does_not_fit_names_the_function_and_what_it_was_given() -> None:
    assert message(travel, town="Rome") == (
        "workflow 'travel': missing a required argument: 'city'. It takes city, at; 'town' was given."
    )
    assert message(travel, "Rome", 5, 6) == (
        "workflow 'travel': too many positional arguments. It takes city, at; 3 positional arguments were given."
    )
    assert message(calls_with, "too many") == (
        "step 'kept': too many positional arguments. It takes what; 3 positional arguments were given."
    )
    assert message(calls_with, "another name").endswith("It takes what; 'page' was given.")
    assert message(everstep.workflow(name="bare")(lambda: None), 1) == (
        "workflow 'bare': too many positional arguments. It takes no arguments; 1 positional argument was given."
    )
    assert message(travel).endswith("It takes city, at; nothing was given.")
    assert message(travel, "Rome", town=1).endswith("It takes city, at; 1 positional argument, 'town' were given.")
    assert "no run 'r' to go on with" in message(travel, id="r")


def test_an_argument_of_a_workflow_that_cannot_be_stored_is_told_as_such() -> None:
    said = message(travel, threading.Lock())
    assert said.startswith("cannot store the value at argument 'city' of workflow 'travel': ")
    assert "Make it in the workflow" in said
    assert "@step" not in said


@pytest.mark.parametrize("called", ["not awaited", "given on", "returned"])
def test_what_was_not_awaited_is_not_stored_and_await_is_the_way_out(called: str) -> None:
    said = message(calls_with, called)
    left.pop().close()
    assert "'fetched' was called and not awaited" in said
    assert said.endswith("Put `await` before the call that gave it; a function that awaits is an `async def` itself.")
    assert "register" not in said
