"""Steps that moved into tasks or threads of their own while the run was down: they are not executed again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep import Trail, pause, step, workflow
from everstep.errors import DivergenceError
from everstep.run import flow
from tests.integration.running import act, act_later, calls, crashed, run

pytestmark = pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
WORDS = ["a", "b", "end", "z"]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "_PATIENCE", 0.2)


@step(external=True, unknown="retry")
async def pay(what: str) -> Any:
    return calls(what)


@step
async def told(what: str) -> AsyncIterator[str]:
    yield calls(what)


@step
def told_at_once(what: str) -> Iterator[str]:
    yield calls(what)


async def whole(what: str) -> list[str]:
    return [chunk async for chunk in told(what)]


def plainly(one: Callable[[str], Any]) -> tuple[Any, Any]:
    @workflow(name="w")
    def before() -> list[Any]:
        return [one(word) for word in WORDS]

    @workflow(name="w")
    def after() -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(one, WORDS))

    return before, after


def awaited(one: Callable[[str], Any]) -> tuple[Any, Any]:
    @workflow(name="w")
    async def before() -> list[Any]:
        return [await one(word) for word in WORDS]

    @workflow(name="w")
    async def after() -> list[Any]:
        return await asyncio.gather(*(asyncio.create_task(one(word)) for word in WORDS))

    return before, after


WAYS = {
    "steps": awaited(act_later),
    "effects": awaited(pay),
    "streams": awaited(whole),
    "steps in threads": plainly(act),
    "streams in threads": plainly(lambda word: list(told_at_once(word))),
}


@pytest.mark.parametrize(("before", "after"), WAYS.values(), ids=WAYS)
@pytest.mark.usefixtures("hurried")
def test_steps_of_a_loop_are_not_executed_again_when_it_has_become_a_gather(
    trail: Trail, before: Any, after: Any
) -> None:
    """Promise 2."""
    calls.crash = {"end"}
    crashed(trail, before, id="r")
    assert calls.taken() == ["a", "b", "end"]
    with pytest.raises(DivergenceError, match="on record where that was started") as raised:
        run(trail, after, id="r")
    assert (raised.value.cause, calls.taken()) == ("moved", [])
    run(trail, before, id="r")  # with the code put back, it goes on
    assert calls.taken() == ["end", "z"]


@pytest.mark.usefixtures("hurried")
def test_an_approval_is_not_asked_for_again_in_a_task(trail: Trail) -> None:
    @workflow(name="w")
    async def before() -> Any:
        return [await pause("Send it?", schema=bool), await act_later("end")]

    @workflow(name="w")
    async def after() -> Any:
        async def approved() -> Any:
            return await pause("Send it?", schema=bool)

        return [await asyncio.create_task(approved()), await act_later("end")]

    run(trail, before, id="r")
    trail.answer("r", value=True)
    with pytest.raises(DivergenceError, match="on record where that was started"):
        run(trail, after, id="r")
    assert run(trail, before, id="r").value == [True, "end"]


def test_a_task_whose_step_was_cut_off_may_ask_for_what_the_code_beside_it_had(trail: Trail) -> None:
    lives: list[int] = []

    @step
    async def same(what: str) -> str:
        calls(what)
        if len(lives) == 1 and len(calls) == 1:
            await asyncio.Event().wait()  # the first one has no answer in its first life
        return what

    @workflow
    async def hedged() -> Any:
        lives.append(1)
        slow = asyncio.create_task(same("asked"))
        for _ in range(3):
            await asyncio.sleep(0.01)
        found = [await same("asked"), await act_later("end")]
        return [*found, await slow]

    calls.crash = {"end"}
    crashed(trail, hedged, id="r")
    assert calls.taken() == ["asked", "asked", "end"]
    assert run(trail, hedged, id="r").value == ["asked", "end", "asked"]
    assert sorted(calls.taken()) == ["asked", "end"]


def test_a_thread_whose_step_was_cut_off_may_do_so_too(trail: Trail) -> None:
    lives: list[int] = []
    let_go = threading.Event()

    @step(ignore=["who"])
    def same(what: str, who: str) -> str:
        calls(who)
        if len(lives) == 1 and who == "thread":
            let_go.wait(10)
            raise KeyboardInterrupt
        return what

    @workflow
    def hedged() -> Any:
        lives.append(1)
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(same, "asked", "thread")
            found = same("asked", "main")
            if len(lives) == 1:
                let_go.set()
            return [found, slow.result()]

    with pytest.raises(KeyboardInterrupt):
        run(trail, hedged, id="r")
    assert sorted(calls.taken()) == ["main", "thread"]
    assert run(trail, hedged, id="r").value == ["asked", "asked"]
    assert calls.taken() == ["thread"]
