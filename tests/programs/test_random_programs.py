"""Random programs are crashed and resumed, and must not tell the difference. A failure says how to see it again."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from everstep.run import turnstile
from everstep.store.memory import MemoryStore
from everstep.store.sqlite import SqliteStore
from tests.programs.generator import ASYNC, COMPLETED, FAMILIES, RACY, SYNC, program
from tests.programs.lives import PATIENCE, Mortal, live
from tests.programs.trial import problems_of
from tests.programs.world import World

BLOCK = 25


@pytest.fixture(autouse=True)
def nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that has not changed asks for everything: who waits for an outcome's turn must never wait in vain."""
    monkeypatch.setattr(turnstile, "_PATIENCE", 2 * PATIENCE)


def blocks(numbers: dict[str, int], first: int = 0) -> list[Any]:
    """Which seeds to try, a block at a time: the tests of a machine with several cores share them."""
    return [
        pytest.param(family, start, marks=pytest.mark.many if start >= first + 2 * BLOCK else ())
        for family, count in numbers.items()
        for start in range(first, first + count, BLOCK)
    ]


@pytest.mark.parametrize(("family", "start"), blocks({SYNC: 150, ASYNC: 250, COMPLETED: 100, RACY: 50}))
def test_a_run_that_crashes_and_is_resumed_ends_as_if_it_had_not(family: str, start: int) -> None:
    """Nothing known is executed again, at any depth, after two crashes and a failure (promise 2)."""
    assert problems_of(family, range(start, start + BLOCK)) == []


@pytest.mark.torture
@pytest.mark.parametrize(
    ("family", "start"), blocks({SYNC: 1500, ASYNC: 2500, COMPLETED: 1000, RACY: 500}, first=10_000)
)
def test_many_runs_that_crash_and_are_resumed_end_as_if_they_had_not(family: str, start: int) -> None:
    """As above, ten times as often (promise 2)."""
    assert problems_of(family, range(start, start + BLOCK)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_in_sqlite_that_crashes_ends_as_if_it_had_not(family: str, tmp_path: Path) -> None:
    """The same on a disk (promise 2)."""
    store = SqliteStore(str(tmp_path / "trail.db"))
    try:
        assert problems_of(family, range(500, 508), store) == []
    finally:
        store.close()


@pytest.mark.parametrize("on_a_loop", [False, True])
@pytest.mark.parametrize("family", [SYNC, ASYNC])
def test_what_one_runner_recorded_the_other_goes_on_with(family: str, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Either way (promise 2)."""
    for seed in range(600, 610):
        code, store, world, calm = program(family, seed), MemoryStore(), World(), Mortal(MemoryStore(), None)
        whole = live(code, "r", World(), calm, Random(seed), on_a_loop=on_a_loop)
        died = live(code, "r", world, Mortal(store, calm.rows // 2), Random(seed), on_a_loop=on_a_loop)
        resumed = live(code, "r", world, store, Random(seed + 1), on_a_loop=not on_a_loop)
        assert (seed, died.how, resumed, world.faults) == (seed, "crash", whole, [])


def test_a_seed_makes_the_same_program_every_time() -> None:
    assert [program(family, 7) for family in FAMILIES] == [program(family, 7) for family in FAMILIES]
