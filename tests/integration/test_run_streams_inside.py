"""What a stream holds and who reads it: steps inside, several at once, a reader that is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from everstep import Kind, Status, Trail, current, step, workflow
from everstep.errors import UnstorableError
from tests.integration.running import act, act_later, calls, crashed, rows, run
from tests.integration.streaming import as_generator, both, streams, tokens, tokens_later

# What is recorded.


@step
def lists() -> Iterator[list[int]]:
    chunk = [1]
    yield chunk
    chunk.append(2)
    yield chunk


@workflow
def spoiling() -> list[Any]:
    found = []
    for chunk in lists():
        found.append(list(chunk))
        chunk.append(99)
    act("afterwards")
    return found


def test_changing_a_delivered_chunk_does_not_change_the_record(trail: Trail) -> None:
    """Promise 5."""
    calls.crash = {"afterwards"}
    crashed(trail, spoiling, id="r")
    first = [[1], [1, 99, 2]]
    assert streams(trail, name="lists")[0].output == first
    assert run(trail, spoiling, id="r").value == first
    assert trail.state("r")["lists"] == first


@step
def unstorable() -> Iterator[Any]:
    yield 1
    yield object()


@workflow
def reading_what_cannot_be_stored() -> list[Any]:
    return [type(chunk).__name__ for chunk in unstorable()]


def test_a_chunk_that_cannot_be_stored_fails_the_stream_and_names_it(trail: Trail) -> None:
    """Promise 7."""
    with pytest.raises(UnstorableError, match=r"output\[1\]"):
        run(trail, reading_what_cannot_be_stored, id="r")
    assert trail.run("r").status is Status.FAILED


# Steps inside.


@step
def answered(count: int) -> Iterator[str]:
    for number in range(count):
        current().state["last"] = number
        yield act(f"inside {number}")


@step
async def answered_later(count: int) -> AsyncIterator[str]:
    for number in range(count):
        current().state["last"] = number
        yield await act_later(f"inside {number}")


@workflow
def reading_answers() -> list[str]:
    return [act(f"outside {chunk}") for chunk in answered(3)]


@workflow
async def reading_answers_later() -> list[str]:
    return [await act_later(f"outside {chunk}") async for chunk in answered_later(3)]


@both(reading_answers, reading_answers_later)
def test_steps_in_the_body_of_a_stream_are_inside_it_and_not_taken_again(trail: Trail, streaming: Any) -> None:
    calls.crash = {"inside 2"}
    crashed(trail, streaming, id="r")
    assert run(trail, streaming, id="r").value == [f"outside inside {number}" for number in range(3)]
    assert calls == [
        "inside 0", "outside inside 0", "inside 1", "outside inside 1", "inside 2", "inside 2", "outside inside 2"
    ]  # fmt: skip
    [made] = streams(trail, name="answered")
    inside = [row.output for row in rows(trail, "r", Kind.STEP) if row.parent == made.id]
    assert inside[-1] == "inside 2"
    assert trail.state("r")["last"] == 2
    assert {row.output for row in rows(trail, "r", Kind.STEP) if row.parent is None and row.id != made.id} == {
        f"outside inside {number}" for number in range(3)
    }


@step
async def slow_stream(seconds: float) -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(seconds)


@step
async def slow_step(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return 1


@workflow
async def racing(of_stream: float, of_step: float) -> None:
    async def by_stream() -> str:
        return "stream" if [chunk async for chunk in slow_stream(of_stream)] else "nothing"

    async def by_step() -> str:
        return "step" if await slow_step(of_step) else "nothing"

    for done in asyncio.as_completed([by_stream(), by_step()]):
        await act_later(f"then the {await done}")
    await act_later("end")


@pytest.mark.parametrize(("of_stream", "of_step"), [(0.0, 0.1), (0.1, 0.0)])
def test_a_stream_ends_in_its_turn_when_the_run_is_resumed(trail: Trail, of_stream: float, of_step: float) -> None:
    """Which of two ended first decides what the code does next."""
    calls.crash = {"end"}
    crashed(trail, racing, of_stream, of_step, id="r")
    first = calls.taken()
    assert first[0] == ("then the stream" if of_stream < of_step else "then the step")
    run(trail, racing, id="r")
    assert calls == ["end"]


# Several at once.


@workflow
def zipping() -> list[Any]:
    return [act(f"{one} and {other}") for one, other in zip(tokens(3), tokens(2), strict=False)]


@workflow
async def zipping_later() -> list[Any]:
    one, other, found = tokens_later(3), tokens_later(2), []
    async for chunk in other:
        found.append(await act_later(f"{await anext(one)} and {chunk}"))  # noqa: PERF401 - two are read at once
    await as_generator(one).aclose()
    return found


@both(zipping, zipping_later)
def test_two_streams_can_be_read_at_once_in_one_lane(trail: Trail, streaming: Any) -> None:
    expected = ["token 0 and token 0", "token 1 and token 1"]
    calls.crash = {expected[1]}
    crashed(trail, streaming, id="r")
    assert run(trail, streaming, id="r").value == expected
    assert calls.count(expected[0]) == 1
    assert len({row.id for row in streams(trail)}) == 2


@workflow
async def in_a_group() -> list[list[str]]:
    async def consume(count: int) -> list[str]:
        return [await act_later(f"{count}: {chunk}") async for chunk in tokens_later(count)]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(consume(count)) for count in (1, 2, 3)]
    return [task.result() for task in tasks]


def test_async_streams_in_a_task_group_are_told_apart(trail: Trail) -> None:
    expected = [[f"{count}: token {number}" for number in range(count)] for count in (1, 2, 3)]
    calls.crash = {"3: token 1"}
    with pytest.raises(BaseExceptionGroup):
        run(trail, in_a_group, id="r")
    assert run(trail, in_a_group, id="r").value == expected
    for one in (each for group in expected for each in group if each != "3: token 1"):
        assert calls.count(one) == 1


@workflow
def in_threads() -> list[list[str]]:
    def consume(count: int) -> list[str]:
        return [act(f"{count}: {chunk}") for chunk in tokens(count)]

    with ThreadPoolExecutor(3) as pool:
        return [job.result() for job in [pool.submit(consume, count) for count in (1, 2, 3)]]


def test_streams_in_threads_are_told_apart(trail: Trail) -> None:
    expected = [[f"{count}: token {number}" for number in range(count)] for count in (1, 2, 3)]
    calls.crash = {"3: token 1"}
    crashed(trail, in_threads, id="r")
    assert run(trail, in_threads, id="r").value == expected
    for one in (each for group in expected for each in group if each != "3: token 1"):
        assert calls.count(one) == 1


# Cancelled.


@workflow
async def running_out_of_time() -> list[str]:
    found: list[str] = []
    try:
        async with asyncio.timeout(0.05):
            async for chunk in slow_tokens():
                found.append(await act_later(f"did {chunk}"))  # noqa: PERF401 - until the time is out
    except TimeoutError:
        found.append("timed out")
    await act_later("went on")
    await act_later("afterwards")
    return found


@step
async def slow_tokens() -> AsyncIterator[int]:
    yield 1
    yield 2
    await asyncio.sleep(60)
    yield 3


def test_a_stream_that_was_cancelled_is_served_as_far_as_it_came_and_cancelled_again(trail: Trail) -> None:
    calls.crash = {"afterwards"}
    crashed(trail, running_out_of_time, id="r")
    calls.clear()
    assert run(trail, running_out_of_time, id="r").value == ["did 1", "did 2", "timed out"]
    assert calls == ["afterwards"]
