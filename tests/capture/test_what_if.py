"""What a fork puts in the place of an answer: the body of one, all of it, or what a process printed."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

import everstep
from everstep.errors import UnfitOutcomeError
from everstep.model import Kind
from tests.capture.server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[everstep.Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


def forked(trail: everstep.Trail, program: Callable[[], Any], outcome: Any) -> Any:
    """What a program gives whose only call is said to have given something else."""
    with everstep.capture(trail, "trip"):
        program()
    [seq] = [step.seq for step in trail.steps("trip") if step.kind is Kind.STEP]
    trail.fork("trip", seq, id="other", outcome=outcome).release()
    with everstep.capture(trail, "other"):
        return program()


@pytest.mark.parametrize(
    ("outcome", "status", "body"),
    [
        ({"a": 1}, 200, {"a": 1}),
        ({"status": "ok", "items": [1]}, 200, {"status": "ok", "items": [1]}),
        ({"status": 3, "items": [1]}, 200, {"status": 3, "items": [1]}),
        ({"status": 404, "body": {"error": "none"}}, 404, {"error": "none"}),
        ({"status": 404, "body": '{"error": "none"}'}, 404, {"error": "none"}),
        ({"status": 200, "body": None}, 200, None),
        (None, 200, None),
        ([1], 200, [1]),
    ],
    ids=repr,
)
def test_any_value_is_the_body_of_an_answer_and_what_is_laid_out_as_one_is_all_of_it(
    server: ModelServer, trail: everstep.Trail, outcome: Any, status: int, body: Any
) -> None:
    def program() -> tuple[int, Any]:
        got = httpx.get(f"{server.url}/plain/a")
        return got.status_code, got.json()

    assert forked(trail, program, outcome) == (status, body)


def test_so_it_is_with_aiohttp(server: ModelServer, trail: everstep.Trail) -> None:
    async def asked() -> tuple[int, Any]:
        async with aiohttp.ClientSession() as client, client.get(f"{server.url}/plain/a") as got:
            return got.status, await got.json()

    assert forked(trail, lambda: asyncio.run(asked()), {"status": "ok"}) == (200, {"status": "ok"})


def counted(told: str | None) -> tuple[int, str]:
    done = subprocess.run(["wc", "-w"], input=told, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def counted_beside(told: str | None) -> tuple[int, str]:
    async def awaited() -> tuple[int, str]:
        pipe = subprocess.PIPE
        process = await asyncio.create_subprocess_exec("wc", "-w", stdin=pipe if told else None, stdout=pipe)
        printed, _ = await process.communicate(None if told is None else told.encode())
        assert process.returncode is not None
        return process.returncode, printed.decode()

    return asyncio.run(awaited())


@pytest.mark.parametrize("count", [counted, counted_beside])
@pytest.mark.parametrize("told", [None, "three little words", "many " * 50_000], ids=["nothing", "a line", "much"])
@pytest.mark.parametrize(
    ("outcome", "status", "printed"),
    [
        ("hello\n", 0, "hello\n"),
        (4, 0, "4"),
        ([1, "a"], 0, '[1, "a"]'),
        ({"ok": True}, 0, '{"ok": true}'),
        (None, 0, ""),
        ({"exit": 3}, 3, ""),
        ({"stdout": "x", "stderr": "y", "exit": 1}, 1, "x"),
    ],
    ids=repr,
)
def test_what_a_process_printed_is_enough_to_say_of_it(
    trail: everstep.Trail, count: Callable[[Any], Any], told: str | None, outcome: Any, status: int, printed: str
) -> None:
    assert forked(trail, lambda: count(told), outcome) == (status, printed)


@pytest.mark.parametrize("outcome", [{"status": 200, "headers": 7}, {"status": 200, "body": "a", "sizes": "x"}])
def test_what_cannot_be_an_answer_ends_the_program_with_the_way_out(
    server: ModelServer, trail: everstep.Trail, outcome: Any
) -> None:
    def program() -> Any:
        try:
            return httpx.get(f"{server.url}/plain/a").text
        except Exception:  # noqa: BLE001 - a program would take it for a fault of its own
            return "swallowed"

    with pytest.raises(UnfitOutcomeError, match=r"what other@\d+ \('GET 127.0.0.1'\) is said to have given"):
        forked(trail, program, outcome)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ({"choices": [{"message": {"content": "no"}}]}, None),
        ("no", None),
        ({"status": 200, "body": {"choices": []}}, None),
        ({"status": 503, "body": {"error": "busy"}}, '{"error": "busy"}'),
        ({"status": 200, "body": "data: [DONE]\n\n"}, "data: [DONE]\n\n"),
    ],
    ids=repr,
)
def test_an_answer_in_events_cannot_become_a_whole_one_and_the_way_out_is_told(
    server: ModelServer, trail: everstep.Trail, outcome: Any, said: str | None
) -> None:
    def program() -> str:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        return httpx.post(f"{server.url}/v1/chat/completions", json=body).text

    if said is not None:
        assert forked(trail, program, outcome) == said
        return
    with pytest.raises(
        UnfitOutcomeError, match=r"other@\d+ .* asked for a stream\. Fork again, with the text of its events"
    ):
        forked(trail, program, outcome)


@pytest.mark.parametrize(
    "outcome", [{"stdout": 4}, {"stderr": ["a"]}, {"exit": "3"}, {"talk": [["out", 5]]}, {"talk": [["out"]]}], ids=repr
)
def test_what_no_process_can_print_ends_the_program_with_the_way_out(trail: everstep.Trail, outcome: Any) -> None:
    def program() -> Any:
        return subprocess.run(["echo", "this"], capture_output=True, text=True, check=False).stdout

    with pytest.raises(
        UnfitOutcomeError, match=r"what other@\d+ \('run echo'\) is said to have given .* what it printed"
    ):
        forked(trail, program, outcome)
