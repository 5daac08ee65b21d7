"""Deadlines by the time that goes on: a replay waits for nothing, and comes to them after as many turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.interrupting import Interrupted
from tests.capture.server import ModelServer

CLIENT = """
client = httpx.Client()  # once: to make one takes as long as some answers

def quick(path):
    return client.get(f"{url}/{path}").json()["counter"]
"""
SLEEPS = """
end = time.monotonic() + 1.0
while time.monotonic() < end:
    print(quick("plain/poll"), flush=True)
    time.sleep(0.7)
print(quick("plain/last"))
"""
SLOW_ANSWERS = """
end = time.monotonic_ns() + 1_000_000_000
while time.monotonic_ns() < end:
    print(quick("slow?s=0.7"), flush=True)
print(quick("plain/last"))
"""
AWAITED = """
async def poll(client, name):
    end, turns = time.monotonic() + 1.0, 0
    while time.monotonic() < end:
        await client.get(f"{url}/plain/{name}")
        await asyncio.sleep(0.7)
        turns += 1
    return turns

async def main():
    async with httpx.AsyncClient() as client:
        print(await asyncio.gather(*(poll(client, name) for name in range(4))), flush=True)

asyncio.run(main())
"""
IN_THREADS = """
from concurrent.futures import ThreadPoolExecutor

def poll(name):
    end, turns = time.monotonic() + 1.0, 0
    while time.monotonic() < end:
        quick(f"plain/{name}")
        time.sleep(0.7)
        turns += 1
    return turns

began = time.monotonic()
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(poll, range(4))))
print(1 < time.monotonic() - began < 3)  # they slept at the same time
"""
LATER = SLEEPS.replace('print(quick("plain/last"))', 'crash("poll")\nprint(quick("plain/last"))')


@pytest.mark.parametrize(
    "program", [SLEEPS, SLOW_ANSWERS, AWAITED, IN_THREADS], ids=["sleeps", "answers", "awaited", "threads"]
)
def test_a_replay_comes_to_a_deadline_after_as_many_turns(tmp_path: Path, program: str) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, CLIENT + program, server)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


def test_a_resume_comes_to_a_deadline_after_as_many_turns(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, CLIENT + LATER, server)
        killed = agent.run("record", "--id", "trip", CRASH="poll")
        assert killed.returncode == -9, killed.stderr
        resumed = agent.run("resume", "trip")
        assert resumed.returncode == 0, resumed.stderr
        assert agent.asked("/poll") == len(killed.stdout.splitlines())
