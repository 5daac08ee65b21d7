"""Many agents on one event loop leave room for what else is on it."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

import everstep
from everstep import AsyncRunner, step, workflow
from everstep.errors import RunCancelledError
from everstep.store import commit
from everstep.store.commit import GroupCommit
from everstep.store.turns import Turns

AGENTS = 12
seen: list[int] = []  # which turn of the loop it was when a step ran


class Clock:
    """Counts the turns of a loop."""

    def __init__(self) -> None:
        self.turn = 0

    def tick(self) -> None:
        """Once a turn."""
        self.turn += 1
        asyncio.get_running_loop().call_soon(self.tick)


clock = Clock()


@step
async def busy(number: int) -> int:
    """A step that takes a whole turn's time."""
    seen.append(clock.turn)
    time.sleep(0.002)  # noqa: ASYNC251 - it is what keeps the loop
    return number


@workflow
async def agent(number: int) -> int:
    """One step."""
    return await busy(number)


@workflow
async def crew(agents: int) -> list[int]:
    """Many steps of one run at the same time."""
    return await asyncio.gather(*(busy(number) for number in range(agents)))


@pytest.fixture(autouse=True)
def anew() -> None:
    seen.clear()
    clock.turn = 0


@pytest.mark.parametrize("stored", [True, False])
def test_steps_that_take_long_are_spread_over_turns_of_the_loop(tmp_path: Path, *, stored: bool) -> None:
    async def main() -> list[int]:
        clock.tick()
        trail = everstep.open(tmp_path / "trail.db") if stored else None
        result = await AsyncRunner(trail).run(crew, AGENTS)
        assert isinstance(result.value, list)
        return result.value

    assert asyncio.run(main()) == list(range(AGENTS))
    assert seen == sorted(seen)
    assert len(set(seen)) == AGENTS


def test_runs_that_begin_together_are_spread_too_and_each_is_whole(tmp_path: Path) -> None:
    async def main() -> list[int]:
        clock.tick()
        with everstep.open(tmp_path / "trail.db") as trail:
            runner = AsyncRunner(trail)
            results = await asyncio.gather(*(runner.run(agent, number, id=f"r-{number}") for number in range(AGENTS)))
            assert all(trail.verify(f"r-{number}").ok for number in range(AGENTS))
        return [result.value for result in results]

    assert asyncio.run(main()) == list(range(AGENTS))
    assert len(set(seen)) == AGENTS


def test_those_who_wait_for_their_turn_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    lead = GroupCommit._lead_once

    def counted(group: GroupCommit, here: asyncio.AbstractEventLoop | None = None) -> None:
        sizes.append(len(group._queue))
        lead(group, here)

    async def main() -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            await AsyncRunner(trail).run(crew, AGENTS, id="r")
            monkeypatch.setattr(GroupCommit, "_lead_once", lead)

    monkeypatch.setattr(GroupCommit, "_lead_once", counted)
    monkeypatch.setattr(commit, "_SHARED", 60.0)  # however busy the machine is
    asyncio.run(main())
    assert AGENTS in sizes


def test_a_step_that_is_cancelled_while_it_waits_for_its_turn_lets_the_others_go_on(tmp_path: Path) -> None:
    """Its record can be replayed, like that of any step that was cancelled."""

    @workflow
    async def hasty() -> Sequence[int | None]:
        tasks = [asyncio.create_task(busy(number)) for number in range(6)]
        await asyncio.sleep(0)
        for task in tasks[2:5]:
            task.cancel()
        await asyncio.wait(tasks)
        return [None if task.cancelled() else task.result() for task in tasks]

    async def main() -> None:
        result = await AsyncRunner(trail).run(hasty, id="r")
        assert result.value == [0, 1, None, None, None, 5]

    with everstep.open(tmp_path / "trail.db") as trail:
        asyncio.run(main())
        assert len(seen) == 3
        assert trail.replay("r", hasty).identical
        assert len(seen) == 3


def test_the_time_that_a_step_waits_for_its_turn_is_not_its_own(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        asyncio.run(AsyncRunner(trail).run(crew, 40, id="r"))
        took = sorted(entry.duration_ms for entry in trail.steps("r") if entry.kind == "step")
    assert took[20] < 40  # half of them waited for longer than that


def test_a_loop_that_has_ended_is_let_go_of(tmp_path: Path) -> None:
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with everstep.open(tmp_path / "trail.db") as trail:
            await AsyncRunner(trail).run(crew, AGENTS)

    asyncio.run(main())
    gc.collect()
    assert loops[0]() is None


def test_a_commit_does_not_wait_for_others_that_crowd_the_loop(tmp_path: Path) -> None:
    """They write nothing, so nothing would come of waiting for them; and they may go on for ever."""
    done = asyncio.Event()

    @workflow
    async def endless() -> None:
        while not done.is_set():
            await asyncio.gather(*(busy(number) for number in range(4)))

    async def main() -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            crowd = asyncio.create_task(AsyncRunner().run(endless))
            try:
                async with asyncio.timeout(60):
                    assert (await AsyncRunner(trail).run(agent, 7)).value == 7
            finally:
                done.set()
                await crowd

    asyncio.run(main())


@pytest.mark.parametrize("external", [False, True])
def test_what_waits_for_its_turn_is_not_begun_after_a_cancellation(tmp_path: Path, *, external: bool) -> None:
    """An effect that was announced is had at once: else it would be asked afterwards whether it was."""

    @step(external=external)
    async def work(number: int) -> int:
        seen.append(number)
        if len(seen) == 3:
            trail.cancel("r")
            run = everstep.current()._lane.run
            run.cancel()  # what hears of the word does, in a moment
        time.sleep(0.002)  # noqa: ASYNC251 - it is what keeps the loop
        return number

    @workflow
    async def many() -> list[int]:
        return await asyncio.gather(*(work(number) for number in range(AGENTS)))

    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(RunCancelledError):
            asyncio.run(AsyncRunner(trail).run(many, id="r"))
        assert external or len(seen) < AGENTS
        announced = [entry for entry in trail.steps("r") if entry.kind == "intent"]
        assert len(announced) == (len(seen) if external else 0)


def test_an_interrupt_where_some_are_let_in_stops_nobody_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler may raise between any two bytecodes of the main thread."""

    class Interrupted(Exception):  # noqa: N818 - what a signal handler raises
        pass

    turns = Turns()
    clock = iter(number * 0.01 for number in range(1_000))
    monkeypatch.setattr("everstep.store.turns.perf_counter", lambda: next(clock))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        assert turns.enter(loop) is None
        waiting = [turns.enter(loop) for _ in range(4)]

        def interrupted() -> float:
            monkeypatch.setattr("everstep.store.turns.perf_counter", lambda: next(clock))
            raise Interrupted

        monkeypatch.setattr("everstep.store.turns.perf_counter", interrupted)
        loop.run_until_complete(asyncio.wait_for(asyncio.gather(*waiting), 30))  # type: ignore[arg-type] # they all wait
    finally:
        loop.close()
