"""Streams that are closed early, by the code, by a failure, or by the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from typing import Any

import pytest

from everstep import Kind, Status, Trail, step, workflow
from everstep.errors import DivergenceError
from tests.integration.running import act, act_later, calls, crashed, rows, run
from tests.integration.streaming import as_generator, both, reading, reading_later, streams, tokens, tokens_later
from tests.integration.support import output


@workflow
def acting(count: int) -> list[str]:
    return [act(f"did {chunk}") for chunk in tokens(count)]


@workflow
async def acting_later(count: int) -> list[str]:
    return [await act_later(f"did {chunk}") async for chunk in tokens_later(count)]


# Closed early.


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
def taking_one_and_forgetting() -> Any:
    first = next(iter(tokens(10)))
    gc.collect()
    return act(f"afterwards {first}")


@workflow
async def taking_one_and_forgetting_later() -> Any:
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
def closing_a_tidy_one() -> Any:
    stream = tidy_stream()
    first = next(stream)
    as_generator(stream).close()
    return act(f"afterwards {first}")


@workflow
async def closing_a_tidy_one_later() -> Any:
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
