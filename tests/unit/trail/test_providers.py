"""Calls to models are known by the shape of their API: what they asked, used and were told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everstep.trail import providers

TOOL = {"name": "rate", "args": {"city": "Oslo"}}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "It is "}, {"functionCall": TOOL}]},
                    "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "cachedContentTokenCount": 1},
    "modelVersion": "gemini-3-pro-01",
}  # fmt: skip
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [
        {"text": "It is "}, {"toolUse": {"name": "rate", "input": {"city": "Oslo"}}}]}},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 3, "outputTokens": 4, "cacheReadInputTokens": 1},
}  # fmt: skip
COHERE = {
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "It is warm."}]},
    "usage": {"tokens": {"input_tokens": 3, "output_tokens": 4}},
}
COHERE_PARTS = [
    {"type": "content-delta", "delta": {"message": {"content": {"text": word}}}} for word in ("It ", "is ", "warm.")
] + [{"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": COHERE["usage"]}}]
OLLAMA = [
    {"model": "llama", "message": {"role": "assistant", "content": "It is "}, "done": False},
    {"model": "llama", "message": {"role": "assistant", "content": "warm."}, "done": True, "done_reason": "stop",
     "prompt_eval_count": 3, "eval_count": 4},
]  # fmt: skip


def streamed(events: list[Any]) -> str:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in events)


def lines(events: list[Any]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in events)


@pytest.mark.parametrize(
    ("path", "asked", "body", "name", "used", "said"),
    [
        ("/v1beta/models/gemini-3-pro:generateContent", {"contents": []}, json.dumps(GEMINI), "gemini generateContent",
         ("gemini-3-pro-01", "STOP", 1), 'It is -> rate {"city": "Oslo"}'),
        ("/v1beta/models/gemini-3-pro:streamGenerateContent", {"contents": []}, streamed([GEMINI, GEMINI]),
         "gemini streamGenerateContent", ("gemini-3-pro-01", "STOP", 1), 'It is -> rate {"city": "Oslo"}' * 2),
        ("/model/anthropic.claude-4%3A0/converse", {"messages": []}, json.dumps(BEDROCK), "bedrock converse",
         ("anthropic.claude-4:0", "tool_use", 1), 'It is -> rate {"city": "Oslo"}'),
        ("/v2/chat", {"model": "command"}, json.dumps(COHERE), "cohere chat", ("command", "COMPLETE", None),
         "It is warm."),
        ("/v2/chat", {"model": "command"}, streamed(COHERE_PARTS), "cohere chat", ("command", "COMPLETE", None),
         "It is warm."),
        ("/api/chat", {"model": "llama"}, lines(OLLAMA), "ollama chat", ("llama", "stop", None), "It is warm."),
    ],
)  # fmt: skip
def test_what_was_asked_and_what_was_said(
    path: str, asked: dict[str, Any], body: str, name: str, used: tuple[str, str, int | None], said: str
) -> None:
    assert providers.of("POST", path, asked) == name
    found = providers.used({"method": "POST", "url": f"http://host{path}?alt=sse", "body": asked}, {"body": body})
    assert found is not None
    assert (found["provider"], found["input_tokens"], found["output_tokens"]) == (name.partition(" ")[0], 3, 4)
    assert (found["model"], found["finish_reason"], found.get("cached_tokens")) == used
    assert providers.said({"body": body}) == said


@pytest.mark.parametrize(
    "path", ["/v1beta/models/gemini-3-pro", "/models/x:delete", "/model/x/converse/y", "/v2/chats", "/orders"]
)
def test_other_calls_are_not_taken_for_questions(path: str) -> None:
    assert providers.of("POST", path, {"model": "m"}) is None


@pytest.mark.parametrize(
    "body", [{"message": {"content": "sent"}}, {"output": {"message": "done"}}, {"eval_count": 3}, {"candidates": []}]
)
def test_other_answers_are_not_taken_for_words_of_a_model(body: dict[str, Any]) -> None:
    assert providers.said({"body": json.dumps(body)}) is None
