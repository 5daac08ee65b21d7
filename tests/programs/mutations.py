"""One change to a random program whose run is on record, and what may come of resuming it with the changed code."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random

import everstep
from everstep.codec.record import StepRecord
from everstep.model import Kind
from everstep.store.memory import MemoryStore
from tests.programs.generator import Node, Program, program
from tests.programs.lives import Mortal, live
from tests.programs.world import Answer, Boom, Given, Key, World, number

ARGUMENT, RENAMED, INSERTED, TWIN, REMOVED, SWAPPED = "argument", "renamed", "inserted", "twin", "removed", "swapped"
CHANGES = (ARGUMENT, RENAMED, INSERTED, TWIN, REMOVED, SWAPPED)
_NEW = "new"  # a name that no program has
_MARKED = 1  # the uid of a step that the change brought in


def _lists(nodes: list[Node]) -> Iterator[list[Node]]:
    """Every sequence of a program."""
    yield nodes
    for node in nodes:
        for inner in (node.body, node.other, *node.branches):
            if inner:
                yield from _lists(inner)


def _places(code: Program, change: str) -> list[tuple[list[Node], int]]:
    """Where a program can be changed so."""
    lists = list(_lists(code.nodes))
    if change == INSERTED:
        return [(nodes, place) for nodes in lists for place in range(len(nodes) + 1)]
    steps = [(nodes, place) for nodes in lists for place, node in enumerate(nodes) if node.kind in {"leaf", "step"}]
    return [each for each in steps if _can_be_swapped(*each)] if change == SWAPPED else steps


def changed(code: Program, chance: Random, change: str) -> tuple[Program, int] | None:
    """The program with one step changed, and the uid of that step. None if there is none that could be."""
    code = replace(code, nodes=deepcopy(code.nodes))
    places = _places(code, change)
    if not places:
        return None
    nodes, place = chance.choice(places)
    if change == INSERTED:
        nodes.insert(place, Node("leaf", _MARKED, _NEW, plain=True))
        return code, _MARKED
    node = nodes[place]
    if change == TWIN:
        nodes.insert(place, replace(node, uid=_MARKED))
        return code, _MARKED
    if change == ARGUMENT:
        node.constant += 10
    elif change == RENAMED:
        node.name = _NEW
    elif change == REMOVED:
        del nodes[place]
    else:
        nodes[place], nodes[place + 1] = nodes[place + 1], nodes[place]
    return code, node.uid


def _can_be_swapped(nodes: list[Node], place: int) -> bool:
    if place + 1 >= len(nodes) or {nodes[place].kind, nodes[place + 1].kind} != {"leaf"}:
        return False
    return _look(nodes[place]) != _look(nodes[place + 1])


def _look(node: Node) -> tuple[str, int, bool]:
    return node.name, node.constant, node.depends


class Witness(World):
    """A world that keeps account instead of judging: which answers were given, and what was executed for them."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self.run = run
        self.asked: set[int] = set()  # uids
        self.live: list[tuple[int, int]] = []  # uid and row of what was executed
        self.given: list[int] = []  # rows, in the order their answers were given

    def ask(self, node: Node, key: Key) -> None:
        self.asked.add(node.uid)

    def execute(self, node: Node, key: Key, given: Given) -> Answer:
        answer, row, asked = super().execute(node, key, given)
        row = number(self.run, row)  # of this life
        self.live.append((node.uid, row))
        return answer, row, asked

    def _note(self, node: Node, key: Key) -> None:
        return

    def told(self, node: Node, key: Key, given: Given, answer: Answer | None, error: Boom | None) -> None:
        if answer is None:
            return
        self.given.append(answer[1])
        if answer[2] != (node.name, node.constant, given):
            self.faults.append(f"{node.name}({node.constant}, {given}) was given what {answer[2]} gave")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a change: `how` in one word, and what is wrong with it."""

    how: str
    problems: tuple[str, ...] = ()
    cause: str = ""


def verdict(family: str, seed: int, change: str) -> Verdict:
    """Record a program up to its last row, change it, and resume."""
    code, chance = program(family, seed), Random(f"{change} {family} {seed}")
    after = changed(code, chance, change)
    if after is None:
        return Verdict("no place for it")
    store, run_id, world = MemoryStore(), f"{family}-{seed}-{change}", Witness("recorded")
    whole = live(code, f"{run_id}-whole", Witness("whole"), store, Random(seed))
    if whole.how != "ok":
        return Verdict("fails by itself")
    live(code, run_id, world, Mortal(store, None, before_the_end=True), Random(seed))
    trail = everstep.Trail(store)
    before, finished = trail.steps(run_id), Counter(uid for uid, _ in world.live)
    world = Witness("changed")
    outcome = live(after[0], run_id, world, store, chance)
    problems = list(world.faults)
    problems += _wrongly_live(before, trail.steps(run_id), world)
    allowed = {after[1]} | ({_MARKED} if change in {INSERTED, TWIN} else set())
    again = [uid for uid, _ in world.live if uid not in allowed and finished[uid]]
    if again and change != TWIN:  # of twins, either may be the one that is on record
        problems.append(f"steps {again} are finished, and were executed again")
    if outcome.how == "diverged":
        return Verdict("diverged", tuple(problems), outcome.cause)
    if outcome.how != "ok":
        return Verdict(outcome.how, (*problems, f"{outcome.how}: {outcome.value}"))
    reached = after[1] in world.asked or change == REMOVED
    if world.live:
        return Verdict("beyond the record", tuple(problems))
    if outcome.value != whole.value:
        problems.append(f"nothing was executed, and it gives {outcome.value} instead of {whole.value}")
    if reached and change in {ARGUMENT, RENAMED, INSERTED, SWAPPED}:
        problems.append("the changed step was reached, and nothing was said")
    return Verdict("equal", tuple(problems))


def _wrongly_live(before: list[StepRecord], after: list[StepRecord], world: Witness) -> list[str]:
    """Steps that were executed where the record goes on: in the middle of a lane, or after its end."""
    lanes = {step.output[1]: (step.parent, step.lane) for step in after if isinstance(step.output, tuple)}
    ended = {(step.parent, step.lane) for step in before if step.kind is Kind.LANE_END}
    known = {step.output[1] for step in before if isinstance(step.output, tuple)}
    problems = []
    for _, row in world.live:
        lane = lanes.get(row)
        if lane is None or row not in world.given:
            continue  # it was executed, and then something stopped the run
        if lane in ended:
            problems.append(f"a step was executed in {lane}, which had ended")
        later = world.given[world.given.index(row) + 1 :]
        if any(each in known and lanes[each] == lane for each in later):
            problems.append(f"a step was executed in the middle of {lane}")
    return problems


def problems_of(family: str, seeds: Iterable[int], change: str) -> tuple[list[str], Counter[str]]:
    """What is wrong with these programs after a change, and how often what came of it."""
    problems, hows = [], Counter[str]()
    for seed in seeds:
        found = verdict(family, seed, change)
        hows[f"{found.how}: {found.cause}" if found.cause else found.how] += 1
        problems += [
            f"{problem}\n(again: python -m tests.programs.mutations {family} {seed} {change})"
            for problem in found.problems
        ]
    return problems, hows


if __name__ == "__main__":
    sys.stdout.write(f"{verdict(sys.argv[1], int(sys.argv[2]), sys.argv[3])}\n")
