"""An event loop commits what is quicker done than handed to a thread, and nothing that it would have to wait for."""

from __future__ import annotations

import asyncio
import fcntl
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

import everstep
from everstep.store.commit import GroupCommit, Job

TRIES = 500  # in which a commit that does nothing is seen to be quick, however busy the machine is


class Committing:
    """Commits nothing, and knows the threads on which it did."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.then: Callable[[], None] = lambda: None

    def __call__(self, jobs: Sequence[Job]) -> None:
        self.threads.append(threading.current_thread())
        then, self.then = self.then, lambda: None
        then()
        for job in jobs:
            job.result = job.work

    def was_here(self) -> bool:
        """Whether the last one was on this thread."""
        return self.threads[-1] is threading.current_thread()


async def submit(group: GroupCommit, work: object) -> object:
    """Do the work by the loop."""
    return await asyncio.wait_for(group.submit(work, asyncio.get_running_loop()), 30)


async def until_quick(group: GroupCommit, commit: Committing) -> None:
    """Commit until the loop does it itself."""
    for number in range(TRIES):
        assert await submit(group, number) == number
        if commit.was_here():
            return
    pytest.fail("the loop never committed")


def test_a_loop_commits_itself_when_commits_are_quick_and_not_while_they_are_slow() -> None:
    commit = Committing()
    group = GroupCommit(commit, "somewhere", is_free=lambda: True)

    async def main() -> None:
        await submit(group, "first")
        assert not commit.was_here()  # nothing is known of how long one takes
        await until_quick(group, commit)
        group._takes = 0.0
        commit.then = lambda: time.sleep(0.02)
        await submit(group, "slow")
        assert commit.was_here()
        await submit(group, "after that")
        assert not commit.was_here()
        await until_quick(group, commit)

    asyncio.run(main())
    group.close()


def test_a_loop_does_not_commit_for_a_store_that_may_have_to_wait() -> None:
    commit = Committing()
    group = GroupCommit(commit, "somewhere")

    async def main() -> None:
        for number in range(50):
            group._takes = 0.0
            assert await submit(group, number) == number

    asyncio.run(main())
    assert threading.current_thread() not in commit.threads
    group.close()


def test_what_an_interrupted_loop_left_is_done_by_the_thread() -> None:
    """Ctrl-C in the middle of a commit on the loop: the loop may go on, and what was on its way is not lost."""
    commit = Committing()
    group = GroupCommit(commit, "somewhere", is_free=lambda: True)
    loop = asyncio.new_event_loop()

    def interrupt() -> None:
        raise KeyboardInterrupt

    try:
        loop.run_until_complete(until_quick(group, commit))
        group._takes, commit.then = 0.0, interrupt
        future = group.submit("work", loop)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(future)
        assert commit.was_here()
        assert loop.run_until_complete(asyncio.wait_for(future, 30)) == "work"
        assert not commit.was_here()
    finally:
        group.close()
        loop.close()


def test_a_loop_goes_on_while_another_process_writes(tmp_path: Path) -> None:
    """The lock file is held elsewhere: the step waits for it, the loop does not."""

    async def main(trail: everstep.Trail, other: BinaryIO) -> None:
        async with await everstep.AsyncTrail(trail).record("r") as run:
            await run.step("first")
            trail.store._group._takes = 0.0  # type: ignore[attr-defined] # of the store on SQLite
            fcntl.flock(other, fcntl.LOCK_EX)
            step = asyncio.ensure_future(run.step("second"))
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert not step.done()
            fcntl.flock(other, fcntl.LOCK_UN)
            assert (await asyncio.wait_for(step, 30)).name == "second"

    path = tmp_path / "trail.db"
    with everstep.open(path) as trail, Path(f"{path}-lock").open("rb") as other:
        asyncio.run(main(trail, other))
        assert [step.name for step in trail.steps("r")] == ["start", "first", "second", "end"]
