"""One random program, crashed and resumed, against what it gives without interruption."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from random import Random

import everstep
from everstep.model import Kind, Status
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from tests.programs.generator import RACY, Program, program
from tests.programs.lives import Mortal, Outcome, live
from tests.programs.world import Spot, World

_MOST_FAILURES = 30


def trial(family: str, seed: int, store: Store | None = None) -> list[str]:
    """What is wrong with resuming this program; nothing, if all is well."""
    return _Trial(program(family, seed), MemoryStore() if store is None else store).problems()


def problems_of(family: str, seeds: Iterable[int], store: Store | None = None) -> list[str]:
    """What is wrong with resuming these programs, each with the way to see it again."""
    return [
        f"{problem}\n(again: python -m tests.programs.trial {family} {seed})"
        for seed in seeds
        for problem in trial(family, seed, store)
    ]


class _Trial:
    """A program, its world, and the run of it that crashes."""

    def __init__(self, code: Program, store: Store) -> None:
        self.code = code
        self.store = store
        self.run_id = f"{code.family}-{code.seed}"
        self.world = World()
        self.chance = Random(f"lives of {self.run_id}")
        self.read = 0  # rows of the record, so far
        self.found: list[str] = []

    def problems(self) -> list[str]:
        calm = Mortal(self.store, None)
        whole = self._uninterrupted("whole", set(), calm)
        if whole is None:
            return self.found
        rows = calm.rows
        outcome = self._lives("resumed", [self.chance.randint(0, rows), self.chance.randint(0, max(1, rows // 2))])
        if outcome is None:
            return self.found
        self._compare("crashed and resumed", outcome, whole)
        if outcome.how == "failed" and not self.found and self.code.family != RACY:
            outcome = self._healed(outcome, rows)
        if outcome is not None and outcome.how == "ok" and not self.found:
            self._restored(outcome)
        return self.found

    def _uninterrupted(self, name: str, healed: set[Spot], store: Mortal) -> Outcome | None:
        """What the program gives in one life."""
        world = World()
        world.healed = healed
        outcome = live(self.code, f"{self.run_id}-{name}", world, store, Random(self.code.seed))
        self.found += [f"{name}: {fault}" for fault in world.faults]
        if outcome.how in {"ok", "failed"}:
            return outcome
        self.found.append(f"{name}: {outcome.how}: {outcome.value}")
        return None

    def _lives(self, name: str, crashes: Sequence[int]) -> Outcome | None:
        """Crash after so many rows, again and again, then go to the end."""
        for number, rows in enumerate([*crashes, None]):
            mortal = Mortal(self.store, rows, last_is_kept=self.chance.random() < 0.4)
            outcome = live(self.code, self.run_id, self.world, mortal, self.chance)
            self.found += [f"{name}, life {number}: {fault}" for fault in self.world.faults]
            self.world.faults.clear()
            if outcome.how not in {"ok", "failed", "crash"}:
                self.found.append(f"{name}, life {number}, {rows} rows: {outcome.how}: {outcome.value}")
                return None
            outcome = self._on_record(outcome)
            if outcome.how != "crash":
                return outcome
        self.found.append(f"{name}: crashed in a life that had no end")
        return None

    def _on_record(self, outcome: Outcome) -> Outcome:
        """Learn which leaves are on record. A crash that came after the end was written is an end."""
        trail = everstep.Trail(self.store)
        steps = trail.steps(self.run_id)
        for step in steps[self.read :]:
            if step.kind is Kind.STEP and step.status is Status.COMPLETED and isinstance(step.output, tuple):
                self.world.known.add(step.output[1])
        wrote, self.read = len(steps) > self.read, len(steps)
        status, error = trail.run(self.run_id).status, steps[-1].error
        if outcome.how == "crash" and wrote and status is Status.FAILED and error is not None:
            return Outcome("failed", error.message)
        if outcome.how == "crash" and status is Status.COMPLETED:
            return Outcome("ok", steps[-1].output)
        return outcome

    def _compare(self, name: str, outcome: Outcome, whole: Outcome) -> None:
        same = outcome.value == whole.value if self.code.is_settled else True
        if outcome.how != whole.how or not same:
            self.found.append(f"{name} it gives {outcome}, uninterrupted {whole}")

    def _healed(self, outcome: Outcome, rows: int) -> Outcome | None:
        """The failed run, run again until it completes: each time what it failed with is set right.

        Now and then its code fails by itself before it comes as far. Not for programs in which a failure cancels
        others: which step made the run fail is a matter of time there.
        """
        for number in range(_MOST_FAILURES):
            self.world.heal(outcome.value)
            again = self._stumbled(number) if self.chance.random() < 0.5 else None
            if again is None and not self.found:
                again = self._lives(f"failed {number + 1} times", [self.chance.randint(0, rows)])
            if again is None or again.how == "ok":
                break
            outcome = again
        if again is None or again.how == "failed":
            self.found += [] if again is None else [f"never completes: {again}"]
            return None
        whole = self._uninterrupted("healed", set(self.world.healed), Mortal(self.store, None))
        if whole is not None:
            self._compare(f"healed at {sorted(self.world.healed)}", again, whole)
        return again

    def _stumbled(self, number: int) -> Outcome | None:
        """A life whose code fails by itself. None if that was all."""
        after = self.chance.randrange(len(self.code.nodes))
        outcome = live(self.code, self.run_id, self.world, self.store, self.chance, stumbles=after)
        name = f"failed {number + 1} times, then after {after} parts"
        self.found += [f"{name}: {fault}" for fault in self.world.faults]
        self.world.faults.clear()
        self._on_record(outcome)
        if outcome.how == "failed":
            return outcome
        if outcome.how != "stumbled":
            self.found.append(f"{name}: {outcome.how}: {outcome.value}")
        return None

    def _restored(self, outcome: Outcome) -> None:
        """A completed run is given from the record, and nothing is executed."""
        calls = self.world.calls
        again = live(self.code, self.run_id, self.world, self.store, self.chance)
        if again.how != "ok" or again.value != outcome.value or not again.restored or self.world.calls != calls:
            self.found.append(f"a completed run, run again, gives {again} after {outcome}")


if __name__ == "__main__":
    for problem in trial(sys.argv[1], int(sys.argv[2])):
        sys.stdout.write(problem + "\n")
