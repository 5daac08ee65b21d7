"""Calls over urllib3: a program on requests gets in a replay, bytes and errors and all, what it got from the server."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

import everstep
from everstep.capturing.seams import urllib3 as seam
from everstep.errors import UnknownLayoutError
from everstep.model import Kind
from tests.capture.oddities import ANSWERS, COOKIE, KEY, STALL, outcome, patience, same, serving, stored, thrice

RETOLD = {"cut-within", "miscounted"}  # what is wrong with their chunks is told in other words than bare
# Squeezed bytes are others in a replay, if what they say is the same; and urllib3 reads no zstd by itself.
RECODED = {"bare", "squeezed-cut", "zstd", "zstd-parts", "zstd-frames"}
HIDDEN = {"cookies", "onward", "secret"}


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def whole(got: requests.Response) -> Any:
    return got.status_code, got.reason, got.content, dict(got.headers), got.raw.version, got.raw.isclosed()


READINGS: dict[str, Callable[[requests.Response], Any]] = {
    "whole": whole,
    "chunks": lambda got: list(got.iter_content(None)),
    "pieces": lambda got: list(got.iter_content(64)),
    "lines": lambda got: list(got.iter_lines()),
    "raw": lambda got: (got.raw.read(10, decode_content=True), got.raw.tell() > 0, len(list(got.raw.stream(7)))),
    "read1": lambda got: (got.raw.read1(3, decode_content=True), got.raw.read(2, decode_content=True)),
    "early": lambda got: next(got.iter_content(5)),
}


def readings(url: str) -> dict[str, dict[str, Any]]:
    """Every answer, read in every way; those that one waits for, in a few."""

    def read(name: str, way: str) -> Any:
        with requests.get(f"{url}/{name}", stream=way != "whole", timeout=patience(name), allow_redirects=False) as got:
            return READINGS[way](got)

    def ways(name: str) -> dict[str, Any]:
        chosen = list(READINGS)[:2] if STALL in ANSWERS[name] else list(READINGS)
        return {way: outcome(partial(read, name, way)) for way in chosen}

    return {name: ways(name) for name in ANSWERS}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """What comes of them bare, recorded and in replay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        return thrice(tmp_path_factory.mktemp("requests"), readings)


@pytest.mark.parametrize("name", sorted({*ANSWERS} - HIDDEN))
def test_every_answer_is_read_as_without_capture_and_in_replay_again(name: str, results: tuple[Any, Any, Any]) -> None:
    bare, recorded, replayed = (each[name] for each in results)
    if name not in RECODED:
        assert replayed == recorded
    if name in RETOLD:
        bare, recorded = ({way: got[0] for way, got in each.items()} for each in (bare, recorded))
    assert recorded == bare


def test_a_squeezed_answer_that_was_cut_off_is_stored_as_far_as_it_came(tmp_path: Path) -> None:
    def program(url: str) -> str:
        with pytest.raises(requests.exceptions.ChunkedEncodingError) as raised:
            requests.get(f"{url}/squeezed-cut", timeout=1)
        return type(raised.value).__name__

    same(tmp_path, program)
    assert "line 0 of the answer" in stored(tmp_path)


def test_the_library_retries_and_each_attempt_is_a_step(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        with requests.Session() as session:
            retry = Retry(total=2, status_forcelist=[503], backoff_factor=0.001, allowed_methods=None)
            session.mount("http://", HTTPAdapter(max_retries=retry))
            return [outcome(partial(session.get, f"{url}/{path}", timeout=1)) for path in ("busy", "gone")]

    recorded = same(tmp_path, program)
    assert [kind for kind, _ in recorded] == ["requests.exceptions.RetryError", "requests.exceptions.ConnectionError"]
    with everstep.open(tmp_path / "trail.db") as trail:
        assert len([step for step in trail.steps("x") if step.kind is Kind.STEP]) == 6


def test_connections_that_fail_raise_the_same_errors(tmp_path: Path, closed: str) -> None:
    def program(url: str) -> Any:
        pool = urllib3.PoolManager(retries=False)
        through = {"http": closed, "https": closed}
        return [
            outcome(lambda: requests.get(closed, timeout=1)),
            outcome(lambda: requests.get(f"{url}/empty", proxies=through, timeout=1)),
            outcome(lambda: requests.get("https://nobody.example/x", proxies=through, timeout=1)),
            outcome(lambda: requests.get(url.replace("http:", "https:"), timeout=1)),
            outcome(lambda: pool.request("GET", closed)),
            outcome(lambda: pool.request("GET", f"{url}/silent", timeout=0.05)),
            outcome(lambda: pool.request("POST", f"{url}/reset")),
        ]

    recorded = same(tmp_path, program)
    kinds = [kind.rpartition(".")[2] for kind, _ in recorded]
    assert kinds[:4] == ["ConnectionError", "ProxyError", "ProxyError", "SSLError"]
    assert kinds[4:] == ["NewConnectionError", "ReadTimeoutError", "ProtocolError"]


def test_an_error_knows_its_request_and_its_pool(tmp_path: Path, closed: str) -> None:
    def program(url: str) -> Any:
        del url
        with pytest.raises(requests.ConnectionError) as raised:
            requests.get(f"{closed}/here", timeout=1)
        error = raised.value
        reason = error.args[0].reason
        assert error.request is not None
        return error.request.url, type(reason).__name__, reason.conn.port, error.args[0].pool.port, error.args[0].url

    same(tmp_path, program)


def test_every_kind_of_body_is_sent_as_without_capture(tmp_path: Path) -> None:
    def fails() -> Iterator[bytes]:
        yield b"x"
        raise ValueError("no more")

    def program(url: str) -> Any:
        def post(**body: Any) -> Any:
            return outcome(lambda: requests.post(f"{url}/body", timeout=1, **body).text)

        file = tmp_path / "file"
        file.write_bytes(b"in a file" * 9000)
        with file.open("rb") as opened, file.open("rb") as part:
            return [
                post(data=b"bytes"), post(data="caf\xe9"), post(json={"a": 1}), post(data={"a": ["1", "2"]}),
                post(data=opened), post(data=io.StringIO("t\xe9xt")), post(data=iter([b"a", b"", b"bc"])),
                post(data=fails()), post(files={"f": ("name", part)})[:10], post(),
                outcome(lambda: requests.post(f"{url}/again", data=io.BytesIO(b"twice"), timeout=1).text),
                urllib3.PoolManager().request("POST", f"{url}/body", body=iter([b"un", b"told"])).data,
                urllib3.PoolManager().request("POST", f"{url}/body", body=memoryview(b"view")).data,
            ]  # fmt: skip

    same(tmp_path, program)


def test_cookies_come_back_and_in_a_replay_keep_their_names(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        with requests.Session() as session:
            came = session.get(f"{url}/onward", timeout=1)
            return came.text, [each.status_code for each in came.history], session.cookies.keys()

    assert same(tmp_path, program) == ("came back", [302], ["sid"])


def test_no_secret_reaches_the_trail(tmp_path: Path) -> None:
    secrets = {COOKIE, KEY, "tok-a1B2c3D4e5F6a1B2c3D4", "p4ss-w0rd", "qu3ry-k3y-9x8y7z", "b0dy-t0ken-1q2w3e"}
    with everstep.open(tmp_path / "trail.db") as trail, serving() as url, everstep.capture(trail, "x"):
        for path in ("secret", "cookies", "gzip"):
            asked = f"{url}/{path}?api_key=qu3ry-k3y-9x8y7z"
            requests.get(
                asked, cookies={"sid": COOKIE}, auth=("me", "p4ss-w0rd"), headers={"X-Api-Key": KEY}, timeout=1
            )
        headers = {"Authorization": "Bearer tok-a1B2c3D4e5F6a1B2c3D4"}
        body = {"access_token": "b0dy-t0ken-1q2w3e", "text": f"my key is {KEY}", "shown": "words of no weight"}
        requests.post(f"{url}/empty", json=body, headers=headers, timeout=1)
        requests.post(f"{url}/empty", data=body, headers=headers, timeout=1)
    kept = stored(tmp_path)
    assert "words of no weight" in kept
    assert [secret for secret in secrets if secret in kept] == []


def test_connections_go_back_to_their_pool(tmp_path: Path) -> None:
    def program(url: str) -> Any:
        host, _, port = url.removeprefix("http://").partition(":")
        with urllib3.HTTPConnectionPool(host, int(port), maxsize=1, block=True, timeout=1) as pool:
            whole = [pool.request("GET", "/chunks").data for _ in range(2)]
            stream = pool.request("GET", "/huge", preload_content=False)
            parts = sum(map(len, stream.stream(1000)))
            early = pool.request("GET", "/huge", preload_content=False)
            held = early.connection is not None and early.read(3), pool.pool.qsize()  # type: ignore[union-attr] # it is open
            early.close()
            early.release_conn()
            drained = pool.request("GET", "/chunks", preload_content=False)
            drained.drain_conn()
            drained.release_conn()
            return whole, parts, held, pool.num_requests, pool.pool.qsize()  # type: ignore[union-attr] # as above

    same(tmp_path, program)


def test_what_changes_the_world_is_announced(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, serving() as url:
        with everstep.capture(trail, "x"):
            requests.get(f"{url}/empty", timeout=1)
            requests.post(f"{url}/body", data=b"buy it", timeout=1)
        assert [(step.name, step.kind) for step in trail.steps("x") if step.kind is Kind.INTENT] == [
            ("POST 127.0.0.1", Kind.INTENT)
        ]


def test_a_library_with_another_layout_is_an_error() -> None:
    class Pool:
        def _make_request(self, conn: Any, method: str) -> None:
            pass

    other = ModuleType("urllib3")
    vars(other).update(__version__="9", HTTPConnectionPool=Pool, HTTPSConnectionPool=Pool)
    with pytest.raises(UnknownLayoutError, match="_make_request takes self, conn, method"):
        seam.patch(other)


def test_a_connection_of_another_kind_is_an_error(tmp_path: Path) -> None:
    pool = urllib3.HTTPConnectionPool("localhost")
    with (
        everstep.open(tmp_path / "trail.db") as trail,
        everstep.capture(trail, "x"),
        pytest.raises(UnknownLayoutError, match="SimpleNamespace"),
    ):
        pool._make_request(SimpleNamespace(), "GET", "/")  # type: ignore[arg-type] # HTTP/2 has one of its own
