"""Random programs, recorded and replayed: the same code is identical, a changed one is not, or makes no difference."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from random import Random
from typing import Any

import everstep
from everstep.store.memory import MemoryStore
from everstep.trail.replayed import ReplayReport
from tests.programs.generator import Program, program
from tests.programs.interpreter import Player
from tests.programs.lives import PLAYERS, Mortal, awaited_workflow, live, plain_workflow
from tests.programs.mutations import changed
from tests.programs.world import World


def replayed(
    code: Program, run_id: str, store: Any, chance: Random, mode: str = "verify"
) -> tuple[ReplayReport, World]:
    """The report, and the world, which must not have been asked for anything."""
    world = World()
    PLAYERS[run_id] = Player(code, world, chance)
    workflow: Any = awaited_workflow if code.is_async else plain_workflow
    try:
        return everstep.Trail(store).replay(run_id, workflow, mode=mode), world  # type: ignore[arg-type] # one of them
    finally:
        del PLAYERS[run_id]


def recorded(family: str, seed: int) -> tuple[Program, str, MemoryStore, int]:
    """A program that was run, and how many rows it has."""
    code, store, run_id = program(family, seed), MemoryStore(), f"{family}-{seed}"
    counted = Mortal(store, None)
    live(code, run_id, World(), counted, Random(seed))
    return code, run_id, store, counted.rows


def problems_of(family: str, seeds: Iterable[int]) -> list[str]:
    """What is wrong with replaying these programs."""
    found = []
    for seed in seeds:
        code, run_id, store, _ = recorded(family, seed)
        rows = everstep.Trail(store).run(run_id).head
        report, world = replayed(code, run_id, store, Random(seed + 1))
        if not report.identical or world.leaves or everstep.Trail(store).run(run_id).head != rows:
            found.append(f"{run_id}: {report}; {world.leaves} leaves were executed")
    return found


def changes_of(family: str, seeds: Iterable[int], change: str) -> tuple[list[str], list[str]]:
    """What is wrong with replaying changed programs, and what was told of each."""
    found, told = [], []
    for seed in seeds:
        code, run_id, store, _ = recorded(family, seed)
        other = changed(code, Random(f"{change} {seed}"), change)
        if other is None:
            continue
        report, world = replayed(other[0], run_id, store, Random(seed + 1))
        told.append("identical" if report.first is None else report.first.cause)
        if world.leaves:
            found.append(f"{run_id} {change}: {world.leaves} leaves were executed")
    return found, told


if __name__ == "__main__":
    for problem in problems_of(sys.argv[1], [int(sys.argv[2])]):
        sys.stdout.write(problem + "\n")
