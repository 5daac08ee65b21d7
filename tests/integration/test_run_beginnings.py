"""Runs that are begun on an event loop: made if they are new, looked for if they are not, given up if dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import everstep
from everstep import AsyncRunner, AsyncTrail, Runner, Status, Trail, step, workflow
from everstep.errors import RunCancelledError, RunFinishedError, StoreError, UnstorableError
from everstep.run import heart
from everstep.store.commit import Job
from tests.places import in_each_place


@pytest.fixture
def trail(trail_url: str) -> Iterator[Trail]:
    with everstep.open(trail_url) as opened:
        yield opened


@step
async def double(number: int) -> int:
    return 2 * number


@workflow
async def doubled(number: int) -> int:
    return await double(number)


@workflow
async def family(number: int) -> list[int]:
    return await asyncio.gather(*[doubled(each) for each in range(number)])


@in_each_place()
def test_runs_that_begin_together_share_a_commit(trail: Trail) -> None:
    """Promise 14; what it takes to begin does not grow with their number."""
    group, batches = trail.store._group, list[list[Any]]()  # type: ignore[attr-defined] # of stores with a group commit
    commit = group._commit

    def counting(jobs: list[Job]) -> None:
        batches.append([job.work for job in jobs])
        commit(jobs)

    async def main() -> Any:
        runner = AsyncRunner(trail)
        await runner.run(doubled, 0, id="first")  # which reads the code of the workflow
        group._commit = counting
        return await asyncio.gather(*[runner.run(doubled, number, id=f"r-{number}") for number in range(50)])

    assert [result.value for result in asyncio.run(main())] == [2 * number for number in range(50)]
    assert len(batches) < 50  # three rows each, in batches of many
    assert max(map(len, batches)) > 10
    assert {run.owner for run in trail.runs(limit=100)} == {None}


def test_more_runs_than_may_wait_begin_all_the_same(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        store: Any = trail.store
        store._group._bound = 100

        async def main() -> None:
            recorders = await asyncio.gather(*[AsyncTrail(trail).record(f"r-{number}") for number in range(300)])
            for recorder in recorders:
                await recorder.step("a")
                await recorder.finish()

        asyncio.run(main())
        assert len(trail.runs(status="completed", limit=1000)) == 300


@in_each_place()
def test_children_begin_as_runs_do(trail: Trail) -> None:
    async def main() -> Any:
        return (await AsyncRunner(trail).run(family, 5, id="f")).value

    assert asyncio.run(main()) == [0, 2, 4, 6, 8]
    assert asyncio.run(main()) == [0, 2, 4, 6, 8]  # from the record
    assert len(trail.runs(parent="f")) == 5


@in_each_place()
def test_an_awaited_recorder_goes_on_with_a_run_whatever_is_said_of_it(trail: Trail) -> None:
    """As `Trail.record` does: what is said of a run is said when it begins."""
    strange: Any = object()

    async def main() -> None:
        again = await AsyncTrail(trail).record("r", tags={"what": strange}, metadata={"what": strange})
        await again.step("second")
        await again.finish()
        with pytest.raises(RunFinishedError):
            await AsyncTrail(trail).record("r", inputs={"what": strange})
        with pytest.raises(UnstorableError):
            await AsyncTrail(trail).record("another", inputs={"what": strange})

    recorder = trail.record("r")
    recorder.step("first")
    recorder.release()
    asyncio.run(main())
    assert [one.name for one in trail.steps("r")][1:] == ["first", "second", "end"]
    assert [run.id for run in trail.runs()] == ["r"]


def test_what_completed_is_given_again_while_another_program_holds_the_file(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        runner = AsyncRunner(trail)
        assert asyncio.run(runner.run(doubled, 4, id="r")).value == 8
        store: Any = trail.store
        store._patience = 0.05
        other = apsw.Connection(str(tmp_path / "trail.db"))
        other.execute("begin immediate")
        store._writer.set_busy_timeout(50)
        assert asyncio.run(runner.run(doubled, 4, id="r")).value == 8
        other.close()


# Runs that nobody waits for any more while they begin.


async def _dropped(trail: Trail, beginning: Any, meanwhile: Any = lambda: None, times: int = 1) -> None:
    """Cancel something while nobody commits, so that it is made afterwards; what is made is then nobody's."""
    group = trail.store._group  # type: ignore[attr-defined] # of stores with a group commit
    assert group.rest(5)
    task = asyncio.ensure_future(beginning)
    await asyncio.sleep(0.05)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.01)
    meanwhile()
    group.wake()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - of another thread, or another process
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("what", ["run", "record"])
@in_each_place()
def test_what_is_dropped_while_it_begins_is_nobodys(trail: Trail, what: str, times: int) -> None:
    """Promise 4, however often it is cancelled."""
    Runner(trail).run(doubled, 1, id="before")

    async def main() -> None:
        begins = AsyncRunner(trail).run(doubled, 4, id="r") if what == "run" else AsyncTrail(trail).record("r")
        await _dropped(trail, begins, times=times)
        await until(lambda: any(run.id == "r" and run.owner is None for run in trail.runs()))

    asyncio.run(main())


FAILS: list[bool] = []
HELD: list[bool] = []
GROUPS: list[Any] = []


@step
async def fails_first(number: int) -> int:
    if FAILS:
        raise ValueError(number)
    await until(lambda: not HELD)
    return 2 * number


@workflow
async def tries(number: int) -> int:
    return await fails_first(number)


@workflow
async def parent_tries(number: int) -> list[int]:
    if GROUPS:
        GROUPS.pop().rest(5)  # nobody commits: the children take their time to begin
    return await asyncio.gather(*[tries(each) for each in range(number)])


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("what", ["run", "record"])
@in_each_place()
def test_what_is_dropped_while_it_is_taken_up_again_is_nobodys(trail: Trail, what: str, times: int) -> None:
    """Promise 4."""
    FAILS[:] = [True]
    runner = AsyncRunner(trail)
    assert asyncio.run(runner.run(tries, 4, id="r", error_handling="continue")).failed

    async def main() -> None:
        await _dropped(
            trail, runner.run(tries, 4, id="r") if what == "run" else AsyncTrail(trail).record("r"), times=times
        )
        await until(lambda: trail.run("r").owner is None)
        FAILS.clear()
        assert (await runner.run(tries, 4, id="r")).value == 8

    asyncio.run(main())


def test_children_that_are_dropped_while_they_are_taken_up_again_are_nobodys(tmp_path: Path) -> None:
    """Promise 4: their tasks are cancelled by the code and by the run."""
    FAILS.clear()

    async def cancelled(task: asyncio.Task[Any]) -> None:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main(trail: Trail) -> None:
        runner, group = AsyncRunner(trail), trail.store._group  # type: ignore[attr-defined] # of stores with a group commit
        HELD[:] = [True]
        task = asyncio.create_task(runner.run(parent_tries, 3, id="p"))
        await until(lambda: len(trail.runs(parent="p")) == 3)
        await cancelled(task)
        HELD.clear()
        GROUPS[:] = [group]
        task = asyncio.create_task(runner.run(parent_tries, 3, id="p"))
        await until(lambda: not GROUPS)
        await asyncio.sleep(0.05)
        asyncio.get_running_loop().call_later(0.1, group.wake)
        await cancelled(task)
        await until(lambda: {run.owner for run in (trail.run("p"), *trail.runs(parent="p"))} == {None})
        assert (await runner.run(parent_tries, 3, id="p")).value == [0, 2, 4]

    with everstep.open(tmp_path / "trail.db") as trail:
        asyncio.run(main(trail))


@pytest.mark.parametrize("what", ["run", "record"])
def test_who_drops_a_run_is_told_that_and_nothing_else(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 4: what cannot be given up now is given up as soon as it can."""
    with everstep.open(tmp_path / "trail.db") as trail:
        Runner(trail).run(doubled, 1, id="before")
        renew, refused = trail.store.renew, list[str]()

        def fails_once(claim: Any, lease: float) -> None:
            if not refused:
                refused.append(claim.run_id)
                raise StoreError("not now")
            renew(claim, lease)

        monkeypatch.setattr(trail.store, "renew", fails_once)
        monkeypatch.setattr(heart, "_BEAT", 0.01)

        async def main() -> None:
            begins = AsyncRunner(trail).run(doubled, 4, id="r") if what == "run" else AsyncTrail(trail).record("r")
            await _dropped(trail, begins)
            if what == "run":
                await until(lambda: trail.run("r").owner is None)

        asyncio.run(main())
        assert refused == ["r"]


def test_a_run_that_is_cancelled_while_it_is_dropped_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 13."""
    with everstep.open(tmp_path / "trail.db") as trail:
        Runner(trail).run(doubled, 1, id="before")
        renew = trail.store.renew

        def asked_before(claim: Any, lease: float) -> None:
            trail.store.request(claim.run_id, "cancel")
            renew(claim, lease)

        monkeypatch.setattr(trail.store, "renew", asked_before)
        asyncio.run(_dropped(trail, AsyncRunner(trail).run(doubled, 4, id="r")))
        assert trail.run("r").status is Status.CANCELLED


# Words for many runs.


def test_a_damaged_run_keeps_no_word_from_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 13."""
    monkeypatch.setattr(heart, "_BEAT", 0.02)

    @workflow
    async def waits() -> None:
        while True:
            await asyncio.sleep(0.01)
            everstep.current().check_cancelled()

    async def main(trail: Trail) -> None:
        runs = [asyncio.ensure_future(AsyncRunner(trail).run(waits, id=name)) for name in ("damaged", "other")]
        await until(lambda: len(trail.runs()) == 2)
        with apsw.Connection(str(tmp_path / "trail.db")) as raw:
            raw.execute("update run set request = 'cancel', workflow = 'nonsense' where id = 'damaged'")
        trail.cancel("other")
        async with asyncio.timeout(30):
            with pytest.raises(RunCancelledError):
                await runs[1]
        runs[0].cancel()
        await asyncio.wait(runs)

    with everstep.open(tmp_path / "trail.db") as trail:
        asyncio.run(main(trail))
        assert trail.run("other").status is Status.CANCELLED
