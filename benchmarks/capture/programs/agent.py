"""The program that every tool records and replays: `agent.py CASE`. It knows of none of them.

Each answer of the server is unlike every other, and all of it is printed: a replay that gives one call the answer of
another, or in another order, prints something else.
"""

import asyncio
import datetime  # noqa: ICN001 - as most programs write it
import json
import os
import random
import subprocess
import sys
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

URL = os.environ["MODEL_URL"]
KEY = os.environ["BENCH_KEY"]  # of the API; what is looked for in what was stored
ROUND = os.environ["BENCH_ROUND"]  # a name for what fails once
TOPIC = os.environ.get("BENCH_TOPIC", "tides")
SAME = "The same question."
TOOL: Any = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def asked(text: str, **more: Any) -> Any:
    """The arguments of a call."""
    return {"model": "gpt-test", "messages": [{"role": "user", "content": text}], **more}


def openai_client(*, awaited: bool = False) -> Any:
    """A client of OpenAI's SDK; each case imports what it needs, as programs do."""
    import openai  # noqa: PLC0415 - not every case needs it

    made = openai.AsyncOpenAI if awaited else openai.OpenAI
    return made(base_url=f"{URL}/v1", api_key=KEY, max_retries=2)


def one_by_one() -> None:
    """Whole answers, streams, a tool, an error and its retry, and a stream that is closed early; by two SDKs."""
    import anthropic  # noqa: PLC0415 - as above

    create = openai_client().chat.completions.create
    for number in range(2):
        say("whole", number, create(**asked(SAME)).choices[0].message.content)
    say("stream", [chunk.choices[0].delta.content for chunk in create(**asked(SAME, stream=True))])
    got = create(**asked("Rain?", tools=[{"type": "function", "function": TOOL}]))
    say("tool", [(call.id, call.function.arguments) for call in got.choices[0].message.tool_calls])
    say("retried", create(**asked(f"Try. [flaky {ROUND}]")).choices[0].message.content)
    with create(**asked("All of it. [chunks 60]", stream=True)) as stream:
        say("early", [next(stream).choices[0].delta.content for _ in range(4)])
    claude = anthropic.Anthropic(base_url=URL, api_key=KEY).messages
    to_claude: Any = asked(SAME, max_tokens=100)
    say("message", claude.create(**to_claude).content)
    with claude.stream(**to_claude) as said:
        say("message stream", list(said.text_stream))


def over_requests() -> None:
    """The requests library: whole answers, and one that is read as it comes."""
    import requests  # noqa: PLC0415 - as above

    for number in range(2):
        say("get", number, requests.get(f"{URL}/plain/same", timeout=10).json())
    with requests.get(f"{URL}/lines?n=5", stream=True, timeout=10) as got:
        say("lines", list(got.iter_lines()))


async def gathered() -> None:
    """Eight calls that are alike, at once: which task got which answer."""
    client = openai_client(awaited=True)
    calls = [client.chat.completions.create(**asked(SAME)) for _ in range(8)]
    for number, got in enumerate(await asyncio.gather(*calls)):
        say(number, got.choices[0].message.content)


async def gathered_streams() -> None:
    """The same, as streams."""
    client = openai_client(awaited=True)

    async def read() -> list[Any]:
        stream = await client.chat.completions.create(**asked(SAME, stream=True))
        return [chunk.choices[0].delta.content async for chunk in stream]

    for number, words in enumerate(await asyncio.gather(*(read() for _ in range(8)))):
        say(number, words)


async def as_they_come() -> None:
    """The same, in the order in which they are answered."""
    client = openai_client(awaited=True)
    for coming in asyncio.as_completed([client.chat.completions.create(**asked(SAME)) for _ in range(8)]):
        say((await coming).choices[0].message.content)


async def named_as_they_come() -> None:
    """The same, with the task that each answer is for: a program may well go on by it."""
    client = openai_client(awaited=True)

    async def ask(number: int) -> tuple[int, str]:
        return number, (await client.chat.completions.create(**asked(SAME))).choices[0].message.content

    for coming in asyncio.as_completed([ask(number) for number in range(8)]):
        say(*await coming)


def pooled(*, as_they_come: bool = False) -> None:
    """Six calls that are alike, in a pool of threads: by task, or in the order in which they are answered."""
    create = openai_client().chat.completions.create
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(create, **asked(SAME)) for _ in range(6)]
        for number, future in enumerate(as_completed(futures) if as_they_come else futures):
            say(number, future.result().choices[0].message.content)


def opened() -> None:
    """The standard library's own client."""
    for number in range(2):
        with urllib.request.urlopen(f"{URL}/plain/same", timeout=10) as got:  # noqa: S310 - our own server
            say(number, json.load(got))


def command() -> None:
    """A command that asks the server itself."""
    code = f"import urllib.request as r; print(r.urlopen('{URL}/plain/same', timeout=10).read())"
    for number in range(2):
        words = [sys.executable, "-I", "-c", code]
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
        say(number, done.returncode, done.stdout)


def secret() -> None:
    """Calls with a key in their headers, and one whose answer holds that key."""
    import requests  # noqa: PLC0415 - as above

    say(openai_client().chat.completions.create(**asked(SAME)).choices[0].message.content)
    if TOPIC == "echo":
        got = requests.get(f"{URL}/echo", headers={"Authorization": f"Bearer {KEY}"}, timeout=10).json()
        say(got["counter"])


def prompted() -> None:
    """A question that depends on the environment: it stands for a program that was edited."""
    create = openai_client().chat.completions.create
    say(create(**asked("First.")).choices[0].message.content)
    say(create(**asked(f"Tell me of {TOPIC}.")).choices[0].message.content)


def dated() -> None:
    """Questions with the time, an identifier and chance in them, which are printed too."""
    create = openai_client().chat.completions.create
    for _ in range(3):
        now = datetime.datetime.now().isoformat()  # noqa: DTZ005 - as most programs write it
        text = f"It is {now}. I am {uuid.uuid4()}, and rolled {random.randint(1, 6_000_000)}."
        say(text, create(**asked(text)).choices[0].message.content)


def graph() -> None:
    """A graph of LangGraph with three nodes that ask alike and at once, and one that joins them."""
    import operator  # noqa: PLC0415 - as above
    from typing import Annotated, TypedDict  # noqa: PLC0415 - as above

    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - as above
    from langgraph.graph import END, START, StateGraph  # noqa: PLC0415 - as above

    model = ChatOpenAI(model="gpt-test", base_url=f"{URL}/v1", api_key=lambda: KEY, max_retries=0)
    state: Any = TypedDict("state", {"found": Annotated[list[str], operator.add], "joined": str})

    def research(_: Any) -> Any:
        return {"found": [str(model.invoke(SAME).content)]}

    async def awaited_research(_: Any) -> Any:
        return {"found": [str((await model.ainvoke(SAME)).content)]}

    def built(node: Any) -> Any:
        made = StateGraph(state)
        made.add_node("join", lambda now: {"joined": str(model.invoke("; ".join(now["found"])).content)})
        for name in ("one", "two", "three"):
            made.add_node(name, node)
            made.add_edge(START, name)
            made.add_edge(name, "join")
        made.add_edge("join", END)
        return made.compile()

    say(built(research).invoke({"found": [], "joined": ""}))
    say(asyncio.run(built(awaited_research).ainvoke({"found": [], "joined": ""})))


CASES: dict[str, Any] = {
    "one_by_one": one_by_one,
    "requests": over_requests,
    "gather": lambda: asyncio.run(gathered()),
    "gather_streams": lambda: asyncio.run(gathered_streams()),
    "as_completed": lambda: asyncio.run(as_they_come()),
    "as_completed_tasks": lambda: asyncio.run(named_as_they_come()),
    "pool": pooled,
    "pool_as_completed": lambda: pooled(as_they_come=True),
    "urllib": opened,
    "subprocess": command,
    "secret": secret,
    "prompt": prompted,
    "clock": dated,
    "langgraph": graph,
}

if __name__ == "__main__":
    CASES[sys.argv[1]]()
    say("done")
