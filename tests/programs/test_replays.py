"""Random programs are recorded and replayed: the same code is identical, a changed one is told."""

from __future__ import annotations

import pytest

from everstep.run import turnstile
from tests.programs.generator import ASYNC, COMPLETED, RACY, SYNC
from tests.programs.mutations import ARGUMENT, CHANGES, INSERTED, RENAMED
from tests.programs.replays import changes_of, problems_of
from tests.programs.test_random_programs import BLOCK, blocks

# What may be told of a change; the others depend on what stands around it.
CAUSES = {
    ARGUMENT: {"changed argument"},
    RENAMED: {"extra step", "missing step"},
    INSERTED: {"extra step", "missing step"},
}


@pytest.mark.parametrize(("family", "start"), blocks({SYNC: 100, ASYNC: 150, COMPLETED: 50, RACY: 50}))
def test_a_program_that_did_not_change_is_replayed_identically(family: str, start: int) -> None:
    """No leaf is executed, and nothing is written (promise 6)."""
    assert problems_of(family, range(start, start + BLOCK)) == []


@pytest.mark.torture
@pytest.mark.parametrize(
    ("family", "start"), blocks({SYNC: 1000, ASYNC: 1500, COMPLETED: 500, RACY: 500}, first=20_000)
)
def test_many_programs_that_did_not_change_are_replayed_identically(family: str, start: int) -> None:
    """As above, ten times as often (promise 6)."""
    assert problems_of(family, range(start, start + BLOCK)) == []


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("family", [SYNC, ASYNC])
def test_a_change_is_told_and_no_leaf_is_executed_for_it(
    family: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told is the change, or that it makes no difference (promise 6)."""
    monkeypatch.setattr(turnstile, "_PATIENCE", 0.05)
    problems, told = changes_of(family, range(30), change)
    assert problems == []
    causes = set(told) - {"identical"}
    assert causes
    assert causes <= CAUSES.get(change, causes)
