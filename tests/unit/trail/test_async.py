from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

import everstep
from everstep.errors import RunFinishedError, StaleWriterError, StateError, UnstorableError
from everstep.model import Status

T = TypeVar("T")


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return ":memory:" if request.param == "memory" else tmp_path / "trail.db"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_steps_awaited_together_are_recorded_in_the_order_of_their_calls(url: Path | str) -> None:
    """Promise 14."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(url) as trail, await trail.record("r") as recorder:
            steps = [recorder.step("s", output=number, append_to="log") for number in range(300)]
            records = await asyncio.gather(*steps)
            assert [record.seq for record in records] == list(range(1, 301))
            assert await recorder.state() == {"log": list(range(300))}
            assert (await trail.verify()).ok

    run(main())


def test_every_question_of_a_trail_can_be_awaited(url: Path | str) -> None:
    async def main() -> None:
        async with await everstep.AsyncTrail.open(url) as trail:
            async with await trail.record("r", workflow="w", inputs={"q": 1}, tags={"user": "u"}) as recorder:
                await recorder.step("a", set={"x": "word"})
                await recorder.save({"x": "word", "y": [1]})
                await recorder.checkpoint("here")
            async with await trail.fork("r", at=2, id="f", set={"x": 2}) as recorder:
                await recorder.step("b", delete=["y"])
            assert [found.id for found in await trail.runs(tags={"user": "u"})] == ["f", "r"]
            assert (await trail.run("r")).status == Status.COMPLETED
            assert [step.name for step in await trail.steps("r")] == ["w", "a", "save", "here", "end"]
            assert (await trail.step("r", 1)).values == {"x": "word"}
            assert await trail.state("f") == {"x": 2}
            assert [point.name for point in await trail.checkpoints("r")] == ["here"]
            assert [found.id for found in await trail.lineage("f")] == ["r", "f"]
            assert len(await trail.diff("r", "f")) == 2
            assert {step.run_id for step in await trail.search("word")} == {"r"}
            assert (await trail.verify()).ok
            await trail.prune("r", keep=1)
            await trail.drop("f")
            await trail.reclaim()

    run(main())


def test_what_one_wrote_the_other_continues(tmp_path: Path) -> None:
    async def awaited() -> None:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as trail:
            recorder = await trail.record("r")
            await recorder.step("async", append={"log": ["async"]})
            await recorder.release()

    with everstep.open(tmp_path / "trail.db") as trail:
        sync = trail.record("r")
        sync.step("sync", append={"log": ["sync"]})
        sync.release()
    run(awaited())
    with everstep.open(tmp_path / "trail.db") as trail:
        trail.record("r").step("sync", append={"log": ["again"]})
        assert trail.state("r") == {"log": ["sync", "async", "again"]}


def test_a_cancelled_caller_does_not_take_back_what_is_on_its_way(tmp_path: Path) -> None:
    """Promise 1."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as trail:
            recorder = await trail.record("r")
            task = asyncio.create_task(recorder.step("cancelled", append={"log": [1]}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await recorder.step("after", append={"log": [2]})
            assert await trail.state("r") == {"log": [1, 2]}

    run(main())


def test_a_cancelled_block_gives_its_run_up(url: Path | str) -> None:
    async def main() -> None:
        begun = asyncio.Event()
        async with await everstep.AsyncTrail.open(url) as trail:

            async def work() -> None:
                async with await trail.record("r") as recorder:
                    await recorder.step("a")
                    begun.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await trail.run("r")
            assert (found.status, found.owner) == (Status.ACTIVE, None)

    run(main())


def test_a_refused_step_leaves_the_others_alone(url: Path | str) -> None:
    """Promise 13."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(url) as trail:
            recorder = await trail.record("r")
            outcomes = await asyncio.gather(
                recorder.step("a", append={"log": [1]}),
                recorder.step("b", output=object()),
                recorder.step("c", set={("none", 1): 1}),
                recorder.step("d", append={"log": [2]}),
                return_exceptions=True,
            )
            assert [type(outcome) for outcome in outcomes[1:3]] == [UnstorableError, StateError]
            assert await trail.state("r") == {"log": [1, 2]}
            await recorder.finish("done")
            with pytest.raises(RunFinishedError):
                await recorder.step("late")
            assert (await trail.steps("r"))[-1].output == "done"

    run(main())


def test_steps_on_their_way_when_the_run_is_taken_over_all_fail(url: Path | str) -> None:
    """Promise 4."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(url) as trail:
            first = await trail.record("r", lease=0)
            second = await trail.record("r")
            outcomes = await asyncio.gather(
                *(first.step("zombie", append={"log": [0]}) for _ in range(5)), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {StaleWriterError}
            await second.step("on", append={"log": [1]})
            with pytest.raises(StaleWriterError):
                await first.step("zombie")
            assert await trail.state("r") == {"log": [1]}

    run(main())


def test_an_edit_in_a_piece_that_is_still_on_its_way_is_right(url: Path | str) -> None:
    """Promise 11: a keyframe's pieces may be asked for before they are stored."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(url) as trail:
            recorder, expected = await trail.record("r"), list[Any]()
            waiting = []
            for number in range(600):
                noise = (number * 7919).to_bytes(4, "big") * 100
                waiting.append(recorder.step("add", append={"log": [[number, noise]]}))
                expected.append([number, noise])
                if number % 25 == 24:
                    at = number * 31 % len(expected)
                    waiting.append(recorder.step("edit", set={("log", at, 0): "edited"}))
                    expected[at][0] = "edited"
            await asyncio.gather(*waiting)
            assert (await trail.state("r"))["log"] == expected
            assert (await trail.verify()).ok

    run(main())


def test_many_runs_on_two_event_loops_and_threads_share_one_trail(tmp_path: Path) -> None:
    trail = everstep.open(tmp_path / "trail.db")

    async def fleet(name: str) -> None:
        twin = everstep.AsyncTrail(trail)

        async def one(number: int) -> None:
            async with await twin.record(f"{name}-{number}") as recorder:
                for step in range(10):
                    await recorder.step("s", append={"log": [step]})

        await asyncio.gather(*(one(number) for number in range(15)))

    def plain(name: str) -> None:
        for number in range(3):
            with trail.record(f"{name}-{number}") as recorder:
                for step in range(10):
                    recorder.step("s", append={"log": [step]})

    threads = [threading.Thread(target=run, args=(fleet(name),)) for name in ("a", "b")]
    threads += [threading.Thread(target=plain, args=(name,)) for name in ("c", "d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = trail.runs(limit=100)
    assert len(found) == 36
    assert all(trail.state(one.id) == {"log": list(range(10))} for one in found)
    assert trail.verify().ok
    trail.close()


def test_the_loop_goes_on_while_another_holds_the_file(tmp_path: Path) -> None:
    """The disk may be slow; the loop is not."""

    async def main() -> None:
        async with await everstep.AsyncTrail.open(tmp_path / "trail.db") as trail:
            recorder = await trail.record("r")
            other = apsw.Connection(str(tmp_path / "trail.db"))
            other.execute("begin immediate")
            task = asyncio.create_task(recorder.step("waits"))
            turns, end = 0, time.monotonic() + 0.2
            while time.monotonic() < end:
                await asyncio.sleep(0.001)
                turns += 1
            assert turns > 20
            assert not task.done()
            other.execute("rollback")
            other.close()
            await task

    run(main())
