"""trail.cancel: what is at work is finished and kept, nothing more is begun, and the run can be taken up again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everstep
from everstep import Kind, Retry, Runner, Status, Trail, current, pause, step, workflow
from everstep.errors import RunCancelledError, RunFinishedError, RunStoppedError
from everstep.run import heart, stopping
from tests.integration.failing import WORLD, act, act_later, go, healed
from tests.integration.running import rows


@pytest.fixture
def trail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trail]:
    monkeypatch.setattr(heart, "_BEAT", 0.02)  # requests are heard soon
    with everstep.open(":memory:") as opened:
        yield opened


def cancelled(trail: Trail, workflow: Any, when: str, **options: Any) -> float:
    """Run a workflow and cancel it, from another thread, once a call was made: how long that took."""
    asked: list[float] = []

    def ask() -> None:
        while when not in WORLD:
            time.sleep(0.001)
        trail.cancel("r")
        asked.append(time.monotonic())

    asking = threading.Thread(target=ask)
    asking.start()
    with pytest.raises(RunCancelledError):
        go(trail, workflow, **options)
    asking.join()
    assert trail.run("r").status is Status.CANCELLED
    assert trail.run("r").owner is None
    return time.monotonic() - asked[0]


def is_cancelled() -> None:
    """Wait until the run that this code belongs to has heard of it."""
    end = time.monotonic() + 60
    while not current().cancelled:
        assert time.monotonic() < end
        time.sleep(0.001)


@step(output=None)
def work(name: str) -> str:
    """A step at work when it is cancelled, which finishes."""
    WORLD(name)
    if name == "slow" and not WORLD.bad:
        is_cancelled()
        WORLD.bad.add("heard")
    return name


@step(output=None)
async def work_later(name: str) -> str:
    WORLD(name)
    if name == "slow" and not WORLD.bad:
        while not current().cancelled:  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        WORLD.bad.add("heard")
    return name


@workflow
def plain() -> str:
    work("a")
    work("slow")
    return work("c")


@workflow
async def plain_later() -> str:
    await work_later("a")
    await work_later("slow")
    return await work_later("c")


@workflow
async def gathers() -> str:
    async def branch(name: str) -> str:
        await work_later(name)
        return await work_later(f"{name}'")

    await asyncio.gather(branch("slow"), branch("b"))
    return await work_later("c")


@workflow
def pool() -> str:
    def branch(name: str) -> str:
        work(name)
        return work(f"{name}'")

    with ThreadPoolExecutor() as workers:
        for job in [workers.submit(branch, name) for name in ("b", "slow")]:
            job.result()
    return work("c")


@workflow
def child_of_one() -> str:
    work("x")
    plain()
    return work("y")


@workflow
async def child_of_one_later() -> str:
    await work_later("x")
    await asyncio.gather(plain_later(), work_later("sibling"))
    return await work_later("y")


WORKFLOWS: dict[str, tuple[Any, set[str]]] = {
    "plain": (plain, {"c"}),
    "awaited": (plain_later, {"c"}),
    "gather": (gathers, {"slow'", "c"}),
    "pool": (pool, {"slow'", "c"}),
    "child": (child_of_one, {"c", "y"}),
    "child, awaited": (child_of_one_later, {"c", "y"}),
}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_step_at_work_is_finished_and_kept_and_no_further_one_is_taken(
    trail: Trail, name: str, durability: str
) -> None:
    """Promise 2: a cancelled run that is taken up again repeats nothing."""
    workflow, left = WORKFLOWS[name]
    cancelled(trail, workflow, "slow", durability=durability)
    assert not left & set(WORLD.taken())
    for run in trail.runs(parent="r"):
        assert run.status is Status.CANCELLED
    WORLD.bad.add("heard")
    done = healed(trail, workflow)
    assert set(done) >= left
    assert "slow" not in done
    assert len(done) == len(set(done))


def test_code_that_waits_for_something_else_is_not_waited_for(trail: Trail) -> None:
    @workflow
    async def dawdles() -> str:
        await act_later("a")
        await asyncio.sleep(0 if WORLD.bad else 60)
        return await act_later("c")

    assert cancelled(trail, dawdles, "a") < 30
    WORLD.bad.add("hurry")
    WORLD.taken()
    assert go(trail, dawdles).value == "c"
    assert WORLD.taken() == ["c"]


@step(output=None, retry=Retry(attempts=2, backoff=60))
def flaky() -> str:
    return act("b")


@step(output=None, retry=Retry(attempts=2, backoff=60))
async def flaky_later() -> str:
    return await act_later("b")


@workflow
def backs_off() -> str:
    act("a")
    return flaky()


@workflow
async def backs_off_later() -> str:
    await act_later("a")
    return await flaky_later()


@workflow
def sleeps() -> str:
    act("a")
    everstep.sleep(60 if not WORLD.bad else 0)
    return act("c")


@workflow
async def sleeps_later() -> str:
    await act_later("a")
    await everstep.sleep(60 if not WORLD.bad else 0)
    return await act_later("c")


@pytest.mark.parametrize("workflow", [backs_off, backs_off_later, sleeps, sleeps_later], ids=repr)
def test_a_run_that_sleeps_wakes_up_to_be_cancelled(trail: Trail, workflow: Any) -> None:
    WORLD.fail.add("b")
    assert cancelled(trail, workflow, "b" if "backs" in workflow.name else "a") < 30


@pytest.mark.parametrize("external", [False, True])
def test_a_step_can_end_itself_early_and_is_then_asked_for_again(trail: Trail, external: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """What it raises because of the cancellation is no outcome; promise 3: of an effect it is an unknown one."""

    @step(external=external)
    def obedient() -> str:
        WORLD("obedient")
        for _ in range(1000 if not WORLD.bad else 0):
            current().check_cancelled()
            time.sleep(0.01)
        return "whole"

    @workflow
    def obeys() -> str:
        return obedient()

    cancelled(trail, obeys, "obedient")
    assert Kind.STEP not in [row.kind for row in trail.steps("r")]
    WORLD.bad.add("hurry")
    if external:
        assert go(trail, obeys).status is Status.PAUSED
        trail.answer("r", retry=True)
    assert go(trail, obeys).value == "whole"


def test_a_step_without_an_end_can_be_cancelled(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, as others are, but not for ever."""
    monkeypatch.setattr(stopping, "PATIENCE", 0.1)

    @step
    async def endless() -> None:
        WORLD("endless")
        await asyncio.sleep(0 if WORLD.bad else 60)

    @workflow
    async def waits() -> str:
        await endless()
        return await act_later("c")

    assert cancelled(trail, waits, "endless") < 30
    WORLD.bad.add("hurry")
    assert go(trail, waits).value == "c"
    assert WORLD.taken() == ["endless", "endless", "c"]


SWALLOWED: list[BaseException] = []


@step(output=None)
def stubborn() -> str:
    """A step that makes something up where a step inside it was not taken."""
    try:
        work("a")
        work("slow")
        return work("c")
    except everstep.EverstepError as error:
        SWALLOWED.append(error)
        return "made up"


@step(output=None)
def empty_handed() -> str:
    WORLD("empty-handed")
    if not WORLD.bad:
        is_cancelled()
    try:
        return work("c")
    except everstep.EverstepError:
        return "made up"


@workflow
def swallows() -> str:
    try:
        return stubborn()
    except everstep.EverstepError:
        return "made up as well"


@workflow
def swallows_at_once() -> str:
    return empty_handed()


@pytest.mark.parametrize("workflow", [swallows, swallows_at_once], ids=repr)
def test_what_code_makes_of_a_step_that_was_not_taken_is_never_recorded(trail: Trail, workflow: Any) -> None:
    """Promise 6: else the run that is taken up would go on with what only the cancellation gave it."""
    SWALLOWED.clear()
    cancelled(trail, workflow, "slow" if workflow is swallows else "empty-handed")
    assert not any(row.output == "made up" for row in trail.steps("r"))
    assert all(isinstance(error, RunStoppedError) for error in SWALLOWED)
    WORLD.bad.add("heard")
    assert go(trail, workflow).value == "c"


def test_a_cancelled_run_takes_no_step_on_its_way_out(trail: Trail) -> None:
    @workflow
    def cleans() -> str:
        try:
            work("slow")
            return work("c")
        finally:
            work("clean")

    cancelled(trail, cleans, "slow")
    assert WORLD.taken() == ["slow"]
    WORLD.bad.add("heard")
    assert healed(trail, cleans) == ["c", "clean"]


# Runs that nobody works on.


@workflow
def asks() -> str:
    act("a")
    return str(pause("go on?"))


@workflow
def child_asks() -> str:
    return asks()


def test_a_paused_run_is_cancelled_at_once_and_so_is_the_child_that_it_waits_for(trail: Trail) -> None:
    assert go(trail, child_asks).status is Status.PAUSED
    [child] = trail.runs(parent="r")
    trail.cancel("r")
    assert trail.run("r").status is Status.CANCELLED
    assert trail.run(child.id).status is Status.CANCELLED
    with pytest.raises(everstep.EverstepError, match="cancelled"):
        trail.answer("r", "yes")
    assert go(trail, child_asks).status is Status.PAUSED  # taken up again, it still has its question
    trail.answer("r", "yes")
    assert go(trail, child_asks).value == "yes"
    assert WORLD.taken() == ["a"]


def ended(trail: Trail, how: str) -> None:
    """A run that ended so."""
    if how == "failed":
        WORLD.fail.add("a")
    go(trail, asks if how == "cancelled" else plain_end, error_handling="continue")
    if how == "cancelled":
        trail.cancel("r")
    assert trail.run("r").status == how


@workflow
def plain_end() -> str:
    return act("a")


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_a_run_that_has_ended_cannot_be_cancelled(trail: Trail, how: str) -> None:
    """Promise 13."""
    ended(trail, how)
    before = trail.run("r")
    with pytest.raises(RunFinishedError, match=how):
        trail.cancel("r")
    assert trail.run("r") == before


def test_a_run_that_pauses_while_it_is_being_cancelled_is_cancelled(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 13: the request came when the run had stopped listening."""
    monkeypatch.setattr(heart, "_hear", lambda *_: None)

    @workflow
    def pauses() -> str:
        act("a")
        trail.cancel("r")
        return str(pause("go on?"))

    assert Runner(trail).run(pauses, id="r").status is Status.PAUSED
    assert trail.run("r").status is Status.CANCELLED
    assert len(rows(trail, "r", Kind.END)) == 1
