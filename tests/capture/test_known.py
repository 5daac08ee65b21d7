"""A call that asks for what is on record is known by its bytes; what only looks like it is not taken for the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep.errors import DivergenceError
from tests.capture.server import ModelServer

KEY = "sk-proj-" + "Ab3" * 16


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def asked(server: ModelServer, content: bytes) -> str:
    with httpx.Client() as client:
        return client.post(f"{server.url}/v1/chat/completions", content=content).text


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[everstep.Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


def body(more: str) -> bytes:
    return b'{"model": "m", "messages": [{"role": "user", "content": "hello"}], %b}' % more.encode()


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ('"n": 1', '"n": 1.0'),
        ('"n": 1', '"n": true'),
        ('"n": {"a": 1, "b": 2}', '"n": {"b": 2, "a": 1}'),
        ('"n": null', '"m": null'),
        ('"n": "1"', '"n": ["1"]'),
        ('"n": "1", "o": 2', '"n": "1"'),
        ('"n": "1"', '"n": "1", "o": 2'),
        (f'"n": "{KEY}"', f'"n": "{KEY[:-1]}c"'),
    ],
)
def test_what_is_equal_and_not_the_same_diverges(
    server: ModelServer, trail: everstep.Trail, recorded: str, now: str
) -> None:
    with everstep.capture(trail, "r"):
        asked(server, body(recorded))
    with pytest.raises(DivergenceError, match="changed argument"), everstep.capture(trail, "r", mode="verify"):
        asked(server, body(now))


@pytest.mark.parametrize(
    ("recorded", "now"),
    [
        ('"n": 1', '"n": 1'),
        ('"n": 1, "o": 2', '"o": 2, "n": 1'),
        ('"n": "\\u00e9"', '"n": "é"'),
        (f'"n": "{KEY}"', f'"n": "{KEY}"'),
        ('"n": 18446744073709551617', '"n": 18446744073709551617'),
    ],
)
def test_what_is_the_same_is_answered(server: ModelServer, trail: everstep.Trail, recorded: str, now: str) -> None:
    answers: list[Any] = []
    for mode in ("record", "verify"):
        with everstep.capture(trail, "r", mode=mode):
            answers.append(asked(server, body(recorded if mode == "record" else now)))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("recorded", "now", "said"),
    [
        (
            '"n": {"a": 1, "b": 2}',
            '"n": {"b": 2, "a": 1}',
            "The values are the same, and the order of keys in them differs",
        ),
        ('"n": 1', '"n": 1.0', None),
        (f'"n": "a {KEY}"', f'"n": "a {KEY[:-1]}c"', "Only secrets differ"),
        (f'"n": "a {KEY}"', f'"n": "b {KEY[:-1]}c"', None),
        ('"n": "a"', '"n": "b"', None),
    ],
)
@pytest.mark.parametrize("mode", ["verify", "record"])
def test_a_difference_that_the_two_sides_do_not_show_is_told_in_words(
    server: ModelServer, trail: everstep.Trail, mode: Any, recorded: str, now: str, said: str | None
) -> None:
    with pytest.raises(KeyError), everstep.capture(trail, "r"):
        asked(server, body(recorded))
        raise KeyError
    with pytest.raises(DivergenceError) as caught, everstep.capture(trail, "r", mode=mode) as session:
        asked(server, body(now))
    told = str(caught.value) if session.report is None else str(session.report)
    unseen = [each for each in ("The values are the same", "Only secrets differ") if each in told]
    assert unseen == [] if said is None else said in told
