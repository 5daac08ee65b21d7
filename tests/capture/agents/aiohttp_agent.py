"""An agent on aiohttp: calls that are alike in parallel, streams, cookies, redirects, a timeout."""

import asyncio
import os

import aiohttp

URL = os.environ["MODEL_URL"]
KEY = os.environ.get("RUN_KEY", "k")


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


async def get(session: aiohttp.ClientSession, path: str) -> object:
    """What there is at a path."""
    async with session.get(URL + path) as got:
        return await got.json()


async def streams(session: aiohttp.ClientSession) -> None:
    """Answers that are read while they come."""
    async with session.get(f"{URL}/lines?n=4") as got:
        async for line in got.content:
            say("line", line)
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Tell me."}]}
    async with session.post(f"{URL}/v1/chat/completions", json=asked) as got:
        text = b"".join([piece async for piece in got.content.iter_any()])
    say("events", text.count(b"data: "), text[-14:])
    async with session.get(f"{URL}/bytes?n=5000") as got:
        say("pieces", [len(piece) async for piece in got.content.iter_chunked(2000)])
    async with session.get(f"{URL}/lines?n=60") as got:
        say("early", await got.content.readline())


async def failures(session: aiohttp.ClientSession) -> None:
    """An error, one that goes away, an answer that breaks off, and one that takes too long."""
    for _ in range(2):
        async with session.get(f"{URL}/flaky?key={KEY}-aiohttp") as got:
            say("flaky", got.status, await got.json())
    try:
        await get(session, "/drop")
    except aiohttp.ClientError as error:
        say("broken off", type(error).__name__)
    try:
        async with session.get(f"{URL}/slow?s=5", timeout=aiohttp.ClientTimeout(total=0.1)):
            say("never")
    except TimeoutError:
        say("too slow")


async def main() -> None:
    """Everything, one part after the other."""
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of addresses without a name, too
    async with aiohttp.ClientSession(headers={"X-Marker": "aiohttp"}, cookie_jar=jar) as session:
        for number, answer in enumerate(await asyncio.gather(*(get(session, "/plain/same") for _ in range(6)))):
            say("gather", number, answer)
        for coming in asyncio.as_completed([get(session, "/plain/same") for _ in range(6)]):
            say("completed", await coming)
        for number in range(2):
            say("cookie", number, await get(session, "/cookie"))
        say("redirect", await get(session, "/redirect?hops=2"))
        say("gzip", await get(session, "/gzip"))
        await streams(session)
        await failures(session)
    say("done")


if __name__ == "__main__":
    asyncio.run(main())
