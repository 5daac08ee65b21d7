"""Calls to language models among all others: which they are, what they used, and what the model said.

Known by the shape of the API, not by the host: many servers speak the same. What an answer says is read from the body
of one that came whole, and from the events of one that was streamed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

_APIS = {  # by the end of the path; longer ones first
    "/chat/completions": "openai chat",
    "/responses": "openai responses",
    "/embeddings": "openai embeddings",
    "/v1/messages": "anthropic messages",
    "/v1/complete": "anthropic complete",
    "/completions": "openai completions",
    "/v2/chat": "cohere chat",
    "/v2/embed": "cohere embed",
    "/v2/rerank": "cohere rerank",
    "/api/chat": "ollama chat",
    "/api/generate": "ollama generate",
    "/api/embed": "ollama embed",
}
_NAMED = {  # those that have the model in their path
    "gemini": re.compile(
        r"/models/(?P<model>[^/:]+):(?P<what>(stream)?generateContent|embedContent|batchEmbedContents|countTokens)$",
        re.IGNORECASE,
    ),
    "bedrock": re.compile(r"/model/(?P<model>[^/]+)/(?P<what>converse|invoke)(?:-stream|-with-response-stream)?$"),
}
_INPUT = ("input_tokens", "prompt_tokens", "promptTokenCount", "inputTokens", "prompt_eval_count")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "outputTokens", "eval_count")
_CACHED = ("cache_read_input_tokens", "cachedContentTokenCount", "cacheReadInputTokens")
_STOPPED = ("stop_reason", "stopReason", "finish_reason", "done_reason")
_INSIDE = ("response", "message", "delta")  # where events keep what others have at the top
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def of(method: str, path: str, body: Any) -> str | None:
    """What a call asks of a model, None if it asks something else."""
    found = _asked(method, path, body)
    return None if found is None else found[0]


def _asked(method: str, path: str, body: Any) -> tuple[str, str] | None:
    """The same, and which model."""
    if method != "POST" or not isinstance(body, dict):
        return None
    if isinstance(body.get("model"), str):
        for end, name in _APIS.items():
            if path.endswith(end):
                return name, body["model"]
    for provider, pattern in _NAMED.items():
        if (match := pattern.search(path)) is not None:
            return f"{provider} {match['what']}", unquote(match["model"])
    return None


def used(asked: Mapping[str, Any], stored: Any) -> dict[str, Any] | None:
    """What an answer says that it used; None if it is not that of a model."""
    body = asked.get("body")
    if isinstance(body, str):  # what it says cannot be stored in another form
        with suppress(ValueError, RecursionError):
            body = json.loads(body)
    known = _asked(asked["method"], urlsplit(asked["url"]).path, body)
    if known is None or not isinstance(stored, dict):
        return None
    model, reason, counts = known[1], None, dict[str, Any]()
    for event in events(stored):
        for part in (event, *map(event.get, _INSIDE)):
            if isinstance(part, dict):
                model = part.get("model") or part.get("modelVersion") or model
                reason = _reason(part) or reason
                counts.update(_counts(part))
    details: dict[str, Any] = next((each for each in map(counts.get, _DETAILS) if isinstance(each, dict)), {})
    cached = _first(counts, _CACHED)
    found = {
        "provider": known[0].partition(" ")[0],
        "model": model,
        "finish_reason": reason,
        "input_tokens": _first(counts, _INPUT),
        "output_tokens": _first(counts, _OUTPUT),
        "cached_tokens": details.get("cached_tokens") if cached is None else cached,
        "first_chunk_ms": next(iter(stored.get("offsets") or ()), None),
    }
    return {key: value for key, value in found.items() if value is not None}


def _counts(part: dict[str, Any]) -> dict[str, Any]:
    """The tokens that a part of an answer tells of."""
    told = part.get("usage") or part.get("usageMetadata") or part  # Ollama has them among the rest
    if not isinstance(told, dict):
        return {}
    inner = told.get("tokens")
    return inner if isinstance(inner, dict) else told if told is not part or "eval_count" in part else {}


def _first(counts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name in counts and isinstance(count := counts[name], int):
            return count
    return None


def _reason(part: dict[str, Any]) -> Any:
    """Why a model stopped."""
    for choice in part.get("choices") or part.get("candidates") or ():
        if isinstance(choice, dict) and (reason := choice.get("finish_reason") or choice.get("finishReason")):
            return reason
    for name in _STOPPED:
        if isinstance(part.get(name), str):
            return part[name]
    return None


def events(stored: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that an answer is made of: its body, or the data of its events."""
    body = stored.get("body")
    if not isinstance(body, str):
        return
    text = str(body)
    for line in _objects(text):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue  # [DONE], or one that was cut off, or one that nobody reads
        if isinstance(found, dict):
            yield found


def _objects(text: str) -> list[str]:
    """What may be objects in an answer: the data of its events, its lines if each is one, or all of it."""
    lines = text.splitlines()
    if "data:" in text[:4096]:
        return [line[5:] for line in lines if line.startswith("data:")]
    return lines if len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}") else [text]


def said(stored: Any) -> str | None:
    """The words of a model, and the tools that it calls; None if the answer is not that of one."""
    if not isinstance(stored, dict):
        return None
    words: list[str] = []
    known = False
    for event in events(stored):
        parts = list(_parts(event))
        known = known or bool(parts) or "choices" in event or "delta" in event
        words += parts
    return "".join(words) if known else None


def _parts(event: dict[str, Any]) -> Iterator[str]:
    """The pieces of text in one object, whichever API it is of."""
    for choice in event.get("choices") or ():
        if isinstance(choice, dict):
            yield from _message(choice.get("message") or choice.get("delta") or {"content": choice.get("text")})
    yield from _of_others(event)
    kind = event.get("type")
    delta = event.get("delta")
    if kind == "content_block_delta" and isinstance(delta, dict):
        yield str(delta.get("text") or delta.get("partial_json") or "")
    elif kind in {"response.output_text.delta", "response.function_call_arguments.delta"} and isinstance(delta, str):
        yield delta
    elif kind == "content_block_start" and isinstance(event.get("content_block"), dict):
        yield from _blocks([event["content_block"]])
    elif kind == "message":
        yield from _blocks(event.get("content"))
    elif event.get("object") == "response":
        for item in event.get("output") or ():
            if isinstance(item, dict):
                yield from _blocks(item.get("content", [item]))


def _of_others(event: dict[str, Any]) -> Iterator[str]:
    """The pieces of text in an answer of Gemini, Bedrock, Cohere or Ollama."""
    for candidate in event.get("candidates") or ():
        if isinstance(candidate, dict) and isinstance(candidate.get("content"), dict):
            yield from _blocks(candidate["content"].get("parts"))
    output, delta = event.get("output"), event.get("delta")
    message = output.get("message") if isinstance(output, dict) else event.get("message")
    if event.get("type") == "content-delta" and isinstance(delta, dict):
        message = {"role": "assistant", **(delta.get("message") or {})}
        message["content"] = [message.get("content")]
    elif event.get("type") is not None:
        return
    if isinstance(message, dict) and message.get("role") == "assistant":
        yield from _blocks(message["content"]) if isinstance(message.get("content"), list) else _message(message)


def _message(message: Any) -> Iterator[str]:
    if isinstance(message, dict):
        yield str(message.get("content") or "")
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                yield f"{_tool(function.get('name'))}{_text_of(function.get('arguments'))}"


def _blocks(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("text"):
            yield str(block["text"])
        called = next((block[name] for name in ("functionCall", "toolUse") if isinstance(block.get(name), dict)), block)
        if called is not block or block.get("type") in {"tool_use", "function_call"}:
            given = called.get("input") or called.get("arguments") or called.get("args")
            yield f"{_tool(called.get('name'))}{_text_of(given)}"


def _text_of(given: Any) -> str:
    """The arguments of a tool, which some give as text and some as what they are."""
    return given if isinstance(given, str) else json.dumps(given) if given else ""


def _tool(name: Any) -> str:
    return f"-> {name} " if name else ""
