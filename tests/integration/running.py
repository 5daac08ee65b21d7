"""What the tests of runs share: an interruption that nothing in the code can keep, and a process of another program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from everstep import AsyncRunner, Kind, Runner, RunResult, StepRecord, Trail


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
    """What was really executed, in order; and whatever shall go wrong next."""

    def __init__(self) -> None:
        super().__init__()
        self.crash: set[Any] = set()  # these crash, once
        self.fail: set[Any] = set()  # these fail while they stand here

    def __call__(self, what: Any) -> Any:
        """Note a call; give back what was called for."""
        self.append(what)
        if what in self.crash:
            self.crash.discard(what)
            raise Crash(what)
        if what in self.fail:
            raise ValueError(what)
        return what

    def taken(self) -> list[Any]:
        """The calls since the last time this was asked."""
        found = list(self)
        self.clear()
        return found


def rows(trail: Trail, run_id: str, *kinds: Kind) -> list[StepRecord]:
    """The rows of a run, of some kinds or of all."""
    return [step for step in trail.steps(run_id) if not kinds or step.kind in kinds]


def names(steps: Iterable[StepRecord]) -> list[str]:
    return [step.name for step in steps]


def in_a_child(do: Callable[[], Any]) -> int:
    """Do something in a fork of this process; how it ended."""
    child = os.fork()
    if child == 0:
        _leave(do)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _leave(do: Callable[[], Any]) -> NoReturn:
    code = 1
    try:
        do()
        code = 0
    finally:
        os._exit(code)
