"""The client for endpoints, against one that answers well, badly, late, too much, or not at all."""

from __future__ import annotations

import math
import pickle
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import OpenAIClient, Reply, Runner, Secret, workflow
from everstep.errors import EverstepError, ModelError, ModelUnavailableError
from everstep.models import http
from tests.integration.endpoint import COUNTED, DONE, body, event, refuses, says, sends, serving, streams

ASKED = [{"role": "user", "content": "The capital of France?"}]
KEY = "sk-proj-THISisNOTaREALkey0123456789"


def failure(answer: Any, *, ask: Callable[[OpenAIClient], Any] | None = None, **options: Any) -> ModelError:
    """What a client raises at an answer."""
    with serving(answer) as (url, _), pytest.raises(ModelError) as caught:
        client = OpenAIClient(url, api_key=KEY, **options)
        (ask or (lambda client: client.complete(ASKED, model="m")))(client)
    return caught.value


def streamed(client: OpenAIClient) -> list[str]:
    return list(client.stream(ASKED, model="m"))


# What goes out and comes in.


def test_a_question_goes_out_as_it_was_asked_and_the_answer_comes_back() -> None:
    with serving(says(system_fingerprint="fp")) as (url, endpoint):
        reply = OpenAIClient(url, api_key=KEY).complete(ASKED, model="m", temperature=0)
    assert reply == Reply(
        text="Paris", model="m-2026-01-01", finish_reason="stop", input_tokens=12, output_tokens=3,
        more={"system_fingerprint": "fp"},
    )  # fmt: skip
    [(path, headers, sent)] = endpoint.asked
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert sent == {"model": "m", "messages": ASKED, "temperature": 0}
    assert reply.message == {"role": "assistant", "content": "Paris"}


def test_calls_of_tools_come_as_the_endpoint_gave_them_and_can_be_handed_back() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    said = body()
    said["choices"][0] |= {"message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    with serving(says(choices=said["choices"])) as (url, _):
        reply = OpenAIClient(url).complete(ASKED, model="m", tools=[{"type": "function"}])
    assert (reply.text, reply.tool_calls) == ("", (call,))
    assert reply.message == {"role": "assistant", "content": None, "tool_calls": [call]}


def test_an_answer_may_leave_out_what_is_not_needed_and_nothing_is_made_up() -> None:
    with serving(sends(b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, {"text": "b"}]}}]}')) as (
        url,
        endpoint,
    ):
        assert OpenAIClient(url + "/?version=2").complete(ASKED, model="m") == Reply(text="ab")
    assert endpoint.asked[0][0] == "/v1/chat/completions?version=2"
    assert "Authorization" not in endpoint.asked[0][1]


def test_a_stream_gives_the_text_piece_by_piece() -> None:
    events = [
        b": hello\n\n", event({"role": "assistant", "content": ""}), event({"content": "Pa"}),
        event({"content": "ris"}), event({}, "stop"), COUNTED, DONE,
    ]  # fmt: skip
    with serving(streams(*events)) as (url, endpoint):
        assert streamed(OpenAIClient(url)) == ["Pa", "ris"]
    assert endpoint.asked[0][2]["stream"] is True
    assert endpoint.asked[0][2]["stream_options"] == {"include_usage": True}


def test_a_stream_that_nobody_reads_to_its_end_is_let_go_of() -> None:
    with serving(streams(event({"content": "Pa"}), event({"content": "ris"}))) as (url, _):
        chunks = OpenAIClient(url).stream(ASKED, model="m")
        assert next(chunks) == "Pa"
        chunks.close()  # type: ignore[attr-defined] # outside of a run it is a generator


# What goes wrong.


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_endpoint_that_has_too_much_to_do_is_worth_another_attempt(status: int) -> None:
    error = failure(refuses(status, "slow down."))
    assert isinstance(error, ModelUnavailableError)
    assert error.status == status
    assert str(error).endswith(f"status {status}: slow down. Ask again later.")


@pytest.mark.parametrize(("status", "way_out"), [(400, "asked."), (401, "key."), (404, "the model's name.")])
def test_a_refusal_is_not_and_says_the_way_out(status: int, way_out: str) -> None:
    error = failure(refuses(status))
    assert type(error) is ModelError
    assert error.status == status
    assert str(error).endswith(way_out)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(status: int) -> None:
    """Promise 10: the key goes nowhere else."""
    with serving(says()) as (elsewhere, other):

        def redirects(handler: Any) -> None:
            handler.send_response(status)
            handler.send_header("Location", f"{elsewhere}/chat/completions")
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        error = failure(redirects)
    assert (type(error), error.status, other.asked) == (ModelError, status, [])


def cut_off(handler: Any) -> None:
    sends(b'{"choices": [', length=500)(handler)


def hangs_up(handler: Any) -> None:
    handler.close_connection = True


def test_an_answer_that_is_cut_off_is_seen() -> None:
    for answer in (cut_off, hangs_up):
        error = failure(answer)
        assert isinstance(error, ModelUnavailableError)
        assert "cut off" in str(error)


def test_a_chunked_answer_that_is_cut_off_is_seen() -> None:
    def answer(handler: Any) -> None:
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b'ff\r\n{"choices": [')
        handler.close_connection = True

    assert isinstance(failure(answer), ModelUnavailableError)


def test_a_stream_that_is_cut_off_is_seen_and_so_is_one_that_breaks_off_with_an_error() -> None:
    for events in (
        [event({"content": "Pa"})],
        [event({"content": "Pa"}), b'data: {"error": {"message": "overload"}}\n\n'],
    ):
        error = failure(streams(*events), ask=streamed)
        assert isinstance(error, ModelUnavailableError)
    assert "it broke off: overload. Ask again." in str(error)
    for events in ([event({"content": "Pa"}, "stop")], [event({"content": "Pa"}), DONE]):  # either says that it is over
        with serving(streams(*events)) as (url, _):
            assert streamed(OpenAIClient(url)) == ["Pa"]


@pytest.mark.parametrize("data", [b'{"choices": [', b"", b"[" * 100_000, b"\xff\xfe\x00"])
def test_what_is_no_json_is_told(data: bytes) -> None:
    assert "is no JSON" in str(failure(sends(data)))
    assert "is no JSON" in str(failure(streams(b"data: " + data.replace(b"\n", b"") + b"x\n\n"), ask=streamed))


@pytest.mark.parametrize(
    "data",
    [
        b"{}", b"[]", b"null", b'"text"', b'{"choices": []}', b'{"choices": {}}', b'{"choices": [null]}',
        b'{"choices": [{"message": null}]}', b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": {"content": "a", "tool_calls": 3}}]}',
        b'{"choices": [{"message": {"content": "a"}}], "usage": "none"}',
    ],
)  # fmt: skip
def test_json_of_another_form_is_told(data: bytes) -> None:
    assert "not the form of a chat completion" in str(failure(sends(data)))


def test_another_content_type_is_told_with_what_came() -> None:
    assert "answered with text/html, not application/json: <h1>Login</h1>" in str(
        failure(sends(b"<h1>Login</h1>", "text/html"))
    )
    assert "not text/event-stream" in str(failure(says(), ask=streamed))


def test_an_answer_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BYTES", 1000)
    assert "larger than 1,000 bytes" in str(failure(sends(b" " * 5000)))
    assert "larger than 1,000 bytes" in str(failure(streams(*[b": wait\n"] * 500), ask=streamed))
    assert "larger than 1,000 bytes" in str(failure(streams(b"data: " + b" " * 5000), ask=streamed))


def test_an_endpoint_that_does_not_answer_is_given_up() -> None:
    def waits(handler: Any) -> None:
        handler.endpoint.released.wait(60)

    with serving(waits) as (url, endpoint):
        for ask in (lambda client: client.complete(ASKED, model="m"), streamed):
            with pytest.raises(ModelUnavailableError, match=r"longer than 0\.05 s"):
                ask(OpenAIClient(url, timeout=0.05))
        endpoint.released.set()


def test_an_answer_that_drips_is_given_up() -> None:
    def drips(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        try:
            while not handler.endpoint.released.wait(0.01):
                handler.wfile.write(b" ")
        except OSError:
            pass

    assert "longer than 0.1 s" in str(failure(drips, timeout=0.1))


def test_a_refusal_whose_words_drip_is_a_refusal() -> None:
    def drips(handler: Any) -> None:
        handler.send_response(403)
        handler.end_headers()
        try:
            while not handler.endpoint.released.wait(0.01):
                handler.wfile.write(b"no ")
        except OSError:
            pass

    error = failure(drips, timeout=0.1)
    assert (type(error), error.status) == (ModelError, 403)


def test_half_a_character_is_replaced_because_it_cannot_be_stored() -> None:
    said = rb'{"choices": [{"message": {"content": "a\ud83d b\ud83d\ude00"}}]}'
    with serving(sends(said)) as (url, _):
        assert OpenAIClient(url).complete(ASKED, model="m").text == "a? b\U0001f600"


def test_a_network_that_is_blocked_on_purpose_is_no_failure_of_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    class BlockedError(EverstepError, ConnectionError):
        pass

    def blocked(*args: Any, **kwargs: Any) -> None:
        raise BlockedError("no network in tests")

    monkeypatch.setattr(socket, "create_connection", blocked)
    with pytest.raises(BlockedError):
        OpenAIClient("http://localhost/v1").complete(ASKED, model="m")


def test_an_endpoint_that_is_not_there_is_told() -> None:
    with serving(says()) as (url, _):
        pass
    with pytest.raises(ModelUnavailableError, match="cannot be reached"):
        OpenAIClient(url).complete(ASKED, model="m")


def test_what_has_no_form_as_json_is_not_sent() -> None:
    with serving(says()) as (url, endpoint):
        for content, temperature in ((object(), 0.0), ("x", math.nan)):
            with pytest.raises(ModelError, match="no form as JSON"):
                OpenAIClient(url).complete([{"content": content}], model="m", temperature=temperature)
    assert endpoint.asked == []


# The key.


def test_the_key_comes_from_an_argument_a_secret_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", f"{KEY}\n")
    with serving(says()) as (url, endpoint):
        given: list[dict[str, Any]] = [{"api_key": KEY}, {"api_key": Secret(KEY)}, {"api_key_env": "A_KEY"}]
        for options in given:
            OpenAIClient(url, **options).complete(ASKED, model="m")
    assert [headers["Authorization"] for _, headers, _ in endpoint.asked] == [f"Bearer {KEY}"] * 3


@pytest.mark.parametrize("bad", [f"{KEY}\r\nX: y", f"{KEY}é", f"{KEY}\x00", "", " "])
def test_what_cannot_be_a_key_is_not_sent_and_not_shown(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    if "\x00" not in bad:
        monkeypatch.setenv("A_KEY", bad)
    monkeypatch.delenv("NO_KEY", raising=False)
    given: list[dict[str, Any]] = [{"api_key": bad}, {"api_key_env": "A_KEY" if "\x00" not in bad else "NO_KEY"}]
    for options in given:
        with serving(says()) as (url, endpoint), pytest.raises(ModelError) as caught:
            OpenAIClient(url, **options).complete(ASKED, model="m")
        assert endpoint.asked == []
        assert KEY not in "".join(traceback.format_exception(caught.value))


def test_the_key_is_in_no_text_no_error_and_no_file(tmp_path: Path) -> None:
    """Promise 10, with a key of no known shape, and an endpoint that repeats it."""
    key = "plain-words-are-a-key-too"
    with serving(refuses(401, f"the key {key} is wrong")) as (url, _), everstep.open(tmp_path / "trail.db") as trail:
        client = OpenAIClient(url, api_key=key)

        @workflow
        def ask() -> str:
            return client.complete(ASKED, model="m").text

        with pytest.raises(ModelError) as caught:
            Runner(trail).run(ask, id="r")
        assert "the key [key] is wrong" in str(caught.value)
        assert key not in repr(client) + repr(vars(caught.value)) + "".join(traceback.format_exception(caught.value))
    assert not [path for path in tmp_path.iterdir() if key.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "api.openai.com/v1"}, {"base_url": "file:///etc/passwd"}, {"base_url": "https://me:pw@host/v1"},
        {"base_url": "http://host", "api_key": "a", "api_key_env": "B"}, {"base_url": "http://host", "timeout": 0},
    ],
)  # fmt: skip
def test_a_client_that_cannot_work_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"base_url|key|timeout") as caught:
        OpenAIClient(**options)
    assert "pw" not in str(caught.value).replace("password", "")


def test_an_error_reaches_another_process_whole() -> None:
    error = failure(refuses(429))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.status) == (type(error), str(error), 429)
