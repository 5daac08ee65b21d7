"""A run that failed is run again: it goes on at its failure, and nothing that was completed before happens twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep import Kind, Retry, Status, Trail, current, step, workflow
from tests.integration.failing import SHAPES, WORLD, Shape, Wrapped, act, act_later, go, healed
from tests.integration.running import Crash, rows


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


def fails(trail: Trail, workflow: Any, kind: type[BaseException] = ValueError, **options: Any) -> BaseException:
    """Run a workflow that fails: what it raises."""
    with pytest.raises(kind) as raised:
        go(trail, workflow, **options)
    assert trail.run("r").status is Status.FAILED
    return raised.value


def cut_off(trail: Trail, workflow: Any, name: str) -> list[str]:
    """Run a failed workflow again, in a world where nothing fails, until it is cut off: what was executed."""
    WORLD.heal()
    WORLD.taken()
    WORLD.crash = {name}
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - a group of crashes, where there is a task group
        go(trail, workflow)
    assert not isinstance(raised.value, Exception)
    assert trail.run("r").owner is None  # it was given up
    return [str(each) for each in WORLD.taken()]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_failed_run_goes_on_at_its_failure(trail: Trail, shape: Shape, durability: str) -> None:
    """Promise 2: the failure chain is reopened, and only that."""
    value = go(everstep.open(":memory:"), shape.workflow).value
    shape.prepare()
    fails(trail, shape.workflow, shape.raises, durability=durability)
    WORLD.heal()
    WORLD.taken()
    result = go(trail, shape.workflow, durability)
    assert (result.status, result.value, result.restored) == (Status.COMPLETED, value, False)
    assert WORLD.taken() == shape.again
    assert go(trail, shape.workflow).restored
    assert WORLD.taken() == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_failure_before_any_step_leaves_the_earlier_one_to_be_set_right(
    trail: Trail, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 2: what failed in an earlier life is not served because the last one ended without reaching it."""

    def broken(*_: Any) -> Any:
        raise LookupError("before any step")

    async def broken_awaited(*_: Any) -> Any:
        raise LookupError("before any step")

    shape.prepare()
    fails(trail, shape.workflow, shape.raises)
    with monkeypatch.context() as edited:
        edited.setattr(shape.workflow, "function", broken_awaited if shape.workflow.is_async else broken)
        fails(trail, shape.workflow, LookupError)
        fails(trail, shape.workflow, LookupError)
        assert trail.replay("r", shape.workflow).identical
    assert Counter(healed(trail, shape.workflow)) == Counter(shape.again)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_crash_while_it_goes_on_repeats_nothing_that_was_done(shape: Shape) -> None:
    """Promise 2: not after a second crash during resume either."""
    for name in shape.again:
        with everstep.open(":memory:") as trail:
            shape.prepare()
            fails(trail, shape.workflow, shape.raises)
            executed = cut_off(trail, shape.workflow, name)
            assert Counter(executed + healed(trail, shape.workflow)) == Counter([*shape.again, name])


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if "b" in shape.again])
def test_it_may_fail_again_at_the_same_place_and_then_elsewhere(trail: Trail, name: str) -> None:
    shape = SHAPES[name]
    shape.prepare()
    fails(trail, shape.workflow, shape.raises)
    WORLD.taken()
    fails(trail, shape.workflow, shape.raises)
    again = WORLD.taken()
    assert "a" not in again
    assert again.count("b") == 1
    WORLD.heal()
    WORLD.fail.add("c")
    fails(trail, shape.workflow, ValueError)
    assert WORLD.taken() == shape.again
    assert healed(trail, shape.workflow) == ["c"]


def test_history_stays(trail: Trail) -> None:
    """Promise 5: the failure, and what the handlers did after it, are still there when the run has completed."""
    WORLD.fail.add("b")
    workflow = SHAPES["except, log, raise"].workflow
    fails(trail, workflow)
    before = [step.hash for step in trail.steps("r")]
    healed(trail, workflow)
    assert [step.hash for step in trail.steps("r")][: len(before)] == before
    assert [step.status for step in rows(trail, "r", Kind.STEP)] == [
        Status.COMPLETED, Status.FAILED, Status.COMPLETED, Status.COMPLETED, Status.COMPLETED,
    ]  # fmt: skip


# Lanes.


async def _branch(name: str) -> str:
    return await act_later(name)


async def _clean(name: str) -> str:
    return await act_later(f"clean {name}")


@workflow
async def lane_fails_and_the_parent_logs() -> str:
    try:
        await asyncio.gather(_branch("a"), _branch("b"))
    except ValueError:
        await act_later("log")
        raise
    await act_later("more")
    return await act_later("c")


@workflow
async def lane_fails_and_the_parent_spawns() -> str:
    try:
        await asyncio.gather(_branch("a"), _branch("b"))
    except ValueError:
        await asyncio.gather(_clean("1"), _clean("2"))
        raise
    await asyncio.gather(_branch("more"), _branch("d"))
    return await act_later("c")


@workflow
async def spawns_after_its_own_failed_step() -> str:
    try:
        await act_later("b")
    except ValueError:
        await asyncio.gather(_clean("1"), _clean("2"))
        raise
    await asyncio.gather(_branch("more"), _branch("d"))
    return await act_later("c")


@step(output=None)
async def group_with_a_handler() -> None:
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_branch("b"))
            group.create_task(_branch("slow"))
    except* ValueError:
        await act_later("log")
        raise


@workflow
async def nested_group() -> str:
    await group_with_a_handler()
    return await act_later("c")


@workflow
async def group_of_wrapped() -> str:
    async def branch(name: str) -> str:
        try:
            return await act_later(name)
        except ValueError as error:
            raise Wrapped(name) from error

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "d"):
            group.create_task(branch(name))
    return await act_later("c")


@workflow
async def cancelled_sibling_cleans_up() -> str:
    async def sibling() -> str:
        try:
            return await act_later("slow")
        except asyncio.CancelledError:
            await act_later("tidy")
            raise

    async with asyncio.TaskGroup() as group:
        group.create_task(_branch("b"))
        group.create_task(sibling())
    return await act_later("c")


LANES: dict[str, tuple[Any, type[Exception], list[str]]] = {
    "the parent logs": (lane_fails_and_the_parent_logs, ValueError, ["b", "more", "c"]),
    "the parent spawns": (lane_fails_and_the_parent_spawns, ValueError, ["b", "more", "d", "c"]),
    "spawned after the failed step": (spawns_after_its_own_failed_step, ValueError, ["b", "more", "d", "c"]),
    "a group in a step, with a handler": (nested_group, ExceptionGroup, ["b", "slow", "c"]),
    "a group of wrapped failures": (group_of_wrapped, ExceptionGroup, ["b", "c"]),
    "a cancelled sibling cleans up": (cancelled_sibling_cleans_up, ExceptionGroup, ["b", "slow", "c"]),
}


@pytest.mark.parametrize("case", LANES)
def test_what_other_lanes_did_after_a_failure_is_superseded_where_it_is_not_asked_for(case: str) -> None:
    """Promise 2."""
    workflow, kind, again = LANES[case]
    for name in (None, *again):  # a crash in the middle leaves nothing behind that stands in the way
        with everstep.open(":memory:") as trail:
            WORLD.fail.add("b")
            WORLD.slow.update({"b": 0.02, "slow": 5})
            fails(trail, workflow, kind)
            executed = [] if name is None else cut_off(trail, workflow, name)
            assert Counter(executed + healed(trail, workflow)) == Counter([*again, *([name] if name else [])])


def test_an_exception_object_that_is_raised_twice_reopens_only_the_second_step(trail: Trail) -> None:
    """Promise 2."""
    error, failing = ValueError("always the same"), {"x", "b"}

    @step(output=None)
    def touchy(name: str) -> str:
        WORLD(name)
        if name in failing:
            raise error
        return name

    @workflow
    def twice() -> str:
        try:
            touchy("x")
        except ValueError:
            touchy("fallback")
        touchy("b")
        return touchy("c")

    fails(trail, twice)
    failing.clear()
    assert healed(trail, twice) == ["b", "c"]


# Retries, children, and failures that are results.


def test_exhausted_retries_get_a_fresh_budget(trail: Trail) -> None:
    attempts: list[int] = []

    @step(output=None, retry=Retry(attempts=2, backoff=0))
    def flaky() -> str:
        attempts.append(current().attempt)
        return act("b")

    @workflow
    def retries() -> str:
        act("a")
        flaky()
        return act("c")

    WORLD.fail.add("b")
    fails(trail, retries)
    assert WORLD.taken() == ["a", "b", "b"]
    for _ in range(3):  # nor does it grow with every failure
        fails(trail, retries)
        assert WORLD.taken() == ["b", "b"]
    assert healed(trail, retries) == ["b", "c"]
    assert attempts == [1, 2, 2, 3, 3, 4, 4, 5, 5]  # each attempt at a step with steps inside has a number of its own


@pytest.mark.parametrize("crashes", [0, 1, 2])
def test_a_crash_between_attempts_neither_restarts_nor_extends_the_budget(trail: Trail, crashes: int) -> None:
    """Of a run that was taken up again, like of any: three attempts, however many crashes lie between them."""

    @step(output=None, retry=Retry(attempts=3, backoff=0))
    def flaky() -> str:
        return act("b")

    @workflow
    def retries() -> str:
        return flaky()

    def crash_at_the_second() -> None:
        if WORLD.count("b") == 1:
            raise Crash

    WORLD.fail.add("b")
    fails(trail, retries)
    assert WORLD.taken() == ["b"] * 3
    for _ in range(crashes):
        WORLD.on["b"] = crash_at_the_second
        with pytest.raises(Crash):
            go(trail, retries)
        assert WORLD.taken() == ["b"]  # and the one that was cut off before it could be noted
    WORLD.on.clear()
    fails(trail, retries)
    assert WORLD.taken() == ["b"] * (3 - crashes)


@pytest.mark.parametrize("name", ["nested", "task group"])
def test_a_child_run_goes_on_at_its_own_failure(trail: Trail, name: str) -> None:
    """Promise 2: at any depth."""
    shape = SHAPES[name]

    @workflow
    def parent() -> str:
        act("first")
        return f"{shape.workflow()} {act('last')}"

    @workflow
    async def parent_later() -> str:
        await act_later("first")
        return f"{await shape.workflow()} {await act_later('last')}"

    outer = parent_later if shape.workflow.is_async else parent
    shape.prepare()
    fails(trail, outer, shape.raises)
    [child] = trail.runs(parent="r")
    assert child.status is Status.FAILED
    assert healed(trail, outer) == [*shape.again, "last"]
    assert trail.run(child.id).status is Status.COMPLETED


@pytest.mark.parametrize("name", ["plain", "plain, awaited"])
def test_a_failure_can_be_a_result(trail: Trail, name: str) -> None:
    WORLD.fail.add("b")
    workflow = SHAPES[name].workflow
    result = go(trail, workflow, error_handling="continue")
    assert (result.status, result.value, result.failed) == (Status.FAILED, None, True)
    assert isinstance(result.error, ValueError)
    assert trail.run("r").status is Status.FAILED
    assert trail.run("r").owner is None
    assert go(None, workflow, error_handling="continue").failed
    assert healed(trail, workflow) == ["b", "c"]
