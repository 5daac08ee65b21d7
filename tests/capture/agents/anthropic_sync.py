"""An agent on Anthropic's SDK, one call after the other."""

import os
from typing import Any

from anthropic import Anthropic, APIError, InternalServerError

KEY = os.environ.get("RUN_KEY", "k")
SETTINGS: Any = {"model": "claude-test", "max_tokens": 200}
TOOLS: Any = [
    {
        "name": "weather",
        "description": "The weather in a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    }
]

client = Anthropic(base_url=os.environ["MODEL_URL"], api_key="sk-ant-test", max_retries=2)


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def said(message: Any) -> str:
    """The words of a message."""
    return "".join(block.text for block in message.content if block.type == "text")


def ask(prompt: str) -> str:
    """A question and its answer."""
    got = client.messages.create(messages=[{"role": "user", "content": prompt}], **SETTINGS)
    say("usage", got.usage.input_tokens, got.usage.output_tokens)
    return said(got)


def tools() -> None:
    """Two tools at once, and an answer from their results."""
    messages: list[Any] = [{"role": "user", "content": "What is the weather? [calls 2]"}]
    got = client.messages.create(messages=messages, tools=TOOLS, **SETTINGS)
    messages.append({"role": "assistant", "content": got.content})
    results: list[Any] = []
    for block in got.content:
        if block.type == "tool_use":
            say("tool", block.id, block.name, block.input)
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": "sunny"})
    messages.append({"role": "user", "content": results})
    got = client.messages.create(messages=messages, tools=TOOLS, **SETTINGS)
    say("tools", got.stop_reason, said(got))


def streams() -> None:
    """A stream by its helper, one with a tool, the bare events of one, and one that is closed early."""
    with client.messages.stream(messages=[{"role": "user", "content": "Tell me more."}], **SETTINGS) as stream:
        for text in stream.text_stream:
            say("text", text)
        say("stream", stream.get_final_message().usage.output_tokens)
    messages: Any = [{"role": "user", "content": "Rain?"}]
    with client.messages.stream(messages=messages, tools=TOOLS, **SETTINGS) as stream:
        final = stream.get_final_message()
    say("streamed tool", [block.input for block in final.content if block.type == "tool_use"])
    for event in client.messages.create(messages=messages, stream=True, **SETTINGS):
        say("event", event.type)
    messages = [{"role": "user", "content": "Tell me everything. [chunks 60]"}]
    with client.messages.stream(messages=messages, **SETTINGS) as stream:
        for number, text in enumerate(stream.text_stream):
            say("early", text)
            if number == 3:
                break


def failures() -> None:
    """An error that goes away, one that does not, and a stream that breaks off."""
    say("retried", ask(f"Try. [flaky {KEY}-claude]"))
    try:
        client.with_options(max_retries=0).messages.create(
            messages=[{"role": "user", "content": f"Try. [flaky {KEY}-claude-once]"}], **SETTINGS
        )
    except InternalServerError as error:
        say("failed", error.status_code, error.body)
    try:
        with client.messages.stream(messages=[{"role": "user", "content": "Go on. [drop]"}], **SETTINGS) as stream:
            for text in stream.text_stream:
                say("dropped", text)
    except APIError as error:
        say("broken off", type(error).__name__)
    except Exception as error:  # noqa: BLE001 - the SDK lets errors of its transport through
        say("broken off", type(error).__module__, type(error).__name__)


if __name__ == "__main__":
    say("first", ask("Hello."))
    say("again", ask("Hello."))
    tools()
    streams()
    failures()
    say("done")
