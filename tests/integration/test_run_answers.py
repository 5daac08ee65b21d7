"""What a person may answer, how often, and until when."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, RunResult, Status, Trail, pause, workflow
from everstep.errors import (
    AnswerError,
    NotWaitingError,
    OwnedError,
    PauseExpiredError,
    QuestionError,
    RunNotFoundError,
    WorkflowDiffersError,
)
from tests.integration.running import act, act_later, calls, crashed, rows, run


@workflow
def in_the_workflow() -> Any:
    act("before")
    said = pause("go on?")
    return act(f"said {said}")


@workflow
def asking_child() -> str:
    return str(pause("go on?"))


@workflow
def asking_the_same_twice() -> tuple[Any, Any]:
    return pause("sure?"), pause("sure?")


@pytest.mark.parametrize("twin", [False, True])
def test_an_answer_for_another_workflow_is_not_taken(trail: Trail, twin: bool) -> None:  # noqa: FBT001 - a parameter of the test
    run(trail, in_the_workflow, id="r")
    head = trail.run("r").head
    with pytest.raises(WorkflowDiffersError):
        if twin:
            asyncio.run(AsyncRunner(trail).run(asking_child, id="r", answer="yes"))
        else:
            Runner(trail).run(asking_child, id="r", answer="yes")
    assert (trail.run("r").head, trail.run("r").status) == (head, Status.PAUSED)


# What may be answered.


@workflow
def typed() -> Any:
    return pause("how many?", schema={"type": "integer", "minimum": 1}, options=None)


@workflow
def chosen() -> Any:
    return pause("which?", options=["red", "blue"])


@pytest.mark.parametrize(
    ("asking", "wrong", "right"), [(typed, 0, 3), (typed, "3", 3), (typed, None, 1), (chosen, "green", "blue")]
)
def test_a_wrong_answer_is_refused_and_nothing_is_written(trail: Trail, asking: Any, wrong: Any, right: Any) -> None:
    run(trail, asking, id="r")
    before = trail.run("r").head
    for give in (lambda: trail.answer("r", wrong), lambda: run(trail, asking, id="r", answer=wrong)):
        with pytest.raises(AnswerError):
            give()
    assert (trail.run("r").head, trail.run("r").status) == (before, Status.PAUSED)
    assert trail.run("r").owner is None
    assert run(trail, asking, id="r", answer=right).value == right


def test_an_answer_that_cannot_be_stored_is_refused_and_nothing_is_written(trail: Trail) -> None:
    run(trail, in_the_workflow, id="r")
    before = trail.run("r").head
    with pytest.raises(everstep.EverstepError, match="cannot store"):
        trail.answer("r", object())
    assert trail.run("r").head == before
    assert run(trail, in_the_workflow, id="r", answer="yes").completed


def test_an_answer_has_its_type_after_the_wait(trail: Trail) -> None:
    """Promise 7."""
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    run(trail, asking_child, id="r")
    run(trail, asking_the_same_twice, id="two")
    trail.answer("two", {1: {moment}})
    run(trail, asking_the_same_twice, id="two")
    trail.answer("two", (moment, b"x"))
    assert run(trail, asking_the_same_twice, id="two").value == ({1: {moment}}, (moment, b"x"))


@pytest.mark.parametrize("value", [None, False, 0, "", []])
def test_an_answer_may_be_nothing(trail: Trail, value: Any) -> None:
    run(trail, asking_the_same_twice, id="r")
    run(trail, asking_the_same_twice, id="r", answer=value)
    assert run(trail, asking_the_same_twice, id="r", answer=1).value == (value, 1)


@workflow
def asking_nonsense() -> Any:
    return pause("pick", options=[])


def test_a_question_that_nobody_could_answer_fails_where_it_is_asked(trail: Trail) -> None:
    with pytest.raises(QuestionError, match="no options"):
        run(trail, asking_nonsense, id="r")
    assert rows(trail, "r", Kind.PAUSE) == []


def test_who_does_not_wait_takes_no_answer(trail: Trail) -> None:
    with pytest.raises(RunNotFoundError):
        run(trail, in_the_workflow, id="nobody", answer="yes")
    with pytest.raises(RunNotFoundError):
        trail.answer("nobody", "yes")
    run(trail, in_the_workflow, id="r")
    with pytest.raises(NotWaitingError, match="no open question"):
        trail.answer("r", "yes", pause=1)
    run(trail, in_the_workflow, id="r", answer="yes")
    with pytest.raises(NotWaitingError, match="completed"):
        trail.answer("r", "yes")
    with pytest.raises(NotWaitingError, match="completed"):
        run(trail, in_the_workflow, id="r", answer="yes")
    with pytest.raises(ValueError, match="the id of the run"):
        Runner(trail).run(in_the_workflow, answer="yes")


def test_a_question_cannot_be_tried_again_like_an_effect(trail: Trail) -> None:
    run(trail, in_the_workflow, id="r")
    with pytest.raises(NotWaitingError, match="answered, not tried again"):
        trail.answer("r", retry=True)


# Once.


def test_a_second_answer_is_refused(trail: Trail) -> None:
    result = run(trail, in_the_workflow, id="r")
    assert result.pause is not None
    trail.answer("r", "first")
    before = trail.run("r").head
    with pytest.raises(NotWaitingError):
        trail.answer("r", "second")
    with pytest.raises(NotWaitingError):
        trail.answer("r", "second", pause=result.pause.seq)
    assert trail.run("r").head == before
    assert run(trail, in_the_workflow, id="r").value == "said first"


def _race(answer: Callable[[str], None], count: int) -> list[str]:
    """Have so many people answer at the same moment; who was taken."""
    ready, won = threading.Barrier(count), []

    def one(name: str) -> None:
        ready.wait()
        try:
            answer(name)
        except (NotWaitingError, OwnedError):
            return
        won.append(name)

    people = [threading.Thread(target=one, args=(f"person {number}",)) for number in range(count)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    return won


def test_of_answerers_at_the_same_time_exactly_one_is_taken(trail: Trail) -> None:
    for number in range(10):
        run_id = f"r-{number}"
        run(trail, in_the_workflow, id=run_id)
        won = _race(lambda name, run_id=run_id: trail.answer(run_id, name), 8)  # type: ignore[misc] # bound here
        assert len(won) == 1
        assert run(trail, in_the_workflow, id=run_id).value == f"said {won[0]}"


RACER = """
import sys, time, everstep
from everstep.errors import NotWaitingError, OwnedError
with everstep.open(sys.argv[1]) as trail:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        try:
            trail.answer(f"r-{number}", sys.argv[2])
        except (NotWaitingError, OwnedError):
            continue
        print(number, flush=True)
"""


def test_of_answerers_in_several_processes_exactly_one_is_taken(trail: Trail, tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415 - only here
    import sys  # noqa: PLC0415 - only here

    from tests.integration.support import environment  # noqa: PLC0415 - only here

    for number in range(20):
        run(trail, in_the_workflow, id=f"r-{number}")
    people = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path / "trail.db"), name],
            env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in ("ada", "bob", "eve")
    ]  # fmt: skip
    for person in people:
        assert person.stdout is not None
        assert person.stdout.readline() == "ready\n"
    won: dict[int, str] = {}
    for person in people:
        assert person.stdin is not None
        person.stdin.write("\n")
        person.stdin.flush()
    for name, person in zip(("ada", "bob", "eve"), people, strict=True):
        said, _ = person.communicate(timeout=60)
        assert person.returncode == 0
        for line in said.split():
            assert int(line) not in won
            won[int(line)] = name
    assert sorted(won) == list(range(20))
    for number, name in won.items():
        assert run(trail, in_the_workflow, id=f"r-{number}").value == f"said {name}"


def test_who_works_on_a_run_is_not_answered_into(trail: Trail) -> None:
    """Promise 4: an answer is a write like any other."""
    seen: list[BaseException] = []

    @workflow
    async def busy() -> str:
        async def answer() -> None:
            while not rows(trail, "r", Kind.PAUSE):  # noqa: ASYNC110 - told by the record alone
                await asyncio.sleep(0.01)
            try:
                await asyncio.to_thread(trail.answer, "r", "too early")
            except OwnedError as error:
                seen.append(error)

        return str((await asyncio.gather(pause("go on?"), answer()))[0])

    assert run(trail, busy, id="r").paused
    assert len(seen) == 1
    assert run(trail, busy, id="r", answer="now").value == "now"


# Deadlines.


patience = 0.25  # seconds: more than it takes to ask, on a busy machine too


def outwait(result: RunResult[Any]) -> None:
    """Let the deadline of a question pass."""
    assert result.pause is not None
    assert result.pause.deadline is not None
    time.sleep(max(0.0, (datetime.fromisoformat(result.pause.deadline) - datetime.now(UTC)).total_seconds()))


@workflow
def impatient() -> Any:
    act("before")
    try:
        return str(pause("quick?", deadline=patience))
    except PauseExpiredError:
        return act("without an answer")


@workflow
async def impatient_later() -> Any:
    await act_later("before")
    try:
        return str(await pause("quick?", deadline=timedelta(seconds=patience)))
    except PauseExpiredError:
        return await act_later("without an answer")


IMPATIENT = pytest.mark.parametrize("asking", [impatient, impatient_later], ids=lambda asking: asking.name)


@IMPATIENT
def test_after_its_deadline_a_pause_raises_where_it_stands(trail: Trail, asking: Any) -> None:
    first = run(trail, asking, id="r")
    outwait(first)
    result = run(trail, asking, id="r")
    assert result.value == "without an answer"
    assert calls == ["before", "without an answer"]
    [expired] = rows(trail, "r", Kind.STEP)[1:2]
    assert (expired.name, expired.status, expired.id) == ("pause", Status.FAILED, first.pauses[0].seq)


@IMPATIENT
def test_an_expired_pause_is_on_record_for_a_later_crash(trail: Trail, asking: Any) -> None:
    outwait(run(trail, asking, id="r"))
    calls.crash = {"without an answer"}
    crashed(trail, asking, id="r")
    with pytest.raises(NotWaitingError):
        trail.answer("r", "too late")
    assert run(trail, asking, id="r").value == "without an answer"


@IMPATIENT
def test_a_late_answer_is_refused(trail: Trail, asking: Any) -> None:
    first = run(trail, asking, id="r")
    before = trail.run("r").head
    outwait(first)
    with pytest.raises(NotWaitingError, match="is over"):
        trail.answer("r", "too late")
    assert (trail.run("r").head, trail.run("r").status) == (before, Status.PAUSED)
    assert run(trail, asking, id="r").value == "without an answer"


@IMPATIENT
def test_an_answer_in_time_counts_however_late_the_run_goes_on(trail: Trail, asking: Any) -> None:
    first = run(trail, asking, id="r")
    trail.answer("r", "yes")
    outwait(first)
    assert run(trail, asking, id="r").value == "yes"


@workflow
def patient() -> Any:
    return pause("when?", deadline=3600)


def test_the_deadline_is_counted_from_the_first_time(trail: Trail) -> None:
    first = run(trail, patient, id="r").pause
    time.sleep(0.01)
    second = run(trail, patient, id="r").pause
    assert first is not None
    assert first == second


@workflow
def failing_when_nobody_answers() -> Any:
    act("before")
    return pause("quick?", deadline=patience)


def test_a_run_that_failed_for_want_of_an_answer_asks_again_when_it_is_taken_up(trail: Trail) -> None:
    outwait(run(trail, failing_when_nobody_answers, id="r"))
    with pytest.raises(PauseExpiredError) as caught:
        run(trail, failing_when_nobody_answers, id="r")
    assert (caught.value.run_id, caught.value.prompt) == ("r", "quick?")
    assert trail.run("r").status is Status.FAILED
    again = run(trail, failing_when_nobody_answers, id="r")
    assert again.paused
    assert run(trail, failing_when_nobody_answers, id="r", answer="in time").value == "in time"
    assert calls == ["before"]


def test_a_call_that_is_refused_takes_no_answer(trail: Trail) -> None:
    @workflow
    async def asking() -> Any:
        return await pause("go on?")

    assert run(trail, asking, id="r").paused

    async def where_a_loop_runs() -> None:
        Runner(trail).run(asking, id="r", answer="yes")

    with pytest.raises(RuntimeError, match="await it with an AsyncRunner"):
        asyncio.run(where_a_loop_runs())
    assert trail.run("r").status is Status.PAUSED
    assert run(trail, asking, id="r", answer="no").value == "no"
