"""An agent on httpx, and on httpx2 the same way: whole answers, streams, cookies, retries, many at once."""

import asyncio
import os
from types import ModuleType

import httpx
import httpx2

URL = os.environ["MODEL_URL"]


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def one_by_one(http: ModuleType) -> None:
    """A client that keeps its connection, and calls without one."""
    name = http.__name__
    say(name, "get", http.get(f"{URL}/plain/a").json())
    with http.Client(base_url=URL, follow_redirects=True, headers={"X-Marker": name}) as client:
        for number in range(2):
            say(name, "cookie", number, client.get("/cookie").json())
        say(name, "redirect", client.get("/redirect?hops=2").json())
        say(name, "gzip", client.get("/gzip").json()["counter"])
        say(name, "sent in pieces", client.post("/echo", content=iter([b"in ", b"pieces"])).json()["body"])
        with client.stream("GET", "/lines?n=4") as got:
            for line in got.iter_lines():
                say(name, "line", line)
        with client.stream("GET", "/lines?n=60") as got:
            say(name, "early", next(got.iter_lines()))
        try:
            client.get("/drop")
        except http.HTTPError as error:
            say(name, "broken off", type(error).__name__)
        try:
            client.get("/slow?s=5", timeout=0.1)
        except http.TimeoutException as error:
            say(name, "too slow", type(error).__name__)


async def many(http: ModuleType) -> None:
    """Calls that are alike, at once."""
    name = http.__name__
    async with http.AsyncClient(base_url=URL) as client:
        for number, got in enumerate(await asyncio.gather(*(client.get("/plain/same") for _ in range(6)))):
            say(name, "gather", number, got.json())

        async def lines() -> list[str]:
            async with client.stream("GET", "/lines?n=4") as opened:
                return [line async for line in opened.aiter_lines()]

        for number, read in enumerate(await asyncio.gather(*(lines() for _ in range(3)))):
            say(name, "lines", number, read)


if __name__ == "__main__":
    for library in (httpx, httpx2):
        one_by_one(library)
        asyncio.run(many(library))
    say("done")
