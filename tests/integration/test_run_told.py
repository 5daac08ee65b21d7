"""What somebody is told whose code has changed since, or went on after its run: what differs, and the way out."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from everstep import Runner, Status, Trail, step, workflow
from everstep.errors import CodeChangedWarning, DivergenceError, RunStoppedError
from tests.integration.failing import WORLD, act_later, go, healed
from tests.integration.running import Crash

pytestmark = pytest.mark.filterwarnings(f"ignore::{CodeChangedWarning.__module__}.{CodeChangedWarning.__name__}")


@step
def work(what: str) -> str:
    return what


def crashed(trail: Trail, *given: str) -> None:
    """A run whose code took these steps, and then crashed."""

    @workflow(name="changed")
    def before() -> None:
        for what in given:
            work(what)
        raise Crash

    with pytest.raises(Crash):
        Runner(trail).run(before, id="r")


def told(trail: Trail, now: Any) -> str:
    """What is said of the run with the code of today; it was not executed."""
    with pytest.raises(DivergenceError) as caught:
        Runner(trail).run(workflow(name="changed")(now), id="r")
    return str(caught.value)


def test_a_renamed_step_is_told_how_to_keep_its_name(trail: Trail) -> None:
    def labour(what: str) -> str:
        return what

    crashed(trail, "a")
    assert told(trail, lambda: step(labour)("a")).endswith(
        "If 'labour' is 'work' under a new name, keep the old one with @step(name='work')."
    )
    assert Runner(trail).run(workflow(name="changed")(lambda: step(name="work")(labour)("a")), id="r").value == "a"


def test_a_new_parameter_and_one_that_is_gone_are_told_as_such(trail: Trail) -> None:
    @step(name="work")
    def in_a_language(what: str, lang: str = "en") -> str:
        return what + lang

    @step(name="work")
    def without() -> str:
        return ""

    crashed(trail, "a")
    said = told(trail, lambda: in_a_language("a"))
    assert "'work' was called with different arguments than on record" in said
    assert " Changed: lang: 'en' (it is new). " in said
    assert " Changed: what: 'a' (it is gone). " in told(trail, without)
    assert " Changed: what: 'a' -> 'b'. " in told(trail, lambda: work("b"))


def test_steps_of_one_name_that_are_passed_over_are_counted(trail: Trail) -> None:
    crashed(trail, "a", "b", "c", "d")
    said = told(trail, lambda: work("d"))
    assert "a 'work' was called that comes later on record (not called: work (3 times))." in said
    assert "new name" not in said
    report = trail.replay("r", workflow(name="changed")(lambda: work("d")))
    assert report.first is not None
    assert "a later 'work' was called, where the record has one with different arguments." in report.first.message
    assert "Not called: work (3 times)." in report.first.message


def test_a_step_that_came_too_late_is_named_and_told_to_be_waited_for(trail: Trail) -> None:
    """Promise 13: what was not recorded is not passed over."""
    begun, ended, caught = threading.Event(), threading.Event(), list[RunStoppedError]()

    @step
    def slow() -> None:
        begun.set()
        ended.wait(60)

    def left_behind() -> None:
        for _ in range(2):  # one that is at work when the run ends, and one that begins after it
            try:
                slow()
            except RunStoppedError as error:
                caught.append(error)

    thread = threading.Thread(target=left_behind)

    @workflow
    def forgetful() -> None:
        thread.start()
        begun.wait(60)

    assert Runner(trail).run(forgetful, id="r").completed
    ended.set()
    thread.join()
    said = (
        "step 'slow' came too late, and is not recorded: run 'r' has completed. Wait for its thread or task before the "
        "workflow returns."
    )
    assert [str(error) for error in caught] == [said, said]


# What fails after its run did.


TOLD: list[tuple[type[Exception], type[object]]] = []


@step(output=None)
async def around(name: str) -> None:
    await act_later("inside")
    await asyncio.sleep(WORLD.slow.get(name, 0))
    if name in WORLD.bad:
        raise ValueError(name)


async def _heeding(failing: Any, name: str) -> None:
    try:
        await failing(name)
    except Exception as error:
        TOLD.append((type(error), type(error.__cause__)))
        raise


@workflow
async def heeds_what_fails_late() -> None:
    await asyncio.gather(act_later("b"), _heeding(act_later, "x"), _heeding(around, "y"))


def test_what_fails_after_the_run_did_is_not_told_to_the_code_as_if_it_were_on_record(trail: Trail) -> None:
    """Promise 2: code that is told of an outcome is not told another one later, and this one is asked for again."""
    TOLD.clear()
    WORLD.forget()
    WORLD.fail.update(("b", "x"))
    WORLD.bad.add("y")
    WORLD.slow.update({"b": 0.02, "x": 0.05, "y": 0.05})
    with pytest.raises(ValueError, match="b"):
        go(trail, heeds_what_fails_late)
    assert trail.run("r").status is Status.FAILED
    told, cause = zip(*TOLD, strict=True)
    assert (told, cause) == ((RunStoppedError,) * 2, (ValueError,) * 2)
    assert healed(trail, heeds_what_fails_late) == ["b", "x"]
