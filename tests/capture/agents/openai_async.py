"""An agent on OpenAI's SDK that does many things at once, most of them with requests that are alike."""

import asyncio
import os
from typing import Any

from openai import AsyncOpenAI

MODEL = "gpt-test"
BRANCHES = 8

client = AsyncOpenAI(base_url=os.environ["MODEL_URL"] + "/v1", api_key="sk-test", max_retries=0)


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


async def chat(prompt: str = "The same question.") -> str:
    """A question and its answer."""
    got = await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": prompt}])
    return str(got.choices[0].message.content)


async def stream(name: str, first: asyncio.Event | None = None) -> str:
    """The words of a stream, as one text; says when the first has come."""
    asked: Any = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "The same stream."}]}
    words = []
    async for chunk in await client.chat.completions.create(**asked):
        words.append(chunk.choices[0].delta.content or "")
        if first is not None:
            first.set()
    say("end of", name)
    return "".join(words)


async def side_by_side() -> None:
    """Calls that are alike: in the order of the tasks, and in the order in which they end."""
    for number, answer in enumerate(await asyncio.gather(*(chat() for _ in range(BRANCHES)))):
        say("gather", number, answer)
    for coming in asyncio.as_completed([chat() for _ in range(BRANCHES)]):
        say("completed", await coming)
    done, _ = await asyncio.wait([asyncio.create_task(chat()) for _ in range(3)], return_when=asyncio.FIRST_COMPLETED)
    say("first of three", len(done) > 0)


async def streams() -> None:
    """Streams that are read at the same time, chunk by chunk as they come."""
    for number, text in enumerate(await asyncio.gather(*(stream(f"stream {at}") for at in range(3)))):
        say("stream", number, text)


async def cancelled() -> None:
    """A call that takes too long, and a stream that is closed early."""
    try:
        await asyncio.wait_for(chat("Think. [slow 5]"), 0.1)
    except TimeoutError:
        say("too slow")
    asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "At length. [chunks 60]"}]}
    async with await client.chat.completions.create(stream=True, **asked) as opened:
        async for chunk in opened:
            say("early", chunk.choices[0].delta.content)
            if chunk.choices[0].delta.content:
                break


async def groups() -> None:
    """Tasks of a group, each with two calls; a task that asks and then spawns tasks."""

    async def twice(number: int) -> str:
        return f"{number}: {await chat()} / {await chat()}"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(twice(number)) for number in range(4)]
    for task in tasks:
        say("group", task.result())

    async def spawns() -> list[str]:
        plan = await chat()
        return [plan, *await asyncio.gather(*(chat(plan) for _ in range(3)))]

    for answer in (await asyncio.gather(spawns(), spawns()))[1]:
        say("spawned", answer)


async def waiting() -> None:
    """A request that is made when another's stream has begun, and before it has ended."""
    begun = asyncio.Event()
    task = asyncio.create_task(stream("the stream that is waited for", begun))
    await begun.wait()
    say("meanwhile", await chat())
    say("and then", await task)


async def main() -> None:
    """Everything, one part after the other."""
    for part in (side_by_side, streams, cancelled, groups, waiting):
        say("part", part.__name__)
        await part()
    await client.close()
    say("done")


if __name__ == "__main__":
    asyncio.run(main())
