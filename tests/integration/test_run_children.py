"""Steps in steps, workflows in runs, and what one runner leaves to the other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, Status, Trail, step, workflow
from everstep.testing import always_replay
from tests.integration.running import Crash, act, act_later, calls, crashed, rows, run, twice

# Nesting, recursion, children.


@step
def factorial(n: int) -> int:
    calls(("factorial", n))
    return 1 if n <= 1 else n * factorial(n - 1)


@workflow
def recursive(n: int) -> int:
    found = factorial(n)
    act("end")
    return found


def test_recursion_is_recorded_level_by_level(trail: Trail) -> None:
    calls.crash = {("factorial", 2)}
    crashed(trail, recursive, 5, id="r")
    calls.clear()
    assert run(trail, recursive, id="r").value == 120
    assert ("factorial", 1) in calls
    parents = [row.parent for row in rows(trail, "r", Kind.STEP) if row.name == "factorial"]
    assert len(set(parents)) == 5


def test_deep_recursion_works_as_deep_as_python_goes(trail: Trail) -> None:
    assert run(trail, recursive, 60, id="r").value > 10**60


@step
def pair(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
def nested() -> list[str]:
    found = [pair("a"), pair("b")]
    act("end")
    return found


def test_a_crash_inside_a_step_repeats_no_step_inside(trail: Trail) -> None:
    """Promise 2, at any depth."""
    calls.crash = {"b 2"}
    crashed(trail, nested, id="r")
    calls.clear()
    assert run(trail, nested, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@workflow
def child(name: str) -> str:
    return act(f"{name} 1") + act(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
def parent(*children: str) -> list[str]:
    found = [child(name) for name in children]
    act("end")
    return found


@workflow
async def child_later(name: str) -> str:
    return await act_later(f"{name} 1") + await act_later(f"{name} 2")  # type: ignore[no-any-return] # texts


@workflow
async def parent_later(*children: str) -> list[str]:
    found = list(await asyncio.gather(*map(child_later, children)))
    await act_later("end")
    return found


@workflow
async def parent_of_plain_children(*children: str) -> list[str]:
    found = [child(name) for name in children]
    await act_later("end")
    return found


PARENTS = pytest.mark.parametrize(
    "family", [parent, parent_later, parent_of_plain_children], ids=lambda family: family.name
)


@PARENTS
def test_a_workflow_in_a_run_is_a_run_of_its_own_with_a_link_to_its_parent(trail: Trail, family: Any) -> None:
    result = run(trail, family, "a", "b", id="r", tags={"user": "ada"})
    assert result.value == ["a 1a 2", "b 1b 2"]
    children = sorted(trail.runs(parent="r"), key=lambda each: each.id)
    assert [each.status for each in children] == [Status.COMPLETED] * 2
    links = [row.child_run_id for row in rows(trail, "r", Kind.STEP) if row.child_run_id]
    assert sorted(links) == [each.id for each in children]
    assert [trail.state(each.id)["act_later" if family is parent_later else "act"] for each in children] == [
        "a 2", "b 2"
    ]  # fmt: skip
    assert [each.id for each in trail.runs(parent=None)] == ["r"]


@PARENTS
def test_a_child_that_was_cut_off_goes_on_where_it_was(trail: Trail, family: Any) -> None:
    """Promise 2, at any depth."""
    calls.crash = {"b 2"}
    crashed(trail, family, "a", "b", id="r")
    calls.clear()
    assert run(trail, family, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@PARENTS
def test_children_that_are_gone_through_anew_after_every_step_execute_nothing_twice(trail: Trail, family: Any) -> None:
    names = "abcdefgh"
    with always_replay():
        assert run(trail, family, *names, id="r").value == [f"{name} 1{name} 2" for name in names]
    assert sorted(calls) == sorted([f"{name} {at}" for name in names for at in (1, 2)] + ["end"])


@PARENTS
def test_a_run_is_dropped_with_its_children_so_that_another_with_its_id_begins_anew(trail: Trail, family: Any) -> None:
    run(trail, family, "a", "b", id="r")
    removed = len(trail.steps("r")) + sum(len(trail.steps(each.id)) for each in trail.runs(parent="r"))
    counts = trail.drop("r")
    assert (counts.runs, counts.steps, list(trail.runs())) == (3, removed, [])
    calls.clear()
    assert run(trail, family, "a", "c", id="r").value == ["a 1a 2", "c 1c 2"]
    assert sorted(calls) == ["a 1", "a 2", "c 1", "c 2", "end"]


def test_forks_of_a_run_and_of_its_children_stay_when_it_is_dropped(trail: Trail) -> None:
    run(trail, parent, "a", id="r")
    trail.fork("r", at=1, id="of the run").release()
    trail.fork("r/child#0", at=1, id="of the child").release()
    trail.drop("r")
    calls.clear()
    assert run(trail, parent, id="of the run").value == ["a 1a 2"]
    assert run(trail, child, id="of the child").value == "a 1a 2"
    assert calls == ["end", "a 2"], "the fork of the run has what the child gave, though not the child"
    assert sorted(each.id for each in trail.runs()) == ["of the child", "of the run"]
    assert trail.verify().ok


@PARENTS
def test_a_child_that_failed_is_taken_up_at_its_failure(trail: Trail, family: Any) -> None:
    calls.fail = {"b 2"}
    with pytest.raises(ValueError, match="b 2"):
        run(trail, family, "a", "b", id="r")
    assert trail.run("r").status is Status.FAILED
    assert {each.status for each in trail.runs(parent="r")} == {Status.COMPLETED, Status.FAILED}
    calls.fail = set()
    calls.clear()
    assert run(trail, family, id="r").value == ["a 1a 2", "b 1b 2"]
    assert calls == ["b 2", "end"]


@workflow
def forgiving_parent() -> list[str]:
    found = []
    for name in ("a", "b"):
        try:
            found.append(child(name))
        except ValueError as error:
            found.append(f"failed: {error}")
    act("end")
    return found


def test_the_failure_of_a_child_that_its_parent_forgave_is_served_after_a_crash(trail: Trail) -> None:
    calls.fail = {"a 2"}
    calls.crash = {"end"}
    crashed(trail, forgiving_parent, id="r")
    calls.fail = set()
    calls.clear()
    assert run(trail, forgiving_parent, id="r").value == ["failed: a 2", "b 1b 2"]
    assert calls == ["end"]


@workflow
def loop_of_children() -> list[str]:
    return [child("same") for _ in range(3)]


def test_equal_calls_of_a_workflow_are_different_children(trail: Trail) -> None:
    assert run(trail, loop_of_children, id="r").value == ["same 1same 2"] * 3
    assert len(trail.runs(parent="r")) == 3


def test_children_without_an_order_are_told_apart_too(trail: Trail) -> None:
    @workflow
    def parent_of_all() -> list[str]:
        with everstep.unordered():
            return [child("x"), child("y"), child("x")]

    assert run(trail, parent_of_all, id="r").value == ["x 1x 2", "y 1y 2", "x 1x 2"]
    assert len(trail.runs(parent="r")) == 3


def test_a_workflow_outside_of_a_run_is_the_plain_function(trail: Trail) -> None:
    assert child("x") == "x 1x 2"
    assert list(trail.runs()) == []


# The two runners.


@workflow
async def mixed() -> list[Any]:
    found = [act("plain"), await act_later("awaited"), pair("both")]
    found.append(await asyncio.to_thread(act, "in a thread"))
    act("end")
    return found


def test_plain_steps_work_in_async_workflows(trail: Trail) -> None:
    assert twice(trail, mixed) == ["plain", "awaited", "both 1both 2", "in a thread"]


@pytest.mark.parametrize("flow", [nested, mixed], ids=["a plain workflow", "an async workflow"])
@pytest.mark.parametrize("first", ["Runner", "AsyncRunner"])
def test_what_one_runner_recorded_the_other_resumes(trail: Trail, flow: Any, first: str) -> None:
    def by(which: str) -> Any:
        if which == "Runner":
            return Runner(trail).run(flow, id="r")
        return asyncio.run(AsyncRunner(trail).run(flow, id="r"))

    calls.crash = {"end"}
    with pytest.raises(Crash):
        by(first)
    calls.clear()
    assert by("AsyncRunner" if first == "Runner" else "Runner").completed
    assert calls == ["end"]


def test_the_async_runner_takes_an_async_trail(tmp_path: Path) -> None:
    async def main() -> Any:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as opened:
            return (await AsyncRunner(opened).run(mixed, id="r")).value

    assert asyncio.run(main()) == ["plain", "awaited", "both 1both 2", "in a thread"]
