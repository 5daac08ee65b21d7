"""What the tests of runs share: steps that can crash and fail, with a crash that nothing in the code can keep."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from everstep import AsyncRunner, Kind, Runner, RunResult, StepRecord, Trail, step


class Crash(BaseException):
    """Ends a run in the middle of a step, as Ctrl-C does: no outcome, no end, and the next one may take the run up."""


def run(trail: Trail | None, workflow: Any, *args: Any, **options: Any) -> RunResult[Any]:
    """Run a workflow with the runner of its kind."""
    if workflow.is_async:
        return asyncio.run(AsyncRunner(trail).run(workflow, *args, **options))
    return Runner(trail).run(workflow, *args, **options)


def crashed(trail: Trail, workflow: Any, *args: Any, **options: Any) -> None:
    """Run a workflow that crashes."""
    try:
        run(trail, workflow, *args, **options)
    except Crash:
        return
    raise AssertionError("it was to crash")


class Calls(list[Any]):
    """What was really executed, in order; and whatever shall go wrong next. Every test finds it as good as new."""

    every: ClassVar[list[Calls]] = []

    def __init__(self) -> None:
        super().__init__()
        self.every.append(self)
        self.crash: set[Any] = set()  # these crash, once
        self.fail: set[Any] = set()  # these fail while they stand here

    def __call__(self, what: Any) -> Any:
        """Note a call; give back what was called for."""
        self.append(what)
        if _stands_in(self.crash, what):
            self.crash.discard(what)
            raise Crash(what)
        if _stands_in(self.fail, what):
            raise ValueError(what)
        return what

    def taken(self) -> list[Any]:
        """The calls since the last time this was asked."""
        found = list(self)
        self.clear()
        return found

    def forget(self) -> None:
        """As good as new."""
        self.clear()
        self.crash, self.fail = set(), set()


def _stands_in(words: set[Any], what: Any) -> bool:
    try:
        return what in words
    except TypeError:  # not hashable: it is none of them
        return False


calls = Calls()


@step
def act(what: Any) -> Any:
    return calls(what)


@step
async def act_later(what: Any) -> Any:
    await asyncio.sleep(0)
    return calls(what)


@dataclass
class Agent:
    name: str
    memory: list[str] = field(default_factory=list)

    @step
    def ask(self, question: str) -> str:
        calls((self.name, question))
        return f"{self.name}: {question}"

    @step
    def remember(self, what: str) -> int:
        self.memory.append(what)
        return len(self.memory)

    @step
    async def ask_later(self, question: str) -> str:
        return f"{self.name}: {question}"

    @classmethod
    @step
    def describe(cls, what: str) -> str:
        calls((cls.__name__, what))
        return f"{cls.__name__} {what}"

    @staticmethod
    @step
    def free(what: str) -> str:
        calls(("free", what))
        return what


def twice(trail: Trail, flow: Any, *args: Any) -> Any:
    """Crash a run in its last step, `act("end")`, and resume it. What it gave; nothing else was done twice."""
    calls.crash = {"end"}
    crashed(trail, flow, *args, id="r")
    assert calls.taken()[-1] == "end"
    after = run(trail, flow, id="r")
    assert calls == ["end"]
    return after.value


def rows(trail: Trail, run_id: str, *kinds: Kind) -> list[StepRecord]:
    """The rows of a run, of some kinds or of all."""
    return [row for row in trail.steps(run_id) if not kinds or row.kind in kinds]


def names(steps: Iterable[StepRecord]) -> list[str]:
    return [row.name for row in steps]
