"""One run, several processes: one works on it, the others are told who; and a process that lost it cannot write."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Runner, Status, Trail, pause, step, workflow
from everstep.errors import EverstepError, LeaseWarning, OwnedError, StoreError
from everstep.run import heart
from everstep.trail import leaving
from tests.integration.failing import WORLD, act
from tests.integration.test_run_kills import recorded
from tests.integration.workloads import go, lines, started, stop, until
from tests.places import in_each_place, in_each_place_with


@pytest.fixture
def place(trail_url: str, tmp_path: Path) -> tuple[str, Path]:
    """Where the trail is, and where the leaves note that they begin."""
    return trail_url, tmp_path / "side"


def taken_over(kind: str, trail: str, side: Path, patience: float) -> Any:
    """The run's result, gone on with here as soon as nobody owns it."""
    end = time.monotonic() + patience
    while True:
        try:
            return go(kind, trail, "r", str(side), 0.0)
        except OwnedError:
            assert time.monotonic() < end
            time.sleep(0.02)


def check(trail: str, side: Path, before: int, known: set[str]) -> None:
    """The run has completed, nothing that was on disk began again, and its history holds."""
    again = {line.removeprefix("begin ") for line in lines(side)[before:] if line.startswith("begin ")}
    assert known & again == set()
    with everstep.open(trail) as opened:
        assert opened.run("r").status is Status.COMPLETED
        assert opened.verify().ok
    assert max(recorded(trail, "r").values()) == 1


@in_each_place_with("kind", "sync", "parallel")
def test_another_process_is_told_who_owns_the_run_and_takes_it_over_when_that_is_killed(
    place: tuple[str, Path], kind: str
) -> None:
    """Promise 4."""
    trail, side = place
    process = started(kind, trail, "r", side, 0.1)
    until(side, 3)
    with pytest.raises(OwnedError, match=f":{process.pid}:") as told:
        go(kind, trail, "r", str(side), 0.0)
    assert told.value.owner.split(":")[1] == str(process.pid)
    assert process.poll() is None
    process.kill()
    process.communicate()
    before, known = len(lines(side)), set(recorded(trail, "r"))
    value = go(kind, trail, "r", str(side), 0.0)  # at once: the lease need not end
    check(trail, side, before, known)
    assert value == go(kind, ":memory:", "r", str(side), 0.0)


@in_each_place_with("kind", "awaited", "sync")
def test_a_process_that_wakes_up_after_its_run_was_taken_over_cannot_write(place: tuple[str, Path], kind: str) -> None:
    """Promise 4: stopped past its lease, continued when another has finished; it is told, and has written nothing."""
    trail, side = place
    zombie = started(kind, trail, "r", side, 0.05, lease=1.0)
    until(side, 4)
    stop(zombie, trail)
    before, known = len(lines(side)), set(recorded(trail, "r"))
    taken_over(kind, trail, side, 20)
    check(trail, side, before, known)
    with everstep.open(trail) as opened:
        rows = [row.hash for row in opened.steps("r")]
    os.kill(zombie.pid, signal.SIGCONT)
    said, wrong = zombie.communicate(timeout=20)
    assert zombie.returncode == 1
    assert "StaleWriterError" in wrong
    assert said == ""
    with everstep.open(trail) as opened:
        assert [row.hash for row in opened.steps("r")] == rows
        assert opened.run("r").status is Status.COMPLETED


@in_each_place()
def test_a_process_that_wakes_up_while_another_works_does_not_disturb_it(place: tuple[str, Path]) -> None:
    """Promise 4: both are at work at the same time, and one of them in vain."""
    trail, side = place
    zombie = started("sync", trail, "r", side, 0.05, lease=1.0)
    until(side, 4)
    stop(zombie, trail)
    before, known = len(lines(side)), set(recorded(trail, "r"))
    time.sleep(1.2)
    heir = started("sync", trail, "r", side, 0.05, lease=5.0)
    until(side, before + 3)
    os.kill(zombie.pid, signal.SIGCONT)
    assert heir.communicate(timeout=20)[1] == ""
    wrong = zombie.communicate(timeout=20)[1]
    assert (heir.returncode, zombie.returncode) == (0, 1)
    assert "StaleWriterError" in wrong
    with everstep.open(trail) as opened:
        assert opened.run("r").status is Status.COMPLETED
        assert opened.verify().ok
    assert known <= set(recorded(trail, "r"))
    assert max(recorded(trail, "r").values()) == 1


@in_each_place_with("kind", "sync", "awaited", "nested, awaited")
def test_a_run_of_another_process_can_be_cancelled(place: tuple[str, Path], kind: str) -> None:
    """It hears of it, finishes what it is at, and what it had done is not done again."""
    trail, side = place
    process = started(kind, trail, "r", side, 0.5)
    until(side, 3)
    with everstep.open(trail) as opened:
        opened.cancel("r")
        wrong = process.communicate(timeout=20)[1]
        assert process.returncode == 1
        assert "RunCancelledError" in wrong
        assert {run.status for run in opened.runs()} == {Status.CANCELLED}
    before, known = len(lines(side)), set(recorded(trail, "r"))
    begun = {line.removeprefix("begin ") for line in lines(side) if line.startswith("begin ")}
    assert begun == known  # what was at work was finished and kept
    go(kind, trail, "r", str(side), 0.0)
    check(trail, side, before, known)


@in_each_place()
def test_a_run_whose_process_is_dead_is_cancelled_at_once(place: tuple[str, Path]) -> None:
    trail, side = place
    process = started("nested, awaited", trail, "r", side, 0.1)
    until(side, 3)
    process.kill()
    process.communicate()
    with everstep.open(trail) as opened:
        opened.cancel("r")
        assert {run.status for run in opened.runs()} == {Status.CANCELLED}
        assert opened.run("r").owner is None


def test_a_run_is_kept_while_a_step_takes_longer_than_the_lease(trail: Trail) -> None:
    """Promise 4."""
    entered, leave = threading.Event(), threading.Event()

    @step
    def long() -> str:
        entered.set()
        assert leave.wait(20)
        return act("long")

    @workflow
    def waits() -> str:
        return long()

    results: list[str] = []
    work = threading.Thread(target=lambda: results.append(Runner(trail, lease=2.5).run(waits, id="r").value))
    work.start()
    assert entered.wait(5)
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        with pytest.raises(OwnedError):
            Runner(trail).run(waits, id="r")
        time.sleep(0.05)
    leave.set()
    work.join(10)
    assert results == ["long"]
    assert WORLD.taken() == ["long"]


def test_a_run_that_is_at_work_cannot_be_answered_by_somebody_else(trail: Trail) -> None:
    """Promise 4."""
    seen: list[BaseException] = []

    @workflow
    def busy() -> str:
        try:
            trail.answer("r", 1)
        except everstep.EverstepError as error:
            seen.append(error)
        return act("a")

    Runner(trail).run(busy, id="r")
    assert [type(error) for error in seen] == [OwnedError]


def test_a_run_that_was_given_up_can_be_taken_by_anybody_at_once(trail: Trail) -> None:
    @workflow
    def fails() -> str:
        act("a")
        return act("b")

    WORLD.fail.add("b")
    for _ in range(3):
        with pytest.raises(ValueError, match="b"):
            Runner(trail).run(fails, id="r")
        assert trail.run("r").owner is None


def test_a_renewal_that_comes_late_owns_nothing(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 4: who keeps the lease may be in the middle of it when the run ends, or is given up."""
    renew = heart._renew

    def renew_all(runs: list[Any]) -> None:
        for run in runs:
            with suppress(EverstepError):
                renew(run)

    monkeypatch.setattr(heart, "_renew_due", renew_all)
    monkeypatch.setattr(heart, "_BEAT", 0.0001)

    @workflow
    def fails() -> None:
        raise ValueError("at once")

    @workflow
    def asks() -> None:
        pause("go on?")

    for number in range(40):
        Runner(trail).run(fails, id=f"failed {number}", error_handling="continue")
        Runner(trail).run(asks, id=f"paused {number}")
    assert [run.id for run in trail.runs(limit=1000) if run.owner is not None] == []


def test_who_keeps_the_lease_holds_on_to_no_run_that_ended(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 11."""
    seen: list[weakref.ref[Any]] = []
    looked_after = threading.Event()

    def look(runs: list[Any]) -> None:
        seen.extend(map(weakref.ref, runs))
        if seen:
            looked_after.set()

    monkeypatch.setattr(heart, "_renew_due", look)
    monkeypatch.setattr(heart, "_BEAT", 0.01)

    @workflow
    def waits() -> None:
        assert looked_after.wait(30)

    Runner(trail).run(waits)
    end = time.monotonic() + 30
    while any(run() is not None for run in seen):
        gc.collect()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_an_error_that_nobody_foresaw_is_told_once_and_the_leases_are_kept_on(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 4: neither that run nor the others are lost by it."""
    renew, seen, kept = heart._renew, list[str](), threading.Event()

    def fails(run: Any) -> None:
        seen.append(run.run_id)
        if run.run_id == "odd":
            raise KeyError("of a driver")
        renew(run)
        if min(map(seen.count, ("odd", "r"))) > 2:
            kept.set()

    monkeypatch.setattr(heart, "_renew", fails)
    monkeypatch.setattr(heart, "_BEAT", 0.01)
    monkeypatch.setattr(leaving, "_told", set())

    @workflow
    def waits() -> None:
        assert kept.wait(30)

    with warnings.catch_warnings(record=True) as told, ThreadPoolExecutor() as pool:
        warnings.simplefilter("always")
        for run in [pool.submit(Runner(trail, lease=0.3).run, waits, id=name) for name in ("odd", "r")]:
            assert run.result().completed
    assert [(each.category, "KeyError: 'of a driver'" in str(each.message)) for each in told] == [(LeaseWarning, True)]


def test_a_run_that_could_not_be_given_up_is_given_up_when_the_store_lets_it(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 4: whatever the store raised, whoever is next does not have to wait until the lease ends."""
    renew, errors = trail.store.renew, [KeyError("of a driver"), StoreError("away")]

    def fails(*given: Any) -> None:
        if errors:
            raise errors.pop()
        renew(*given)

    @workflow
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leaving, "_told", set())
    monkeypatch.setattr(trail.store, "renew", fails)
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            Runner(trail).run(interrupted, id="r")
        end = time.monotonic() + 30
        while trail.run("r").owner is not None:
            leaving.give_up_again()
            assert time.monotonic() < end
    assert not errors
