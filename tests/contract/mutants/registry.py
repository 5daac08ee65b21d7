"""Stores that are broken on purpose, each in one way, with the tests of the contract that must see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from everstep.store.base import RunRow
from everstep.store.memory import MemoryStore, _Run

Mutant = type[MemoryStore]
M = TypeVar("M", bound=Mutant)
CAUGHT: dict[Mutant, tuple[str, ...]] = {}  # by which tests, named without their `test_`


def caught_by(*tests: str) -> Callable[[M], M]:
    """Take a mutant in, with the tests that it must fail."""

    def register(mutant: M) -> M:
        CAUGHT[mutant] = tests
        return mutant

    return register


class Forgetful(MemoryStore):
    forgets: ClassVar[dict[str, Any]] = {}

    def _row(self, run: _Run) -> RunRow:
        return super()._row(run)._replace(**self.forgets)
