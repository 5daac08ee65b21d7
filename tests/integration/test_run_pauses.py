"""A run that waits for a person: no process is held, what was done is kept, an answer counts once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, RunResult, Status, Trail, pause, step, workflow
from everstep.errors import (
    AnswerError,
    DivergenceError,
    JournalError,
    NotWaitingError,
    OwnedError,
    PauseExpiredError,
    QuestionError,
    RunNotFoundError,
    RunStoppedError,
)
from tests.integration.running import Calls, Crash, crashed, names, rows, run
from tests.integration.support import output

calls = Calls()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.__init__()  # type: ignore[misc] # as good as new


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


@step
def act(what: str) -> str:
    calls(what)
    return what


@step
async def act_later(what: str, seconds: float = 0.0) -> str:
    await asyncio.sleep(seconds)
    calls(what)
    return what


# Where a pause can stand.


@step
def asking_step(what: str) -> str:
    before = act(f"before {what}")
    said = pause(f"{what}?")
    return act(f"{before}, then {said}")


@step
async def asking_step_later(what: str) -> str:
    before = await act_later(f"before {what}")
    said = await pause(f"{what}?")
    return await act_later(f"{before}, then {said}")


@workflow
def in_the_workflow() -> str:
    act("before")
    said = pause("go on?")
    return act(f"said {said}")


@workflow
async def in_an_async_workflow() -> str:
    await act_later("before")
    said = await pause("go on?")
    return await act_later(f"said {said}")


@workflow
def in_a_composite() -> str:
    act("before")
    return act("said " + asking_step("inside").rpartition("then ")[2])


@workflow
async def in_an_async_composite() -> str:
    await act_later("before")
    return await act_later("said " + (await asking_step_later("inside")).rpartition("then ")[2])


@workflow
def in_a_thread() -> str:
    act("before")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(pause, "go on?").result()
    return act(f"said {said}")


@workflow
def in_a_thread_of_its_own() -> str:
    act("before")
    found: list[Any] = []

    def ask() -> None:
        found.append(pause("go on?"))

    pool = ThreadPoolExecutor(1)  # never shut down: the run must not need it
    pool.submit(ask).result()
    return act(f"said {found[0]}")


@workflow
async def in_a_task() -> str:
    await act_later("before")
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(pause("go on?"))
    return await act_later(f"said {asked.result()}")


@workflow
async def in_a_thread_of_an_async_workflow() -> str:
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
def in_a_child() -> str:
    act("before")
    return act(f"said {asking_child()}")


@workflow
async def in_an_async_child() -> str:
    await act_later("before")
    return await act_later(f"said {await asking_child_later()}")


@workflow
def grandchild() -> str:
    return asking_child()


@workflow
def in_a_grandchild() -> str:
    act("before")
    return act(f"said {grandchild()}")


@workflow
def as_the_first_step() -> str:
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


# Siblings.


@workflow
async def two_questions() -> Any:
    async def branch(name: str) -> str:
        await act_later(f"before {name}")
        said = await pause(f"{name}?")
        return await act_later(f"{name}: {said}")

    return await asyncio.gather(branch("a"), branch("b"))


@workflow
def two_questions_in_threads() -> list[Any]:
    def branch(name: str) -> str:
        act(f"before {name}")
        return act(f"{name}: {pause(f'{name}?')}")

    with ThreadPoolExecutor(2) as pool:
        return [job.result() for job in [pool.submit(branch, "a"), pool.submit(branch, "b")]]


@pytest.mark.parametrize("asking", [two_questions, two_questions_in_threads], ids=lambda asking: asking.name)
def test_two_lanes_can_wait_at_once_and_an_answer_says_which_it_is_for(trail: Trail, asking: Any) -> None:
    result = run(trail, asking, id="r")
    places = {each.prompt: each.seq for each in result.pauses}
    assert set(places) == {"a?", "b?"}
    with pytest.raises(NotWaitingError, match="2 open questions"):
        trail.answer("r", "which?")
    trail.answer("r", "second", pause=places["b?"])
    half = run(trail, asking, id="r")
    assert [each.prompt for each in half.pauses] == ["a?"]
    assert "b: second" in calls
    assert run(trail, asking, id="r", answer="first").value == ["a: first", "b: second"]
    assert sorted(calls) == ["a: first", "b: second", "before a", "before b"]


@pytest.mark.parametrize("asking", [two_questions, two_questions_in_threads], ids=lambda asking: asking.name)
def test_both_questions_can_be_answered_before_the_run_goes_on(trail: Trail, asking: Any) -> None:
    places = {each.prompt: each.seq for each in run(trail, asking, id="r").pauses}
    trail.answer("r", "second", pause=places["b?"])
    trail.answer("r", "first", pause=places["a?"])
    assert run(trail, asking, id="r").value == ["a: first", "b: second"]


@workflow
async def siblings_of_a_pause() -> Any:
    async def slow(name: str) -> str:
        await act_later(f"{name} 1", 0.02)
        return await act_later(f"{name} 2", 0.05)

    return await asyncio.gather(pause("go on?"), slow("x"), slow("y"))


def test_siblings_finish_before_the_run_pauses_and_their_outcomes_are_kept(trail: Trail) -> None:
    result = run(trail, siblings_of_a_pause, id="r")
    assert result.paused
    assert sorted(calls.taken()) == ["x 1", "x 2", "y 1", "y 2"]
    assert len(rows(trail, "r", Kind.STEP)) == 4
    assert run(trail, siblings_of_a_pause, id="r", answer="yes").value == ["yes", "x 2", "y 2"]
    assert calls == []


@step
def slow_act(what: str, seconds: float) -> str:
    time.sleep(seconds)
    return str(calls(what))


@workflow
def siblings_in_threads() -> list[Any]:
    def slow(name: str) -> str:
        slow_act(f"{name} 1", 0.1)
        return slow_act(f"{name} 2", 0.1)

    pool = ThreadPoolExecutor(2)  # not shut down: nobody waits for its jobs but the run itself
    jobs = [pool.submit(pause, "go on?"), pool.submit(slow, "x")]
    return [job.result() for job in jobs]


def test_steps_at_work_in_other_threads_finish_before_the_run_pauses(trail: Trail) -> None:
    result = run(trail, siblings_in_threads, id="r")
    assert result.paused
    assert calls.taken() == ["x 1", "x 2"]
    assert run(trail, siblings_in_threads, id="r", answer="yes").value == ["yes", "x 2"]
    assert calls == []


@workflow
def main_goes_on_while_a_thread_asks() -> str:
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(pause, "go on?")
        while not rows(everstep_trail[0], "r", Kind.PAUSE):
            time.sleep(0.001)
        slow_act("main", 0.01)
        return str(job.result())


everstep_trail: list[Trail] = []


def test_a_question_in_a_thread_does_not_fail_the_run_around_it(trail: Trail) -> None:
    everstep_trail[:] = [trail]
    assert run(trail, main_goes_on_while_a_thread_asks, id="r").paused
    assert trail.run("r").status is Status.PAUSED
    assert rows(trail, "r", Kind.END) == []
    assert run(trail, main_goes_on_while_a_thread_asks, id="r", answer="yes").value == "yes"
    assert calls == ["main"]


@workflow
async def failing_beside_a_pause() -> Any:
    return await asyncio.gather(pause("go on?"), act_later("sibling", 0.01))


@workflow
def failing_beside_a_pause_in_a_thread() -> list[Any]:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(pause, "go on?")
        sibling = slow_act_in(pool, "sibling")
        return [asked.result(), sibling]


def slow_act_in(pool: ThreadPoolExecutor, what: str) -> str:
    """Taken in a lane of its own: the lane that waits for the answer takes no steps any more."""
    return pool.submit(slow_act, what, 0.01).result()


@pytest.mark.parametrize(
    "asking", [failing_beside_a_pause, failing_beside_a_pause_in_a_thread], ids=lambda asking: asking.name
)
def test_a_failure_beside_a_pause_is_a_failure_and_the_question_stays_open(trail: Trail, asking: Any) -> None:
    """Promise 13: nobody is asked to approve what has failed already, without being told."""
    calls.fail = {"sibling"}
    with pytest.raises(ValueError, match="sibling"):
        run(trail, asking, id="r")
    assert trail.run("r").status is Status.FAILED
    [asked] = rows(trail, "r", Kind.PAUSE)
    calls.fail = set()
    again = run(trail, asking, id="r")
    assert [each.seq for each in again.pauses] == [asked.seq]
    assert run(trail, asking, id="r", answer="yes").value == ["yes", "sibling"]


@step
async def numbers() -> AsyncIterator[int]:
    yield 1
    yield 2


@workflow
async def reading_beside_a_pause() -> Any:
    async def read() -> int:
        last = 0
        async for number in numbers():
            last = number
            await asyncio.sleep(3600 if reading_slowly else 0)
        return last

    return await asyncio.gather(pause("go on?"), read())


reading_slowly = [True]


def test_a_stream_that_nobody_reads_on_does_not_hold_up_a_pause(trail: Trail) -> None:
    began = time.monotonic()
    reading_slowly[:] = [True]
    assert run(trail, reading_beside_a_pause, id="r").paused
    assert time.monotonic() - began < 30
    reading_slowly.clear()
    assert run(trail, reading_beside_a_pause, id="r", answer="yes").value == ["yes", 2]


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
def impatient() -> str:
    act("before")
    try:
        return str(pause("quick?", deadline=patience))
    except PauseExpiredError:
        return act("without an answer")


@workflow
async def impatient_later() -> str:
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


# The code changes while a run waits.

changed = {"prompt": "approve?", "name": "asking"}


@workflow(name="approval")
def approval() -> Any:
    act("before")

    @step(name=changed["name"])
    def asking() -> Any:
        return pause(changed["prompt"])

    return act(f"approved: {asking()}")


@workflow(name="approval")
def approval_is_gone() -> Any:
    act("before")
    return act("approved: nobody asked")


@workflow(name="approval")
def approval_is_swallowed() -> Any:
    act("before")
    try:
        act("something else")
    except Exception:  # noqa: BLE001 - the point of it
        return "fine"
    return "never"


@pytest.fixture
def unchanged() -> Iterator[None]:
    before = dict(changed)
    yield
    changed.update(before)


@pytest.mark.parametrize("change", [{"prompt": "approve all?"}, {"name": "asking_kindly"}])
@pytest.mark.parametrize("answered", ["", "answered"])
def test_a_renamed_question_diverges_and_drops_no_approval(
    trail: Trail, change: dict[str, str], answered: str, unchanged: None
) -> None:
    """What a peer gets wrong: the run ended as if approved by nobody."""
    run(trail, approval, id="r")
    if answered:
        trail.answer("r", "by ada")
    before = trail.run("r")
    was = dict(changed)
    changed.update(change)
    with pytest.raises(DivergenceError) as caught:
        run(trail, approval, id="r")
    assert caught.value.run_id == "r"
    assert (trail.run("r").head, trail.run("r").status) == (before.head, before.status)
    assert calls.taken() == ["before"]

    changed.update(was)
    result = run(trail, approval, id="r", **({} if answered else {"answer": "by ada"}))
    assert result.value == "approved: by ada"


@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
@pytest.mark.parametrize("now", [approval_is_gone, approval_is_swallowed], ids=lambda now: now.function.__name__)
@pytest.mark.parametrize("answered", ["", "answered"])
def test_a_removed_question_diverges_even_where_the_error_is_swallowed(trail: Trail, now: Any, answered: str) -> None:
    run(trail, approval, id="r")
    if answered:
        trail.answer("r", "by ada")
    before = trail.run("r")
    with pytest.raises(DivergenceError) as caught:
        run(trail, now, id="r")
    assert "asking" in str(caught.value)
    assert (trail.run("r").head, trail.run("r").status) == (before.head, before.status)
    assert calls.taken() == ["before"]
    assert run(trail, approval, id="r", **({} if answered else {"answer": "by ada"})).value == "approved: by ada"


@workflow
def asking_with_options(options: list[str]) -> Any:
    return pause("which?", options=changed.get("options", options))  # type: ignore[arg-type] # a list, in the test


def test_changed_options_diverge(trail: Trail, unchanged: None) -> None:
    run(trail, asking_with_options, ["a", "b"], id="r")
    changed["options"] = ["a", "b", "delete everything"]  # type: ignore[assignment] # as above
    with pytest.raises(DivergenceError, match="changed argument"):
        run(trail, asking_with_options, id="r")
    del changed["options"]
    with pytest.raises(AnswerError):
        trail.answer("r", "delete everything")


# On the way out.


@workflow
def tidying() -> str:
    try:
        said = pause("go on?")
    except BaseException:
        act("in except")
        raise
    finally:
        act("in finally")
    return act(f"said {said}")


@workflow
async def tidying_later() -> str:
    try:
        said = await pause("go on?")
    except BaseException:
        await act_later("in except")
        raise
    finally:
        await act_later("in finally")
    return await act_later(f"said {said}")


@workflow
def tidying_around_a_child() -> str:
    try:
        said = asking_child()
    except BaseException:
        act("in except")
        raise
    finally:
        act("in finally")
    return act(f"said {said}")


@workflow
async def tidying_around_an_async_child() -> str:
    try:
        said = await asking_child_later()
    finally:
        await act_later("in finally")
    return await act_later(f"said {said}")


@workflow
def keeping_everything() -> str:
    try:
        said = pause("go on?")
    except:  # noqa: E722 - the worst that code can do
        try:
            act("in except")
        except RunStoppedError:
            return "kept it all"
    act("in finally")
    return act(f"said {said}")


TIDYING = [tidying, tidying_later, tidying_around_a_child, tidying_around_an_async_child, keeping_everything]


@pytest.mark.parametrize("asking", TIDYING, ids=lambda asking: asking.name)
def test_handlers_take_no_steps_on_the_way_out_of_a_pause(trail: Trail, asking: Any) -> None:
    assert run(trail, asking, id="r").paused
    assert calls == []
    assert rows(trail, "r", Kind.END) == []
    assert run(trail, asking, id="r", answer="yes").value == "said yes"
    assert calls == ["in finally", "said yes"]


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


def test_answers_for_children_are_never_mixed_up(trail: Trail) -> None:
    """Two children wait: the parent's id alone does not say which of them is meant."""

    @workflow
    async def child(name: str) -> str:
        return f"{name}: {await pause(f'{name}?')}"

    @workflow
    async def parent() -> list[str]:
        return list(await asyncio.gather(child("a"), child("b")))

    result = run(trail, parent, id="r")
    assert sorted(each.prompt for each in result.pauses) == ["a?", "b?"]
    with pytest.raises(NotWaitingError, match="open questions"):
        trail.answer("r", "which?")
    with pytest.raises(NotWaitingError, match="open questions"):
        run(trail, parent, id="r", answer="which?")
    for each in result.pauses:
        trail.answer(each.run_id, f"for {each.prompt}", pause=each.seq)
    assert run(trail, parent, id="r").value == ["a: for a?", "b: for b?"]


def test_a_parent_and_its_child_that_both_wait_are_told_apart(trail: Trail) -> None:
    @workflow
    async def parent() -> list[Any]:
        return list(await asyncio.gather(pause("mine?"), asking_child_later()))

    result = run(trail, parent, id="r")
    assert {each.prompt for each in result.pauses} == {"mine?", "go on?"}
    with pytest.raises(NotWaitingError, match="open questions"):
        trail.answer("r", "which?")
    by_prompt = {each.prompt: each for each in result.pauses}
    trail.answer("r", "parent's", pause=by_prompt["mine?"].seq)
    assert run(trail, parent, id="r", answer="child's").value == ["parent's", "child's"]


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


def test_a_pause_that_is_not_awaited_in_async_code_is_told_of(trail: Trail) -> None:
    @workflow
    async def forgetful() -> str:
        pause("go on?")
        return await act_later("went on")

    with pytest.warns(RuntimeWarning, match="never awaited"):
        assert run(trail, forgetful, id="r").value == "went on"
