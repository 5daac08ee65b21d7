"""What the imitated model endpoints say: whole answers and streams, as OpenAI and Anthropic lay them out.

Words in brackets in the prompt tell the model how to behave: `[chunks 20]` is the number of words it says, `[calls 2]`
how many tools it calls at once, `[rounds 3]` how many turns of tool calls it makes before it answers; see `server.py`
for `[slow 0.5]`, `[flaky key]` and `[drop]`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CREATED = 1_700_000_000

Event = tuple[str, dict[str, Any] | None]  # its name and its data; no data is the end of a stream of chat completions


def digest(data: bytes) -> str:
    """A short name for these bytes."""
    return hashlib.sha256(data).hexdigest()[:12]


def wished(text: str, word: str) -> str | None:
    """What stands after this word in brackets; an empty string if nothing does, None without the word."""
    found = re.search(rf"\[{word}(?: ([^\]]*))?\]", text)
    return None if found is None else found[1] or ""


@dataclass(frozen=True)
class Call:
    """One call of a tool that the model wants."""

    id: str
    name: str
    arguments: dict[str, Any]

    @property
    def pieces(self) -> list[str]:
        text = json.dumps(self.arguments)
        return [text[at : at + 7] for at in range(0, len(text), 7)]


class Asked:
    """The parts of a request that an answer depends on, whichever of the three endpoints it is for."""

    def __init__(self, body: dict[str, Any]) -> None:
        items = body.get("messages", body.get("input", []))
        self.body = body
        self.model = str(body.get("model", "none"))
        self.streams = bool(body.get("stream"))
        self.text = ""
        self.results = 0  # of tools, since the user last said something
        for item in [{"role": "user", "content": items}] if isinstance(items, str) else reversed(items):
            self.results += _results(item)
            self.text = _text(item.get("content")) if item.get("role") == "user" else ""
            if self.text:
                break

    def number(self, word: str, default: int) -> int:
        """The number after a word in brackets."""
        return int(wished(self.text, word) or default)

    def calls(self, tag: str) -> list[Call]:
        """The tools that the model calls now: none if it was offered none, or has called them often enough."""
        offered = [tool.get("function", tool) for tool in self.body.get("tools") or []]
        if not offered or self.results >= self.number("rounds", 1) * self.number("calls", 1):
            return []
        chosen = [offered[at % len(offered)] for at in range(self.number("calls", 1))]
        return [
            Call(f"call_{tag}_{at}", tool["name"], _arguments(tool.get("parameters", tool.get("input_schema")), tag))
            for at, tool in enumerate(chosen)
        ]

    def words(self, tag: str) -> list[str]:
        """What the model says, with the spaces before the words."""
        first = ["answer", tag, "for", digest(self.text.encode())]
        wanted = max(self.number("chunks", 8), len(first))
        words = first + [f"word{at}" for at in range(wanted - len(first))]
        return [words[0], *(f" {word}" for word in words[1:])]

    def tokens(self, tag: str) -> tuple[int, int]:
        """How many tokens went in and came out."""
        return len(json.dumps(self.body).split()), len(self.words(tag))


def _text(content: Any) -> str:
    """What is said in a message, without results of tools."""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if part.get("type") in {"text", "input_text"})
    return content if isinstance(content, str) else ""


def _results(item: dict[str, Any]) -> int:
    """How many results of tools there are in an item of a conversation."""
    if item.get("role") == "tool" or item.get("type") == "function_call_output":
        return 1
    content = item.get("content")
    return sum(part.get("type") == "tool_result" for part in content) if isinstance(content, list) else 0


def _arguments(schema: dict[str, Any] | None, tag: str) -> dict[str, Any]:
    """Arguments that fit a simple schema and are others every time."""
    made: dict[str, Any] = {}
    for name, rule in (schema or {}).get("properties", {}).items():
        kind = rule.get("type", "string")
        number = int(tag.rsplit("-", 1)[-1])
        made[name] = {"integer": number, "number": number + 0.5, "boolean": True}.get(kind, f"{name} of {tag}")
    return made


# OpenAI's chat completions


def chat(asked: Asked, tag: str) -> dict[str, Any]:
    """A whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(asked.words(tag))}
    calls = [_chat_call(call, json.dumps(call.arguments)) for call in asked.calls(tag)]
    if calls:
        message |= {"content": None, "tool_calls": calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
    return {**_chat_head(asked, tag, "chat.completion"), "choices": [choice], "usage": _chat_usage(asked, tag)}


def chat_events(asked: Asked, tag: str) -> Iterator[Event]:
    """A chat completion, word by word."""
    head = _chat_head(asked, tag, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> Event:
        return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    calls = asked.calls(tag)
    yield chunk({"role": "assistant", "content": None if calls else ""})
    for index, call in enumerate(calls):
        yield chunk({"tool_calls": [{"index": index, **_chat_call(call, "")}]})
        for piece in call.pieces:
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if not calls:
        yield from (chunk({"content": word}) for word in asked.words(tag))
    yield chunk({}, "tool_calls" if calls else "stop")
    if (asked.body.get("stream_options") or {}).get("include_usage"):
        yield "", {**head, "choices": [], "usage": _chat_usage(asked, tag)}
    yield "", None


def _chat_call(call: Call, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chat_head(asked: Asked, tag: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{tag}", "object": kind, "created": CREATED, "model": asked.model}


def _chat_usage(asked: Asked, tag: str) -> dict[str, Any]:
    came, went = asked.tokens(tag)
    return {"prompt_tokens": came, "completion_tokens": went, "total_tokens": came + went}


# OpenAI's responses


def response(asked: Asked, tag: str, status: str = "completed") -> dict[str, Any]:
    """A whole response."""
    came, went = asked.tokens(tag)
    output = [_call_item(call) for call in asked.calls(tag)] or [_message_item(asked, tag)]
    usage = {
        "input_tokens": came, "output_tokens": went, "total_tokens": came + went,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    done = status == "completed"
    return {
        "id": f"resp_{tag}", "object": "response", "created_at": CREATED, "model": asked.model, "status": status,
        "output": output if done else [], "usage": usage if done else None, "error": None, "instructions": None,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": asked.body.get("tools") or [], "metadata": {},
    }  # fmt: skip


def response_events(asked: Asked, tag: str) -> Iterator[Event]:
    """A response, event by event."""
    for number, (kind, data) in enumerate(_response_events(asked, tag)):
        yield kind, {"type": kind, "sequence_number": number, **data}


def _response_events(asked: Asked, tag: str) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = response(asked, tag)
    yield "response.created", {"response": response(asked, tag, "in_progress")}
    calls = asked.calls(tag)
    for index, item in enumerate(whole["output"]):
        place = {"item_id": item["id"], "output_index": index}
        empty = {**item, "status": "in_progress", **({"arguments": ""} if calls else {"content": []})}
        yield "response.output_item.added", {"output_index": index, "item": empty}
        if calls:
            for piece in calls[index].pieces:
                yield "response.function_call_arguments.delta", {**place, "delta": piece}
            yield "response.function_call_arguments.done", {**place, "arguments": item["arguments"]}
        else:
            place["content_index"] = 0
            part = item["content"][0]
            yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
            for word in asked.words(tag):
                yield "response.output_text.delta", {**place, "delta": word, "logprobs": []}
            yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**place, "part": part}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield "response.completed", {"response": whole}


def _call_item(call: Call) -> dict[str, Any]:
    named = {"id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.arguments)}
    return {"type": "function_call", "status": "completed", **named}


def _message_item(asked: Asked, tag: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": "".join(asked.words(tag)), "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{tag}", "status": "completed", "role": "assistant", "content": [part]}


# Anthropic's messages


def message(asked: Asked, tag: str) -> dict[str, Any]:
    """A whole message."""
    came, went = asked.tokens(tag)
    calls = asked.calls(tag)
    blocks = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in calls]
    said = {"type": "text", "text": "".join(asked.words(tag))}
    return {
        "id": f"msg_{tag}", "type": "message", "role": "assistant", "model": asked.model,
        "content": [said, *blocks], "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": came, "output_tokens": went, "cache_read_input_tokens": 0},
    }  # fmt: skip


def message_events(asked: Asked, tag: str) -> Iterator[Event]:
    """A message, event by event."""
    whole = message(asked, tag)
    usage = {**whole["usage"], "output_tokens": 1}
    yield _named("message_start", message={**whole, "content": [], "stop_reason": None, "usage": usage})
    said, *_ = whole["content"]
    yield _named("content_block_start", index=0, content_block={**said, "text": ""})
    yield _named("ping")
    for word in asked.words(tag):
        yield _named("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield _named("content_block_stop", index=0)
    for index, (call, block) in enumerate(zip(asked.calls(tag), whole["content"][1:], strict=True), 1):
        yield _named("content_block_start", index=index, content_block={**block, "input": {}})
        for piece in call.pieces:
            yield _named("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece})
        yield _named("content_block_stop", index=index)
    ended = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _named("message_delta", delta=ended, usage={"output_tokens": whole["usage"]["output_tokens"]})
    yield _named("message_stop")


def _named(kind: str, **data: Any) -> Event:
    return kind, {"type": kind, **data}


def framed(event: Event) -> bytes:
    """An event as it goes over the wire."""
    kind, data = event
    said = "[DONE]" if data is None else json.dumps(data)
    return (f"event: {kind}\n" if kind else "").encode() + f"data: {said}\n\n".encode()


ENDPOINTS = {
    "/v1/chat/completions": (chat, chat_events),
    "/v1/responses": (response, response_events),
    "/v1/messages": (message, message_events),
}
