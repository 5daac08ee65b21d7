"""Streams that end, or are cancelled, as something else happens: a timeout, another step, a failure, a second crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Trail, step, workflow
from everstep.model import KINDS
from tests.integration.running import Crash, act, act_later, calls, crashed, rows, run
from tests.integration.streaming import as_generator, both, streams, tokens, tokens_later

# Begun again after a crash, and cancelled before it got as far.


@step
async def slow(seconds: str) -> AsyncIterator[str]:
    await asyncio.sleep(pace[seconds])
    calls("made a")
    yield "a"
    await asyncio.sleep(60)


@step
async def search() -> None:
    await (asyncio.sleep(0.2) if pace["at first"] else gate[0].wait())
    calls("searched")


pace = {"at first": 0.0}
gate: list[asyncio.Event] = []


@workflow
async def reading_beside_a_search() -> Any:
    async def read() -> None:
        async for chunk in slow("at first"):
            await act_later(f"did {chunk}")
            gate[0].set()

    gate[:] = [asyncio.Event()]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            group.create_task(search())
    except* ValueError:
        pass
    return await act_later("afterwards")


def crashed_in_a_group(trail: Trail, **options: Any) -> None:
    """A group puts what crashed in it into a group of exceptions."""
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - which it is, is looked at
        run(trail, reading_beside_a_search, **options)
    found = raised.value
    assert isinstance(found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found, Crash)


@pytest.fixture
def cut_off(trail: Trail) -> Trail:
    """A trail with a run whose stream had given a chunk, and its consumer had taken a step, when it crashed."""
    pace["at first"] = 0.0
    calls.crash = {"searched"}
    crashed_in_a_group(trail, id="r")
    assert calls == ["made a", "did a", "searched"]
    calls.clear()
    pace["at first"] = 60.0
    return trail


def test_a_stream_that_is_cancelled_before_it_came_as_far_as_the_first_time_replays(cut_off: Trail) -> None:
    calls.fail = {"searched"}
    assert run(cut_off, reading_beside_a_search, id="r").value == "afterwards"
    assert cut_off.replay("r", reading_beside_a_search).identical


def test_a_stream_that_is_cancelled_before_it_came_as_far_as_the_first_time_survives_a_crash(cut_off: Trail) -> None:
    calls.fail, calls.crash = {"searched"}, {"afterwards"}
    crashed(cut_off, reading_beside_a_search, id="r")
    calls.clear()
    assert run(cut_off, reading_beside_a_search, id="r").value == "afterwards"
    assert calls == ["afterwards"]


async def dropped(trail: Trail) -> None:
    task = asyncio.create_task(AsyncRunner(trail).run(reading_beside_a_search, id="r"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("how", ["crashes", "crashes in it", "is dropped"])
def test_a_run_that_stops_before_its_stream_came_as_far_keeps_what_followed_its_chunks(
    cut_off: Trail, how: str
) -> None:
    """Promise 2: nobody had enough of the stream, so it may come as far as it did."""
    if how == "crashes":
        calls.crash = {"searched"}
        crashed_in_a_group(cut_off, id="r")
    elif how == "crashes in it":
        pace["at first"] = 0.0
        calls.crash = {"made a"}
        crashed_in_a_group(cut_off, id="r")
    else:
        asyncio.run(dropped(cut_off))
    pace["at first"] = 0.0
    calls.clear()
    calls.fail = {"searched"}
    assert run(cut_off, reading_beside_a_search, id="r").value == "afterwards"
    assert calls == ["made a", "searched", "afterwards"]


# A timeout that passes while the end is on its way to the disk.


@step
async def breaking(count: int) -> AsyncIterator[str]:
    for number in range(count):
        yield f"token {number}"
    raise ValueError("broken")


@workflow
async def reading_in_time(fails: bool) -> Any:  # noqa: FBT001 - which stream it reads
    found: list[str] = []
    try:
        async with asyncio.timeout(0.2):
            async for chunk in breaking(2) if fails else tokens_later(2):
                found.append(chunk)  # noqa: PERF401 - until the time is out
    except (TimeoutError, ValueError) as error:
        found.append(type(error).__name__)
    await act_later(found)
    return await act_later([*found, "afterwards"])


def hold_back_the_end(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the outcome of a stream written, and nobody told that it is."""
    store: Any = trail.store
    submit = store.submit

    def held(append: Any, loop: Any, settled: Any = None) -> Any:
        written = submit(append, loop, settled)
        last = append.entries[-1]
        is_end = last.name in {"tokens_later", "breaking", "tidy"} and KINDS[last.kind] is Kind.STEP
        return loop.create_future() if is_end else written

    monkeypatch.setattr(store, "submit", held)


@pytest.mark.parametrize("fails", [False, True], ids=["that ends", "that fails"])
def test_a_stream_whose_end_comes_too_late_is_cancelled_on_record_too(
    trail: Trail, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    with monkeypatch.context() as patched:
        hold_back_the_end(trail, patched)
        assert run(trail, reading_in_time, fails, id="r").value == ["token 0", "token 1", "TimeoutError", "afterwards"]
    assert trail.replay("r", reading_in_time).identical


@step
async def tidy(seconds: float) -> AsyncIterator[str]:
    try:
        yield "token 0"
        yield "token 1"
    finally:
        await asyncio.sleep(seconds)


@workflow
async def closing_in_time(seconds: float) -> Any:
    found: list[str] = []
    try:
        async with asyncio.timeout(0.2), aclosing(as_generator(tidy(seconds))) as stream:
            found.append(await anext(stream))
    except TimeoutError:
        found.append("too late")
    await act_later(found)
    return await act_later("afterwards")


@pytest.mark.parametrize("seconds", [0, 60], ids=["as it is written", "as it tidies up"])
def test_a_stream_that_is_cancelled_while_it_is_closed_is_cancelled_on_record_too(
    trail: Trail, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    calls.crash = {"afterwards"}
    with monkeypatch.context() as patched:
        hold_back_the_end(trail, patched)
        crashed(trail, closing_in_time, seconds, id="r")
    assert calls == [["token 0", "too late"], "afterwards"]
    calls.clear()
    assert run(trail, closing_in_time, id="r").value == "afterwards"
    assert calls == ["afterwards"]
    assert trail.replay("r", closing_in_time).identical


@workflow
async def reading_behind_another() -> Any:
    async def another() -> None:
        await asyncio.sleep(pace["another"])
        await act_later("another")

    beside = asyncio.create_task(another())
    if not pace["another"]:
        await asyncio.wait([beside])
    try:
        async with asyncio.timeout(pace["timeout"]):
            found = [chunk async for chunk in tokens_later(1)]
    except TimeoutError:
        found = ["too late"]
    await beside
    return await act_later(found[0])


def test_a_stream_that_is_cancelled_while_it_waits_for_its_turn_is_cancelled_on_record_too(trail: Trail) -> None:
    """It was not, when it was recorded: then its outcome was delivered."""
    pace.update(another=0.0, timeout=60.0)
    calls.crash = {"token 0"}
    crashed(trail, reading_behind_another, id="r")
    assert [row.name for row in rows(trail, "r", Kind.STEP)] == ["act_later", "tokens_later"]
    pace.update(another=0.6, timeout=0.2)
    assert run(trail, reading_behind_another, id="r").value == "too late"
    pace["another"] = 0.0
    assert trail.replay("r", reading_behind_another).identical


# Beside another step.


@step
async def gated_tokens(turns: int) -> AsyncIterator[str]:
    yield "a"
    await gate[0].wait()
    for _ in range(turns):
        await asyncio.sleep(0)


@step
async def gated(turns: int) -> None:
    await gate[0].wait()
    for _ in range(turns):
        await asyncio.sleep(0)


@workflow
async def racing(turns: int) -> Any:
    async def read() -> list[str]:
        return [chunk async for chunk in gated_tokens(2)]

    gate[:] = [asyncio.Event()]
    both: list[asyncio.Task[Any]] = [asyncio.create_task(read()), asyncio.create_task(gated(turns))]
    asyncio.get_running_loop().call_later(0.01, gate[0].set)
    done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    first = "gated_tokens" if both[0] in done else "gated"
    await asyncio.wait(both)
    return await act_later(first)


@pytest.mark.parametrize("turns", range(6))
def test_a_stream_and_a_step_that_end_at_once_leave_in_the_order_of_the_record(trail: Trail, turns: int) -> None:
    first = run(trail, racing, turns, id="r").value
    assert first == rows(trail, "r", Kind.STEP)[0].name
    assert trail.replay("r", racing).identical


def test_a_stream_that_ends_behind_many_rows_waits_for_the_first_of_them(tmp_path: Path) -> None:
    """With rows that are written in the background, at some point something has to be waited for: not a future."""
    with everstep.open(tmp_path / "many.db") as trail:

        @workflow
        async def many() -> int:
            return sum([len([chunk async for chunk in tokens_later(1)]) for _ in range(600)])

        assert asyncio.run(AsyncRunner(trail, durability="async").run(many, id="r")).value == 600
        assert len(streams(trail)) == 600


# Before the code fails, or because it does.


def first(stream: Iterator[str]) -> str:
    return next(stream)  # and then it is let go of


@workflow
def failing_after_a_stream() -> str:
    found = first(tokens(3))
    calls("own code")
    return found


@workflow
async def failing_after_a_stream_later() -> str:
    async with aclosing(as_generator(tokens_later(3))) as stream:
        found: str = await anext(stream)
    calls("own code")
    return found


@both(failing_after_a_stream, failing_after_a_stream_later)
def test_a_stream_that_was_closed_before_the_code_failed_is_kept(trail: Trail, streaming: Any) -> None:
    calls.fail = {"own code"}
    with pytest.raises(ValueError, match="own code"):
        run(trail, streaming, id="r")
    [made] = streams(trail)
    assert (made.output, made.partial) == (["token 0"], True)
    assert trail.replay("r", streaming).identical
    calls.fail = set()
    calls.clear()
    assert run(trail, streaming, id="r").value == "token 0"
    assert calls == ["own code"]


@workflow
def failing_in_a_stream(beside: bool) -> list[str]:  # noqa: FBT001 - whether it is a step in a thread that fails
    with ThreadPoolExecutor(1) as pool, closing(as_generator(tokens(2))) as stream:
        return [pool.submit(act if beside else calls, f"did {chunk}").result() for chunk in stream]


@pytest.mark.parametrize("beside", [False, True], ids=["own code", "a step of another lane"])
def test_a_stream_that_was_closed_because_the_code_failed_is_whole_afterwards(trail: Trail, *, beside: bool) -> None:
    calls.fail = {"did token 0"}
    with pytest.raises(ValueError, match="did token 0"):
        run(trail, failing_in_a_stream, beside, id="r")
    calls.fail = set()
    assert run(trail, failing_in_a_stream, id="r").value == ["did token 0", "did token 1"]
