"""The test ground stands by itself: every agent runs on a bare Python, and the server is what the tests take it for."""

from __future__ import annotations

import http.client
import itertools
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from tests.capture.replies import ENDPOINTS
from tests.capture.running import AGENTS, STATUS, names, run, serving, started
from tests.capture.server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


def fetched(url: str, asked: Any = None, **headers: str) -> tuple[int, Message, bytes]:
    """Status, headers and body of an answer."""
    body = None if asked is None else json.dumps(asked).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=10) as got:
            return got.status, got.headers, got.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def prompt(text: str, **more: Any) -> dict[str, Any]:
    """A request that each of the three endpoints of models understands."""
    messages = [{"role": "user", "content": text}]
    return {"model": "m", "max_tokens": 9, "messages": messages, "input": messages, **more}


@pytest.mark.torture  # each of them is recorded, and so run, in other tests
@pytest.mark.parametrize("agent", sorted({*names()} - {"tool_loop"}))  # which has a test of its own
def test_every_agent_runs_on_a_bare_python(agent: str, server: ModelServer, tmp_path: Path) -> None:
    done = run(agent, server.url, tmp_path)
    assert done.returncode == STATUS.get(agent, 0), done.stderr
    assert ("ValueError: this agent cannot go on" in done.stderr) if agent == "failing" else done.stderr == ""
    assert len(done.stdout.splitlines()) >= 3
    assert len(server.requests) >= 1


@pytest.mark.parametrize("agent", names())
def test_no_agent_knows_of_everstep(agent: str) -> None:
    assert "everstep" not in (AGENTS / f"{agent}.py").read_text("utf-8").lower()


def test_a_second_run_of_an_agent_gets_other_answers(server: ModelServer, tmp_path: Path) -> None:
    first, second = (run("exits", server.url, tmp_path).stdout.splitlines() for _ in range(2))
    assert [line.split()[0] for line in first] == [line.split()[0] for line in second]
    assert set(first) & set(second) == {"exiting"}


def test_a_second_run_of_the_probe_has_the_same_names_and_other_values(server: ModelServer, tmp_path: Path) -> None:
    runs = [run("clock", server.url, tmp_path).stdout.splitlines() for _ in range(2)]
    assert [line.split(" = ")[0] for line in runs[0]] == [line.split(" = ")[0] for line in runs[1]]
    alike = {line.split(" = ")[0] for line in set(runs[0]) & set(runs[1])}
    by_chance = {"date.today", "from datetime import date", "time.ctime", "time.strftime", "time.localtime"}
    by_chance |= {"time.gmtime", "id", "repr of an object", "threading.get_ident", "os.times"}
    assert alike - by_chance == {"random.Random(7)", "slept", "slept in a loop"}
    assert len(runs[0]) - len(by_chance) > 24


@pytest.mark.parametrize(
    "path", [*ENDPOINTS, "/plain/a", "/gzip", "/bytes?n=50", "/lines", "/cookie", "/echo", "/none"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_no_two_answers_are_alike(path: str, stream: bool, server: ModelServer) -> None:  # noqa: FBT001 - a parameter
    asked = prompt("The same.", stream=stream)
    answers = [fetched(server.url + path, asked) for _ in range(3)]
    assert len({body for _, _, body in answers}) == 3
    assert [headers["X-Counter"] for _, headers, _ in answers] == [request.tag for request in server.requests]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_model_calls_tools_as_often_as_it_is_told(path: str, server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tool = {"name": "count", "parameters": schema, "input_schema": schema}
    asked = prompt("Count. [calls 2]", tools=[{"type": "function", "function": tool, **tool}])
    _, _, wishes = fetched(server.url + path, asked)
    assert wishes.count(b'"count"') >= 2
    results: Any = [{"role": "tool", "type": "function_call_output", "content": "1"}] * 2
    asked["messages"] = asked["input"] = asked["messages"] + results
    _, _, answer = fetched(server.url + path, asked)
    assert server.requests[-1].tag.encode() in answer
    assert b"call_" not in answer.replace(b"function_call_output", b"")


def test_what_is_flaky_fails_once_for_each_key(server: ModelServer) -> None:
    for key, status in (("a", 500), ("a", 200), ("b", 500), ("b", 200), ("a", 200)):
        assert fetched(f"{server.url}/flaky?key={key}")[0] == status
        assert fetched(f"{server.url}/v1/messages", prompt(f"[flaky model {key}]"))[0] == status


def test_the_log_says_who_asked_what_and_whether_the_answer_went_out(server: ModelServer) -> None:
    fetched(f"{server.url}/plain/a", {"x": 1}, **{"X-Marker": "header"})
    fetched(f"{server.url}/v1/chat/completions", prompt("Hello.", user="body", stream=True))
    with pytest.raises(http.client.IncompleteRead):
        fetched(f"{server.url}/drop")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", "/slow?s=20")
    connection.close()
    server.stop()
    seen = [(asked.method, asked.path, asked.marker, asked.status, asked.sent) for asked in server.requests]
    assert seen[:3] == [
        ("POST", "/plain/a", "header", 200, True),
        ("POST", "/v1/chat/completions", "body", 200, True),
        ("GET", "/drop", None, 200, False),
    ]
    assert all(asked.ended is not None and asked.ended >= asked.began for asked in server.requests)
    assert not any(asked.sent for asked in server.requests[3:])
    server.start()


def test_one_connection_carries_many_requests(server: ModelServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    for path in ("/plain/a", "/lines", "/_log", "/gzip"):
        connection.request("GET", path)
        got = connection.getresponse()
        assert (got.status, len(got.read()) > 0, got.will_close) == (200, True, False)
    connection.close()
    assert [asked.path for asked in server.requests] == ["/plain/a", "/lines", "/gzip"]


def test_a_server_that_was_stopped_starts_again_at_its_port() -> None:
    with ModelServer() as server:
        kept = http.client.HTTPConnection("127.0.0.1", server.port)
        kept.request("GET", "/plain/a")
        before = kept.getresponse().read()
        port = server.port
        server.stop()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        with pytest.raises((OSError, http.client.HTTPException)):  # what was open is closed, not served on
            kept.request("GET", "/plain/a")
            kept.getresponse()
        server.start()
        assert server.port == port
        assert fetched(f"{server.url}/plain/a")[2] != before
        assert [asked.number for asked in server.requests] == [1, 2]


def test_a_process_serves_and_another_takes_its_port_after_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as first:
        answer = fetched(f"{first.url}/plain/a")[2]
        for _ in range(3):  # clients that close early leave no word on its stderr
            with socket.create_connection(("127.0.0.1", first.port)) as early:
                early.sendall(b"GET /lines?n=200 HTTP/1.1\r\nHost: x\r\n\r\n")
                early.recv(10)
        assert [(asked["path"], asked["number"]) for asked in first.log()][:1] == [("/plain/a", 1)]
        first.process.kill()
    with serving(tmp_path, first.port) as second:
        assert second.port == first.port
        assert second.log() == []
        assert fetched(f"{second.url}/plain/a")[2] != answer
        assert [asked["sent"] for asked in second.log()] == [True]


def test_a_long_agent_can_be_killed_and_the_server_knows_what_it_asked(server: ModelServer, tmp_path: Path) -> None:
    with started("long_agent", server.url, tmp_path) as process:
        lines = list(itertools.islice(process.stdout, 5))
        process.kill()
        assert process.wait() == -9
    assert [line.split()[:2] for line in lines] == [["step", str(number)] for number in range(5)]
    assert 5 <= len(server.requests) < 30
    assert len({asked.digest for asked in server.requests}) == len(server.requests)


def test_the_report_of_the_tool_loop_is_written_at_its_end(server: ModelServer, tmp_path: Path) -> None:
    done = run("tool_loop", server.url, tmp_path, REPORT=str(tmp_path / "notes.md"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "wrote notes.md 4 notes"
    assert len((tmp_path / "notes.md").read_text("utf-8").splitlines()) == 5
    assert len(server.requests) == 5
