"""Secrets that come in pieces: in the chunks of a stream, and in the events of one."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest

from everstep.capturing import duplex, process
from everstep.capturing.http import FORM, Head
from everstep.capturing.sizes import by_placeholders
from everstep.policy.redaction import Gate

KEY = "sk-" + "Ab1" * 12
GATE = Gate(lambda: b"k" * 32)
STREAM = Head(200, [("content-type", "text/event-stream")])


def _chat(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def _anthropic(text: str) -> dict[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


def _responses(text: str) -> dict[str, object]:
    return {"type": "response.output_text.delta", "item_id": "m1", "content_index": 0, "delta": text}


def _events(make: object, texts: list[str]) -> list[bytes]:
    return [f"data: {json.dumps(make(text))}\n\n".encode() for text in texts] + [b"data: [DONE]\n\n"]  # type: ignore[operator] # one of the above


@pytest.mark.parametrize("make", [_chat, _anthropic, _responses])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_secret_that_is_said_piece_by_piece_is_not_stored(make: object, size: int) -> None:
    """Promise 10."""
    said = f"Your key is {KEY}, keep it safe."
    chunks = _events(make, [said[at : at + size] for at in range(0, len(said), size)])
    stored = FORM.pack(STREAM, chunks, [0.0] * len(chunks), GATE.text)
    _, played = FORM.unpack(stored)
    events = [json.loads(line[6:]) for line in b"".join(played).splitlines() if line.startswith(b"data: {")]
    texts = [_text(event) for event in events]
    told = "".join(texts)
    assert KEY not in told
    assert told.startswith("Your key is [redacted:openai:")
    assert told.endswith("], keep it safe.")
    assert len(events) == len(chunks) - 1
    assert sum(stored["sizes"]) == len(stored["body"].encode())
    assert all(chunk.endswith(b"\n") for chunk in played)


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", "Text/Event-Stream", ""])
def test_a_stream_is_known_by_its_lines_and_not_by_what_its_headers_call_it(kind: str) -> None:
    """Promise 10."""
    data = "data: " if "Event" in kind else ""
    pieces = [f"key {KEY}."[at : at + 3] for at in range(0, len(KEY) + 5, 3)]
    lines = [f"{data}{json.dumps({'message': {'content': text}, 'done': False})}\n" for text in pieces]
    head = Head(200, [("content-type", kind)] if kind else [])
    for chunks in ([line.encode() for line in lines], ["".join(lines).encode()]):
        _, played = FORM.unpack(FORM.pack(head, chunks, [0.0] * len(chunks), GATE.text))
        events = [json.loads(line.removeprefix("data: ")) for line in b"".join(played).decode().splitlines()]
        told = "".join(event["message"]["content"] for event in events)
        assert KEY not in told
        assert told.startswith("key [redacted:openai:")
        assert (len(played), len(events)) == (len(chunks), len(lines))


def test_lines_that_hold_no_secret_are_stored_byte_by_byte() -> None:
    body = b'{"content":  "a"}\n{"content": "b"}\r\n{not json}\n{\n"content": "c"}\n'
    stored = FORM.pack(Head(200, []), [body[:9], body[9:]], [0.0, 1.0], GATE.text)
    assert stored["body"].encode() == body


def test_a_secret_that_a_process_prints_piece_by_piece_is_not_stored() -> None:
    """Promise 10."""
    said = f"key {KEY}, \u00e9nd"
    for merged in (frozenset[str](), frozenset({"in"})):
        transcript = process.Transcript(1, merged)
        for at in range(0, len(said.encode()), 5):
            transcript.note("out", said.encode()[at : at + 5])
            transcript.note("err", b"dot ")
        transcript.note("out", None)
        stored = process.AWAITED.pack(transcript, (), (), GATE.text)
        assert KEY not in "".join(item[1] for item in stored["talk"] if item[0] == "out" and isinstance(item[1], str))
        head, chunks = process.AWAITED.unpack(stored)
        told = b"".join(item[1] for item in chunks if item[0] == "out" and item[1]).decode()
        assert told.startswith("key [redacted:openai:")
        assert told.endswith("], \u00e9nd")
        assert [item[0] for item in head.items] == [item[0] for item in transcript.items]
        assert b"".join(item[1] for item in chunks if item[0] == "err").count(b"dot ") == len(said.encode()) // 5 + 1


def test_a_secret_that_comes_in_several_messages_of_a_socket_is_not_stored() -> None:
    """Promise 10."""
    texts = [f"key {KEY}."[at : at + 4] for at in range(0, len(KEY) + 5, 4)]
    heard = [{"item": {"data": json.dumps(_responses(text))}, "after": 1} for text in texts]
    chunks = [heard[0], {"item": {"data": "no event"}, "after": 1}, *heard[1:], {"error": ["E", "gone"], "after": 1}]
    stored = duplex.FORM.pack(duplex.Opening({}, []), chunks, [0.0] * len(chunks), GATE.text)
    kept = [each["item"]["data"] for each in stored["heard"] if "item" in each]
    told = "".join(json.loads(text)["delta"] for text in kept if text != "no event")
    assert KEY not in told
    assert told.startswith("key [redacted:openai:")
    assert len(stored["heard"]) == len(chunks)
    assert (kept[1], stored["heard"][-1]["error"]) == ("no event", ["E", "gone"])


def _text(event: dict[str, object]) -> str:
    delta = event.get("delta")
    if isinstance(delta, str):
        return delta
    if isinstance(delta, dict):
        return str(delta["text"])
    return str(event["choices"][0]["delta"]["content"])  # type: ignore[index] # a chat


def test_two_texts_side_by_side_are_told_apart() -> None:
    pieces = [KEY[at : at + 5] for at in range(0, len(KEY), 5)]
    events = [
        {"choices": [{"index": choice, "delta": {"content": text}}]}
        for text in pieces
        for choice in (0, 1)
    ]  # fmt: skip
    chunks = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    stored = FORM.pack(STREAM, chunks, [0.0] * len(chunks), GATE.text)
    assert KEY[:20] not in stored["body"]
    assert stored["body"].count("[redacted:openai:") == 2


def test_an_innocent_stream_is_stored_byte_by_byte() -> None:
    chunks = _events(_chat, ["One ", "two ", "three"])
    stored = FORM.pack(STREAM, chunks, [0.0] * len(chunks), GATE.text)
    assert stored["body"].encode() == b"".join(chunks)
    assert stored["sizes"] == [len(chunk) for chunk in chunks]


def test_a_secret_across_two_chunks_of_a_body_is_not_stored() -> None:
    """Promise 10."""
    body = f'{{"note": "key {KEY} end", "more": "é"}}'.encode()
    head = Head(200, [("content-type", "application/json")])
    for cut in range(1, len(body)):
        stored = FORM.pack(head, [body[:cut], body[cut:]], [0.0, 1.0], GATE.text)
        _, played = FORM.unpack(stored)
        assert KEY.encode() not in b"".join(played)
        assert b"".join(played) == stored["body"].encode()
        assert list(accumulate(stored["sizes"]))[-1] == len(stored["body"].encode())
        assert json.loads(b"".join(played))["more"] == "é"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("API_KEY=hunter2 curl -s x", "run curl"),
        (" A='b c' B=\"d e\"  C= /bin/echo D=1", "run echo"),
        ("API_KEY=hunter2", "run API_KEY=hunter2"),
        ("echo A=b", "run echo"),
        ("", "run nothing"),
    ],
)
def test_a_step_is_not_named_after_what_a_shell_sets_for_its_command(text: str, name: str) -> None:
    assert process.request(text, None, (), shell=True).name == name


def test_an_answer_of_many_pieces_with_a_secret_in_each_does_not_take_forever() -> None:
    pieces = [f"?password={at} ".encode() for at in range(40_000)]
    after = GATE.text(b"".join(pieces).decode()).encode()
    sizes = by_placeholders(b"".join(pieces), after, [len(piece) for piece in pieces])
    assert set(sizes) == {len(after) // len(pieces)}


@pytest.mark.parametrize("more", ["\u2028", "\x85", "\\u2029 \\u000b"])
def test_a_secret_in_pieces_is_found_whatever_looks_like_the_end_of_a_line(more: str) -> None:
    """Promise 10."""
    chunks = [event.replace(b"MORE", more.encode()) for event in _events(_chat, [f"MORE{KEY[:9]}", f"{KEY[9:]} MORE."])]
    stored = FORM.pack(STREAM, chunks, [0.0] * len(chunks), GATE.text)
    _, played = FORM.unpack(stored)
    assert KEY[9:] not in str(stored["body"])
    assert [chunk[:5] for chunk in played] == [b"data:"] * 3
    assert json.loads(played[1][6:]) == _chat(json.loads(f'" {more}."'))


@pytest.mark.parametrize("depth", [300, 990, 3_000, 100_000])
def test_an_answer_is_recorded_however_deeply_its_lines_are_nested(depth: int) -> None:
    body = b'{"a":' * depth + b"1" + b"}" * depth + b'\n{"content":"x"}\n'
    stored = FORM.pack(Head(200, []), [body], [0.0], GATE.text)
    assert FORM.unpack(stored)[1] == [body]


def test_lines_that_are_no_stream_are_recorded_as_they_are() -> None:
    """As those of a database, where what numbers the texts of a stream is a table."""
    body = b'{"index":{"name":"a"},"text":"x"}\n{"index":[1],"text":"y"}\n[{"content":1}]\n'
    stored = FORM.pack(Head(200, []), [body], [0.0], GATE.text)
    assert FORM.unpack(stored)[1] == [body]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_a_secret_in_pieces_is_found_however_lines_end_and_beside_half_a_character(end: str) -> None:
    """Promise 10."""
    half, other = "\ud83d", "\ude00"  # as a client in UTF-16 cuts a text
    texts = [f"{half}", f"{other}é {KEY[:9]}", f"{KEY[9:]} {half}"]
    chunks = [f"data: {json.dumps(_chat(text))}{end}".encode() for text in texts]
    stored = FORM.pack(STREAM, chunks, [0.0] * len(chunks), GATE.text)
    _, played = FORM.unpack(stored)
    told = [str(_text(json.loads(chunk[6:]))) for chunk in played]
    assert (told[0], told[1][:3], told[2]) == (half, f"{other}é ", f" {half}")
    assert told[1][3:].startswith("[redacted:openai:")
