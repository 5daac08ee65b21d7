"""What is done while a program waits for an answer: it shows nowhere, but in how long a call takes."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests

import everstep
from everstep.capturing import meanwhile
from everstep.capturing.session import capture
from tests.capture.asking import LIBRARIES, TELLS_WHEN_SENT, answering, outcomes, question
from tests.capture.server import ModelServer


@pytest.mark.parametrize("hx", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_a_trace_of_the_program_is_told_all_that_it_is_told_without_us(hx: Any, tmp_path: Path) -> None:
    def program() -> tuple[list[str], bool]:
        said: list[str] = []
        trace = lambda name, _: said.append(name)  # noqa: E731 - as programs do
        with hx.Client(base_url=server.url) as client:
            answer = client.post("/v1/chat/completions", json=question("Hello"), extensions={"trace": trace})
            plain = client.post("/v1/chat/completions", json=question("Hello"))
        return said, answer.request.extensions["trace"] is trace and "trace" not in plain.request.extensions

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        bare = program()
        with capture(trail, "run"):
            assert program() == bare
    assert "http11.receive_response_headers.started" in bare[0]
    assert bare[1]


@pytest.mark.parametrize("hx", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_so_is_an_awaited_one(hx: Any, tmp_path: Path) -> None:
    async def program() -> list[str]:
        said: list[str] = []

        async def trace(name: str, _: Any) -> None:
            await asyncio.sleep(0)
            said.append(name)

        async with hx.AsyncClient(base_url=server.url) as client:
            answer = await client.post("/v1/chat/completions", json=question("Hello"), extensions={"trace": trace})
            assert answer.request.extensions["trace"] is trace
        return said

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        bare = asyncio.run(program())
        with capture(trail, "run"):
            assert asyncio.run(program()) == bare


def test_a_trace_that_fails_fails_the_call_as_it_does_without_us(tmp_path: Path) -> None:
    def trace(name: str, _: Any) -> None:
        if name.endswith("receive_response_headers.started"):
            raise ZeroDivisionError

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"), httpx.Client() as client, pytest.raises(ZeroDivisionError):
            client.post(f"{server.url}/v1/chat/completions", json=question("Hello"), extensions={"trace": trace})
        assert [step.error.type for step in outcomes(trail) if step.error] == ["ZeroDivisionError"]


@pytest.mark.parametrize("library", TELLS_WHEN_SENT)
def test_a_question_is_looked_at_while_its_answer_is_waited_for(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, taken, waited = meanwhile.LateInputs.take, threading.Event(), []

    def noted(self: Any) -> None:
        take(self)
        taken.set()

    monkeypatch.setattr(meanwhile.LateInputs, "take", noted)
    with (
        answering('{"model": "gpt-test"}', lambda _: waited.append(taken.wait(20))) as (url, _),
        everstep.open(tmp_path / "trail.db") as trail,
        capture(trail, "run"),
    ):
        LIBRARIES[library](f"{url}/v1/chat/completions", json.dumps(question("Hello")))
    assert waited == [True]


@pytest.mark.parametrize("hx", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_a_request_that_is_sent_twice_at_once_is_left_as_it_was(hx: Any, tmp_path: Path) -> None:
    async def program() -> bool:
        async with hx.AsyncClient(base_url=server.url) as client:
            request = client.build_request("POST", "/v1/chat/completions", json=question("Hello"))
            for _ in range(3):
                await asyncio.gather(*(client.send(request) for _ in range(3)))
        return "trace" in request.extensions

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail, capture(trail, "run"):
        assert asyncio.run(program()) is False


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "m", "messages": "\\ud83d, and no more"}',
        *('{"model": "m", "messages": ' + "[" * levels + "]" * levels + "}" for levels in (210, 300, 600)),
        "[" * 5_000 + "]" * 5_000,
        '{"emoji": "\\ud83d\\ude00", "deep": ' + "[" * 984 + "]" * 984 + "}",
    ],
    ids=["half", "210", "300", "600", "5000", "984"],
)
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_what_json_can_say_and_no_value_can_is_recorded_as_it_was_sent(
    body: str, durability: Any, tmp_path: Path
) -> None:
    """Half a character, and more levels than Python can read: programs get through with them, so they do here."""
    with everstep.open(tmp_path / "trail.db") as trail:
        with answering("{}") as (url, asked), capture(trail, "run", durability=durability):
            assert requests.post(f"{url}/v1/chat/completions", data=body, timeout=60).text == "{}"
        assert asked == [body.encode()]
        [step] = outcomes(trail)
        [kept] = [each.inputs["body"] for each in trail.steps("run") if "body" in (each.inputs or {})]
        assert kept == body
        assert step.name == ("openai chat" if '"model"' in body and len(body) < 2_000 else "POST 127.0.0.1")
        with capture(trail, "run", mode="verify"):
            assert requests.post(f"{url}/v1/chat/completions", data=body, timeout=60).text == "{}"


@pytest.mark.parametrize("body", [b"\xff\\ud83d", b'{"model": "\xff\\ud83d"}', b"plain \\uDC00"])
def test_a_body_that_is_no_text_may_hold_what_begins_half_a_character(body: bytes, tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with answering("{}") as (url, asked), capture(trail, "run"):
            assert requests.post(f"{url}/upload", data=body, timeout=60).text == "{}"
        assert asked == [body]
        with capture(trail, "run", mode="verify"):
            assert requests.post(f"{url}/upload", data=body, timeout=60).text == "{}"


def test_a_question_with_half_a_character_has_its_tokens(tmp_path: Path) -> None:
    half = '{"model": "gpt-test", "messages": [{"role": "user", "content": "\\ud83d"}]}'
    used = '{"model": "gpt-test", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}'
    with answering(used) as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run"):
            assert requests.post(f"{url}/v1/chat/completions", data=half, timeout=60).text == used
        assert trail.usage("run").total.tokens == 7
