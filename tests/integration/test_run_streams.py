"""Steps that give their outcome chunk by chunk: delivered at once, recorded as one list, served as they came."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, StepRecord, Trail, current, step, workflow
from everstep.errors import DivergenceError, UnstorableError
from tests.integration.running import Calls, crashed, names, rows, run
from tests.integration.support import output, python

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
    return str(calls(what))


@step
async def act_later(what: str) -> str:
    await asyncio.sleep(0)
    return str(calls(what))


@step
def tokens(count: int) -> Iterator[str]:
    for number in range(count):
        calls(f"made {number}")
        yield f"token {number}"


@step
async def tokens_later(count: int) -> AsyncIterator[str]:
    for number in range(count):
        await asyncio.sleep(0)
        calls(f"made {number}")
        yield f"token {number}"


def streams(trail: Trail, run_id: str = "r", name: str = "tokens") -> list[StepRecord]:
    return [row for row in rows(trail, run_id, Kind.STEP) if row.name.startswith(name)]


def both(plain: Any, later: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("streaming", [plain, later], ids=["generator", "async generator"])


# Delivery.


@workflow
def reading(count: int) -> list[str]:
    found = []
    for chunk in tokens(count):
        calls(f"got {chunk}")
        found.append(chunk)
    act("afterwards")
    return found


@workflow
async def reading_later(count: int) -> list[str]:
    found = []
    async for chunk in tokens_later(count):
        calls(f"got {chunk}")
        found.append(chunk)
    await act_later("afterwards")
    return found


@both(reading, reading_later)
def test_each_chunk_is_delivered_before_the_next_is_made(trail: Trail, streaming: Any) -> None:
    assert run(trail, streaming, 3, id="r").value == ["token 0", "token 1", "token 2"]
    assert calls == [
        "made 0", "got token 0", "made 1", "got token 1", "made 2", "got token 2", "afterwards"
    ]  # fmt: skip
    [made] = streams(trail)
    assert (made.output, made.partial, made.status) == (["token 0", "token 1", "token 2"], False, Status.COMPLETED)
    assert made.inputs is None  # they stand where it began
    [began] = rows(trail, "r", Kind.COMPOSITE_START)
    assert (began.inputs, began.id) == ({"count": 3}, made.id)
    assert trail.state("r")[made.name] == ["token 0", "token 1", "token 2"]


@both(reading, reading_later)
def test_a_recorded_stream_is_served_and_not_made_again(trail: Trail, streaming: Any) -> None:
    """Promise 2."""
    calls.crash = {"afterwards"}
    crashed(trail, streaming, 3, id="r")
    calls.clear()
    assert run(trail, streaming, id="r").value == ["token 0", "token 1", "token 2"]
    assert calls == ["got token 0", "got token 1", "got token 2", "afterwards"]


@both(reading, reading_later)
def test_an_empty_stream_is_an_empty_list(trail: Trail, streaming: Any) -> None:
    calls.crash = {"afterwards"}
    crashed(trail, streaming, 0, id="r")
    assert run(trail, streaming, id="r").value == []
    assert streams(trail)[0].output == []


@both(reading, reading_later)
def test_a_crash_in_mid_stream_makes_it_anew(trail: Trail, streaming: Any) -> None:
    calls.crash = {"made 1"}
    crashed(trail, streaming, 3, id="r")
    assert streams(trail) == []
    assert run(trail, streaming, id="r").value == ["token 0", "token 1", "token 2"]
    assert calls.count("made 0") == 2
    calls.clear()
    [made] = streams(trail)
    assert made.output == ["token 0", "token 1", "token 2"]
    assert run(trail, streaming, id="r").restored


def test_a_process_killed_in_mid_stream_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    program = """
import os, sys, everstep
@everstep.step
def tokens():
    for number in range(3):
        if number == 2 and sys.argv[2] == "die":
            os.kill(os.getpid(), 9)
        yield number
@everstep.step
def act(number):
    print("act", number, flush=True)
    return number
@everstep.workflow
def reading():
    return [act(number) for number in tokens()]
print(everstep.Runner(everstep.open(sys.argv[1])).run(reading, id="r").value)
"""
    killed = python(program, tmp_path / "trail.db", "die")
    assert (killed.returncode, killed.stdout) == (-9, "act 0\nact 1\n")
    assert python(program, tmp_path / "trail.db", "live").stdout == "act 2\n[0, 1, 2]\n"


# Between the chunks.


@workflow
def acting(count: int) -> list[str]:
    return [act(f"did {chunk}") for chunk in tokens(count)]


@workflow
async def acting_later(count: int) -> list[str]:
    return [await act_later(f"did {chunk}") async for chunk in tokens_later(count)]


@both(acting, acting_later)
def test_the_consumer_takes_steps_between_chunks(trail: Trail, streaming: Any) -> None:
    assert run(trail, streaming, 2, id="r").value == ["did token 0", "did token 1"]
    assert [row.parent for row in rows(trail, "r", Kind.STEP)] == [None, None, None]


@both(acting, acting_later)
def test_steps_between_chunks_are_not_taken_again_after_a_crash_in_mid_stream(trail: Trail, streaming: Any) -> None:
    """Promise 2: the stream begins again, what was done with its first chunks does not."""
    calls.crash = {"made 2"}
    crashed(trail, streaming, 3, id="r")
    assert run(trail, streaming, id="r").value == ["did token 0", "did token 1", "did token 2"]
    assert [each for each in calls if str(each).startswith("did")] == ["did token 0", "did token 1", "did token 2"]


@both(acting, acting_later)
def test_a_crash_between_chunks_and_another_one_while_it_is_resumed(trail: Trail, streaming: Any) -> None:
    calls.crash = {"did token 1"}
    crashed(trail, streaming, 3, id="r")
    calls.crash = {"did token 2"}
    crashed(trail, streaming, id="r")
    assert run(trail, streaming, id="r").value == ["did token 0", "did token 1", "did token 2"]
    done = [each for each in calls if str(each).startswith("did")]
    assert done == ["did token 0", "did token 1", "did token 1", "did token 2", "did token 2"]
    assert trail.state("r")["tokens" if streaming is acting else "tokens_later"] == ["token 0", "token 1", "token 2"]


mood = ["calm"]


@step
def moody(count: int) -> Iterator[str]:
    for number in range(count):
        calls(f"made {number}")
        yield f"{mood[0]} {number}"


@step
async def moody_later(count: int) -> AsyncIterator[str]:
    for number in range(count):
        await asyncio.sleep(0)
        calls(f"made {number}")
        yield f"{mood[0]} {number}"


@workflow
def acting_on_moods(count: int) -> list[str]:
    found = [act(f"did {chunk}") for chunk in moody(count)]
    act("afterwards")
    return found


@workflow
async def acting_on_moods_later(count: int) -> list[str]:
    found = [await act_later(f"did {chunk}") async for chunk in moody_later(count)]
    await act_later("afterwards")
    return found


@both(acting_on_moods, acting_on_moods_later)
def test_a_stream_that_is_other_the_second_time_supersedes_what_followed_its_first_chunks(
    trail: Trail, streaming: Any
) -> None:
    """A model says other words the second time. What was done with the lost ones stays as history."""
    mood[:] = ["calm"]
    calls.crash = {"made 2"}
    crashed(trail, streaming, 3, id="r")
    mood[:] = ["angry"]
    calls.crash = {"did angry 1"}
    crashed(trail, streaming, id="r")
    mood[:] = ["sad"]
    calls.clear()
    assert run(trail, streaming, id="r").value == ["did sad 0", "did sad 1", "did sad 2"]
    assert [each for each in calls if str(each).startswith(("did", "after"))] == [
        "did sad 0", "did sad 1", "did sad 2", "afterwards"
    ]  # fmt: skip
    assert [row.output for row in rows(trail, "r", Kind.STEP) if row.name.startswith("act")][:3] == [
        "did calm 0", "did calm 1", "did angry 0"
    ]  # fmt: skip


@both(acting_on_moods, acting_on_moods_later)
def test_a_shorter_second_stream_survives_a_crash_right_after_it(trail: Trail, streaming: Any) -> None:
    mood[:] = ["calm"]
    calls.crash = {"made 2"}
    crashed(trail, streaming, 3, id="r")
    calls.crash = {"afterwards"}
    # The stream is other the second time in another way: it ends after its first chunk.
    step_of = moody if streaming is acting_on_moods else moody_later
    whole = step_of.function

    def shorter(count: int) -> Any:
        return whole(1)

    step_of.function = shorter
    try:
        crashed(trail, streaming, id="r")
        calls.clear()
        assert run(trail, streaming, id="r").value == ["did calm 0"]
        assert calls == ["afterwards"]
    finally:
        step_of.function = whole


# Closed early.


def as_generator(stream: Any) -> Any:
    """What is declared as an iterator, as what it is."""
    return stream


@workflow
def taking_some(count: int) -> list[str]:
    found = []
    with closing(as_generator(tokens(10))) as stream:
        for chunk in stream:
            found.append(chunk)
            if len(found) == count:
                break
    act("afterwards")
    return found


@workflow
async def taking_some_later(count: int) -> list[str]:
    found = []
    async with aclosing(as_generator(tokens_later(10))) as stream:
        async for chunk in stream:
            found.append(chunk)
            if len(found) == count:
                break
    await act_later("afterwards")
    return found


@both(taking_some, taking_some_later)
def test_a_stream_that_is_closed_early_is_recorded_as_far_as_it_came(trail: Trail, streaming: Any) -> None:
    calls.crash = {"afterwards"}
    crashed(trail, streaming, 2, id="r")
    [made] = streams(trail)
    assert (made.output, made.partial, made.status) == (["token 0", "token 1"], True, Status.COMPLETED)
    calls.clear()
    assert run(trail, streaming, id="r").value == ["token 0", "token 1"]
    assert calls == ["afterwards"]


@workflow
def taking_one_and_forgetting() -> str:
    first = next(iter(tokens(10)))
    gc.collect()
    return act(f"afterwards {first}")


@workflow
async def taking_one_and_forgetting_later() -> str:
    first = await anext(tokens_later(10))
    gc.collect()
    await asyncio.sleep(0.02)
    return await act_later(f"afterwards {first}")


@both(taking_one_and_forgetting, taking_one_and_forgetting_later)
def test_an_abandoned_stream_is_closed_without_a_word(trail: Trail, streaming: Any) -> None:
    calls.crash = {"afterwards token 0"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crashed(trail, streaming, id="r")
        gc.collect()
        assert run(trail, streaming, id="r").value == "afterwards token 0"
        gc.collect()
    [made] = streams(trail)
    assert (made.output, made.partial) == (["token 0"], True)
    assert calls.count("made 0") == 1


def test_an_async_stream_that_outlives_its_run_is_closed_without_a_word(trail: Trail) -> None:
    kept: list[Any] = []

    @workflow
    async def keeping() -> str:
        stream = tokens_later(10)
        kept.append(stream)
        return await anext(stream)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(trail, keeping, id="r").value == "token 0"
        kept.clear()
        gc.collect()


def test_a_stream_that_outlives_its_run_is_closed_without_a_word(trail: Trail) -> None:
    kept: list[Any] = []

    @workflow
    def keeping() -> str:
        stream = tokens(10)
        kept.append(stream)
        return next(stream)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(trail, keeping, id="r").value == "token 0"
        kept.clear()
        gc.collect()
    assert run(trail, keeping, id="r").value == "token 0"


@step
def tidy_stream() -> Iterator[str]:
    try:
        yield act("first")
        yield act("second")
    finally:
        act("tidied up")


@step
async def tidy_stream_later() -> AsyncIterator[str]:
    try:
        yield await act_later("first")
        yield await act_later("second")
    finally:
        await act_later("tidied up")


@workflow
def closing_a_tidy_one() -> str:
    stream = tidy_stream()
    first = next(stream)
    as_generator(stream).close()
    return act(f"afterwards {first}")


@workflow
async def closing_a_tidy_one_later() -> str:
    stream = tidy_stream_later()
    first = await anext(stream)
    await as_generator(stream).aclose()
    return await act_later(f"afterwards {first}")


@both(closing_a_tidy_one, closing_a_tidy_one_later)
def test_what_a_stream_does_when_it_is_closed_are_steps_of_the_stream(trail: Trail, streaming: Any) -> None:
    calls.crash = {"afterwards first"}
    crashed(trail, streaming, id="r")
    assert calls == ["first", "tidied up", "afterwards first"]
    [made] = streams(trail, name="tidy")
    inside = [row for row in rows(trail, "r", Kind.STEP) if row.parent == made.id]
    assert [row.output for row in inside] == ["first", "tidied up"]
    calls.clear()
    assert run(trail, streaming, id="r").value == "afterwards first"
    assert calls == ["afterwards first"]


# Failure.


@workflow
def reading_until_it_fails() -> list[str]:
    found = []
    try:
        for chunk in tokens(5):
            found.append(chunk)  # noqa: PERF402 - what was given before the failure is wanted
    except ValueError as error:
        found.append(str(error))
    act("afterwards")
    return found


@workflow
async def reading_until_it_fails_later() -> list[str]:
    found = []
    try:
        async for chunk in tokens_later(5):
            found.append(chunk)  # noqa: PERF401 - as above
    except ValueError as error:
        found.append(str(error))
    await act_later("afterwards")
    return found


@both(reading_until_it_fails, reading_until_it_fails_later)
def test_a_stream_that_fails_after_some_chunks_is_served_like_that(trail: Trail, streaming: Any) -> None:
    calls.fail, calls.crash = {"made 2"}, {"afterwards"}
    crashed(trail, streaming, id="r")
    [made] = streams(trail)
    assert (made.output, made.status) == (["token 0", "token 1"], Status.FAILED)
    assert made.error is not None
    assert made.error.message == "made 2"
    calls.fail = set()
    calls.clear()
    assert run(trail, streaming, id="r").value == ["token 0", "token 1", "made 2"]
    assert calls == ["afterwards"]


@both(reading, reading_later)
def test_a_run_that_failed_in_a_stream_makes_it_anew_when_it_is_taken_up(trail: Trail, streaming: Any) -> None:
    calls.fail = {"made 2"}
    with pytest.raises(ValueError, match="made 2"):
        run(trail, streaming, 3, id="r")
    assert trail.run("r").status is Status.FAILED
    calls.fail = set()
    assert run(trail, streaming, id="r").value == ["token 0", "token 1", "token 2"]
    assert [row.status for row in streams(trail)] == [Status.FAILED, Status.COMPLETED]


@both(acting, acting_later)
def test_what_was_done_with_the_chunks_before_a_failure_is_kept_when_the_run_is_taken_up(
    trail: Trail, streaming: Any
) -> None:
    calls.fail = {"made 2"}
    with pytest.raises(ValueError, match="made 2"):
        run(trail, streaming, 3, id="r")
    calls.fail = set()
    calls.clear()
    assert run(trail, streaming, id="r").value == ["did token 0", "did token 1", "did token 2"]
    assert [each for each in calls if str(each).startswith("did")] == ["did token 2"]
    assert trail.verify().ok


@both(acting, acting_later)
def test_a_consumer_that_fails_closes_the_stream_it_reads(trail: Trail, streaming: Any) -> None:
    calls.fail = {"did token 1"}
    with pytest.raises(ValueError, match="did token 1"):
        run(trail, streaming, 3, id="r")
    gc.collect()
    calls.fail = set()
    assert run(trail, streaming, id="r").value == ["did token 0", "did token 1", "did token 2"]
    assert [each for each in calls if str(each).startswith("did")] == [
        "did token 0", "did token 1", "did token 1", "did token 2"
    ]  # fmt: skip


@workflow
def closing_whatever_happens(count: int) -> list[str]:
    with closing(as_generator(tokens(count))) as stream:
        return [act(f"did {chunk}") for chunk in stream]


@workflow
async def closing_whatever_happens_later(count: int) -> list[str]:
    async with aclosing(as_generator(tokens_later(count))) as stream:
        return [await act_later(f"did {chunk}") async for chunk in stream]


@both(closing_whatever_happens, closing_whatever_happens_later)
def test_a_stream_closed_by_a_failure_is_whole_when_the_run_is_taken_up(trail: Trail, streaming: Any) -> None:
    """The code had not had enough of it: what it got until then is not all there is."""
    calls.fail = {"did token 1"}
    with pytest.raises(ValueError, match="did token 1"):
        run(trail, streaming, 3, id="r")
    calls.fail = set()
    calls.clear()
    assert run(trail, streaming, id="r").value == ["did token 0", "did token 1", "did token 2"]
    assert [each for each in calls if str(each).startswith("did")] == ["did token 1", "did token 2"]


@both(taking_some, taking_some_later)
def test_code_that_wants_more_of_a_stream_than_it_took_diverges(trail: Trail, streaming: Any) -> None:
    """What follows the chunks on record is not known: it must not look like the end of the stream."""
    count = [2]

    @workflow(name="taking")
    def plain() -> list[str]:
        return [act(chunk) for chunk, _ in zip(as_generator(tokens(10)), range(count[0]), strict=False)] + [act("end")]

    @workflow(name="taking")
    async def later() -> list[str]:
        found: list[str] = []
        async with aclosing(as_generator(tokens_later(10))) as stream:
            while len(found) < count[0]:
                found.append(await act_later(await anext(stream)))
        return [*found, await act_later("end")]

    taking: Any = plain if streaming is taking_some else later
    calls.crash = {"end"}
    crashed(trail, taking, id="r")
    count[0] = 4
    with pytest.raises(DivergenceError, match="another chunk"):
        run(trail, taking, id="r")


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
    assert [each for each in calls if str(each).startswith("outside")] == [
        f"outside inside {number}" for number in range(3)
    ]
    [made] = streams(trail, name="answered")
    inside = [row.output for row in rows(trail, "r", Kind.STEP) if row.parent == made.id]
    assert inside[-1] == "inside 2"
    assert trail.state("r")["last"] == 2
    assert {row.output for row in rows(trail, "r", Kind.STEP) if row.parent is None and row.id != made.id} == {
        f"outside inside {number}" for number in range(3)
    }


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


# Outside.


def test_outside_of_a_run_a_stream_is_the_plain_generator() -> None:
    assert list(tokens(2)) == ["token 0", "token 1"]

    async def read() -> list[str]:
        return [chunk async for chunk in tokens_later(2)]

    assert asyncio.run(read()) == ["token 0", "token 1"]


@both(reading, reading_later)
def test_without_a_trail_a_stream_still_streams_and_is_logged(streaming: Any) -> None:
    result = run(None, streaming, 2)
    assert result.value == ["token 0", "token 1"]
    assert calls == ["made 0", "got token 0", "made 1", "got token 1", "afterwards"]
    assert len(result.log.steps) == 2


@pytest.mark.parametrize("option", [{"external": True}, {"timeout": 1.0}, {"retry": everstep.Retry()}])
def test_what_makes_no_sense_for_a_stream_is_refused_when_it_is_declared(option: dict[str, Any]) -> None:
    def chunks() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="is a stream"):
        step(**option)(chunks)


def test_the_names_and_rows_of_a_run_with_streams_verify(trail: Trail) -> None:
    run(trail, acting, 3, id="r")
    assert names(rows(trail, "r")) == ["acting", "tokens", "act", "act", "act", "tokens", "end"]
    assert trail.verify().ok


def test_a_stream_is_a_generator_for_whoever_asks(trail: Trail) -> None:
    @workflow
    def looking() -> tuple[bool, bool]:
        stream = tokens(1)
        return inspect.isgenerator(stream), list(stream) == ["token 0"]

    assert run(trail, looking, id="r").value == (True, True)


LITTERING = """
import gc, sys, everstep

@everstep.step
def tokens(count):
    yield from range(count)

@everstep.step
def act(number):
    return number

@everstep.workflow
def littering(count):
    done = 0
    for number in range(count):
        stream = tokens(3)
        ring = [stream, next(stream)]
        ring.append(ring)  # only the collector finds it
        del stream, ring
        done += act(number) == number
    return done

gc.set_threshold(int(sys.argv[1]), 1, 100)
trail = everstep.open(":memory:")
print(everstep.Runner(trail, durability="exit").run(littering, 300, id="r").value)
assert {row.parent for row in trail.steps("r")} == {None}
"""


@pytest.mark.parametrize("threshold", [13, 31, 100])
def test_streams_that_the_garbage_collector_closes_leave_the_context_whole(threshold: int) -> None:
    """It may run in the middle of anything, also while the variable is set that says which lane this is.

    To set that variable from there too made Python 3.11 lose it, or crash.
    """
    assert output(LITTERING, threshold) == "300"
