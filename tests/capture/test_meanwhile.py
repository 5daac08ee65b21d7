"""What is done while a program waits for an answer: it shows nowhere, but in how long a call takes."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

import everstep
from everstep.capturing import meanwhile
from everstep.capturing.session import capture
from everstep.errors import ClosedError, UnstorableError
from everstep.model import Kind
from tests.capture.server import ModelServer

SECRET = "sk-" + "proj-4f6d1c0a9b8e7d2c5b3a1f0e9d8c7b6a5f4e3d2c"
HALF = '{"model": "gpt-test", "messages": "\\ud800"}'  # half a character, which cannot be stored


def question(text: str) -> dict[str, Any]:
    """What is asked of a model."""
    return {"model": "gpt-test", "messages": [{"role": "user", "content": text}]}


@contextmanager
def answering(body: str, thinks: Callable[[bytes], Any] = id) -> Iterator[tuple[str, list[bytes]]]:
    """A server that always says this, once it has thought: its address, and what it was asked."""
    asked: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as the class wants it named
            asked.append(self.rfile.read(int(self.headers["content-length"])))
            thinks(asked[-1])
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def outcomes(trail: everstep.Trail, run: str = "run") -> list[everstep.StepRecord]:
    """The rows of calls that have ended, in order."""
    return [step for step in trail.steps(run) if step.kind is Kind.STEP]


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


def by_urllib(url: str, body: str) -> str:
    asked = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return str(answer.read().decode())


async def by_aiohttp(url: str, body: str) -> str:
    async with aiohttp.ClientSession() as client, client.post(url, data=body.encode()) as answer:
        return await answer.text()


Post = Callable[[str, str], str]  # to this address, this body; what was answered
TELLS_WHEN_SENT: dict[str, Post] = {
    "httpx": lambda url, body: httpx.post(url, content=body, timeout=60).text,
    "requests": lambda url, body: requests.post(url, data=body, timeout=60).text,
    "urllib": by_urllib,
}
LIBRARIES: dict[str, Post] = {**TELLS_WHEN_SENT, "aiohttp": lambda url, body: asyncio.run(by_aiohttp(url, body))}


def ask(post: Post, url: str) -> list[str]:
    """Two questions, the first of which cannot be stored, and what is drawn by chance after each."""
    said = []
    for body in (HALF, json.dumps(question("Hello"))):
        try:
            said.append(post(f"{url}/v1/chat/completions", body))
        except UnstorableError as refused:
            said.append(str(refused))
        said.append(uuid.uuid4().hex)
    return said


@pytest.mark.parametrize("library", TELLS_WHEN_SENT)
@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_question_that_cannot_be_stored_is_refused_and_is_no_step(
    durability: Any, library: str, tmp_path: Path
) -> None:
    post = TELLS_WHEN_SENT[library]
    with answering('{"model": "gpt-test"}') as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(RuntimeError), capture(trail, "run", durability=durability):
            first = ask(post, url)
            raise RuntimeError
        assert "half" in first[0] or "surrogate" in first[0]
        assert first[2] == '{"model": "gpt-test"}'
        assert len(outcomes(trail)) == 1
        with capture(trail, "run", durability=durability):  # resumed
            assert ask(post, url) == first
        with capture(trail, "run", mode="verify"):
            assert ask(post, url) == first


def test_an_answer_that_cannot_be_stored_fails_the_next_call(tmp_path: Path) -> None:
    with answering('{"model": "\\ud800"}') as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(UnstorableError), capture(trail, "run", durability="async"), httpx.Client() as client:
            for _ in range(2):
                client.post(f"{url}/v1/chat/completions", json=question("Hello"))
        assert outcomes(trail) == []


@pytest.mark.parametrize("library", TELLS_WHEN_SENT)
def test_a_row_is_drafted_while_the_next_answer_is_waited_for(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, drafted, waited = meanwhile._put, threading.Event(), []

    def noted(*args: Any, **about: Any) -> Any:
        drafted.set()
        return put(*args, **about)

    def thinks(asked: bytes) -> None:
        if b"Second" in asked:
            waited.append(drafted.wait(20))

    monkeypatch.setattr(meanwhile, "_put", noted)
    monkeypatch.setattr("everstep.store.commit._NAP", 60.0)  # else the store's thread would come first
    with (
        answering('{"model": "gpt-test"}', thinks) as (url, _),
        everstep.open(tmp_path / "trail.db") as trail,
        capture(trail, "run", durability="async"),
    ):
        for text in ("First", "Second"):
            LIBRARIES[library](f"{url}/v1/chat/completions", json.dumps(question(text)))
    assert waited == [True]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("durability", ["async", "exit"])
def test_rows_that_nobody_waits_for_say_all_that_others_do(library: str, durability: Any, tmp_path: Path) -> None:
    def program() -> list[tuple[str, float]]:
        asked = [json.dumps(question(f"Question {number}")) for number in range(4)]
        return [(LIBRARIES[library](f"{url}/v1/chat/completions", text), time.time()) for text in asked]

    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, capture(trail, "run", durability=durability):
            url = server.url
            said = program()
        steps = outcomes(trail)
        assert [step.inputs["body"]["messages"][0]["content"] for step in steps] == [f"Question {n}" for n in range(4)]
        assert [step.output["body"] for step in steps] == [text for text, _ in said]
        assert all(step.usage is not None and step.usage["latency_ms"] > 0 for step in steps)
        with capture(trail, "run", mode="verify"):
            assert program() == said


def test_a_row_that_nobody_waits_for_is_written_though_nothing_follows(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    with ModelServer() as server, everstep.open(path) as trail, capture(trail, "run", durability="async"):
        httpx.post(f"{server.url}/v1/chat/completions", json=question("Hello"))
        with everstep.open(path, read_only=True) as other:
            patience = time.monotonic() + 30
            while not outcomes(other) and time.monotonic() < patience:
                time.sleep(0.01)
            assert len(outcomes(other)) == 1


def test_a_trail_that_is_closed_has_the_row_that_nobody_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    trail = everstep.open(path)
    with ModelServer() as server, pytest.raises(ClosedError), capture(trail, "run", durability="async"):
        httpx.post(f"{server.url}/v1/chat/completions", json=question("Hello"))
        trail.close()
    with everstep.open(path, read_only=True) as other:
        assert len(outcomes(other)) == 1


def test_secrets_reach_no_file_though_they_are_looked_for_later(tmp_path: Path) -> None:
    with answering(json.dumps({"model": "gpt-test", "said": SECRET})) as (url, asked):
        with everstep.open(tmp_path / "trail.db") as trail, capture(trail, "run", durability="async"):
            for _ in range(3):
                httpx.post(f"{url}/v1/chat/completions", json=question(f"My key is {SECRET}"))
                for file in tmp_path.iterdir():
                    assert SECRET.encode() not in file.read_bytes()
        assert SECRET.encode() in asked[0]
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()


def test_answers_of_threads_have_their_rows_in_the_order_they_were_given_out(tmp_path: Path) -> None:
    def program(url: str) -> list[str]:
        given: list[str] = []

        def read(number: int) -> None:
            for turn in range(4):
                text = client.post(f"{url}/v1/chat/completions", json=question(f"{number}, {turn}")).text
                given.append(text)

        with httpx.Client() as client, ThreadPoolExecutor(3) as pool:
            list(pool.map(read, range(3)))
        return given

    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, capture(trail, "run", durability="async"):
            url = server.url
            given = program(url)
        assert [step.output["body"] for step in outcomes(trail)] == given
        with capture(trail, "run", mode="verify"):
            assert program(url) == given


def test_tasks_go_on_though_rows_of_long_ago_are_on_their_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everstep.run.pen._BACKLOG", 2)

    async def program() -> list[str]:
        async with httpx.AsyncClient(base_url=url) as client:

            async def read(number: int) -> str:
                answers = [
                    await client.post("/v1/chat/completions", json=question(f"{number}, {turn}")) for turn in range(4)
                ]
                return "".join(answer.text for answer in answers)

            return await asyncio.gather(*map(read, range(3)))

    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, capture(trail, "run", durability="async"):
            url = server.url
            said = asyncio.run(program())
        assert len(outcomes(trail)) == 12
        with capture(trail, "run", mode="verify"):
            assert asyncio.run(program()) == said


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


def test_what_a_library_asks_that_does_not_tell_when_it_was_sent_is_refused_before(tmp_path: Path) -> None:
    with answering("{}") as (url, asked), everstep.open(tmp_path / "trail.db") as trail, capture(trail, "run"):
        with pytest.raises(UnstorableError):
            asyncio.run(by_aiohttp(f"{url}/v1/chat/completions", HALF))
        assert asked == []


def test_an_answer_that_cannot_be_stored_costs_no_row_before_it(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with (
            answering('{"model": "\\ud800"}') as (url, _),
            ModelServer() as server,
            capture(trail, "run", durability="exit"),
        ):
            httpx.post(f"{server.url}/v1/chat/completions", json=question("First"))
            with pytest.raises(UnstorableError):
                httpx.post(f"{url}/v1/chat/completions", json=question("Second"))
            httpx.post(f"{server.url}/v1/chat/completions", json=question("Third"))
        assert len(outcomes(trail)) == 2


def test_what_a_signal_handler_raises_while_a_row_is_drafted_is_not_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alarm(Exception):  # noqa: N818 - as a program may call it
        pass

    put, alarms = meanwhile._put, [Alarm()]

    def interrupted(*args: Any, **about: Any) -> Any:
        if alarms and threading.current_thread() is threading.main_thread():
            raise alarms.pop()
        return put(*args, **about)

    monkeypatch.setattr(meanwhile, "_put", interrupted)
    monkeypatch.setattr("everstep.store.commit._NAP", 30.0)  # else the store's thread may come first
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run", durability="async"), httpx.Client(base_url=server.url) as client:
            client.post("/v1/chat/completions", json=question("First"))
            with pytest.raises(Alarm):
                client.post("/v1/chat/completions", json=question("Second"))
            client.post("/v1/chat/completions", json=question("Third"))
        asked = [step.inputs["body"]["messages"][0]["content"] for step in outcomes(trail) if step.error is None]
        assert asked == ["First", "Third"]


def test_who_closes_a_trail_waits_for_a_row_that_is_being_drafted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, begun = meanwhile._put, threading.Event()

    def slow(*args: Any, **about: Any) -> Any:
        begun.set()
        time.sleep(0.3)
        return put(*args, **about)

    monkeypatch.setattr(meanwhile, "_put", slow)
    path = tmp_path / "trail.db"
    trail = everstep.open(path)
    with ModelServer() as server, pytest.raises(ClosedError), capture(trail, "run", durability="async"):
        httpx.post(f"{server.url}/v1/chat/completions", json=question("Hello"))
        assert begun.wait(30)
        trail.close()
    with everstep.open(path, read_only=True) as other:
        assert len(outcomes(other)) == 1
