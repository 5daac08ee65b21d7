"""What is to be awaited and is not: a run does not take it for an answer, and does not end as if nothing were wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import everstep
from everstep import Runner, Status, Trail, adopt_loop, pause, sleep, workflow
from everstep.errors import NotAwaitedError
from tests.integration.running import act_later, calls, run


@workflow
async def taken_for_a_yes() -> Any:
    if pause("send it?", schema=bool):
        return await act_later("sent")
    return "not sent"


@workflow
async def compared_with_a_word() -> Any:
    return "go on" if pause("and now?", options=["go on", "stop"]) == "go on" else "stop"  # type: ignore[comparison-overlap, unused-ignore] # it is the mistake


@workflow
async def asked_by_the_way() -> Any:
    pause("may I?")
    return await act_later("done")


@workflow
async def slept_by_the_way() -> Any:
    sleep(5)


@workflow
def on_a_loop_of_its_own() -> Any:
    async def inner() -> None:
        adopt_loop()
        sleep(5)

    asyncio.run(inner())


def test_a_question_that_is_not_awaited_is_no_yes(trail: Trail) -> None:
    """Promise 13: what was not answered is not taken for an answer."""
    with pytest.raises(NotAwaitedError, match=r"the pause at .*test_run_awaits\.py:\d+ .*`await pause\(\.\.\.\)`"):
        run(trail, taken_for_a_yes, id="r")
    assert calls == []
    assert trail.run("r").status is Status.FAILED


@pytest.mark.parametrize(
    "forgets",
    [compared_with_a_word, asked_by_the_way, slept_by_the_way, on_a_loop_of_its_own],
    ids=lambda each: each.name,
)
@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_a_run_does_not_complete_past_what_it_did_not_await(trail: Trail, forgets: Any, *, stored: bool) -> None:
    """Promise 13: the run fails, and says which line it was."""
    with pytest.raises(NotAwaitedError, match=r"at .*test_run_awaits\.py:\d+ was not awaited"):
        Runner(trail if stored else None).run(forgets, id="r")
    assert not stored or trail.run("r").status is Status.FAILED


def test_a_run_goes_on_once_the_await_is_there(trail: Trail) -> None:
    @workflow(name="taken_for_a_yes")
    async def mended() -> Any:
        return await act_later("sent") if await pause("send it?", schema=bool) else "not sent"

    with pytest.raises(NotAwaitedError):
        run(trail, taken_for_a_yes, id="r")
    with pytest.warns(everstep.errors.CodeChangedWarning):
        assert run(trail, mended, id="r").paused
    with pytest.warns(everstep.errors.CodeChangedWarning):
        assert run(trail, mended, id="r", answer=True).value == "sent"


@workflow
async def awaited_in_every_way() -> list[Any]:
    task = asyncio.create_task(sleep(0.001))
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        group.create_task(sleep(0))
        await sleep(0)
    await asyncio.wait_for(sleep(0), 60)
    with pytest.raises(TimeoutError):  # perhaps while its beginning is written
        await asyncio.wait_for(sleep(3600), 0.001)
    for done in asyncio.as_completed([sleep(0), sleep(0.001)]):
        await done
    await asyncio.wait([asyncio.ensure_future(sleep(0))])
    sleep(0).close()  # nobody wants it any more
    await act_later("and now the questions")
    answers = await asyncio.gather(task, pause("first?"), asyncio.create_task(pause("second?")))
    asyncio.create_task(sleep(3600))  # noqa: RUF006 - left behind, but handed to somebody
    return list(answers)


def test_what_is_awaited_by_way_of_asyncio_is_awaited(trail: Trail) -> None:
    for waits in run(trail, awaited_in_every_way, id="r").pauses:
        trail.answer(waits.run_id, waits.prompt, pause=waits.seq)
    assert run(trail, awaited_in_every_way, id="r").value == [None, "first?", "second?"]


async def _tested() -> None:
    slept = sleep(0)
    with pytest.raises(NotAwaitedError, match="was not awaited"):
        assert slept
    assert repr(slept).startswith("<sleep of ")
    await slept
    with pytest.raises(RuntimeError, match="already awaited"):
        await slept


def test_outside_of_a_run_it_is_no_answer_either() -> None:
    asyncio.run(_tested())
