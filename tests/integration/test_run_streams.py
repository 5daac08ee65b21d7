"""Steps that give their outcome chunk by chunk: delivered at once, recorded as one list, served as they came."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, Trail, step, workflow
from everstep.errors import JournalError
from tests.integration.running import act, act_later, calls, crashed, names, rows, run
from tests.integration.streaming import as_generator, both, reading, reading_later, streams, tokens, tokens_later
from tests.integration.support import python

# Delivery.


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


talks: list[str] = []  # what the consumers below say to a stream


@workflow
def talking() -> list[str]:
    stream = as_generator(tokens(3))
    found = [next(stream), *(stream.send(word) for word in talks), *stream]
    act("afterwards")
    return found


@workflow
async def talking_later() -> list[str]:
    stream = as_generator(tokens_later(3))
    found = [await anext(stream), *[await stream.asend(word) for word in talks], *[each async for each in stream]]
    await act_later("afterwards")
    return found


@both(talking, talking_later)
def test_what_is_sent_to_a_stream_is_refused_live_and_on_record(
    trail: Trail, streaming: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 13: it would be lost, and the generator go on with None in its place."""
    calls.crash = {"afterwards"}
    crashed(trail, streaming, id="on record")
    monkeypatch.setattr(f"{__name__}.talks", ["louder"])
    for run_id in ("on record", "live"):
        with pytest.raises(JournalError, match=r"'louder' was sent to step 'tokens(_later)?'.*Give it what it needs"):
            run(trail, streaming, id=run_id)


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
