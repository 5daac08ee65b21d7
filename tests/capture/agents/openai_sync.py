"""An agent on OpenAI's SDK, one call after the other."""

import json
import os
from typing import Any

from openai import APIConnectionError, APIError, InternalServerError, OpenAI

MODEL = "gpt-test"
KEY = os.environ.get("RUN_KEY", "k")
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
        },
    }
]

client = OpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-test", max_retries=2)


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def chat(prompt: str) -> str:
    """A question and its answer."""
    got = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": prompt}])
    assert got.usage is not None
    say("usage", got.usage.prompt_tokens, got.usage.completion_tokens)
    return str(got.choices[0].message.content)


def tools() -> None:
    """Two tools at once, and an answer from their results."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather? [calls 2]"}]
    got = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
    messages.append(got.choices[0].message.model_dump(exclude_none=True))
    for call in got.choices[0].message.tool_calls or []:
        assert call.type == "function"
        say("tool", call.id, call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps({"sunny": True})})
    say("tools", client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message.content)


def streams() -> None:
    """A stream to its end, one with a tool, and one that is closed early."""
    asked: Any = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}}
    for chunk in client.chat.completions.create(messages=[{"role": "user", "content": "Tell me more."}], **asked):
        say("chunk", chunk.choices[0].delta.content if chunk.choices else chunk.usage)
    arguments = ""
    for chunk in client.chat.completions.create(messages=[{"role": "user", "content": "Rain?"}], tools=TOOLS, **asked):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                arguments += (call.function and call.function.arguments) or ""
    say("streamed tool", arguments)
    messages: Any = [{"role": "user", "content": "Tell me everything. [chunks 60]"}]
    with client.chat.completions.create(model=MODEL, stream=True, messages=messages) as stream:
        for number, chunk in enumerate(stream):
            say("early", chunk.choices[0].delta.content)
            if number == 3:
                break


def responses() -> None:
    """The responses API: whole, with a tool, and as a stream."""
    got = client.responses.create(model=MODEL, input="And this?")
    say("response", got.output_text, got.usage and got.usage.total_tokens)
    tool: Any = {"type": "function", "strict": False, **TOOLS[0]["function"]}
    got = client.responses.create(model=MODEL, input="And the weather?", tools=[tool])
    for item in got.output:
        if item.type == "function_call":
            say("response tool", item.call_id, item.arguments)
    with client.responses.stream(model=MODEL, input="And at length?") as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                say("delta", event.delta)
        say("response stream", stream.get_final_response().output_text)


def failures() -> None:
    """An error that goes away, one that does not, and a stream that breaks off."""
    say("retried", chat(f"Try. [flaky {KEY}-sync]"))
    try:
        client.with_options(max_retries=0).chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"Try. [flaky {KEY}-sync-once]"}]
        )
    except InternalServerError as error:
        say("failed", error.status_code, error.body)
    try:
        messages: Any = [{"role": "user", "content": "Go on. [drop]"}]
        for chunk in client.chat.completions.create(model=MODEL, stream=True, messages=messages):
            say("dropped", chunk.choices[0].delta.content)
    except (APIConnectionError, APIError) as error:
        say("broken off", type(error).__name__)
    except Exception as error:  # noqa: BLE001 - the SDK lets errors of its transport through
        say("broken off", type(error).__module__, type(error).__name__)


if __name__ == "__main__":
    say("first", chat("Hello."))
    say("again", chat("Hello."))
    tools()
    streams()
    responses()
    failures()
    say("done")
