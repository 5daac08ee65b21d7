"""Secrets that come in pieces: in the chunks of a stream, and in the events of one."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest

from everstep.capturing.http import FORM, Head
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
