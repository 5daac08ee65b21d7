"""Why a program failed that knows nothing of us: from what its calls were answered, and not from how that travelled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import everstep
from everstep.trail.why.report import Why

ODD: dict[str, tuple[int, str]] = {  # what some things cost; others have a price
    "none": (200, '{"message": "not sold here"}'),
    "gone": (404, '{"detail": "no such thing"}'),
    "page": (200, "<p>Busy</p>"),
    "void": (200, ""),
    "null": (200, '{"name": "null", "price": null}'),
    "text": (200, '{"name": "text", "price": "12 EUR"}'),
    "bare": (200, '{"name": "bare", "price": 12, "parts": []}'),
    "login": (200, '{"token": "tok-991"}'),
    "shops": (200, '{"shops": ["north", "south"]}'),
}

BUSY: list[str] = []  # what was refused once


class _Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = urlsplit(self.path).path.rpartition("/")[2]
        price = {"name": name, "price": 10 + len(name), "parts": [{"id": f"p-{name}"}]}
        if name == "busy" and not BUSY:
            BUSY.append(name)
            self._send(503, '{"error": "try again"}')
        else:
            self._send(*ODD.get(name, (200, json.dumps(price))))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = asked["messages"][-1]["content"]
        odd = {"cut": '{"city": "Oslo", "te', "lacks": '{"city": "Oslo"}', "prose": "It is warm."}
        said = odd.get(prompt, '{"city": "Oslo", "temp": 12}')
        if asked.get("stream"):
            parts = [{"id": "c", "choices": [{"index": 0, "delta": {"content": said[at : at + 6]}}]} for at in (0, 6)]
            parts += [{"id": "c", "choices": [{"index": 0, "delta": {"content": said[12:]}}]}]
            self._send(200, "".join(f"data: {json.dumps(part)}\n\n" for part in parts) + "data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": said}
            self._send(200, json.dumps({"id": f"c-{prompt}", "choices": [{"index": 0, "message": message}]}))

    def _send(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shop) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def captured(path: Path, program: Callable[[], object]) -> Why:
    """Why a program failed, after it did."""
    with everstep.open(path / "t.db") as trail:
        with suppress(Exception), everstep.capture(trail, "r"):  # with which, the test knows
            program()
        found = trail.why("r")
    assert found.status == "failed"
    return found


def priced(url: str, *names: str) -> Callable[[], object]:
    """A program that adds up what things cost."""

    def program() -> object:
        return sum([httpx.get(f"{url}/price/{name}").json()["price"] for name in names])

    return program


def first(found: Why) -> tuple[int, str, str]:
    return found.suspects[0].seq, found.suspects[0].confidence, found.suspects[0].evidence


def good(found: Why) -> int | None:
    return None if found.last_good is None else found.last_good.seq


# What was answered.


def test_the_answer_without_the_key_is_named_among_many(tmp_path: Path, url: str) -> None:
    found = captured(tmp_path, priced(url, *"abcdefgh", "none"))
    assert first(found) == (9, "high", "gave no price, which the 8 others have: {'message': 'not sold here'}")
    assert good(found) == 8


def test_an_answer_is_compared_with_those_of_its_own_endpoint(tmp_path: Path, url: str) -> None:
    def program() -> object:
        shops = [httpx.get(f"{url}/{name}").json() for name in ("login", "shops", "login")]
        return shops, priced(url, "a", "b", "c", "none", "d")()

    assert first(captured(tmp_path, program))[::2] == (
        7, "gave no price, which the 3 others have: {'message': 'not sold here'}",
    )  # fmt: skip


def test_an_answer_that_is_refused_shows_its_status(tmp_path: Path, url: str) -> None:
    found = captured(tmp_path, priced(url, *"abcdef", "gone"))
    said = "gave no price, which the 6 others have: {'status': 404, 'body': {'detail': 'no such thing'}}"
    assert first(found) == (7, "high", said)


def test_an_answer_that_was_refused_and_asked_for_again_hides_no_other(tmp_path: Path, url: str) -> None:
    def program() -> None:
        for name in (*"ab", "busy", *"cdef", "none"):
            answer = httpx.get(f"{url}/price/{name}")
            while answer.status_code == 503:
                answer = httpx.get(f"{url}/price/{name}")
            answer.json()["price"]

    BUSY.clear()
    found = captured(tmp_path, program)
    assert first(found)[::2] == (9, "gave no price, which the 7 others have: {'message': 'not sold here'}")
    assert [each.seq for each in found.suspects] == [9]


@pytest.mark.parametrize("how", ["whole", "streamed"])
@pytest.mark.parametrize(("prompt", "evidence"), [("lacks", "gave no "), ("cut", "gave text as ")])
def test_what_a_model_said_is_looked_into(tmp_path: Path, url: str, how: str, prompt: str, evidence: str) -> None:
    def program() -> None:
        for each in (*"abcde", prompt):
            asked = {"model": "m", "stream": how == "streamed", "messages": [{"role": "user", "content": each}]}
            body = httpx.post(f"{url}/v1/chat/completions", json=asked).text
            parts = [json.loads(line[5:]) for line in body.splitlines() if line.startswith("data: {")]
            parts = parts or [json.loads(body)]
            told = [part["choices"][0].get("message") or part["choices"][0]["delta"] for part in parts]
            json.loads("".join(each["content"] for each in told))["temp"]

    seq, _, said = first(captured(tmp_path, program))
    assert seq == 6
    assert said.startswith(evidence)
    assert said.partition("content")[2].startswith(".temp" if prompt == "lacks" else " where it is a dict")


def test_what_a_process_printed_is_looked_into(tmp_path: Path) -> None:
    def program() -> None:
        for name in (*"abcde", "odd"):
            said = json.dumps({"name": name} if name == "odd" else {"name": name, "size": 3})
            done = subprocess.run([sys.executable, "-c", f"print({said!r})"], stdout=subprocess.PIPE, check=True)
            json.loads(done.stdout)["size"]

    found = captured(tmp_path, program)
    assert first(found)[1:] == ("high", "gave no size, which the 5 others have: {'name': 'odd'}")


def test_an_id_is_followed_into_the_address_of_a_later_call(tmp_path: Path, url: str) -> None:
    def program() -> None:
        part = httpx.get(f"{url}/price/oak7").json()["parts"][0]["id"]
        httpx.get(f"{url}/price/elm")
        raise LookupError(httpx.get(f"{url}/part/{part}").json()["name"] + " is not in stock")

    assert first(captured(tmp_path, program))[::2] == (1, "brought in 'p-oak7', which the error names")


# With few to compare with.


@pytest.mark.parametrize("before", ["", "a", "ab"])
@pytest.mark.parametrize(
    ("name", "evidence"),
    [("none", "gave no 'price', which the error names"), ("page", "gave no JSON"), ("void", "gave no JSON: ''")],
)
def test_the_answer_that_the_code_could_not_use_is_likely(
    tmp_path: Path, url: str, before: str, name: str, evidence: str
) -> None:
    found = captured(tmp_path, priced(url, *before, name))
    seq, confidence, said = first(found)
    assert (seq, confidence) == (len(before) + 1, "likely")
    assert said.startswith(evidence)
    assert good(found) == (len(before) or None)


@pytest.mark.parametrize(
    ("name", "evidence"),
    [("null", "gave nothing as price, unlike the other one"), ("text", "gave text as price, unlike the other one")],
)
def test_a_value_of_another_kind_than_the_one_before_is_likely(
    tmp_path: Path, url: str, name: str, evidence: str
) -> None:
    seq, confidence, said = first(captured(tmp_path, priced(url, "a", name)))
    assert (seq, confidence, said.partition(":")[0]) == (2, "likely", evidence)


def test_a_list_with_nothing_in_it_is_likely_where_its_first_item_was_wanted(tmp_path: Path, url: str) -> None:
    def program() -> object:
        return [httpx.get(f"{url}/price/{name}").json()["parts"][0] for name in ("a", "bare")]

    seq, confidence, said = first(captured(tmp_path, program))
    assert (seq, confidence) == (2, "likely")
    assert said.startswith("gave an empty list as parts: ")


def test_nobody_is_accused_of_a_key_that_a_library_missed(tmp_path: Path, url: str) -> None:
    def program() -> object:
        return httpx.get(f"{url}/price/a").json()["price"], os.environ["EVERSTEP_NOT_SET"]

    found = captured(tmp_path, program)
    assert found.suspects == ()
    assert good(found) == 1


# Where it failed, and what to do.


@pytest.mark.parametrize("ask", [httpx.get, urllib.request.urlopen])
def test_a_refused_connection_shows_the_line_of_the_program(tmp_path: Path, ask: Callable[[str], object]) -> None:
    def program() -> None:
        ask("http://127.0.0.1:9/nobody")

    failure = captured(tmp_path, program).failure
    assert failure is not None
    assert failure.where is not None
    assert failure.where.endswith('in program: ask("http://127.0.0.1:9/nobody")')
    assert Path(failure.where.partition(":")[0]).name == Path(__file__).name


def test_no_command_is_told_that_has_nothing_to_show_of_a_program(tmp_path: Path, url: str) -> None:
    found = captured(tmp_path, priced(url, *"abcdefgh", "none"))
    assert [line.split()[1] for line in found.next] == ["show", "show", "fork", "resume"]


# A model that was to answer in JSON.


def reads_json(url: str, *prompts: str, stream: bool) -> Callable[[], object]:
    """A program that asks, and reads the last answer as JSON."""

    def program() -> object:
        for prompt in prompts:
            body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": stream}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body)
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")] or [answer.text]
        choices = [json.loads(line)["choices"][0] for line in lines]
        return json.loads("".join((each.get("message") or each["delta"])["content"] for each in choices))

    return program


@pytest.mark.parametrize("how", ["whole", "streamed"])
def test_a_model_that_gave_no_json_to_code_that_reads_some_is_suspected(tmp_path: Path, url: str, how: str) -> None:
    found = captured(tmp_path, reads_json(url, "prose", stream=how == "streamed"))
    assert first(found) == (1, "likely", "gave no JSON: 'It is warm.'")
    # It may be right to say something else than JSON to another question: then it is less sure which was wrong.
    (tmp_path / "more").mkdir()
    found = captured(tmp_path / "more", reads_json(url, "prose", "prose", stream=how == "streamed"))
    assert first(found) == (2, "weak", "gave no JSON: 'It is warm.'")


def test_it_is_not_where_runs_that_completed_were_answered_so(tmp_path: Path, url: str) -> None:
    def program(*, fails: bool) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "prose"}]}
        httpx.post(f"{url}/v1/chat/completions", json=body)
        json.loads("nothing" if fails else "1")

    with everstep.open(tmp_path / "t.db") as trail:
        for number in range(4):
            with everstep.capture(trail, f"well-{number}"):
                program(fails=False)
        with suppress(ValueError), everstep.capture(trail, "r"):
            program(fails=True)
        assert not trail.why("r").suspects
