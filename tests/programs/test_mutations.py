"""Resuming a run with changed code: the change is told, or makes no difference; never is an old answer a new one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import everstep
from everstep.errors import DivergenceError
from everstep.run import turnstile
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from tests.programs.generator import ASYNC, SYNC
from tests.programs.lives import Crash, Mortal
from tests.programs.mutations import ARGUMENT, CHANGES, INSERTED, RENAMED, problems_of

# What may be told of a change; the others depend on what stands around it.
CAUSES = {
    ARGUMENT: {"changed argument"},
    RENAMED: {"inserted or replaced"},
    INSERTED: {"inserted or replaced", "inserted"},
}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that was removed holds up those that came after it, and need not for long: here order means nothing."""
    monkeypatch.setattr(turnstile, "_PATIENCE", 0.05)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("family", "start"), [(family, start) for family in (SYNC, ASYNC) for start in (0, 20)])
def test_a_change_is_told_or_makes_no_difference(family: str, start: int, change: str) -> None:
    """No finished step is executed again, and none gets an answer that is not its own (promise 2)."""
    problems, hows = problems_of(family, range(start, start + 20), change)
    assert problems == []
    told = {how.removeprefix("diverged: ") for how in hows if how.startswith("diverged")}
    assert told
    assert told <= CAUSES.get(change, told)


@pytest.mark.torture
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("family", "start"), [(f, start) for f in (SYNC, ASYNC) for start in range(1000, 1400, 50)])
def test_many_changes_are_told_or_make_no_difference(family: str, start: int, change: str) -> None:
    """As above (promise 2)."""
    problems, _ = problems_of(family, range(start, start + 50), change)
    assert problems == []


# The cause, in plain cases. Each letter is a step; a small letter asks with another argument.

Way = Callable[[Callable[[], None]], None]


def directly(body: Callable[[], None]) -> None:
    body()


def in_a_step(body: Callable[[], None]) -> None:
    everstep.step(name="around")(body)()


def in_a_thread(body: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def in_a_task(body: Callable[[], None]) -> None:
    raise NotImplementedError  # the workflow knows it, and spawns


def say(letter: str) -> str:
    """What a step is asked, as a call."""
    made = everstep.step(name=letter.upper(), ignore=["log"])(_answer)
    return made(letter.isupper(), LOG)


LOG: list[bool] = []


def _answer(argument: bool, log: list[bool]) -> str:  # noqa: FBT001 - an argument like any other
    log.append(argument)
    return "said"


def go_through(store: Store, way: Way, letters: str, first: str = "") -> int:
    """Run a workflow that asks for these steps, and for `first` before it goes that way. How many were executed."""
    LOG.clear()

    def body() -> None:
        for letter in letters:
            say(letter)

    async def task() -> None:
        body()

    async def awaited() -> None:
        for letter in first:
            say(letter)
        await asyncio.create_task(task())
        say("Z")

    def plain() -> None:
        for letter in first:
            say(letter)
        way(body)
        say("Z")

    workflow: Any = everstep.workflow(name="spell")(awaited if way is in_a_task else plain)
    everstep.Runner(everstep.Trail(store)).run(workflow, id="r")
    return len(LOG)


@pytest.mark.parametrize("way", [directly, in_a_step, in_a_thread, in_a_task])
@pytest.mark.parametrize(
    ("now", "cause", "recorded", "requested", "skipped"),
    [
        ("AbC", "changed argument", "B", "B", ()),
        ("AXC", "inserted or replaced", "B", "X", ()),
        ("ABXC", "inserted or replaced", "C", "X", ()),
        ("AABC", "inserted or replaced", "B", "A", ()),
        ("AC", "removed or reordered", "B", "C", ("B",)),
        ("BAC", "removed or reordered", "A", "B", ("A",)),
        ("ACB", "removed or reordered", "B", "C", ("B",)),
    ],
)
@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
def test_a_divergence_names_what_changed(
    way: Way, now: str, cause: str, recorded: str, requested: str, skipped: tuple[str, ...]
) -> None:
    """Nothing was executed when it is told (promise 2)."""
    store = MemoryStore()
    with pytest.raises(Crash):
        # Within a step the crash comes before it ends: what has completed is served whole, whatever its code now is.
        go_through(Mortal(store, 4 if way is in_a_step else None, before_the_end=True), way, "ABC")
    with pytest.raises(DivergenceError) as told:
        go_through(store, way, now)
    error = told.value
    assert (error.cause, error.recorded, error.requested, error.skipped) == (cause, recorded, requested, skipped)
    assert not LOG
    assert go_through(store, way, "ABC") == (way is in_a_step)  # with the code put back, it goes on


@pytest.mark.parametrize("way", [in_a_step, in_a_thread, in_a_task])
@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
def test_what_a_step_or_a_lane_no_longer_asks_for_is_told_when_it_ends(way: Way) -> None:
    store = MemoryStore()
    with pytest.raises(Crash):
        go_through(Mortal(store, 4 if way is in_a_step else None, before_the_end=True), way, "ABC")
    with pytest.raises(DivergenceError) as told:
        go_through(store, way, "AB")
    assert (told.value.cause, told.value.recorded, LOG) == ("removed", "C", [])


@pytest.mark.parametrize("way", [in_a_thread, in_a_task])
@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
def test_what_a_lane_asks_for_after_its_end_is_told(way: Way) -> None:
    store = MemoryStore()
    with pytest.raises(Crash):
        go_through(Mortal(store, None, before_the_end=True), way, "ABC")
    with pytest.raises(DivergenceError) as told:
        go_through(store, way, "ABCX")
    assert (told.value.cause, told.value.requested, LOG) == ("inserted", "X", [])


@pytest.mark.parametrize("way", [in_a_thread, in_a_task])
@pytest.mark.parametrize(("before", "now"), [("Q", ""), ("", "Q")])
@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
def test_a_step_that_came_or_went_before_a_lane_was_spawned_is_told(way: Way, before: str, now: str) -> None:
    """The lane stands elsewhere then, and its steps are not taken for new ones (promise 2)."""
    store = MemoryStore()
    with pytest.raises(Crash):
        go_through(Mortal(store, len(before) + 3), way, "ABC", first=before)
    with pytest.raises(DivergenceError) as told:
        go_through(store, way, "ABC", first=now)
    assert (told.value.cause, LOG) == ("removed" if before else "inserted", [])
