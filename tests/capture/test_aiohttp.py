"""Calls over aiohttp: a program gets in a replay, bytes and errors and all, what it got from the server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import aiohttp
import httpx
import pytest

import everstep
from everstep.capturing.seams import aiohttp as seam
from everstep.errors import DivergenceError, UnknownLayoutError
from everstep.model import Kind
from tests.capture.oddities import ANSWERS, COOKIE, KEY, STALL, patience, same, serving, stored, thrice
from tests.capture.running import CAPTURED, environment, run
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND

HIDDEN = {"cookies", "onward", "secret"}  # no two are alike, as their secrets are not kept
STUCK = {"miscounted"}  # aiohttp itself waits for its rest for ever if the fault comes late, whatever the timeouts
RACING = {"cut", "cut-within", "short", "failed-short", "squeezed-cut", "reset-within"}  # whether the fault is first
Session = aiohttp.ClientSession


async def outcome(call: Awaitable[Any]) -> Any:
    """What it gives, or type and text of what it raises."""
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is compared
        kinds = dict.fromkeys(
            kind.__qualname__ for kind in type(error).__mro__
        )  # one may stand for another of its name
        return [*kinds], str(error)


def program(body: Callable[[Session, str], Awaitable[Any]], **options: Any) -> Callable[[str], Any]:
    """A program with one session."""

    async def main(url: str) -> Any:
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of addresses without a name, too
        async with Session(cookie_jar=jar, timeout=aiohttp.ClientTimeout(sock_read=5), **options) as session:
            return await body(session, url)

    return lambda url: asyncio.run(main(url))


async def whole(got: aiohttp.ClientResponse) -> Any:
    body = await got.read()
    return got.status, got.reason, body, got.raw_headers, got.version, got.content_type, got.content_length


async def lines(got: aiohttp.ClientResponse) -> list[bytes]:
    return [line async for line in got.content]


async def chunked(got: aiohttp.ClientResponse) -> bytes:
    return b"".join([piece async for piece in got.content.iter_chunked(64)])


async def early(got: aiohttp.ClientResponse) -> bytes:
    return await got.content.read(5)


async def text(got: aiohttp.ClientResponse) -> str:
    got.raise_for_status()
    return await got.text(errors="replace")


READINGS = (whole, lines, chunked, early, text)


async def readings(session: Session, url: str) -> dict[str, Any]:
    """Every answer, read in every way; those that one waits for, in a few."""

    async def read(name: str, way: Callable[[aiohttp.ClientResponse], Awaitable[Any]]) -> Any:
        timeout = aiohttp.ClientTimeout(sock_read=patience(name))
        async with session.get(f"{url}/{name}", timeout=timeout, allow_redirects=False) as got:
            return await way(got)

    found = {}
    for name in sorted({*ANSWERS} - STUCK):
        ways = READINGS[:2] if STALL in ANSWERS[name] else READINGS
        found[name] = [await outcome(read(name, way)) for way in ways]
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    """What comes of them bare, recorded and in replay."""
    return thrice(tmp_path_factory.mktemp("aiohttp"), program(readings))


@pytest.mark.parametrize("name", sorted({*ANSWERS} - HIDDEN - STUCK))
def test_every_answer_is_read_as_without_capture_and_in_replay_again(name: str, results: tuple[Any, Any, Any]) -> None:
    bare, recorded, replayed = (each[name] for each in results)
    if name not in RACING:
        assert recorded == bare
    assert replayed == recorded


def test_the_agent_is_the_same_in_every_replay_without_a_server(tmp_path: Path) -> None:
    """Parallel calls, streams, cookies, redirects, failures: what a program says is identical."""

    def said(mode: str, url: str) -> str:
        about = json.dumps({"trail": f"{tmp_path}/trail.db", "id": "x", "mode": mode})
        done = run("aiohttp_agent", url, tmp_path, python=CAPTURED, PYTHONHASHSEED="1", EVERSTEP_CAPTURE=about)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    with ModelServer() as server:
        recorded = said("record", server.url)
        url = server.url
    assert "too slow" in recorded
    assert [said("verify", url) for _ in range(3)] == [recorded] * 3


def test_parts_of_parallel_streams_come_in_the_order_of_the_record(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> list[tuple[int, bytes]]:
        heard: list[tuple[int, bytes]] = []

        def note(*line: Any) -> None:
            heard.append(line)  # one by one, as they come

        async def read(number: int) -> None:
            async with session.get(f"{url}/lines?n={3 + 2 * number}") as got:
                async for line in got.content:
                    note(number, line)

        await asyncio.gather(*map(read, range(5)))
        return heard

    with everstep.open(tmp_path / "trail.db") as trail:
        with ModelServer() as server, everstep.capture(trail, "x"):
            recorded = program(body)(server.url)
        for _ in range(5):
            with everstep.capture(trail, "x", mode="verify"):
                assert program(body)(server.url) == recorded


def test_a_read_that_was_cancelled_can_be_tried_again(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> Any:
        heard: list[Any] = []
        async with session.get(f"{url}/chunks") as got:
            while not heard or heard[-1] != b"":
                try:
                    heard.append(await asyncio.wait_for(got.content.readline(), 0.005))
                except TimeoutError:
                    heard.append("in vain")
        return heard

    _, recorded, replayed = thrice(tmp_path, program(body))
    assert replayed == recorded
    assert "in vain" in recorded
    assert [line for line in recorded if line != "in vain"] == [*ANSWERS_SEPARATE, b""]


ANSWERS_SEPARATE = [b"event one\n", b"event two, which is longer\n", b"event three\n"]


RETRIES = """
import aiohttp, asyncio, os, signal
url = os.environ["MODEL_URL"]

async def tried(session, path):
    while True:
        got = await session.get(url + path)
        if got.ok:
            return await got.json()  # the others were neither read nor closed

async def main():
    async with aiohttp.ClientSession() as session:
        print(await tried(session, "/flaky?key=a"), await tried(session, "/plain/a"))
        if "CRASH" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        print(await tried(session, "/flaky?key=b"))

asyncio.run(main())
"""


def test_failed_answers_that_nobody_reads_are_on_record_before_the_next_try(tmp_path: Path) -> None:
    """Promise 2, of a program that tries again as aiohttp-retry does."""
    (tmp_path / "agent.py").write_text(RETRIES, "utf-8")

    def everstep_(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *words, "--trail", "trail.db", "--", sys.executable, "agent.py"]
        return subprocess.run(
            command, cwd=tmp_path, env=environment(server.url, **more), capture_output=True, text=True, check=False
        )

    with ModelServer() as server:
        assert everstep_("record", "--id", "r", CRASH="1").returncode == -9
        resumed = everstep_("resume", "r")
        assert resumed.returncode == 0, resumed.stderr
        assert [request.path for request in server.requests] == [
            "/flaky?key=a", "/flaky?key=a", "/plain/a", "/flaky?key=b", "/flaky?key=b",
        ]  # fmt: skip
    replayed = everstep_("replay", "r", "--sealed")
    assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


def test_calls_that_are_cancelled_or_take_too_long_end_as_they_did(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> Any:
        silent, short = (
            f"{url}/silent",
            aiohttp.ClientTimeout(total=0.5),
        )  # for a head, too, on a machine with much to do
        task = asyncio.create_task(outcome(session.get(silent, timeout=aiohttp.ClientTimeout())))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        patient = aiohttp.ClientTimeout()
        return [
            await outcome(session.get(silent, timeout=short)),
            await outcome(session.get(silent, timeout=aiohttp.ClientTimeout(sock_read=0.1))),
            await outcome(asyncio.wait_for(session.get(silent, timeout=patient), 0.05)),
            await outcome((await session.get(f"{url}/stalled", timeout=short)).read()),
        ]

    kinds = [kinds[0] for kinds, _ in same(tmp_path, program(body))]
    assert kinds == ["TimeoutError", "SocketTimeoutError", "TimeoutError", "TimeoutError"]


def test_connections_that_fail_raise_the_same_errors(tmp_path: Path, closed: str) -> None:
    async def body(session: Session, url: str) -> Any:
        with pytest.raises(aiohttp.ClientConnectorError) as raised:
            await session.get(closed)
        return [
            (raised.value.host, raised.value.errno, str(raised.value)),
            await outcome(session.get(closed)),
            await outcome(session.get("nonsense")),
            await outcome(session.get(f"{url}/onward", max_redirects=1)),
            await outcome(session.get(f"{url}/busy", raise_for_status=True)),
            await outcome(session.get(f"{url}/empty", proxy=closed)),
        ]

    same(tmp_path, program(body))


def test_an_answer_that_is_closed_while_it_is_read_is_closed_in_a_replay(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> Any:
        got = await session.get(f"{url}/stalled-chunks", timeout=aiohttp.ClientTimeout())

        async def read() -> Any:
            return [line async for line in got.content]

        task = asyncio.create_task(outcome(read()))
        await asyncio.sleep(0.03)
        got.close()
        return await task, await outcome(got.read())

    same(tmp_path, program(body))


def test_every_kind_of_body_is_sent_as_without_capture(tmp_path: Path) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def body(session: Session, url: str) -> Any:
        async def post(**given: Any) -> Any:
            async with session.post(f"{url}/body", **given) as got:
                return await got.text()

        file = tmp_path / "file"
        file.write_bytes(b"in a file" * 9000)
        form = aiohttp.FormData()
        form.add_field("f", b"xyz", filename="f.bin")
        with file.open("rb") as opened:
            sent = [
                await post(data=b"bytes"), await post(data="caf\xe9"), await post(json={"a": 1}),
                await post(data={"a": "1"}), await post(data=opened), await post(data=parts()), await post(),
            ]  # fmt: skip
        async with session.post(f"{url}/again", data=b"twice") as got:
            return [*sent, (await post(data=form))[:5], await got.text(), len(got.history)]

    assert "GET" not in str(same(tmp_path, program(body)))


def test_cookies_come_back_and_in_a_replay_keep_their_names(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> Any:
        async with session.get(f"{url}/onward") as got:
            names = [each.key for each in session.cookie_jar]
            return await got.text(), [each.status for each in got.history], names

    assert same(tmp_path, program(body)) == ("came back", [302], ["sid"])


def test_no_secret_reaches_the_trail(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> None:
        for path in ("secret", "cookies"):
            async with session.get(f"{url}/{path}", headers={"X-Api-Key": KEY}, cookies={"sid": COOKIE}) as got:
                await got.read()
        async with session.post(f"{url}/empty", json={"text": f"my key is {KEY}", "shown": "no weight"}):
            pass

    with everstep.open(tmp_path / "trail.db") as trail, serving() as url, everstep.capture(trail, "x"):
        program(body)(url)
    kept = stored(tmp_path)
    assert "no weight" in kept
    assert [secret for secret in (COOKIE, KEY) if secret in kept] == []


def test_traces_and_middlewares_see_what_they_saw(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def trace(session: Any, context: Any, about: Any) -> None:
        seen.append(type(about).__name__)

    async def middleware(asked: Any, handler: Any) -> Any:
        got = await handler(asked)
        seen.append(got.status)
        return got

    async def body(session: Session, url: str) -> Any:
        seen.clear()
        async with session.get(f"{url}/onward") as got:
            await got.read()
        return list(seen)

    def traced(url: str) -> Any:
        config = aiohttp.TraceConfig()
        for signal in (config.on_request_start, config.on_request_redirect, config.on_request_end):
            signal.append(trace)
        config.on_response_chunk_received.append(trace)
        return program(body, trace_configs=[config], middlewares=(middleware,))(url)

    assert len(same(tmp_path, traced)) == 6


def test_a_changed_call_is_a_divergence_that_is_named(tmp_path: Path) -> None:
    async def body(session: Session, url: str, number: int = 1) -> Any:
        async with session.post(f"{url}/body", json={"number": number}) as got:
            return await got.text()

    async def changed(session: Session, url: str) -> Any:
        return await body(session, url, 2)

    with everstep.open(tmp_path / "trail.db") as trail:
        with serving() as url, everstep.capture(trail, "x"):
            program(body)(url)
        with pytest.raises(DivergenceError, match="number"), everstep.capture(trail, "x", mode="verify"):
            program(changed)(url)


class OverAiohttp(httpx.AsyncBaseTransport):
    """httpx on aiohttp, as the extras of model clients have it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Ask over aiohttp."""
        asked = self._session.request(
            request.method, str(request.url), data=request.content, headers=dict(request.headers), auto_decompress=False
        )
        got = await asked.__aenter__()

        class Stream(httpx.AsyncByteStream):
            async def __aiter__(self) -> AsyncIterator[bytes]:
                async for piece in got.content.iter_chunked(1024):
                    yield piece

            async def aclose(self) -> None:
                await asked.__aexit__(None, None, None)

        return httpx.Response(got.status, headers=list(got.headers.items()), stream=Stream())


def test_a_client_on_top_of_aiohttp_is_recorded_once(tmp_path: Path) -> None:
    async def body(session: Session, url: str) -> Any:
        async with httpx.AsyncClient(transport=OverAiohttp(session)) as client:
            return [(await client.get(f"{url}/{path}")).text for path in ("gzip", "squeezed", "chunks")]

    same(tmp_path, program(body))
    with everstep.open(tmp_path / "trail.db") as trail:
        assert len([step for step in trail.steps("x") if step.kind is Kind.STEP]) == 3


def test_another_layout_of_the_library_is_refused() -> None:
    other: Any = SimpleNamespace(__name__="aiohttp", ClientSession=SimpleNamespace(_request=lambda self, url: None))
    with pytest.raises(UnknownLayoutError, match="_request"):
        seam.patch(other)
    assert isinstance(aiohttp, ModuleType)
