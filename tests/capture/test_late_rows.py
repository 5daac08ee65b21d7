"""Rows that nobody waits for: they are drafted beside the program, and say all that others do."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest

import everstep
from everstep.capturing import meanwhile
from everstep.capturing.session import capture
from everstep.errors import ClosedError, UnstorableError
from tests.capture.asking import LIBRARIES, TELLS_WHEN_SENT, answering, outcomes, question
from tests.capture.server import ModelServer

SECRET = "sk-" + "proj-4f6d1c0a9b8e7d2c5b3a1f0e9d8c7b6a5f4e3d2c"


@pytest.mark.parametrize("moment", [0, 0.5])
def test_an_answer_that_cannot_be_stored_fails_the_run_in_a_moment(moment: float, tmp_path: Path) -> None:
    calls = []
    with answering('{"model": "\\ud800"}') as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(UnstorableError), capture(trail, "run", durability="async"), httpx.Client() as client:
            for _ in range(2):
                client.post(f"{url}/v1/chat/completions", json=question("Hello"))
                calls.append(1)
                time.sleep(moment)
        assert outcomes(trail) == []
    assert len(calls) == (1 if moment else 2)  # the next call; where none comes in time, the end


def test_an_answer_that_nobody_can_read_is_one_like_others(tmp_path: Path) -> None:
    with answering("[" * 9_000) as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run", durability="async"), httpx.Client() as client:
            for _ in range(5):
                client.post(f"{url}/v1/chat/completions", json=question("Hello"))
        assert len(outcomes(trail)) == 5


def test_what_always_fails_costs_no_row_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the main thread it may have been the handler of a signal, and is tried once more; and then not for ever."""
    put, drafts = meanwhile._put, []

    def fails(*args: Any, **about: Any) -> Any:
        drafts.append(1)
        if len(drafts) > 2:
            raise TypeError("it cannot be drafted")
        return put(*args, **about)

    monkeypatch.setattr(meanwhile, "_put", fails)
    monkeypatch.setattr("everstep.store.commit._NAP", 30.0)  # else the store's thread would come first
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(TypeError), capture(trail, "run", durability="async"):
            for number in range(4):
                httpx.post(f"{server.url}/v1/chat/completions", json=question(f"Question {number}"))
        trail.close()
    with everstep.open(tmp_path / "trail.db", read_only=True) as trail:
        assert len(outcomes(trail)) == 2


def drafting(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that draft rows, from now on."""
    put, threads = meanwhile._put, []

    def noted(*args: Any, **about: Any) -> Any:
        threads.append(threading.current_thread())
        return put(*args, **about)

    monkeypatch.setattr(meanwhile, "_put", noted)
    return threads


OURS = {"everstep-commit", "everstep-heart"}  # the other one looks now and then, and then it comes first


def drafted(threads: list[threading.Thread], rows: int) -> set[str]:
    """The names of the threads that drafted so many rows, once they have."""
    patience = time.monotonic() + 30
    while len(threads) < rows and time.monotonic() < patience:
        time.sleep(0.01)
    assert len(threads) == rows
    return {thread.name for thread in threads}


@pytest.mark.parametrize("library", TELLS_WHEN_SENT)
def test_they_are_drafted_by_the_thread_of_the_store(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts, path = drafting(monkeypatch), tmp_path / "trail.db"
    with ModelServer() as server, everstep.open(path) as trail, capture(trail, "run", durability="async"):
        for number in range(4):
            asked = json.dumps(question(f"Question {number}"))
            LIBRARIES[library](f"{server.url}/v1/chat/completions", asked)
        assert drafted(drafts, 4) <= OURS


@pytest.mark.parametrize("library", ["httpx", "aiohttp"])
def test_so_are_those_of_what_is_awaited(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def program(url: str) -> None:
        kind: Any = {"httpx": httpx.AsyncClient, "aiohttp": aiohttp.ClientSession}[library]
        async with kind() as client:
            for number in range(4):
                answer = await client.post(url, json=question(f"Question {number}"))
                await (answer.aread() if library == "httpx" else answer.read())

    drafts, path = drafting(monkeypatch), tmp_path / "trail.db"
    with ModelServer() as server, everstep.open(path) as trail, capture(trail, "run", durability="async"):
        asyncio.run(program(f"{server.url}/v1/chat/completions"))
        assert drafted(drafts, 4) & OURS


def test_a_program_that_is_quicker_than_the_thread_drafts_them_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everstep.run.pen._MOST_LATE", 3)
    monkeypatch.setattr("everstep.store.commit._NAP", 60.0)
    drafts, counts = drafting(monkeypatch), []
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run", durability="async"), httpx.Client(base_url=server.url) as client:
            for number in range(9):
                client.post("/v1/chat/completions", json=question(f"Question {number}"))
                counts.append(len(drafts))
        assert counts == [0, 0, 0, 4, 4, 4, 4, 8, 8]
        assert {thread.name for thread in drafts} == {"MainThread"}
        assert [step.inputs["body"]["messages"][0]["content"] for step in outcomes(trail)] == [
            f"Question {number}" for number in range(9)
        ]


def test_rows_that_come_while_others_are_drafted_are_drafted_as_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, path = meanwhile._put, tmp_path / "trail.db"

    def slow(*args: Any, **about: Any) -> Any:
        time.sleep(0.2)
        return put(*args, **about)

    monkeypatch.setattr(meanwhile, "_put", slow)
    with (
        ModelServer(delay=0) as server,
        everstep.open(path) as trail,
        capture(trail, "run", durability="async"),
        httpx.Client(base_url=server.url) as client,
        everstep.open(path, read_only=True) as other,
    ):
        for number in range(6):
            client.post("/v1/chat/completions", json=question(f"Question {number}"))
            time.sleep(0.05)
        patience = time.monotonic() + 30
        while len(outcomes(other)) < 6 and time.monotonic() < patience:
            time.sleep(0.01)
        assert len(outcomes(other)) == 6


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
    monkeypatch.setattr("everstep.run.pen._MOST_LATE", 1)
    monkeypatch.setattr("everstep.store.commit._NAP", 30.0)  # else the store's thread may come first
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with capture(trail, "run", durability="async"), httpx.Client(base_url=server.url) as client:
            client.post("/v1/chat/completions", json=question("First"))
            with pytest.raises(Alarm):
                client.post("/v1/chat/completions", json=question("Second"))
            client.post("/v1/chat/completions", json=question("Third"))
        asked = [step.inputs["body"]["messages"][0]["content"] for step in outcomes(trail)]
        assert asked == ["First", "Second", "Third"]  # the second was answered, and its row waited with the first


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
