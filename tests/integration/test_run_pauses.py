"""A run that waits for a person: no process is held, and what was done is kept."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, Status, Trail, pause, step, workflow
from everstep.errors import JournalError
from tests.integration.running import Crash, act, act_later, calls, crashed, names, rows, run
from tests.integration.support import output

# Where a pause can stand.


@step
def asking_step(what: str) -> Any:
    before = act(f"before {what}")
    said = pause(f"{what}?")
    return act(f"{before}, then {said}")


@step
async def asking_step_later(what: str) -> Any:
    before = await act_later(f"before {what}")
    said = await pause(f"{what}?")
    return await act_later(f"{before}, then {said}")


@workflow
def in_the_workflow() -> Any:
    act("before")
    said = pause("go on?")
    return act(f"said {said}")


@workflow
async def in_an_async_workflow() -> Any:
    await act_later("before")
    said = await pause("go on?")
    return await act_later(f"said {said}")


@workflow
def in_a_composite() -> Any:
    act("before")
    return act("said " + asking_step("inside").rpartition("then ")[2])


@workflow
async def in_an_async_composite() -> Any:
    await act_later("before")
    return await act_later("said " + (await asking_step_later("inside")).rpartition("then ")[2])


@workflow
def in_a_thread() -> Any:
    act("before")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(pause, "go on?").result()
    return act(f"said {said}")


@workflow
def in_a_thread_of_its_own() -> Any:
    act("before")
    found: list[Any] = []

    def ask() -> None:
        found.append(pause("go on?"))

    pool = ThreadPoolExecutor(1)  # never shut down: the run must not need it
    pool.submit(ask).result()
    return act(f"said {found[0]}")


@workflow
async def in_a_task() -> Any:
    await act_later("before")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(pause("go on?"))
    return await act_later(f"said {asked.result()}")


@workflow
async def in_a_thread_of_an_async_workflow() -> Any:
    await act_later("before")
    said = await asyncio.to_thread(pause, "go on?")
    return await act_later(f"said {said}")


@workflow
def asking_child() -> str:
    return str(pause("go on?"))


@workflow
async def asking_child_later() -> str:
    return str(await pause("go on?"))


@workflow
def in_a_child() -> Any:
    act("before")
    return act(f"said {asking_child()}")


@workflow
async def in_an_async_child() -> Any:
    await act_later("before")
    return await act_later(f"said {await asking_child_later()}")


@workflow
def grandchild() -> str:
    return asking_child()


@workflow
def in_a_grandchild() -> Any:
    act("before")
    return act(f"said {grandchild()}")


@workflow
def as_the_first_step() -> Any:
    said = pause("go on?")
    act("before")
    return act(f"said {said}")


PLACES = [
    in_the_workflow, in_an_async_workflow, in_a_composite, in_an_async_composite, in_a_thread, in_a_thread_of_its_own,
    in_a_task, in_a_thread_of_an_async_workflow, in_a_child, in_an_async_child, in_a_grandchild, as_the_first_step,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_pause_may_stand_anywhere_and_what_came_before_runs_once(trail: Trail, place: Any) -> None:
    """Promise 2: what was done before the pause is not done again after it."""
    first = run(trail, place, id="r")
    assert first.status is Status.PAUSED
    assert first.value is None
    assert first.pause is not None
    assert "before" in calls or place is as_the_first_step
    assert trail.run("r").status is Status.PAUSED
    assert trail.run("r").owner is None

    trail.answer(first.pause.run_id, "yes", pause=first.pause.seq)
    second = run(trail, place, id="r")
    assert second.status is Status.COMPLETED
    assert second.value == "said yes"
    assert calls.count("before") == 1
    assert len(set(calls)) == len(calls)
    assert trail.run("r").status is Status.COMPLETED
    assert trail.verify().ok


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_an_answer_given_to_the_runner_finds_the_question_wherever_it_stands(trail: Trail, place: Any) -> None:
    assert run(trail, place, id="r").paused
    assert run(trail, place, id="r", answer="yes").value == "said yes"


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_paused_run_without_an_answer_is_paused_again_and_nothing_is_written(trail: Trail, place: Any) -> None:
    first = run(trail, place, id="r")
    before = {each.id: (each.head, each.status) for each in trail.runs()}
    calls.clear()
    for _ in range(2):
        again = run(trail, place, id="r")
        assert (again.status, again.pauses) == (Status.PAUSED, first.pauses)
    assert {each.id: (each.head, each.status) for each in trail.runs()} == before
    assert calls == []


@workflow
def asking_in_a_loop(times: int) -> list[str]:
    said = []
    for number in range(times):
        said.append(pause(f"number {number}?", schema=int))
        act(f"did {number}")
    return said


def test_a_pause_in_a_loop_asks_every_time(trail: Trail) -> None:
    result = run(trail, asking_in_a_loop, 3, id="r")
    for number in range(3):
        assert result.pause is not None
        assert result.pause.prompt == f"number {number}?"
        result = run(trail, asking_in_a_loop, id="r", answer=number * 10)
    assert result.value == [0, 10, 20]
    assert calls == ["did 0", "did 1", "did 2"]


@workflow
def asking_the_same_twice() -> tuple[Any, Any]:
    return pause("sure?"), pause("sure?")


def test_equal_questions_are_two_questions(trail: Trail) -> None:
    run(trail, asking_the_same_twice, id="r")
    assert run(trail, asking_the_same_twice, id="r", answer=1).paused
    assert run(trail, asking_the_same_twice, id="r", answer=2).value == (1, 2)


# Nobody is held.


PROGRAM = """
import sys
import everstep
from everstep import Runner, pause, step, workflow

@step
def act(what):
    print("did", what)
    return what

@workflow
def release(version):
    act("build")
    who = pause(f"release {version}?", schema=str)
    return act(f"released for {who}")

result = Runner(everstep.open(sys.argv[1])).run(release, *sys.argv[2:], id="r")
print(result.status, result.value)
"""
ANSWER = """
import sys, everstep
with everstep.open(sys.argv[1]) as trail:
    trail.answer("r", sys.argv[2])
"""


def test_no_process_is_needed_while_a_run_waits(tmp_path: Path) -> None:
    """Three processes, none of which lives while another works: one asks, one answers, one goes on."""
    file = tmp_path / "trail.db"
    assert output(PROGRAM, file, "1.0").splitlines() == ["did build", "paused None"]
    output(ANSWER, file, "ada")
    assert output(PROGRAM, file).splitlines() == ["did released for ada", "completed released for ada"]


# What else it leaves.


def test_a_pause_is_a_boundary_checkpoint(trail: Trail) -> None:
    run(trail, in_the_workflow, id="r")
    [checkpoint] = trail.checkpoints("r")
    assert (checkpoint.kind, checkpoint.seq) == ("boundary", trail.run("r").head)
    assert trail.state("r", at=checkpoint.seq) == {"act": "before"}
    run(trail, in_the_workflow, id="r", answer="yes")
    assert trail.checkpoints("r", kind="boundary") == [checkpoint]


def test_the_rows_of_a_pause_say_what_was_asked_and_answered(trail: Trail) -> None:
    run(trail, in_a_composite, id="r", tags={"user": "ada"})
    run(trail, in_a_composite, id="r", answer="yes")
    [asked], [answered] = rows(trail, "r", Kind.PAUSE), rows(trail, "r", Kind.ANSWER)
    assert asked.pause == {"prompt": "inside?", "schema": None, "options": None, "deadline": None}
    assert (answered.output, answered.id, answered.parent) == ("yes", asked.seq, asked.parent)
    assert names(rows(trail, "r", Kind.STEP)) == ["act", "act", "act", "asking_step", "act"]


def test_a_pause_is_seen_in_the_log_and_in_the_result(trail: Trail) -> None:
    first = run(trail, in_the_workflow, id="r")
    assert [node.node_name for node in first.log.steps if node.status is not Status.PAUSED] == ["act"]
    second = run(trail, in_the_workflow, id="r", answer="yes")
    assert [(node.node_name, node.status) for node in second.log.steps] == [
        ("act", Status.RESTORED), ("pause", Status.RESTORED), ("act", Status.COMPLETED)
    ]  # fmt: skip


def test_a_run_crashes_between_an_answer_and_the_next_step(trail: Trail) -> None:
    run(trail, in_the_workflow, id="r")
    calls.crash = {"said yes"}
    trail.answer("r", "yes")
    crashed(trail, in_the_workflow, id="r")
    assert run(trail, in_the_workflow, id="r").value == "said yes"
    assert calls.count("before") == 1


def test_a_run_that_crashed_after_it_asked_can_be_answered_before_it_goes_on(trail: Trail) -> None:
    """The question is written before anything else happens; the crash comes before the run is marked as paused."""

    @workflow
    async def crashing() -> str:
        async def crash() -> None:
            while not rows(trail, "r", Kind.PAUSE):  # noqa: ASYNC110 - told by the record alone
                await asyncio.sleep(0.001)
            if crashes:
                raise Crash

        return str((await asyncio.gather(pause("go on?"), crash()))[0])

    crashes = True
    crashed(trail, crashing, id="r")
    assert trail.run("r").status is Status.ACTIVE
    trail.answer("r", "yes")
    crashes = False
    assert run(trail, crashing, id="r").value == "yes"


def test_without_a_trail_nobody_could_answer() -> None:
    with pytest.raises(JournalError, match="without a trail"):
        Runner().run(in_the_workflow)
    with pytest.raises(JournalError, match="without a trail"):
        asyncio.run(AsyncRunner().run(in_an_async_workflow))
    with pytest.raises(JournalError, match="no run here"):
        pause("hello?")


def test_an_external_step_cannot_wait_for_a_person(trail: Trail) -> None:
    """It is announced: a crash after the answer could not be told from one after the effect."""

    @step(external=True)
    def send(what: str) -> str:
        calls("sent" if child_asks or pause("really?") else "not sent")
        return asking_child()

    @workflow
    def sending() -> str:
        return send("mail")

    for child_asks in (False, True):
        calls.clear()
        with pytest.raises(JournalError, match="'send' cannot wait for a person"):
            run(trail, sending, id=f"r-{child_asks}")
        assert calls == (["sent"] if child_asks else [])
        assert rows(trail, f"r-{child_asks}", Kind.PAUSE) == []


def test_a_plain_step_cannot_wait_on_an_event_loop(trail: Trail) -> None:
    """Nothing there would await it: it must not go on as if it had waited."""

    @step
    def asking() -> Any:
        return pause("go on?")

    @step
    def sleeping() -> Any:
        return everstep.sleep(0)

    @workflow
    async def outer() -> Any:
        for wrong in (asking, sleeping):
            with pytest.raises(JournalError, match="to_thread"):
                wrong()
        await asyncio.to_thread(sleeping)
        return await asyncio.to_thread(asking)

    assert run(trail, outer, id="r").paused
    assert run(trail, outer, id="r", answer="yes").value == "yes"
