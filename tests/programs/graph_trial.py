"""One random graph, crashed after every row and taken up again, against what it gives without interruption."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import everstep
from everstep import AsyncRunner, Kind, Runner, Status, StepRecord, Trail
from everstep.run.lanes import NODES
from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from tests.programs.graphs import Boom, answer_to, graph
from tests.programs.lives import PATIENCE, Crash, Mortal, members

_MOST_ANSWERS = 60


class World:
    """What was executed, and what is on record. It survives crashes."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.known: set[str] = set()  # keys of the steps whose outcome is on record
        self.faults: list[str] = []
        self.calls = 0

    def execute(self, _: str) -> None:
        key = everstep.current().idempotency_key
        self.calls += 1
        if key in self.known:
            self.faults.append(f"{key} was executed though its outcome is on record")

    def fail(self, name: str) -> None:
        if name in self.broken:
            raise Boom(name)

    def __everstep_digest__(self) -> str:
        return "the world"

    def learn(self, trail: Trail, run_id: str) -> None:
        """Look what is on record."""
        for each in family(trail, run_id):
            self.known |= {key for key, row in keyed(trail.steps(each)) if row.status is Status.COMPLETED}


@dataclass
class Outcome:
    """How a run ended, and all that must be the same however often it was interrupted."""

    how: str  # ok, partial, failed, crash, stall or error
    values: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def family(trail: Trail, run_id: str) -> list[str]:
    """A run and all below it, if it was begun."""
    found = [run_id] if any(run.id == run_id for run in trail.runs(limit=1000)) else []
    for each in found:
        found += [run.id for run in trail.runs(parent=each, limit=1000)]
    return found


def keyed(rows: list[StepRecord]) -> list[tuple[str, StepRecord]]:
    """The outcomes of steps, each with its idempotency key."""
    keys: dict[int, str] = {}
    found = []
    for row in rows:
        if row.kind in {Kind.START, Kind.END, Kind.ANSWER}:
            continue
        around = keys.get(row.parent, "") if row.parent is not None else row.run_id
        lane = "" if row.lane == NODES else row.lane
        keys.setdefault(row.id, "/".join(filter(None, (around, lane, f"{row.name}#{row.index}"))))
        if row.kind is Kind.STEP:
            found.append((keys[row.id], row))
    return found


def account(trail: Trail, run_id: str) -> dict[str, Any]:
    """What a run and all below it have on record, in whatever order its siblings ended; and the state as it grew."""
    found: dict[str, Any] = {}
    for each in family(trail, run_id):
        last: dict[int, int] = {}
        for key, row in keyed(trail.steps(each)):
            if row.lane == NODES:
                found[key] = row.superstep, row.input_versions, row.decision, row.status, row.node_type, row.metadata
                last[row.superstep or 0] = row.seq
            else:
                found[key] = row.status
        for superstep, seq in last.items():
            found[f"{each} after {superstep}"] = trail.state(each, at=seq)
        found[each] = trail.run(each).status
    return found


class Trial:
    """A graph, and the runs of it."""

    def __init__(self, kind: str, seed: int, points: int = 1000) -> None:
        self.points = points  # at most so many rows to crash after
        self.world = World()
        self.graph, self.inputs, fallible = graph(kind, seed, self.world)
        self.chance = Random(f"lives of {kind} {seed}")
        self.found: list[str] = []
        self.goes_on = self.chance.random() < 0.5
        self.breaking = set(self.chance.sample(fallible, 1)) if fallible and self.chance.random() < 0.5 else set()

    def problems(self) -> list[str]:
        """What is wrong with taking it up again; nothing, if all is well."""
        calm = Mortal(MemoryStore(), None)
        whole = self._life(calm)
        if whole.how in {"stall", "error"}:
            return [f"uninterrupted: {whole.how}: {whole.text}"]
        self._restored("uninterrupted", calm.beneath, whole)
        expected = account(Trail(calm.beneath), "r")
        points = range(calm.rows + 1)
        for rows in self.chance.sample(points, min(self.points, len(points))):
            self._crashed(rows, whole, expected)
        if self.breaking and whole.how == "ok":
            for rows in self.chance.sample(points, min(3, len(points))):
                self._healed(rows, whole)
        return self.found

    def _crashed(self, rows: int, whole: Outcome, expected: dict[str, Any]) -> None:
        """Crash after so many rows, perhaps again, and go to the end."""
        store, name = MemoryStore(), f"crashed after {rows} rows"
        lives = [rows, self.chance.randint(0, 6)] if self.chance.random() < 0.3 else [rows]
        outcome = self._lives(store, lives, name)
        if outcome is None:
            return
        if (outcome.how, outcome.values) != (whole.how, whole.values):
            self.found.append(f"{name} it gives {outcome}, uninterrupted {whole}")
        got = account(Trail(store), "r")
        wrong = [key for key in {**expected, **got} if expected.get(key) != got.get(key)]
        if wrong and not self.found:
            key = min(wrong)
            self.found.append(f"{name} {key} is {got.get(key)}, uninterrupted {expected.get(key)}")
        self._restored(name, store, outcome)
        report = Trail(store).verify()
        self.found += [] if report.ok else [f"{name}: {report}"]

    def _healed(self, rows: int, whole: Outcome) -> None:
        """It fails, perhaps after a crash, is set right and taken up again, perhaps with a crash: it ends as if not."""
        store, name = MemoryStore(), f"failed at {sorted(self.breaking)}"
        self.world.broken = self.breaking
        failed = self._lives(store, [rows] if self.chance.random() < 0.5 else [], name)
        self.world.broken = set()
        if failed is None or failed.how == "ok":  # it is on a way that is not gone
            return
        if failed.how not in {"failed", "partial"}:
            self.found.append(f"{name}: {failed}")
        crashes = [self.chance.randint(0, 8)] if self.chance.random() < 0.7 else []
        healed = self._lives(store, crashes, f"{name}, healed")
        if healed is not None:
            if (healed.how, healed.values) != ("ok", whole.values):
                self.found.append(f"{name}, crashed after {rows} rows, then healed it gives {healed}, else {whole}")
            self._restored(f"{name}, healed", store, healed)

    def _lives(self, store: Store, crashes: Iterable[int], name: str) -> Outcome | None:
        """Crash after so many rows, again and again, then go to the end."""
        self.world.known = set()
        for rows in [*crashes, None]:
            self._given_up(name, Trail(store))
            self.world.learn(Trail(store), "r")
            mortal = Mortal(store, rows, last_is_kept=self.chance.random() < 0.4)
            outcome = self._life(mortal)
            self.found += [f"{name}: {fault}" for fault in self.world.faults]
            self.world.faults.clear()
            if outcome.how in {"stall", "error"}:
                self.found.append(f"{name}: {outcome.how}: {outcome.text}")
                return None
            if outcome.how != "crash":
                return outcome
        self.found.append(f"{name}: crashed in a life that had no end")
        return None

    def _given_up(self, name: str, trail: Trail) -> None:
        """Nobody owns a run when the life that it crashed in is over."""
        end = time.monotonic() + PATIENCE / 4
        while owned := [each for each in family(trail, "r") if trail.run(each).owner is not None]:
            if time.monotonic() > end:
                self.found.append(f"{name}: {owned} are not given up")
                return
            time.sleep(0.001)

    def _life(self, store: Any) -> Outcome:
        """One life of the run, by Runner or by AsyncRunner; whatever it asks is answered."""
        trail, awaited = Trail(store), self.chance.random() < 0.5
        for _ in range(_MOST_ANSWERS):
            outcome, pauses = _in_time(lambda: self._run(trail, awaited=awaited))
            if outcome.how != "paused":
                return outcome
            if self.chance.random() < 0.3:
                self._still_paused(trail, awaited=awaited)
            for pause in pauses if self.chance.random() < 0.5 else pauses[:1]:
                try:
                    trail.answer(pause.run_id, answer_to(pause.prompt), pause=pause.seq)
                except Crash:
                    return Outcome("crash")
        return Outcome("error", text="it asks for ever")

    def _run(self, trail: Trail, *, awaited: bool) -> everstep.RunResult[Any]:
        inputs = [self.inputs] if self.chance.random() < 0.5 or not family(trail, "r") else []
        options: Any = {"id": "r", "error_handling": "continue" if self.goes_on else "raise"}
        if awaited:
            return asyncio.run(AsyncRunner(trail).run(self.graph, *inputs, **options))
        return Runner(trail).run(self.graph, *inputs, **options)

    def _still_paused(self, trail: Trail, *, awaited: bool) -> None:
        before = trail.run("r").head
        outcome, _ = _in_time(lambda: self._run(trail, awaited=awaited))
        if outcome.how != "paused" or trail.run("r").head != before:
            self.found.append(f"a paused run without an answer: {outcome}, {trail.run('r').head - before} rows more")

    def _restored(self, name: str, store: Store, outcome: Outcome) -> None:
        """A completed run is given from the record, and nothing is executed."""
        if outcome.how != "ok":
            return
        calls, rows = self.world.calls, Trail(store).run("r").head
        result = Runner(Trail(store)).run(self.graph, id="r")
        if not result.restored or self.world.calls != calls or Trail(store).run("r").head != rows:
            self.found.append(f"{name}: a completed run was run again")
        if result.values != outcome.values:
            self.found.append(f"{name}: {result.values} is on record, and it gave {outcome.values}")


def _in_time(run: Any) -> tuple[Outcome, Any]:
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(_outcome(run)), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if ended:
        return ended[0]  # type: ignore[no-any-return] # what was put there
    frames = sys._current_frames()
    stacks = ["".join(traceback.format_stack(frames[each.ident or 0])) for each in threading.enumerate()]
    return Outcome("stall", text="\n".join(stacks)), ()


def _outcome(run: Any) -> tuple[Outcome, Any]:
    try:
        result = run()
    except BaseException as error:  # noqa: BLE001 - told to whoever looks at this life
        if all(isinstance(each, Boom) for each in members(error)):
            return Outcome("failed", text=str(error)), ()
        if any(isinstance(each, Crash) for each in members(error)):
            return Outcome("crash"), ()
        return Outcome("error", text="".join(traceback.format_exception(error))), ()
    how = {Status.COMPLETED: "ok", Status.PARTIAL: "partial", Status.FAILED: "failed", Status.PAUSED: "paused"}
    return Outcome(how.get(result.status, str(result.status)), result.values), result.pauses


def problems_of(kind: str, seeds: Iterable[int], points: int = 1000) -> list[str]:
    """What is wrong with these graphs, each with the way to see it again."""
    return [
        f"{problem}\n(again: python -m tests.programs.graph_trial {kind} {seed})"
        for seed in seeds
        for problem in Trial(kind, seed, points).problems()
    ]


if __name__ == "__main__":
    for said in Trial(sys.argv[1], int(sys.argv[2])).problems():
        sys.stdout.write(said + "\n")
