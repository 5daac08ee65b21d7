"""One random program, crashed and resumed, against what it gives without interruption."""

from __future__ import annotations

import sys
from random import Random

import everstep
from everstep.model import Kind, Status
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from tests.programs.generator import program
from tests.programs.interpreter import World
from tests.programs.lives import Mortal, Outcome, live


def trial(family: str, seed: int, store: Store | None = None) -> list[str]:
    """What is wrong with resuming this program; nothing, if all is well."""
    code, chance = program(family, seed), Random(f"lives of {family} {seed}")
    store = store if store is not None else MemoryStore()
    calm = Mortal(store, None)
    world = World()
    whole = live(code, f"{family}-{seed}-whole", world, calm, Random(seed))
    problems = list(world.faults)
    if whole.how not in {"ok", "failed"}:
        return [*problems, f"uninterrupted: {whole.how}: {whole.value}"]
    run_id, world = f"{family}-{seed}", World()
    for number, rows in enumerate((chance.randint(0, calm.rows), chance.randint(0, max(1, calm.rows // 2)), None)):
        mortal = Mortal(store, rows, last_is_kept=chance.random() < 0.4)
        outcome = live(code, run_id, world, mortal, chance)
        problems += [f"life {number}: {fault}" for fault in world.faults]
        world.faults.clear()
        if outcome.how in {"stall", "diverged", "error"}:
            return [*problems, f"life {number} (rows: {rows}): {outcome.how}: {outcome.value}"]
        _learn(store, run_id, world)
        if outcome.how != "crash":
            break
    if outcome.how != whole.how or (code.is_settled and outcome.value != whole.value):
        problems.append(f"crashed and resumed it gives {outcome}, uninterrupted {whole}")
    return problems + _once_more(code, run_id, world, store, chance, outcome)


def _learn(store: Store, run_id: str, world: World) -> None:
    """Note which leaves are on record."""
    for step in everstep.Trail(store).steps(run_id):
        if step.kind is Kind.STEP and step.status is Status.COMPLETED and isinstance(step.output, list):
            world.known.add(step.output[1])


def _once_more(code, run_id, world, store, chance, outcome) -> list[str]:
    return []


if __name__ == "__main__":
    for problem in trial(sys.argv[1], int(sys.argv[2])):
        sys.stdout.write(problem + "\n")
