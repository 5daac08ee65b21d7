"""What is on disk when, in each of the three modes; and what a store that fails leaves behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, Status, Trail, pause, step, workflow
from everstep.errors import DiskFullError, ReadOnlyError, StoreError
from everstep.run import pen
from everstep.testing.faults import FaultyDisk
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.support import python

DIES = """
import os, sys, everstep
from everstep import Runner, step, workflow

@step
def act(number): return number

@workflow
def dies():
    for number in range(20): act(number)
    os._exit(9)

Runner(everstep.open(sys.argv[1]), durability=sys.argv[2]).run(dies, id="r")
"""


def on_disk(path: Path, run_id: str = "r") -> list[str]:
    """What somebody else finds there."""
    with everstep.open(path, read_only=True) as other:
        return [row.name for row in other.steps(run_id)]


@pytest.mark.parametrize(("durability", "least", "most"), [("sync", 20, 20), ("async", 0, 20), ("exit", 0, 0)])
def test_a_process_that_dies_leaves_what_its_mode_promises(
    tmp_path: Path, durability: str, least: int, most: int
) -> None:
    """Promise 1: `sync`, all that was acknowledged; `async`, a beginning of it; `exit`, nothing but that it began."""
    assert python(DIES, tmp_path / "trail.db", durability).returncode == 9
    found = on_disk(tmp_path / "trail.db")
    assert found == ["dies", *["act"] * (len(found) - 1)]
    assert least <= len(found) - 1 <= most


class Watch:
    """What is on disk at moments of a run."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, dict[str, int]()

    def __call__(self, moment: str) -> None:
        self.seen[moment] = len(on_disk(self.path)) - 1


def test_exit_writes_when_the_run_ends(tmp_path: Path, trail: Trail) -> None:
    watch = Watch(tmp_path / "trail.db")

    @workflow
    def two() -> str:
        act("a")
        watch("after a")
        act("b")
        watch("after b")
        return "done"

    assert go(trail, two, "exit").value == "done"
    watch("at the end")
    assert watch.seen == {"after a": 0, "after b": 0, "at the end": 3}
    assert trail.verify().ok


def test_exit_writes_when_the_run_pauses_fails_is_interrupted_or_acts(tmp_path: Path, trail: Trail) -> None:
    watch = Watch(tmp_path / "trail.db")

    @step(external=True)
    def pay() -> None:
        watch("in the effect")

    @workflow
    def everything() -> str:
        act("a")
        pay()
        act("b")
        pause("go on?")
        act("c")
        act("d")
        return act("e")

    assert go(trail, everything, "exit").status is Status.PAUSED
    watch("paused")
    assert watch.seen == {"in the effect": 2, "paused": 6}
    trail.answer("r", "yes")
    WORLD.crash = {"d"}
    with pytest.raises(BaseException, match="d"):
        go(trail, everything, "exit")
    watch("interrupted")
    WORLD.fail.add("e")
    with pytest.raises(ValueError, match="e"):
        go(trail, everything, "exit")
    watch("failed")
    assert watch.seen["interrupted"] == 8
    assert watch.seen["failed"] == 11
    WORLD.heal()
    WORLD.taken()
    assert go(trail, everything, "exit").value == "e"
    assert WORLD.taken() == ["e"]


def test_exit_writes_many_rows_in_few_pieces(tmp_path: Path, trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pen, "_CHUNK", 7)

    @workflow
    def many() -> list[str]:
        return [act(f"{number}") for number in range(50)]

    value = go(trail, many, "exit").value
    assert len(on_disk(tmp_path / "trail.db")) == 52
    assert trail.verify().ok
    assert value == [f"{number}" for number in range(50)]


def test_the_state_is_the_same_in_every_mode(trail: Trail) -> None:
    @step(append=True, output="words")
    def add(word: str) -> str:
        return word * 100

    @workflow
    def adds() -> int:
        for number in range(300):
            add(str(number))
            everstep.current().state["last"] = number
        return len(everstep.current().state["words"])

    states = []
    modes: list[Any] = ["sync", "async", "exit"]
    for durability in modes:
        assert Runner(trail, durability=durability).run(adds, id=durability).value == 300
        states.append(trail.state(durability))
    assert states[0] == states[1] == states[2]
    assert trail.verify().ok


def test_async_never_has_more_in_hand_than_its_bound(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store stands still: the run gets as far as its bound, and no further."""
    monkeypatch.setattr(pen, "_BACKLOG", 20)
    reached, store = list[int](), cast("Any", trail.store)

    @workflow
    def many() -> str:
        assert store._group.rest(5)  # from here on nobody commits
        for number in range(100):
            reached.append(number)
            act(str(number))
        return "done"

    work = threading.Thread(target=lambda: go(trail, many, "async"))
    try:
        work.start()
        work.join(0.5)
        stood = len(reached)
        work.join(0.2)
        assert (len(reached), work.is_alive()) == (stood, True)
        assert 20 <= stood <= 22
    finally:
        store._group.wake()
    work.join(20)
    assert trail.run("r").status is Status.COMPLETED


# A store that fails.


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as faulty:
        yield faulty


@workflow
def long() -> list[str]:
    found = []
    for number in range(12):
        found.append(act(f"{number}" + "x" * 3000))
        if number == 5:
            act("spoil")
    return found


@workflow
async def long_later() -> list[str]:
    async def branch(name: str) -> list[str]:
        return [await act_later(f"{name}{number}" + "x" * 3000) for number in range(4)]

    found = await asyncio.gather(branch("a"), branch("b"))
    await act_later("spoil")
    return [*found[0], *found[1], *await branch("c")]


@workflow
def swallows() -> str:
    for number in range(12):
        try:
            act(f"{number}" + "x" * 3000)
            if number == 5:
                act("spoil")
        except Exception:  # noqa: BLE001 - what is not to be done, and must do no harm
            pass
    return "as if nothing were"


FAULTS: dict[str, tuple[dict[str, int], type[StoreError]]] = {
    "full": ({"room": 0}, DiskFullError),
    "write": ({"writes": 0}, StoreError),
    "sync": ({"syncs": 0}, StoreError),
}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("workflow", [long, long_later, swallows], ids=repr)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_fails_is_told_and_the_run_goes_on_later(
    tmp_path: Path, disk: FaultyDisk, fault: str, workflow: Any, durability: str
) -> None:
    """Promises 1 and 13: a typed error, whatever the code does with it; and nothing that is on disk is repeated."""
    spoiled, kind = FAULTS[fault]
    WORLD.on["spoil"] = lambda: vars(disk).update(spoiled)
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(kind):
            go(trail, workflow, durability)
        assert disk.failed
        disk.heal()
        WORLD.on.clear()
        run = trail.run("r")
        assert run.status is Status.ACTIVE
        kept = [row.inputs["name"] for row in trail.steps("r") if row.kind is Kind.STEP]
        executed = WORLD.taken()
        if durability == "sync":
            assert executed[: executed.index("spoil")] == kept  # all but the one that told
        assert go(trail, workflow, durability).status is Status.COMPLETED
        again = WORLD.taken()
        assert not set(kept) & set(again)
        assert sorted(kept + again) == sorted(set(executed) | set(again))
        assert trail.verify().ok


def test_a_disk_that_is_full_at_the_very_end_leaves_the_run_to_be_ended(tmp_path: Path, disk: FaultyDisk) -> None:
    @workflow
    def short() -> str:
        act("a")
        disk.room = disk.room if WORLD.bad else 0
        return "x" * 5000

    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(DiskFullError):
            go(trail, short)
        disk.heal()
        WORLD.bad.add("healed")
        WORLD.taken()
        assert go(trail, short).value == "x" * 5000
        assert WORLD.taken() == []
        assert [row.name for row in trail.steps("r")] == ["short", "act", "end"]


def test_a_run_can_be_resumed_in_another_mode(trail: Trail) -> None:
    @workflow
    def letters() -> str:
        return "".join(act(letter) for letter in "abcdef")

    for durability, letter in (("exit", "b"), ("sync", "d"), ("async", "f")):
        WORLD.crash = {letter}
        with pytest.raises(BaseException, match=letter):
            go(trail, letters, durability)
    assert go(trail, letters, "exit").value == "abcdef"
    assert "".join(WORLD.taken()) == "abbcddeff"


def test_what_completed_is_given_again_by_a_trail_that_is_only_read(tmp_path: Path, trail: Trail) -> None:
    @workflow
    async def begins() -> str:
        return await act_later("a")

    assert go(trail, begins).value == "a"
    with everstep.open(tmp_path / "trail.db", read_only=True) as other:
        assert asyncio.run(AsyncRunner(other).run(begins, id="r")).value == "a"
        with pytest.raises(ReadOnlyError):
            asyncio.run(AsyncRunner(other).run(begins, id="another"))
