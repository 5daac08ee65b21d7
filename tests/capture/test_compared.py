"""What two recorded programs said and asked, compared: the words, not the ids and events that they came in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import everstep
from everstep.model import Kind
from everstep.store.memory import MemoryStore
from everstep.trail.comparing import Comparison
from tests.capture.server import ModelServer


def whole(tag: str, text: str) -> str:
    message = {"role": "assistant", "content": text}
    return json.dumps({"id": f"chatcmpl-{tag}", "created": len(tag), "choices": [{"index": 0, "message": message}]})


def events(tag: str, text: str) -> str:
    deltas = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in text.split(" ")]
    return "".join(f"data: {json.dumps({'id': tag, **delta})}\n\n" for delta in deltas) + "data: [DONE]\n\n"


def question(tag: str, city: str) -> dict[str, Any]:
    """The second turn of an agent whose model called a tool, in the words of three APIs."""
    call = {"id": f"call_{tag}", "type": "function", "function": {"name": "rate", "arguments": '{"id": "7"}'}}
    return {
        "method": "POST",
        "url": "http://127.0.0.1/v1/chat/completions",
        "body": {
            "model": "m",
            "previous_response_id": f"resp_{tag}",
            "messages": [
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"call_{tag}", "content": city},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{tag}", "content": city}]},
            ],
            "metadata": {"id": city},
        },
    }


def compared(node_type: str, *given: tuple[Any, str]) -> Comparison:
    trail = everstep.Trail(MemoryStore())
    for name, (inputs, body) in zip("ab", given, strict=True):
        with trail.record(name) as run:
            run.step("call", node_type=node_type, inputs=inputs, output={"status": 200, "body": body, "headers": []})
    return trail.compare("a", "b")


def lines(found: Comparison) -> list[str]:
    return [
        line for pair in found.steps if pair.kind is Kind.STEP for each in pair.differences for line in each.lines()
    ]


@pytest.mark.parametrize("form", [whole, events])
def test_what_a_model_said_is_compared_and_not_the_ids_that_it_came_with(form: Any) -> None:
    asked = question("1", "Oslo")
    assert compared("model", (asked, form("one", "It is warm")), (asked, form("two", "It is warm"))).identical
    found = compared("model", (asked, form("one", "It is warm")), (asked, form("two", "It is cold")))
    assert len(lines(found)) == 1
    assert lines(found)[0].startswith("output.said: ")


def test_the_ids_that_a_model_gave_to_calls_of_tools_are_no_difference_in_what_it_is_asked_next() -> None:
    said = whole("one", "Fine")
    assert compared("model", (question("1", "Oslo"), said), (question("2", "Oslo"), said)).identical
    found = lines(compared("model", (question("1", "Oslo"), said), (question("2", "Bergen"), said)))
    assert [line.partition(":")[0] for line in found] == [
        "inputs.body.messages[1].content",
        "inputs.body.messages[2].content[0].content",
        "inputs.body.metadata.id",  # one of the program's own
    ]


def test_when_timers_ended_is_no_difference(tmp_path: Path) -> None:
    async def all_of_them(url: str) -> None:
        async def pause_and_ask(number: int) -> None:
            await asyncio.sleep(number / 100)
            await web.get(f"{url}/plain/a")

        async with httpx.AsyncClient() as web:
            await asyncio.gather(*map(pause_and_ask, range(3)))

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        for run_id in ("one", "two"):
            with everstep.capture(trail, run_id):
                asyncio.run(all_of_them(server.url))
        assert any("fired" in step.metadata for step in trail.steps("one"))
        assert {line.partition(".")[0] for line in lines(trail.compare("one", "two"))} == {"output"}


def test_an_answer_in_json_is_compared_part_by_part() -> None:
    found = compared("http", ({}, '{"id": 1, "rates": [1, 2]}'), ({}, '{"rates": [1, 3], "id": 1}'))
    assert lines(found) == ["output.body.rates[1]: 2 -> 3"]


def test_a_stream_that_was_read_to_its_last_event_is_not_partial(tmp_path: Path) -> None:
    """The client stops at `[DONE]`, and closes the answer without a look for its end."""
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        with everstep.capture(trail, "trip"):
            for _ in client.chat.completions.create(model="m", messages=[], stream=True):
                pass
            with client.chat.completions.create(model="m", messages=[], stream=True) as answer:
                next(answer)
        assert [step.partial for step in trail.steps("trip") if step.node_type == "model"] == [False, True]
