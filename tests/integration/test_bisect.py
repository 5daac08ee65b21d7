"""The first step after which a test of the state fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from everstep import AsyncTrail, Graph, Runner, Trail, node
from everstep.errors import PrunedError, RunNotFoundError, StepNotFoundError
from everstep.store.memory import MemoryStore
from everstep.trail.bisecting import Bisection, Found

Values = dict[str, Any]


def counted(trail: Trail, steps: int, run_id: str = "r") -> None:
    """A run whose state says after each step how many there were."""
    with trail.record(run_id) as run:
        for number in range(1, steps + 1):
            run.step("count", set={"n": number})


def at_most(most: int, seen: list[int]) -> Callable[[Values], bool]:
    def test(values: Values) -> bool:
        seen.append(values.get("n", 0))
        return int(values.get("n", 0)) <= most

    return test


def _says(verdict: bool | None, _: Values) -> bool | None:  # noqa: FBT001 - what a test says
    return verdict


def test_the_step_is_found_with_what_it_changed(trail: Trail) -> None:
    counted(trail, 20)
    found = trail.bisect("r", at_most(6, []))
    assert (found.found, found.good, found.bad) == (Found.STEP, 6, 7)
    assert found.step is not None
    assert (found.step.seq, found.step.name) == (7, "count")
    assert [str(change) for change in found.changes] == ["~ state.n: 6 -> 7"]
    assert found.summary() == f"r@7 'count': the test fails after it; {found.tested} states tested"
    assert json.loads(json.dumps(found.to_dict()))["seq"] == 7


@pytest.mark.parametrize("bad", [1, 2, 499, 500, 501, 999, 1_000])
def test_of_a_thousand_states_about_ten_are_looked_at(trail: Trail, bad: int) -> None:
    counted(trail, 1_000)
    seen: list[int] = []
    assert trail.bisect("r", at_most(bad - 1, seen)).bad == bad
    assert len(seen) <= 13


def test_a_test_that_is_bad_at_the_start_or_never_or_cannot_tell_is_said_to_be_so(trail: Trail) -> None:
    counted(trail, 5)
    results = [trail.bisect("r", partial(_says, verdict)) for verdict in (False, True, None)]
    assert [found.found for found in results] == [Found.AT_START, Found.NEVER, Found.NOTHING]
    assert [found.step for found in results] == [None, None, None]
    assert [found.tested for found in results] == [2, 1, 1]


def test_what_it_cannot_tell_of_is_passed_over_and_the_rest_is_found(trail: Trail) -> None:
    counted(trail, 100)
    late = trail.bisect("r", lambda values: None if values.get("n", 0) < 60 else values["n"] < 80)
    assert (late.found, late.bad) == (Found.STEP, 80)
    never_good = trail.bisect("r", lambda values: None if values.get("n", 0) < 60 else False)
    assert (never_good.found, never_good.good, never_good.bad) == (Found.UNSURE, None, 60)
    between = trail.bisect("r", lambda values: None if 30 <= values.get("n", 0) < 60 else values.get("n", 0) < 30)
    assert (between.found, between.good, between.bad) == (Found.UNSURE, 29, 60)
    assert "cannot tell" in str(between)


def test_something_bad_below_what_it_cannot_tell_of_is_found(trail: Trail) -> None:
    counted(trail, 100)

    def test(values: Values) -> bool | None:
        number = values.get("n", 0)
        return None if 40 <= number < 90 else number < 20

    found = trail.bisect("r", test)
    assert (found.found, found.good, found.bad) == (Found.STEP, 19, 20)


@given(some.integers(1, 60), some.data())
def test_it_finds_the_step_wherever_it_is_and_whatever_it_cannot_tell_of(steps: int, data: some.DataObject) -> None:
    bad = data.draw(some.integers(1, steps))
    unknown = data.draw(some.sets(some.integers(0, steps - 1), max_size=steps))
    trail = Trail(MemoryStore())
    counted(trail, steps)
    end = trail.run("r").head

    def test(values: Values) -> bool | None:
        number = values.get("n", 0)
        return None if number in unknown else number < bad

    found: Bisection = trail.bisect(f"r@{min(end, steps)}", test)
    if found.found is Found.AT_START:
        assert bad == 0
        return
    assert found.bad is not None
    assert found.bad >= bad
    if not unknown:
        assert (found.found, found.bad, found.good) == (Found.STEP, bad, bad - 1)
    if found.found is Found.STEP:
        assert found.bad == bad


def test_it_looks_no_further_than_the_point_it_is_given(trail: Trail) -> None:
    counted(trail, 20)
    assert trail.bisect("r@5", at_most(6, [])).found is Found.NEVER
    assert trail.bisect("r@9", at_most(6, [])).bad == 7


def test_runs_of_graphs_and_forks_are_runs(trail: Trail) -> None:
    @node(output="total")
    def add(price: int) -> int:
        return price * 2

    @node(output="tax")
    def tax(total: int) -> float:
        return -total / 10

    Runner(trail).run(Graph([add, tax], name="bill"), {"price": 4}, id="g")
    found = trail.bisect("g", lambda values: values.get("tax", 0) >= 0)
    assert found.step is not None
    assert found.step.name == "tax"
    with trail.fork("g", 1, id="f") as fork:
        fork.step("break", set={"total": -1})
    forked = trail.bisect("f", lambda values: values.get("total", 0) >= 0)
    assert forked.step is not None
    assert (forked.step.name, forked.step.run_id) == ("break", "f")


def test_what_was_pruned_is_not_looked_at(trail: Trail) -> None:
    counted(trail, 20)
    trail.prune("r", keep=10)
    found = trail.bisect("r", at_most(15, []))
    assert found.bad == 16
    assert trail.bisect("r", at_most(3, [])).found is Found.AT_START
    with pytest.raises(PrunedError):
        trail.bisect("r@3", at_most(3, []))


def test_errors_are_typed_and_what_the_test_raises_comes_through(trail: Trail) -> None:
    counted(trail, 3)
    with pytest.raises(RunNotFoundError):
        trail.bisect("none", at_most(1, []))
    with pytest.raises(StepNotFoundError):
        trail.bisect("r@99", at_most(1, []))
    with pytest.raises(KeyError, match="total"):
        trail.bisect("r", lambda values: values["total"] > 0)


def test_the_awaited_twin_finds_the_same(tmp_path: Path) -> None:
    async def main() -> Bisection:
        async with await AsyncTrail.open(tmp_path / "trail.db") as trail:
            counted(trail.trail, 9)
            return await trail.bisect("r", at_most(4, []))

    assert asyncio.run(main()).bad == 5
