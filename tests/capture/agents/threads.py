"""An agent that asks from threads: a pool, threads of its own, and threads of an event loop."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import requests
from openai import OpenAI

URL = os.environ["MODEL_URL"]

client = OpenAI(base_url=URL + "/v1", api_key="sk-test")


def say(*words: object) -> None:
    """One line of the transcript."""
    print(*words, flush=True)


def ask(prompt: str = "The same question.") -> str:
    """A question and its answer."""
    got = client.chat.completions.create(model="gpt-test", messages=[{"role": "user", "content": prompt}])
    return str(got.choices[0].message.content)


def get(_: int) -> str:
    """A small answer, over requests."""
    return str(requests.get(f"{URL}/plain/same", timeout=10).json()["counter"])


def twice(number: int) -> str:
    """Two calls, the second of which depends on the first."""
    return f"{number}: {ask(ask())}"


def pools() -> None:
    """Six calls that are alike: in the order of submission, in the order of their ends, and by map."""
    with ThreadPoolExecutor(6) as pool:
        for number, future in enumerate([pool.submit(ask) for _ in range(6)]):
            say("submitted", number, future.result())
        for future in as_completed([pool.submit(ask) for _ in range(6)]):
            say("completed", future.result())
        for number, answer in enumerate(pool.map(get, range(6))):
            say("map", number, answer)
    with ThreadPoolExecutor(2) as pool:  # fewer threads than tasks: which thread takes which is chance
        for answer in pool.map(twice, range(6)):
            say("twice", answer)


def own_threads() -> None:
    """Threads that the program starts itself, one of which starts another."""
    answers: dict[str, str] = {}

    def work(name: str, *, deeper: bool) -> None:
        answers[name] = ask()
        if deeper:
            inner = threading.Thread(target=work, args=(f"{name}.inner",), kwargs={"deeper": False})
            inner.start()
            inner.join()

    threads = [threading.Thread(target=work, args=(f"t{number}",), kwargs={"deeper": True}) for number in range(3)]
    for thread in threads:
        thread.start()
    say("meanwhile", ask())
    for thread in threads:
        thread.join()
    for name in sorted(answers):
        say("thread", name, answers[name])


async def loop_threads() -> None:
    """Calls that block, off the loop."""
    for number, answer in enumerate(await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))):
        say("to_thread", number, answer)
    loop = asyncio.get_running_loop()
    for number, answer in enumerate(await asyncio.gather(*(loop.run_in_executor(None, ask) for _ in range(3)))):
        say("executor", number, answer)


if __name__ == "__main__":
    pools()
    own_threads()
    asyncio.run(loop_threads())
    say("done")
