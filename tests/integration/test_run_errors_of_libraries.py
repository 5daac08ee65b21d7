"""The errors that agents catch most, after a crash: of which class they are, and what of them is there still."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path
from typing import NamedTuple

import anthropic
import httpx
import jsonschema
import openai
import pydantic
import pytest
import requests

import everstep
from everstep import Trail, step
from everstep.errors import JournalError
from tests.integration.failing import WORLD, seen_twice

REQUEST = httpx.Request("POST", "https://models.test/v1/chat")
LIMITED = httpx.Response(429, request=REQUEST, json={"error": {"message": "slow down"}})


class Plan(pydantic.BaseModel):
    steps: int


class Even(pydantic.BaseModel):
    steps: int

    @pydantic.field_validator("steps")
    @classmethod
    def even(cls, steps: int) -> int:
        if steps % 2:
            raise ValueError("odd")
        return steps


class Case(NamedTuple):
    """How an error comes about, what catches it, which of its fields a resumed run has, and which it has not."""

    made: Callable[[], object]
    caught: type[Exception]
    there: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def _raise(error: Exception) -> None:
    raise error


ERRORS = {
    "pydantic": Case(lambda: Plan.model_validate_json('{"steps": "three"}'), pydantic.ValidationError, ("title",)),
    "pydantic, own": Case(lambda: Even(steps=3), pydantic.ValidationError, ("title",)),
    "pydantic, odd": Case(lambda: Even(steps=object()), pydantic.ValidationError, ("title",)),  # type: ignore[arg-type] # that is the fault
    "json": Case(lambda: json.loads("{"), json.JSONDecodeError, ("msg", "doc", "pos", "lineno", "colno")),
    "utf-8": Case(b"a\xff".decode, UnicodeDecodeError, ("encoding", "object", "start", "end", "reason")),
    "jsonschema": Case(
        lambda: jsonschema.validate(1, {"type": "string"}), jsonschema.ValidationError,
        ("message", "path", "validator", "instance", "schema"),
    ),
    "httpx status": Case(LIMITED.raise_for_status, httpx.HTTPStatusError, (), ("response",)),
    "httpx timeout": Case(lambda: _raise(httpx.ReadTimeout("too slow", request=REQUEST)), httpx.TimeoutException),
    "httpx connection": Case(lambda: _raise(httpx.ConnectError("refused", request=REQUEST)), httpx.TransportError),
    "openai limit": Case(
        lambda: _raise(openai.RateLimitError("slow down", response=LIMITED, body={"code": "limit"})),
        openai.RateLimitError, ("status_code", "message", "body", "code"), ("response", "request"),
    ),
    "openai status": Case(
        lambda: _raise(openai.APIStatusError("slow down", response=LIMITED, body=None)),
        openai.APIStatusError, ("status_code", "message"), ("response",),
    ),
    "openai timeout": Case(lambda: _raise(openai.APITimeoutError(REQUEST)), openai.APITimeoutError, ("message",)),
    "anthropic limit": Case(
        lambda: _raise(anthropic.RateLimitError("slow down", response=LIMITED, body=None)),
        anthropic.RateLimitError, ("status_code", "message"), ("response",),
    ),
    "requests": Case(lambda: _raise(requests.HTTPError("429 for url")), requests.HTTPError),
    "requests connection": Case(
        lambda: _raise(requests.ConnectionError(111, "refused")), requests.RequestException, ("errno", "strerror")
    ),
    "urllib": Case(
        lambda: _raise(urllib.error.HTTPError("http://models.test", 429, "slow down", Message(), None)),
        urllib.error.HTTPError, ("code", "msg"), ("hdrs",),
    ),
    "process": Case(lambda: _raise(subprocess.TimeoutExpired("ls", 3)), subprocess.TimeoutExpired, ("cmd", "timeout")),
    "timeout": Case(lambda: _raise(TimeoutError("too slow")), TimeoutError),
    "os": Case(lambda: _raise(ConnectionResetError(104, "reset")), ConnectionResetError, ("errno", "strerror")),
}  # fmt: skip


@step(output=None)
def fails(kind: str) -> None:
    WORLD(kind)
    ERRORS[kind].made()


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_caught_by_its_class_and_says_the_same(trail: Trail, kind: str) -> None:
    """Promise 6: the same handler, hence the same steps."""
    live, served = seen_twice(trail, fails, kind, ERRORS[kind].caught)
    assert isinstance(served, type(live))
    assert str(served) == str(live)
    for name in ERRORS[kind].there:
        assert getattr(served, name) == getattr(live, name), name
    for name in ERRORS[kind].gone:
        assert hasattr(live, name)
        assert name not in vars(served)


@pytest.mark.parametrize("kind", ["pydantic", "pydantic, own"])
def test_the_errors_of_a_validation_are_there_in_every_form(trail: Trail, kind: str) -> None:
    """Agents tell models what was wrong with an answer: after a crash they must ask the same."""
    live, served = seen_twice(trail, fails, kind, ERRORS[kind].caught)
    assert repr(served) == repr(live)
    assert repr(served.errors()) == repr(live.errors())
    assert served.errors(include_url=False, include_context=False) == live.errors(
        include_url=False, include_context=False
    )
    assert served.error_count() == live.error_count() == 1
    assert served.json() == live.json()
    assert served.json(indent=2, include_input=False) == live.json(indent=2, include_input=False)


def test_errors_that_cannot_be_stored_are_not_there_and_that_is_said(trail: Trail) -> None:
    """None in their place would be taken for what the model got wrong."""
    live, served = seen_twice(trail, fails, "pydantic, odd", ERRORS["pydantic, odd"].caught)
    assert repr(served) == repr(live)
    for ask in (served.errors, served.error_count, served.json):
        with pytest.raises(JournalError, match=r"only its text: use str\(error\)"):
            ask()


PROGRAM = """
import os, sys
import everstep, pydantic

class Plan(pydantic.BaseModel):
    steps: int

@everstep.step
def parse(text):
    print("parsed", text)
    return Plan.model_validate_json(text)

@everstep.step
def ask(about):
    if sys.argv[1] == "crash":
        os._exit(9)
    return '{"steps": 3}'

@everstep.workflow
def agent():
    try:
        return parse('{"steps": "three"}').steps
    except pydantic.ValidationError as error:
        return parse(ask(str(error))).steps

with everstep.open("t.db") as trail:
    print(everstep.Runner(trail).run(agent, id="r").value)
"""


def test_a_process_that_has_met_no_such_error_yet_raises_it_all_the_same(tmp_path: Path) -> None:
    """Pydantic hands its error out when it is asked for it, and nothing has asked before the code catches it."""
    (tmp_path / "agent.py").write_text(PROGRAM, "utf-8")

    def run(how: str) -> str:
        command = [sys.executable, "agent.py", how]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout

    run("crash")
    assert run("resume").split("\n")[:2] == ['parsed {"steps": 3}', "3"]
