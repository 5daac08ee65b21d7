"""Runs worth replaying: how runs end, and child runs."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from everstep import EverstepError, Runner, Trail, current, pause, step, workflow
from everstep.errors import RunCancelledError
from tests.integration.replaying import Recorded, both, both_later, scenario
from tests.integration.running import act, act_later, calls, crashed, run

# How runs end.


@workflow
def ending_flow() -> str:
    first = both("one", "two")
    try:
        act("three")
    finally:
        act("cleaning up")
    return str(act(f"{first}, four"))


@scenario
def a_run_that_failed(trail: Trail) -> Recorded:
    calls.fail = {"three"}
    with suppress(ValueError):
        run(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_run_that_failed_inside_a_step(trail: Trail) -> Recorded:
    calls.fail = {"two"}
    with suppress(ValueError):
        run(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_run_that_failed_and_was_taken_up(trail: Trail) -> Recorded:
    for word in ("two", "three", "one and two, four"):
        calls.fail = {word}
        with suppress(ValueError):
            run(trail, ending_flow, id="r")
    calls.fail = set()
    run(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_run_that_failed_twice(trail: Trail) -> Recorded:
    for word in ("two", "three"):
        calls.fail = {word}
        with suppress(ValueError):
            run(trail, ending_flow, id="r")
    return ending_flow, "r"


@workflow
async def ending_later_flow() -> str:
    first = await both_later("one", "two")
    await asyncio.gather(act_later("three"), act_later("four"))
    return str(await act_later(f"{first}, five"))


@scenario
def an_async_run_that_failed(trail: Trail) -> Recorded:
    calls.fail = {"three"}
    with suppress(ValueError):
        run(trail, ending_later_flow, id="r")
    return ending_later_flow, "r"


@scenario
def an_async_run_that_failed_and_was_taken_up(trail: Trail) -> Recorded:
    for word in ("two", "three"):
        calls.fail = {word}
        with suppress(ValueError):
            run(trail, ending_later_flow, id="r")
    calls.fail = set()
    run(trail, ending_later_flow, id="r")
    return ending_later_flow, "r"


@workflow
def wrong_flow() -> str:
    act("one")
    raise LookupError("not here")


@scenario
def a_run_whose_own_code_failed(trail: Trail) -> Recorded:
    with suppress(LookupError):
        run(trail, wrong_flow, id="r")
    return wrong_flow, "r"


@step
def changes_its_argument(words: list[str]) -> list[str]:
    words.append(str(act("more")))
    return words


@step
def gives_what_cannot_be_kept() -> object:
    act("inside")
    return object()


@workflow
def refused_flow() -> list[str]:
    found = []
    for call in (lambda: changes_its_argument(["one"]), gives_what_cannot_be_kept):
        try:
            call()
        except EverstepError as error:
            found.append(type(error).__name__)
    return [*found, str(act("end"))]


@scenario
def steps_whose_outcome_was_refused(trail: Trail) -> Recorded:
    run(trail, refused_flow, id="r")
    return refused_flow, "r"


@scenario
def an_interrupted_run(trail: Trail) -> Recorded:
    calls.crash = {"three"}
    crashed(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_run_interrupted_inside_a_step(trail: Trail) -> Recorded:
    calls.crash = {"two"}
    crashed(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def a_run_interrupted_before_its_first_step(trail: Trail) -> Recorded:
    calls.crash = {"one"}
    crashed(trail, ending_flow, id="r")
    return ending_flow, "r"


@scenario
def an_interrupted_async_run(trail: Trail) -> Recorded:
    calls.crash = {"four"}
    crashed(trail, ending_later_flow, id="r")
    return ending_later_flow, "r"


@workflow
def cancelling_flow() -> str:
    act("one")
    CANCEL[0]()
    return str(act("two"))


CANCEL: list[Any] = [lambda: None]


@scenario
def a_cancelled_run(trail: Trail) -> Recorded:
    def cancel() -> None:
        trail.cancel("r")
        while not current().cancelled:  # another thread hears of it
            time.sleep(0.001)

    CANCEL[0] = cancel
    with suppress(RunCancelledError):
        Runner(trail).run(cancelling_flow, id="r")
    CANCEL[0] = lambda: None
    return cancelling_flow, "r"


# Child runs.


@workflow
def child_flow(name: str) -> str:
    return f"{act(name)}, {both(name, 'again')}"


@workflow
async def child_later_flow(name: str) -> str:
    return f"{await act_later(name)}, {await both_later(name, 'again')}"


@workflow
def asking_child(name: str) -> str:
    return f"{name} says {pause(f'{name}?')}"


@workflow
def parent_flow() -> list[Any]:
    return [child_flow("ada"), child_flow("bob"), act("end")]


@workflow
async def parent_later_flow() -> list[Any]:
    found = await asyncio.gather(*(child_later_flow(name) for name in ("ada", "bob")))
    return [*found, await act_later("end")]


@workflow
def asking_parent() -> list[Any]:
    return [asking_child("ada"), act("end")]


@scenario
def child_runs(trail: Trail) -> Recorded:
    run(trail, parent_flow, id="r")
    return parent_flow, "r"


@scenario
def awaited_child_runs(trail: Trail) -> Recorded:
    run(trail, parent_later_flow, id="r")
    return parent_later_flow, "r"


@scenario
def a_child_that_waits(trail: Trail) -> Recorded:
    run(trail, asking_parent, id="r")
    return asking_parent, "r"


@scenario
def a_child_that_was_answered(trail: Trail) -> Recorded:
    run(trail, asking_parent, id="r")
    run(trail, asking_parent, id="r", answer="yes")
    return asking_parent, "r"


@scenario
def a_child_that_failed(trail: Trail) -> Recorded:
    calls.fail = {"bob"}
    with suppress(ValueError):
        run(trail, parent_flow, id="r")
    return parent_flow, "r"


@scenario
def a_child_that_failed_and_was_taken_up(trail: Trail) -> Recorded:
    a_child_that_failed(trail)
    calls.fail = set()
    run(trail, parent_flow, id="r")
    return parent_flow, "r"


@scenario
def a_child_that_was_interrupted(trail: Trail) -> Recorded:
    calls.crash = {"bob"}
    crashed(trail, parent_flow, id="r")
    return parent_flow, "r"


@scenario
def a_child_alone(trail: Trail) -> Recorded:
    run(trail, parent_flow, id="r")
    return child_flow, next(found.id for found in trail.runs(parent="r"))
