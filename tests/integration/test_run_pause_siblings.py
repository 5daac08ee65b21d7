"""What goes on beside a lane that waits for a person, and what becomes of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, Trail, pause, step, workflow
from everstep.errors import NotWaitingError
from tests.integration.running import act, act_later, calls, rows, run


@workflow
async def asking_child_later() -> str:
    return str(await pause("go on?"))


@step
async def slow_act_later(what: str, seconds: float) -> str:
    await asyncio.sleep(seconds)
    return str(calls(what))


# Siblings.


@workflow
async def two_questions() -> Any:
    async def branch(name: str) -> Any:
        await act_later(f"before {name}")
        said = await pause(f"{name}?")
        return await act_later(f"{name}: {said}")

    return await asyncio.gather(branch("a"), branch("b"))


@workflow
def two_questions_in_threads() -> list[Any]:
    def branch(name: str) -> Any:
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
async def questions_after_a_timeout() -> Any:
    try:
        await asyncio.wait_for(slow_act_later("slow", 3600), 0.001)
    except TimeoutError:
        return await asyncio.gather(*(asyncio.create_task(pause(f"{name}?")) for name in "ab"))


def test_questions_of_tasks_that_were_spawned_after_a_cancelled_step_can_be_answered(trail: Trail) -> None:
    """All that followed the step was in new lanes: the run was taken to have been stopped there."""
    waiting = run(trail, questions_after_a_timeout, id="r").pauses
    for each in reversed(waiting):
        trail.answer("r", each.seq, pause=each.seq)
    result = run(trail, questions_after_a_timeout, id="r")
    assert (result.value, len(waiting), calls) == ([each.seq for each in waiting], 2, [])


@workflow
async def siblings_of_a_pause() -> Any:
    async def slow(name: str) -> Any:
        await slow_act_later(f"{name} 1", 0.02)
        return await slow_act_later(f"{name} 2", 0.05)

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
    return await asyncio.gather(pause("go on?"), slow_act_later("sibling", 0.01))


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


def test_a_thread_whose_question_waits_ends_without_a_word(trail: Trail, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no news for whoever looks at threads that fail, and nothing of ours is for their eyes."""

    def ask(number: int) -> None:
        said[number] = pause(f"ok {number}?", schema=bool)

    @workflow
    def asks() -> dict[int, bool]:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return dict(sorted(said.items()))

    said: dict[int, bool] = {}
    failed: list[Any] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        found = everstep.Runner(trail).run(asks, id="threads")
        assert sorted(asked.prompt for asked in found.pauses) == ["ok 0?", "ok 1?"]
        for asked in found.pauses:
            trail.answer("threads", value=True, pause=asked.seq)
        assert everstep.Runner(trail).run(asks, id="threads").value == {0: True, 1: True}
    finally:
        threading.excepthook = before
    assert failed == []
    assert capsys.readouterr().err == ""
