"""Lanes, whoever starts tasks and threads: recorded with some latencies, crashed, and resumed with others."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import uvloop

import everstep
from everstep.errors import EscapedStepWarning, JournalError, UnknownLoopError
from everstep.model import Kind, Status
from everstep.run import turnstile
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from tests.programs import cases
from tests.programs.cases import ALL, AWAITED, HERE, PLAIN, ask, branch
from tests.programs.lives import PATIENCE, Crash, Mortal, members

LOOPS = ["asyncio", "uvloop", "debug", *(["eager"] if sys.version_info >= (3, 12) else [])]
TIMES = 6


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool that is there before any run is, its threads started."""
    monkeypatch.setattr(turnstile, "_PATIENCE", 2 * PATIENCE)
    with ThreadPoolExecutor(cases.BRANCHES) as pool:
        list(pool.map(time.sleep, [0.001] * cases.BRANCHES))
        HERE.pool = pool
        yield


def live(case: Callable[[], Any], store: Store, loop: str) -> Any:
    """Run a case on a kind of loop; without one, as plain code. Raises Crash if it crashed, however deep."""
    workflow: Any = everstep.workflow(name="case")(case)
    trail = everstep.Trail(store)
    try:
        if not loop:
            return everstep.Runner(trail).run(workflow, id="r").value
        with asyncio.Runner(
            loop_factory=uvloop.new_event_loop if loop == "uvloop" else None, debug=loop == "debug"
        ) as runner:
            if loop == "eager":
                runner.get_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore] # 3.12 and later
            return runner.run(asyncio.wait_for(everstep.AsyncRunner(trail).run(workflow, id="r"), PATIENCE)).value
    except BaseException as error:
        if any(isinstance(each, Crash) for each in members(error)):
            raise Crash from None
        raise


def crash_and_resume(case: Callable[[], Any], loop: str, seed: int) -> None:
    """Record a case, crash it twice, resume it to its end, and once more."""
    chance = Random(f"{case.__name__} {loop} {seed}")
    HERE.known = set()
    calm, store = Mortal(MemoryStore(), None), MemoryStore()
    HERE.chance = chance
    assert live(case, calm, loop) == ALL
    for rows in (chance.randint(0, calm.rows), chance.randint(0, calm.rows // 2), None):
        HERE.executed.clear()
        try:
            value = live(case, Mortal(store, rows), loop)
        except Crash:
            steps = everstep.Trail(store).steps("r")
            HERE.known = {str(step.output) for step in steps if step.kind is Kind.STEP}
        else:
            break
    assert value == ALL
    HERE.executed.clear()
    assert live(case, store, loop) == ALL
    assert HERE.executed == []


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", AWAITED)
def test_steps_of_tasks_keep_their_places(case: Callable[[], Any], loop: str) -> None:
    """Nothing is executed twice, and no answer is swapped (promise 2)."""
    for seed in range(TIMES):
        crash_and_resume(case, loop, seed)


@pytest.mark.parametrize("case", PLAIN)
def test_steps_of_threads_keep_their_places(case: Callable[[], Any]) -> None:
    """Nothing is executed twice, and no answer is swapped (promise 2)."""
    for seed in range(TIMES):
        crash_and_resume(case, "", seed)


@pytest.mark.torture
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", AWAITED)
def test_steps_of_tasks_keep_their_places_many_times(case: Callable[[], Any], loop: str) -> None:
    """As above (promise 2)."""
    for seed in range(1000, 1100):
        crash_and_resume(case, loop, seed)


@pytest.mark.torture
@pytest.mark.parametrize("case", PLAIN)
def test_steps_of_threads_keep_their_places_many_times(case: Callable[[], Any]) -> None:
    """As above (promise 2)."""
    for seed in range(1000, 1100):
        crash_and_resume(case, "", seed)


def test_what_completes_first_comes_first_again() -> None:
    """The order goes into arguments: were it another, the resumed run would diverge."""
    for seed in range(TIMES * 3):
        crash_and_resume(cases.what_comes_first_is_asked_about, "asyncio", seed)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_set_of_coroutines_given_to_as_completed_is_refused(loop: str) -> None:
    async def case() -> Any:
        made = {branch(number) for number in range(3)}
        try:
            return [await done for done in asyncio.as_completed(made)]
        finally:
            for each in made:
                each.close()

    with pytest.raises(JournalError, match="Give it a list or tuple, or tasks made beforehand"):
        live(case, MemoryStore(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_set_of_tasks_given_to_as_completed_is_fine(loop: str) -> None:
    async def tasks_in_a_set() -> Any:
        made = {asyncio.create_task(branch(number)) for number in range(cases.BRANCHES)}
        return sorted([await done for done in asyncio.as_completed(made)])

    for seed in range(TIMES):
        crash_and_resume(tasks_in_a_set, loop, seed)


def test_a_step_on_a_loop_that_nobody_adopted_is_refused() -> None:
    async def case() -> Any:
        return await asyncio.to_thread(lambda: asyncio.run(branch(0)))

    with pytest.raises(UnknownLoopError, match="adopt_loop"):
        live(case, MemoryStore(), "asyncio")


def test_a_step_of_a_task_that_is_older_than_the_run_is_told_to_escape() -> None:
    async def main() -> Status:
        todo: asyncio.Queue[int] = asyncio.Queue()

        async def older() -> str:
            return await ask(await todo.get(), "older")

        worker = asyncio.create_task(older())
        await asyncio.sleep(0)

        async def case() -> str:
            todo.put_nowait(0)
            return await worker

        return (await everstep.AsyncRunner(everstep.open(":memory:")).run(everstep.workflow(case))).status

    with pytest.warns(EscapedStepWarning, match="outside of the run that is live"):
        assert asyncio.run(main()) is Status.COMPLETED


@everstep.step
async def late(number: int) -> int:
    """The earlier it was asked for, the later it comes."""
    await asyncio.sleep(0.002 * (8 - number))
    return number


@everstep.step
async def after(seen: list[int]) -> int:
    """A crash, once."""
    if not HERE.known:
        HERE.known = {"crashed"}
        raise Crash
    return len(seen)


async def as_they_come() -> list[int]:
    """What came, in its order."""
    seen = [await each for each in asyncio.as_completed([late(number) for number in range(8)])]
    await after(seen)
    return seen


@pytest.mark.parametrize("loop", LOOPS)
def test_what_has_come_comes_in_the_same_order_again(loop: str) -> None:
    """An eager task takes its recorded outcome before the next one is there: it waits for its turn all the same."""
    for _ in range(TIMES):
        HERE.known = set()
        store = MemoryStore()
        with pytest.raises(Crash):
            live(as_they_come, store, loop)
        steps = [step.output for step in everstep.Trail(store).steps("r") if step.kind is Kind.STEP]
        assert live(as_they_come, store, loop) == steps


async def asks() -> list[str]:
    """A question in a task, and then one in a run inside."""
    inside = everstep.workflow(name="inside")(_asked)
    return [await asyncio.create_task(_asked()), await inside()]


async def _asked() -> str:
    return str(await everstep.pause("Go on?"))


@pytest.mark.parametrize("loop", LOOPS)
def test_a_run_that_nobody_has_answered_is_paused_again(loop: str) -> None:
    """An eager one stands at its question before anybody listens: all that came before is on record."""
    store = MemoryStore()
    for _ in range(2):
        assert live(asks, store, loop) is live(asks, store, loop) is None
        everstep.Trail(store).answer("r", "yes")
    assert live(asks, store, loop) == ["yes", "yes"]


@pytest.mark.parametrize("surrounded", ["a workflow", "a captured block"])
def test_a_task_that_fails_and_that_nobody_asks_is_told_of_as_it_is_without_a_run(surrounded: str) -> None:
    """The run looks how each of its tasks ended: to asyncio that must not be as if the program had."""
    told: list[BaseException | None] = []

    async def fail() -> None:
        raise LookupError("nobody asks")

    async def leave_failing() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about.get("exception")))
        task = asyncio.create_task(fail())
        await asyncio.sleep(0.001)
        del task
        gc.collect()

    async def captured() -> None:
        with everstep.capture(trail, id="r"):
            await leave_failing()

    with everstep.Trail(MemoryStore()) as trail:
        if surrounded == "a workflow":
            asyncio.run(everstep.AsyncRunner(trail).run(everstep.workflow(name="leaves")(leave_failing), id="r"))
        else:
            asyncio.run(captured())
    assert list(map(str, told)) == ["nobody asks"]
