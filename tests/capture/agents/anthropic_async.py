"""An agent on Anthropic's SDK that does many things at once, most of them with requests that are alike."""

import asyncio
import os
from typing import Any

from anthropic import AsyncAnthropic

SETTINGS: Any = {"model": "claude-test", "max_tokens": 200}

client = AsyncAnthropic(base_url=os.environ["MODEL_URL"], api_key="sk-ant-test", max_retries=0)


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


async def ask(prompt: str = "The same question.") -> str:
    """A question and its answer."""
    got = await client.messages.create(messages=[{"role": "user", "content": prompt}], **SETTINGS)
    return "".join(block.text for block in got.content if block.type == "text")


async def stream(number: int) -> str:
    """The words of a stream, as one text, each said as it comes."""
    words = []
    messages: Any = [{"role": "user", "content": "The same stream."}]
    async with client.messages.stream(messages=messages, **SETTINGS) as opened:
        async for text in opened.text_stream:
            say("word", number, text)
            words.append(text)
    return "".join(words)


async def two(number: int) -> str:
    """Two calls, the second of which depends on the first."""
    first = await ask()
    return f"{number}: {first} / {await ask(first)}"


async def main() -> None:
    """Everything, one part after the other."""
    for number, answer in enumerate(await asyncio.gather(*(ask() for _ in range(6)))):
        say("gather", number, answer)
    for answer in await asyncio.gather(*(two(number) for number in range(4))):
        say("two", answer)
    for number, text in enumerate(await asyncio.gather(*(stream(at) for at in range(3)))):
        say("stream", number, text)
    try:
        async with asyncio.timeout(0.1):
            await ask("Think. [slow 5]")
    except TimeoutError:
        say("too slow")
    async with client.messages.stream(messages=[{"role": "user", "content": "[chunks 60]"}], **SETTINGS) as opened:
        async for text in opened.text_stream:
            say("early", text)
            break
    say("last", await ask())
    await client.close()
    say("done")


if __name__ == "__main__":
    asyncio.run(main())
