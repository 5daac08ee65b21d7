"""Telemetry goes out where calls are live, is no part of the record, and stays at home in a replay."""

from __future__ import annotations

import asyncio
import http.client
import os
import threading
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
import requests

import everstep
from everstep.capturing.telemetry import is_telemetry
from everstep.errors import CaptureWarning
from tests.capture.server import ModelServer


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("POST", "http://collector:4318/v1/traces", True),
        ("POST", "http://collector/otel/v1/metrics/", True),
        ("POST", "http://agent:8126/v0.4/traces", True),
        ("GET", "http://collector:4318/v1/traces", False),  # somebody reads them
        ("POST", "https://api.openai.com/v1/responses", False),
        ("POST", "https://api.openai.com/v1/traces/ingest", True),
        ("POST", "https://o1.ingest.sentry.io/api/42/envelope/", True),
        ("POST", "https://eu.posthog.com/batch/", True),
        ("POST", "https://us.i.posthog.com/flags/", False),  # what it gives is made use of
        ("POST", "https://shop.example/batch/", False),
        ("POST", "https://notposthog.com/batch", False),
        ("POST", "https://api.smith.langchain.com/runs/multipart", True),
        ("PATCH", "https://eu.api.smith.langchain.com/runs/4f", True),
        ("GET", "https://api.smith.langchain.com/commits/a/b", False),
        ("POST", "https://cloud.langfuse.com/api/public/ingestion", True),
        ("POST", "https://cloud.langfuse.com/api/public/scores", True),
        ("GET", "https://cloud.langfuse.com/api/public/v2/prompts/a", False),
        ("POST", "https://os-api.agno.com/telemetry/runs", True),
        ("HEAD", "https://huggingface.co/api/telemetry/examples", True),
        ("GET", "https://static.scarf.sh/a.png", True),
        ("POST", "https://shop.example/logs", False),
    ],
)
def test_telemetry_is_known_by_where_it_goes(method: str, url: str, *, expected: bool) -> None:
    parts = urlsplit(url)
    assert is_telemetry(method, parts.hostname, parts.path) is expected


def by_httpx(url: str, body: bytes) -> int:
    return httpx.post(url, content=body).status_code


def by_awaited_httpx(url: str, body: bytes) -> int:
    async def send() -> int:
        async with httpx.AsyncClient() as client:
            return (await client.post(url, content=body)).status_code

    return asyncio.run(send())


def by_requests(url: str, body: bytes) -> int:
    return requests.post(url, data=body, timeout=10).status_code


def by_urllib(url: str, body: bytes) -> int:
    with urllib.request.urlopen(url, body) as answer:
        answer.read()
        return int(answer.status)


def by_http_client(url: str, body: bytes) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("POST", parts.path, body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def by_aiohttp(url: str, body: bytes) -> int:
    async def send() -> int:
        async with aiohttp.ClientSession() as session, session.post(url, data=body) as answer:
            await answer.read()
            return answer.status

    return asyncio.run(send())


@pytest.mark.parametrize(
    "send", [by_httpx, by_awaited_httpx, by_requests, by_urllib, by_http_client, by_aiohttp], ids=lambda f: f.__name__
)
def test_telemetry_is_sent_and_not_recorded_and_a_replay_sends_none(
    tmp_path: Path, send: Callable[[str, bytes], int]
) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def program(times: int) -> list[str]:
            said = [httpx.get(f"{server.url}/plain/a").text]
            assert [send(f"{server.url}/plain/v1/traces", os.urandom(20)) for _ in range(times)] == [200] * times
            return [*said, httpx.get(f"{server.url}/plain/b").text]

        with pytest.warns(CaptureWarning, match="sends telemetry") as told, everstep.capture(trail, "trip"):
            live = program(2)
        assert len(told) == 1
        assert [request.path for request in server.requests].count("/plain/v1/traces") == 2
        assert [step.name for step in trail.steps("trip") if step.node_type] == ["GET 127.0.0.1"] * 2
        seen = len(server.requests)
        with warnings.catch_warnings(action="error"), everstep.capture(trail, "trip", mode="verify") as replayed:
            assert program(3) == live  # as often as time has it
        assert replayed.report is not None
        assert replayed.report.identical
        assert len(server.requests) == seen


def test_the_connection_that_telemetry_took_is_free_again(tmp_path: Path) -> None:
    options = {"limits": httpx.Limits(max_connections=1), "timeout": httpx.Timeout(30, pool=1)}

    def plain(url: str) -> list[int]:
        with httpx.Client(**options) as client:  # type: ignore[arg-type] # by their names
            return [client.post(url, content=b"a").status_code for _ in range(2)]

    async def awaited(url: str) -> list[int]:
        async with httpx.AsyncClient(**options) as client:  # type: ignore[arg-type] # as above
            return [(await client.post(url, content=b"a")).status_code for _ in range(2)]

    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        url = f"{server.url}/plain/v1/traces"
        with pytest.warns(CaptureWarning, match="sends telemetry"), everstep.capture(trail, "trip"):
            assert [*plain(url), *asyncio.run(awaited(url))] == [200] * 4


def test_telemetry_of_a_thread_of_its_own_leaves_the_order_of_calls_alone(tmp_path: Path) -> None:
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:

        def program(times: int) -> list[str]:
            over = threading.Event()

            def export() -> None:
                for _ in range(times):
                    by_requests(f"{server.url}/plain/v1/traces", os.urandom(20))
                over.wait(20)
                by_requests(f"{server.url}/plain/v1/traces", b"the last of it")

            exporter = threading.Thread(target=export, daemon=True)
            exporter.start()
            said = [httpx.get(f"{server.url}/plain/{number}").text for number in range(5)]
            over.set()
            exporter.join()
            return said

        with pytest.warns(CaptureWarning, match="sends telemetry"), everstep.capture(trail, "trip"):
            live = program(3)
        for times in (0, 5):
            with everstep.capture(trail, "trip", mode="verify") as replayed:
                assert program(times) == live
            assert replayed.report is not None
            assert replayed.report.identical


def test_telemetry_that_cannot_be_sent_fails_as_ever(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "trip"):
            with pytest.warns(CaptureWarning), pytest.raises(httpx.ConnectError):
                httpx.post("http://127.0.0.1:9/v1/traces", content=b"a")
            with pytest.raises(requests.ConnectionError):
                requests.post("http://127.0.0.1:9/v1/logs", data=b"a", timeout=10)
        assert [step for step in trail.steps("trip") if step.node_type] == []
