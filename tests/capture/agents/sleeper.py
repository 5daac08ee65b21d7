"""An agent that waits: races of sleeps and calls, timeouts, deadlines on the wall clock, retries that back off.

`SCALE` makes all times longer or shorter.
"""

import asyncio
import os
import random
import time
import uuid

from openai import AsyncOpenAI, OpenAI

SCALE = float(os.environ.get("SCALE", "0.5"))
PLACE = os.environ["MODEL_URL"] + "/v1"
client = AsyncOpenAI(base_url=PLACE, api_key="sk-test", max_retries=0)


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


async def chat(seconds: float = 0) -> str:
    """An answer that takes a while."""
    slow = f" [slow {seconds * SCALE}]" if seconds else ""
    prompt = f"{uuid.uuid4()} at {time.time()}{slow}"
    got = await client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": prompt}])
    return str(got.choices[0].message.content)


async def nap(name: str, seconds: float) -> str:
    """A sleep that tells when it is over."""
    await asyncio.sleep(seconds * SCALE)
    say("slept", name, time.time())
    return name


async def told(name: str, seconds: float) -> str:
    """A call that tells when it is answered."""
    say("called", name, await chat(seconds), time.time())
    return name


async def races() -> None:
    """A sleep that is over before a call, and one that is not; several of both."""
    say("race", await asyncio.gather(nap("short", 0.1), told("long", 0.3)))
    say("race", await asyncio.gather(nap("long", 0.4), told("short", 0.2)))
    done, left = await asyncio.wait(
        [asyncio.create_task(told("slow", 1.0)), asyncio.create_task(nap("quick", 0.1))],
        return_when=asyncio.FIRST_COMPLETED,
    )
    say("first", sorted(task.result() for task in done))
    for task in left:
        task.cancel()
    say("left", await asyncio.gather(*left, return_exceptions=True) == [] or "cancelled")
    names = [("b", 0.25), ("a", 0.05), ("c", 0.45)]
    for coming in asyncio.as_completed([*(nap(*each) for each in names), told("x", 0.15), told("y", 0.35)]):
        say("as completed", await coming)


async def timeouts() -> None:
    """Calls that take too long, in each of the ways to say how long that is; and some that do not."""
    try:
        await asyncio.wait_for(chat(5), 0.1 * SCALE)
    except TimeoutError:
        say("too slow", time.time())
    say("in time", await asyncio.wait_for(chat(), 20))
    try:
        async with asyncio.timeout(0.5 * SCALE):
            say("the first", await chat(0.1))
            say("the second", await chat(5))
    except TimeoutError:
        say("both took too long", time.time())
    try:
        async with asyncio.timeout(20):
            say("in a block", await chat())
            async with asyncio.timeout(0.1 * SCALE):
                await asyncio.Event().wait()
    except TimeoutError:
        say("nobody set it")


async def polls() -> None:
    """Deadlines on the wall clock, looked at in between."""
    until, looks = time.time() + 0.3 * SCALE, 0
    while time.time() < until:
        await asyncio.sleep(0.1 * SCALE)
        looks += 1
    say("looked", looks, "times until", time.time())
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.sleep(0.2 * SCALE)
    say("the loop knows", loop.time() - before >= 0.199 * SCALE)


async def backs_off() -> None:
    """Tries that wait longer each time, by chance, beside a heartbeat."""
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.15 * SCALE)
            beats += 1

    heartbeat = asyncio.create_task(heart())
    for attempt in range(4):
        say("attempt", attempt, await chat(), beats)
        await asyncio.sleep((0.05 * 2**attempt + random.random() / 100) * SCALE)
    heartbeat.cancel()


async def in_threads() -> None:
    """A job of a pool that takes its time, against a timeout that it keeps."""

    def job() -> str:
        time.sleep(0.2 * SCALE)
        return f"{uuid.uuid4()} {time.time()}"

    say("job", await asyncio.wait_for(asyncio.to_thread(job), 20))
    say("jobs", await asyncio.gather(*(asyncio.to_thread(job) for _ in range(3)), nap("beside", 0.1)))


async def main() -> None:
    """Everything, one part after the other."""
    for part in (races, timeouts, polls, backs_off, in_threads):
        say("part", part.__name__)
        await part()
    await client.close()


def retries() -> None:
    """A sleep, as the wall clock has it; the client's own retries, which sleep by chance."""
    before = time.time()
    time.sleep(0.3 * SCALE)
    say("slept", round(time.time() - before, 3) == round(0.3 * SCALE, 3))
    with OpenAI(base_url=PLACE, api_key="sk-test", max_retries=2) as plain:
        asked = [{"role": "user", "content": f"Try again. [flaky {uuid.uuid4()}]"}]
        say("retried", plain.chat.completions.create(model="gpt-test", messages=asked).choices[0].message.content)


if __name__ == "__main__":
    asyncio.run(main())
    retries()
    say("done")
