"""Calls to language models among all others: which they are, what they used, and what the model said.

Known by the shape of the API, not by the host: many servers speak the same. What an answer says is read from the body
of one that came whole, and from the events of one that was streamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

_APIS = {  # by the end of the path; longer ones first
    "/chat/completions": "openai chat",
    "/responses": "openai responses",
    "/embeddings": "openai embeddings",
    "/v1/messages": "anthropic messages",
    "/v1/complete": "anthropic complete",
    "/completions": "openai completions",
}
_INPUT, _OUTPUT = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")
_INSIDE = ("response", "message", "delta")  # where events keep what others have at the top
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def of(method: str, path: str, body: Any) -> str | None:
    """What a call asks of a model, None if it asks something else."""
    if method != "POST" or not isinstance(body, Mapping) or not isinstance(body.get("model"), str):
        return None
    for end, name in _APIS.items():
        if path.endswith(end):
            return name
    return None


def used(asked: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
    """What an answer says that it used; None if it is not that of a model."""
    name = of(asked["method"], urlsplit(asked["url"]).path, asked.get("body"))
    if name is None or not isinstance(stored, Mapping):
        return None
    found: dict[str, Any] = {"provider": name.partition(" ")[0], "model": asked["body"]["model"]}
    counts: dict[str, Any] = {}
    for event in events(stored):
        for part in (event, *(event[name] for name in _INSIDE if name in event)):
            if isinstance(part, dict):
                found["model"] = part.get("model") or found["model"]
                found["finish_reason"] = _reason(part) or found.get("finish_reason")
                counts.update(part.get("usage") or {})
    found["input_tokens"], found["output_tokens"] = _first(counts, _INPUT), _first(counts, _OUTPUT)
    details: Mapping[str, Any] = next((counts[each] for each in _DETAILS if isinstance(counts.get(each), Mapping)), {})
    found["cached_tokens"] = counts.get("cache_read_input_tokens", details.get("cached_tokens"))
    if stored.get("offsets"):
        found["first_chunk_ms"] = stored["offsets"][0]
    return {key: value for key, value in found.items() if value is not None}


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        count = counts.get(name)
        if isinstance(count, int):
            return count
    return None


def _reason(part: Mapping[str, Any]) -> Any:
    """Why a model stopped."""
    for choice in part.get("choices") or ():
        if isinstance(choice, Mapping) and choice.get("finish_reason"):
            return choice["finish_reason"]
    return part.get("stop_reason")


def events(stored: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that an answer is made of: its body, or the data of its events."""
    body = stored.get("body")
    if not isinstance(body, str):
        return
    text = str(body)
    lines = (line[5:] for line in text.splitlines() if line.startswith("data:")) if "data:" in text[:4096] else (text,)
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:
            continue  # [DONE], or one that was cut off
        if isinstance(found, dict):
            yield found


def said(stored: Any) -> str | None:
    """The words of a model, and the tools that it calls; None if the answer is not that of one."""
    if not isinstance(stored, Mapping):
        return None
    words: list[str] = []
    known = False
    for event in events(stored):
        parts = list(_parts(event))
        known = known or bool(parts) or "choices" in event or "delta" in event
        words += parts
    return "".join(words) if known else None


def _parts(event: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of text in one object, whichever API it is of."""
    for choice in event.get("choices") or ():
        if isinstance(choice, Mapping):
            yield from _message(choice.get("message") or choice.get("delta") or {"content": choice.get("text")})
    kind = event.get("type")
    delta = event.get("delta")
    if kind == "content_block_delta" and isinstance(delta, Mapping):
        yield str(delta.get("text") or delta.get("partial_json") or "")
    elif kind in {"response.output_text.delta", "response.function_call_arguments.delta"} and isinstance(delta, str):
        yield delta
    elif kind == "content_block_start" and isinstance(event.get("content_block"), Mapping):
        yield from _blocks([event["content_block"]])
    elif kind == "message":
        yield from _blocks(event.get("content"))
    elif event.get("object") == "response":
        for item in event.get("output") or ():
            if isinstance(item, Mapping):
                yield from _blocks(item.get("content", [item]))


def _message(message: Any) -> Iterator[str]:
    if isinstance(message, Mapping):
        yield str(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                yield f"{_tool(function.get('name'))}{function.get('arguments') or ''}"


def _blocks(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, Mapping):
            continue
        if block.get("text"):
            yield str(block["text"])
        elif block.get("type") in {"tool_use", "function_call"}:
            given = block.get("input") or block.get("arguments") or ""
            yield f"{_tool(block.get('name'))}{given if isinstance(given, str) else json.dumps(given)}"


def _tool(name: Any) -> str:
    return f"-> {name} " if name else ""
