"""Connections that stop being HTTP (status 101): live, told of, and refused in a sealed replay."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import urllib3

import everstep
from everstep.errors import CaptureWarning, SealedError

HEADERS = {"Connection": "Upgrade", "Upgrade": "echo"}
ANSWER = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"


class Echo:
    """A server that upgrades every connection, and then says again what it is told."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection = self._socket.accept()[0]
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            self.asked += 1
            connection.sendall(ANSWER)
            while said := connection.recv(4096):
                connection.sendall(said.upper())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    """Such a server."""
    server = Echo()
    yield server
    server.close()


def by_http_client(url: str) -> bytes:
    """On the socket of the connection, below the answer."""
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", "/exec", headers=HEADERS)
    answer = connection.getresponse()
    assert answer.status == 101
    connection.sock.sendall(b"hello")
    said = connection.sock.recv(100)
    connection.close()
    return said


def by_urllib3(url: str) -> bytes:
    """As docker does it: on the socket that the answer is read from."""
    with urllib3.PoolManager() as pool:
        answer = pool.request("POST", f"{url}/exec", headers=HEADERS, preload_content=False, retries=False)
        assert answer.status == 101
        below: Any = answer._fp.fp.raw._sock  # type: ignore[attr-defined] # what docker reads
        below.sendall(b"hello")
        said = bytes(below.recv(100))
        answer.connection.close()  # type: ignore[union-attr] # of an answer that was not read to its end
        below.close()
        answer._fp.close()  # type: ignore[attr-defined] # as above
        return said


def by_httpx(url: str) -> bytes:
    """As httpx-ws does it: on the stream that httpx gives with the answer."""
    with httpx.Client() as client, client.stream("GET", f"{url}/ws", headers=HEADERS) as answer:
        assert answer.status_code == 101
        stream = answer.extensions["network_stream"]
        stream.write(b"hello")
        return bytes(stream.read(100))


def by_httpx_awaited(url: str) -> bytes:
    """The same, awaited."""

    async def talk() -> bytes:
        async with httpx.AsyncClient() as client, client.stream("GET", f"{url}/ws", headers=HEADERS) as answer:
            stream = answer.extensions["network_stream"]
            await stream.write(b"hello")
            return bytes(await stream.read(100))

    return asyncio.run(talk())


def by_aiohttp(url: str) -> bytes:
    """As aiodocker does it: by a parser on the connection below the answer."""

    async def talk() -> bytes:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        async with aiohttp.ClientSession() as session, session.post(f"{url}/exec", headers=HEADERS) as answer:
            connection: Any = answer.connection
            connection.protocol.set_parser(_Parser(heard), aiohttp.streams.EMPTY_PAYLOAD)
            connection.transport.write(b"hello")
            return await heard

    return asyncio.run(talk())


class _Parser:
    def __init__(self, heard: asyncio.Future[bytes]) -> None:
        self._heard = heard

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        if data and not self._heard.done():
            self._heard.set_result(bytes(data))
        return False, b""

    def feed_eof(self) -> None: ...


WAYS = {
    "http.client": by_http_client, "urllib3": by_urllib3, "httpx": by_httpx, "httpx, awaited": by_httpx_awaited,
    "aiohttp": by_aiohttp,
}  # fmt: skip


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Callable[[str], bytes]]:
    """A library, and how one talks by it."""
    monkeypatch.setenv("NO_PROXY", "*")
    return request.param.partition(",")[0], WAYS[request.param]


def test_an_upgraded_connection_is_live_and_told_of_and_refused_in_a_replay(
    tmp_path: Path, echo: Echo, way: tuple[str, Callable[[str], bytes]]
) -> None:
    library, talk = way
    with everstep.open(tmp_path / "trail.db") as trail:
        told = f"connection that {library} has upgraded from HTTP .*127.0.0.1, status 101.*not recorded"
        with everstep.capture(trail, "x"), pytest.warns(CaptureWarning, match=told):
            assert talk(echo.url) == b"HELLO"
        assert [row.output["status"] for row in trail.steps("x") if isinstance(row.output, dict)] == [101]
        refused = rf"test_upgrades\.py:\d+ would talk over a connection that {library} has upgraded .*never recorded"
        with pytest.raises(SealedError, match=refused), everstep.capture(trail, "x", mode="verify"):
            talk(echo.url)
        assert echo.asked == 1
        with everstep.capture(trail, "x", mode="verify", seal="off"):
            assert talk(echo.url) == b"HELLO"


def test_a_run_that_is_resumed_opens_such_a_connection_again(
    tmp_path: Path, echo: Echo, way: tuple[str, Callable[[str], bytes]]
) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        for life in range(2):
            with suppress(ZeroDivisionError), everstep.capture(trail, "x"):
                with pytest.warns(CaptureWarning, match="a resumed run does it again"):
                    assert way[1](echo.url) == b"HELLO"
                if life == 0:
                    raise ZeroDivisionError
        assert trail.run("x").status == "completed"
        assert echo.asked == 2
