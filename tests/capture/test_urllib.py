"""Calls over http.client and urllib.request: whatever way an answer is read, a replay gives what the server gave."""

from __future__ import annotations

import http.client
import http.cookiejar
import io
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import everstep
from everstep.capturing.seams import http_client as seam
from everstep.errors import UnknownLayoutError
from everstep.model import Kind
from tests.capture.oddities import ANSWERS, COOKIE, KEY, STALL, outcome, patience, same, serving, stored, thrice

RETOLD = {"cut-within", "split"}  # what comes of half a chunk
RECODED = {
    "gzip",
    "deflate",
    "bare",
    "squeezed",
    "spaced",
    "squeezed-cut",
    "zstd",
    "zstd-parts",
    "zstd-frames",
    "brotli",
    "brotli-parts",
}  # the bytes differ, and say the same
HIDDEN = {"cookies", "onward", "secret"}

READINGS: dict[str, Callable[[HTTPResponse], Any]] = {
    "whole": lambda got: (
        got.status,
        got.reason,
        got.version,
        got.getheaders(),
        got.length,
        got.read(),
        got.isclosed(),
    ),
    "pieces": lambda got: list(iter(lambda: got.read(37), b"")),
    "read1": lambda got: (len(got.read1(12)), got.read1() + got.read()),  # how much is there at once is chance
    "into": lambda got: (got.readinto(room := bytearray(33)), room, got.readinto(room)),
    "lines": lambda got: (got.readline(), got.readline(5), list(got)),
    "early": lambda got: got.read(4),
}


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def place(url: str) -> str:
    return url.removeprefix("http://")


def readings(url: str) -> dict[str, dict[str, Any]]:
    """Every answer, read in every way; those that one waits for, in one."""

    def read(name: str, way: str) -> Any:
        connection = HTTPConnection(place(url), timeout=patience(name))
        try:
            connection.request("GET", f"/{name}")
            with connection.getresponse() as got:
                return READINGS[way](got)
        finally:
            connection.close()

    def opened(name: str) -> Any:
        try:
            with urllib.request.urlopen(f"{url}/{name}", timeout=patience(name)) as got:
                return got.status, got.headers.items(), got.read()
        except urllib.error.HTTPError as error:
            error.close()  # newer Pythons warn if nobody does
            raise

    def ways(name: str) -> dict[str, Any]:
        chosen = list(READINGS)[:1] if STALL in ANSWERS[name] else list(READINGS)
        return {"opened": outcome(partial(opened, name)), **{way: outcome(partial(read, name, way)) for way in chosen}}

    return {name: ways(name) for name in ANSWERS}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """What comes of them bare, recorded and in replay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        return thrice(tmp_path_factory.mktemp("urllib"), readings)


@pytest.mark.parametrize("name", sorted({*ANSWERS} - HIDDEN))
def test_every_answer_is_read_as_without_capture_and_in_replay_again(name: str, results: tuple[Any, Any, Any]) -> None:
    bare, recorded, replayed = (each[name] for each in results)
    if name not in RECODED:
        assert replayed == recorded
    if name not in RETOLD:
        assert recorded == bare


def test_one_connection_carries_many_requests_of_every_kind(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        connection = HTTPConnection(place(url), timeout=1)
        said = []
        for path in ("chunks", "empty", "nothing", "unchanged"):
            connection.request("GET", f"/{path}")
            said.append(connection.getresponse().read())
        for body in (b"bytes", "caf\xe9", iter([b"x", b"yz"]), io.BytesIO(b"file"), None):
            connection.request("POST", "/body", body=body)
            said.append(connection.getresponse().read())
        connection.putrequest("PUT", "/body")
        connection.putheader("Content-Length", "6")
        connection.endheaders()
        connection.send(b"abc")
        connection.send(io.BytesIO(b"def"))
        said.append(connection.getresponse().read())
        connection.putrequest("PUT", "/body", skip_accept_encoding=True)
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(iter([b"one", b"", b"two"]), encode_chunked=True)
        said.append(connection.getresponse().read())
        connection.request("HEAD", "/chunks")
        said.append(connection.getresponse().read())
        connection.close()
        return said

    same(tmp_path, program)


def test_what_is_out_of_turn_is_refused_as_ever(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        connection = HTTPConnection(place(url), timeout=1)
        said = [outcome(connection.getresponse)]
        connection.request("GET", "/huge")
        said.append(outcome(partial(connection.request, "GET", "/empty")))
        unread = connection.getresponse()
        connection.request("GET", "/empty")
        said += [outcome(connection.getresponse), len(unread.read()), connection.sock is not None]
        connection.close()
        said.append(outcome(connection.getresponse))
        return said

    assert [each[0] for each in same(tmp_path, program) if isinstance(each, tuple)] == [
        "http.client.ResponseNotReady", "http.client.CannotSendRequest", "http.client.ResponseNotReady",
        "http.client.ResponseNotReady",
    ]  # fmt: skip


def test_a_request_sent_ahead_is_answered_in_its_turn(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        connection = HTTPConnection(place(url), timeout=1)
        connection.request("GET", "/chunks")
        before = connection.getresponse()
        connection.request("GET", "/body")
        said = before.read(), outcome(lambda: connection.getresponse().read())
        connection.close()
        return said

    _, recorded, replayed = thrice(tmp_path, program)  # bare, the answer may go down in what was read ahead
    assert recorded == replayed
    assert recorded[1].startswith(b"GET 0")


def test_what_cannot_be_sent_fails_where_it_is_sent(tmp_path: Path, closed: str) -> None:
    def program(url: str) -> Any:
        def silent() -> str:
            connection = HTTPConnection(place(url), timeout=0.05)
            connection.request("GET", "/silent")
            try:
                connection.getresponse()
            except TimeoutError as error:
                return f"not answered: {error}"
            finally:
                connection.close()
            return "answered"

        return [
            outcome(partial(HTTPConnection(place(closed), timeout=1).request, "GET", "/")),
            outcome(HTTPConnection(place(closed), timeout=1).connect),
            outcome(partial(urllib.request.urlopen, closed, timeout=1)),
            outcome(partial(urllib.request.urlopen, f"{url}/silent", timeout=0.05)),
            outcome(partial(urllib.request.urlopen, f"{url}/gone", timeout=1)),
            silent(),
        ]

    said = same(tmp_path, program)
    assert [each[0].rpartition(".")[2] for each in said[:5]] == [
        "ConnectionRefusedError", "ConnectionRefusedError", "URLError", "TimeoutError", "RemoteDisconnected",
    ]  # fmt: skip
    assert said[5] == "not answered: timed out"


def test_who_reads_on_after_a_timeout_is_told(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        connection = HTTPConnection(place(url), timeout=0.5)  # for its head, too, on a machine with much to do
        connection.request("GET", "/stalled")
        got = connection.getresponse()
        said = [got.read(100), outcome(got.read), outcome(got.read)]
        connection.close()
        return said

    assert same(tmp_path, program)[1:] == [
        ("builtins.TimeoutError", "timed out"), ("builtins.OSError", "cannot read from timed out object")
    ]  # fmt: skip


def test_urllib_follows_keeps_cookies_and_raises(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
        with opener.open(f"{url}/onward", timeout=1) as got:
            followed = got.read(), place(got.url), [cookie.name for cookie in jar]
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{url}/busy", timeout=1)
        with raised.value as error:
            return followed, error.code, error.reason, error.headers["Content-Length"], error.read()

    assert same(tmp_path, program)[0][0] == b"came back"


def test_a_program_may_open_its_connection_itself(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        connection = HTTPConnection(place(url), timeout=1)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.request("GET", "/chunks")
        text = connection.getresponse().read()
        connection.sock.settimeout(2)
        connection.close()
        return text

    same(tmp_path, program)


def test_a_run_that_goes_on_live_opens_what_its_record_did_not(tmp_path: Path) -> None:
    def program(connection: HTTPConnection, count: int) -> list[bytes]:
        said = []
        for number in range(count):
            connection.request("GET", f"/body?{number}")
            said.append(connection.getresponse().read())
        return said

    with everstep.open(tmp_path / "trail.db") as trail, serving() as url:
        connection = HTTPConnection(place(url), timeout=1)
        with pytest.raises(RuntimeError), everstep.capture(trail, "x"):
            program(connection, 2)
            raise RuntimeError
        connection.close()
        connection = HTTPConnection(place(url), timeout=1)
        with everstep.capture(trail, "x"):
            assert len(program(connection, 3)) == 3
        connection.close()
        assert len([step for step in trail.steps("x") if step.kind is Kind.STEP]) == 3


def test_an_answer_that_nobody_asks_for_is_left(tmp_path: Path) -> None:
    def program(url: str) -> str:
        connection = HTTPConnection(place(url), timeout=1)
        connection.request("GET", "/huge")
        connection.close()
        return "left"

    same(tmp_path, program)


def test_no_secret_reaches_the_trail(tmp_path: Path) -> None:
    secrets = {COOKIE, KEY, "tok-a1B2c3D4e5F6a1B2c3D4", "qu3ry-k3y-9x8y7z"}
    headers = {"Authorization": "Bearer tok-a1B2c3D4e5F6a1B2c3D4", "Cookie": f"sid={COOKIE}", "X-Api-Key": KEY}
    with everstep.open(tmp_path / "trail.db") as trail, serving() as url, everstep.capture(trail, "x"):
        for path in ("secret", "cookies"):
            asked = urllib.request.Request(f"{url}/{path}?api_key=qu3ry-k3y-9x8y7z", headers=headers)
            urllib.request.urlopen(asked, timeout=1).close()
        body = f'{{"text": "my key is {KEY}", "shown": "words of no weight"}}'.encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/empty", body, headers), timeout=1) as got:
            got.read()
    kept = stored(tmp_path)
    assert "words of no weight" in kept
    assert [secret for secret in secrets if secret in kept] == []


def test_a_library_with_another_layout_is_an_error() -> None:
    other = ModuleType("http.client")
    vars(other).update(
        {**vars(http.client), "HTTPConnection": type("HTTPConnection", (), {"putrequest": lambda self: None})}
    )
    with pytest.raises(UnknownLayoutError, match="putrequest takes self"):
        seam.patch(other)
