"""A request that changes something and failed after it may have been sent: nobody knows whether it took effect."""

from __future__ import annotations

import asyncio
import socket
import threading
import urllib.request
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from everstep.capturing.session import capture
from everstep.errors import UnknownOutcomeError
from everstep.model import Status
from everstep.trail.trail import Trail
from tests.capture.asking import answering

SOON = 0.3  # seconds


def by_urllib(url: str) -> str:
    with urllib.request.urlopen(url, b"pay=100", timeout=SOON) as answer:
        return str(answer.read().decode())


async def by_aiohttp(url: str) -> str:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SOON)) as client,
        client.post(url, data=b"pay=100") as answer,
    ):
        return await answer.text()


LIBRARIES: dict[str, Callable[[str], str]] = {
    "httpx": lambda url: httpx.post(url, content=b"pay=100", timeout=SOON).text,
    "httpx2": lambda url: httpx2.post(url, content=b"pay=100", timeout=SOON).text,
    "requests": lambda url: requests.post(url, data=b"pay=100", timeout=SOON).text,
    "urllib": by_urllib,
    "aiohttp": lambda url: asyncio.run(by_aiohttp(url)),
}


def first_is_late() -> Callable[[bytes], object]:
    late = chain([10 * SOON], repeat(0.0))
    return lambda _: threading.Event().wait(next(late))


@pytest.mark.parametrize("library", LIBRARIES)
def test_it_is_not_repeated_unasked_when_its_run_is_taken_up(trail: Trail, library: str) -> None:
    """Promise 3."""

    def run(**how: Any) -> str:
        with capture(trail, "run", **how):
            return LIBRARIES[library](f"{url}/charges")

    with answering("paid", first_is_late()) as (url, asked):
        with pytest.raises(Exception):  # noqa: B017, PT011 - each library has its own
            run()
        assert trail.run("run").status is Status.FAILED
        for _ in range(2):
            with pytest.raises(UnknownOutcomeError, match="no outcome of the external step"):
                run()
        assert len(asked) == 1
        trail.answer("run", retry=True)
        assert run() == "paid"
        assert len(asked) == 2
        assert run(mode="verify") == "paid"
        assert len(asked) == 2


def test_somebody_may_say_what_it_gave(trail: Trail) -> None:
    def run() -> str:
        with capture(trail, "run"):
            return LIBRARIES["httpx"](f"{url}/charges")

    with answering("paid", first_is_late()) as (url, asked):
        with pytest.raises(httpx.ReadTimeout):
            run()
        trail.answer("run", "it was taken")
        assert run() == '"it was taken"'
        assert len(asked) == 1


def test_one_that_was_not_even_sent_is_made_anew(trail: Trail) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/charges"  # where nobody listens
        for post in LIBRARIES.values():
            run = f"run {len(trail.runs())}"
            for _ in range(2):
                with pytest.raises(Exception) as raised, capture(trail, run):  # noqa: PT011 - as above
                    post(url)
                assert not isinstance(raised.value, UnknownOutcomeError)


@pytest.mark.parametrize("status", [401, 402, 403, 407])
def test_a_refusal_that_another_key_may_lift_is_asked_for_anew(trail: Trail, status: int) -> None:
    def run() -> Any:
        with capture(trail, "run"):
            return httpx.post(f"{url}/v1/chat/completions", json={"model": "m"}).raise_for_status().text

    with answering("{}", statuses=chain([status], repeat(200))) as (url, asked):
        with pytest.raises(httpx.HTTPStatusError):
            run()
        assert run() == "{}"
        assert len(asked) == 2
