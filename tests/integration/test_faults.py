"""A disk that is full, fails, lies broken or loses its power: errors of ours, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import everstep
from everstep.errors import DiskFullError, StoreError
from everstep.testing.faults import Event, FaultyDisk, after_power_loss
from tests.integration.support import watched

Ack = tuple[str, int, str]


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as faulty:
        yield faulty


def ack(step: everstep.StepRecord) -> Ack:
    return step.run_id, step.seq, step.hash.hex()


def check(path: Path, acks: list[Ack]) -> None:
    """All that was acknowledged is there, once, and the trail is whole."""
    with everstep.open(path) as trail:
        report = trail.verify()
        assert report.ok, str(report)
        kept = {(run.id, step.seq, step.hash.hex()) for run in trail.runs(limit=1000) for step in trail.steps(run.id)}
        assert len(set(acks)) == len(acks)
        assert set(acks) - kept == set()


def fill(disk: FaultyDisk, amount: int) -> None:
    disk.room = amount


def break_write(disk: FaultyDisk, amount: int) -> None:
    disk.writes = amount % 9


def break_sync(disk: FaultyDisk, amount: int) -> None:
    disk.syncs = amount % 4


FAULTS: dict[str, tuple[Callable[[FaultyDisk, int], None], type[StoreError]]] = {
    "full": (fill, DiskFullError),
    "write": (break_write, StoreError),
    "sync": (break_sync, StoreError),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_fails_is_told_and_the_next_one_works(tmp_path: Path, disk: FaultyDisk, fault: str) -> None:
    """Promises 1 and 13: whatever it fails at, the head stays where it was and nothing acknowledged is lost."""
    spoil, expected = FAULTS[fault]
    chance, acks = random.Random(1), list[Ack]()
    with everstep.open(tmp_path / "trail.db") as trail:
        run = trail.record("r")
        for number in range(40):
            acks.append(ack(run.step("before", append={"log": [number]})))
            head = trail.run("r").head
            spoil(disk, chance.randrange(30_000))
            with pytest.raises(expected) as told:
                while True:
                    acks.append(ack(run.step("into it", append={"log": ["x" * chance.choice([10, 5000, 80_000])]})))
                    head += 1
            assert type(told.value) is expected
            assert disk.failed
            assert trail.run("r").head == head
            disk.heal()
            acks.append(ack(run.step("after", append={"log": [number]})))
            assert acks[-1][1] == head + 1
        run.finish()
    check(tmp_path / "trail.db", acks)


def test_a_run_that_cannot_be_begun_is_not_there_and_can_be_begun_later(tmp_path: Path, disk: FaultyDisk) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        disk.room = 100
        with pytest.raises(DiskFullError):
            trail.record("r")
        assert trail.runs() == []
        disk.heal()
        assert trail.record("r").step("s").seq == 1


def test_a_disk_that_cannot_be_read_is_told_and_read_again_later(tmp_path: Path, disk: FaultyDisk) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as run:
        for number in range(50):
            run.step("s", append={"log": [number, "x" * 3000]})
    told = 0
    for reads in range(0, 60, 3):
        disk.reads = reads
        with watched() as seen, everstep.open(tmp_path / "trail.db", read_only=True) as trail:
            trail.steps("r")
            trail.state("r")
        disk.heal()
        assert all("file system failed" in said for said in seen.said)
        told += len(seen.said)
    assert told > 5
    with everstep.open(tmp_path / "trail.db") as trail:
        assert trail.state("r")["log"][-2] == 49
        assert trail.verify().ok


class Workers:
    """Threads and an event loop that write until the disk has failed, each was told, and it works again."""

    def __init__(self, trail: everstep.Trail, expected: type[StoreError]) -> None:
        self._trail, self._expected = trail, expected
        self.acks, self.wrong = list[Ack](), list[BaseException]()
        self.told, self.healed = threading.Semaphore(0), threading.Event()
        tasks: list[Callable[[], object]] = [partial(self._work, f"t-{number}") for number in range(6)]
        tasks.append(lambda: asyncio.run(self._loop()))
        self._threads = [threading.Thread(target=self._guarded, args=(task,)) for task in tasks]
        for thread in self._threads:
            thread.start()

    def _work(self, name: str) -> None:
        run, go_on = self._trail.record(name), False
        while not go_on:
            go_on = self.healed.is_set()
            try:
                self.acks.append(ack(run.step("s", append={"log": ["y" * 500]})))
            except self._expected:
                self.told.release()
                self.healed.wait(30)

    async def _await(self, twin: everstep.AsyncTrail, name: str) -> None:
        run, go_on = await twin.record(name), False
        while not go_on:
            go_on = self.healed.is_set()
            try:
                self.acks.append(ack(await run.step("s", append={"log": ["z" * 500]})))
            except self._expected:
                self.told.release()
                await asyncio.to_thread(self.healed.wait, 30)

    async def _loop(self) -> None:
        twin = everstep.AsyncTrail(self._trail)
        await asyncio.gather(*(self._await(twin, f"loop-{number}") for number in range(4)))

    def _guarded(self, task: Callable[[], object]) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
            self.wrong.append(error)

    def end(self) -> int:
        """Go on, and end; how many hang."""
        self.healed.set()
        for thread in self._threads:
            thread.join(30)
        return sum(thread.is_alive() for thread in self._threads)


@pytest.mark.parametrize("fault", FAULTS)
def test_all_who_share_a_commit_are_told_and_can_go_on(tmp_path: Path, disk: FaultyDisk, fault: str) -> None:
    """Promise 1: threads and an event loop, none of which hangs."""
    spoil, expected = FAULTS[fault]
    trail = everstep.open(tmp_path / "trail.db")
    workers = Workers(trail, expected)
    while len({run for run, *_ in list(workers.acks)}) < 10:  # each has begun its run: it is steps that are to fail
        workers.healed.wait(0.001)
    spoil(disk, 20_000)
    for _ in range(10):
        assert workers.told.acquire(timeout=30), "somebody was not told"
    disk.heal()
    assert workers.end() == 0
    assert workers.wrong == []
    trail.close()
    check(tmp_path / "trail.db", workers.acks)


def test_close_on_a_full_disk_loses_nothing(tmp_path: Path, disk: FaultyDisk) -> None:
    """Promise 1: the log cannot be folded into the file then; it stays beside it."""
    trail = everstep.open(tmp_path / "trail.db")
    acks = [ack(trail.record("r").step("s", output="x" * 5000)) for _ in range(1)]
    disk.room = 0
    with watched():  # SQLite may say so or not
        trail.close()
    disk.heal()
    check(tmp_path / "trail.db", acks)


# Power.


def worked(path: Path, disk: FaultyDisk, seed: int) -> list[Event]:
    """Everything that some work did to the disk, with a mark for each acknowledgement."""
    chance = random.Random(seed)
    disk.events = []
    with everstep.open(path) as trail:
        runs = [trail.record(f"r{number}") for number in range(3)]
        for number in range(120):
            run = chance.choice(runs)
            disk.mark(ack(run.step("s", append={"log": ["w" * chance.choice([5, 500, 20_000])]}, set={"n": number})))
        runs[0].finish()
        trail.prune("r1", keep=4)
        trail.drop("r0")
        disk.mark("dropped r0 and pruned r1")
        disk.mark(ack(runs[2].step("last")))
    events, disk.events = disk.events, None
    return events


def cut(events: list[Event], seed: int, folder: Path, at: int) -> None:
    """Cut the power after so many events; what was acknowledged by then must be there."""
    folder.mkdir()
    after_power_loss(events[:at], random.Random(seed), folder)
    marks = [event.data for event in events[:at] if event.what == "mark"]
    # From the first of the events that let go of history on, any part of it may have happened.
    letting_go = len([event for event in events if event.what == "mark"]) - 2
    acks = [mark for mark in marks if isinstance(mark, tuple) and (len(marks) < letting_go or mark[0] == "r2")]
    with watched() as seen:
        check(folder / "trail.db", acks)
        with everstep.open(folder / "trail.db") as trail, trail.record("afterwards") as run:
            assert run.step("s").seq == 1
    assert seen.said == [], (at, seed)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_there_after_a_power_loss(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    """Promise 1: of what was not synced any sector may be missing."""
    events = worked(tmp_path / "trail.db", disk, seed)
    disk.unregister()
    chance = random.Random(seed)
    for number, at in enumerate(sorted(chance.sample(range(1, len(events)), 40))):
        cut(events, number, tmp_path / str(number), at)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_power_may_be_cut_after_any_event(tmp_path: Path, disk: FaultyDisk, seed: int) -> None:
    """Promise 1."""
    events = worked(tmp_path / "trail.db", disk, seed)
    disk.unregister()
    for at in range(1, len(events), 3):
        cut(events, seed + at, tmp_path / str(at), at)
