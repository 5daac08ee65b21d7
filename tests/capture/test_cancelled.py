"""Awaited calls that something cancelled which is not on record: they are cancelled again; nobody waits for ever."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import everstep
from everstep.model import Status
from tests.capture.interrupting import SLOW, Interrupted
from tests.capture.server import ModelServer

STOPPED = """
async def main():
    async with httpx.AsyncClient(timeout=None) as client:
        async def get(name):
            return (await client.get(f"{url}/plain/{name}")).json()["counter"]
        print(await get("a"), flush=True)
        task = asyncio.create_task(client.get(slow))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
        try:
            print(await task)
        except asyncio.CancelledError:
            print("stopped", flush=True)
        print(await get("b"), flush=True)
        crash("b")
        print(await get("c"), flush=True)
asyncio.run(main())
"""
WITHIN_A_TIMEOUT = STOPPED.replace("print(await task)", "print(await asyncio.wait_for(task, 3600))")
BESIDE_A_HEART = STOPPED.replace(
    "        task =",
    """
        async def beat():
            while True:
                await asyncio.sleep(0.01)
        heart = asyncio.create_task(beat())
        task =""",
)
SEVERAL = STOPPED.replace("create_task(client.get(slow))", "gather(*(client.get(slow) for _ in range(3)))")
PROGRAMS = [(STOPPED, 1), (WITHIN_A_TIMEOUT, 1), (BESIDE_A_HEART, 1), (SEVERAL, 3)]

AFTER_THE_LAST_EVENT = """
asked = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
asked["messages"] = [{"role": "user", "content": "Plan."}]

async def one(client):
    async with client.stream("POST", url + "/v1/chat/completions", json=asked) as answer:
        lines = answer.aiter_lines()
        async for line in lines:
            if line == "data: [DONE]":
                break
        try:
            async with asyncio.timeout(0):  # as openai has it, to use the connection again
                async for _ in lines:
                    pass
        except TimeoutError:
            pass

async def main():
    async with httpx.AsyncClient(timeout=None) as client:
        for _ in range(4):
            await one(client)
        await asyncio.gather(*(one(client) for _ in range(4)))
asyncio.run(main())
"""


@pytest.mark.parametrize(("program", "calls"), PROGRAMS, ids=["alone", "timeout", "heart", "several"])
def test_a_call_that_a_signal_cancelled_is_cancelled_by_a_replay_and_a_resume(
    tmp_path: Path, program: str, calls: int
) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, program, server)
        killed = agent.signalled(signal.SIGINT, "record", "--id", "trip", calls=calls, CRASH="b")
        assert killed.returncode == -9, killed.stderr
        assert killed.stdout.splitlines()[1] == "stopped"
        slow = agent.asked(SLOW)
        resumed = agent.run("resume", "trip")
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout.startswith(killed.stdout)
        assert (agent.asked(SLOW), agent.asked("/b"), agent.asked("/c")) == (slow, 1, 1)
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


def test_an_answer_that_was_had_whole_counts_though_the_code_did_not_wait_for_its_end(tmp_path: Path) -> None:
    with ModelServer(delay=0.02) as server:
        agent = Interrupted(tmp_path, AFTER_THE_LAST_EVENT, server)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        replayed = agent.run("replay", "trip", "--sealed")
        assert "identical: 8 steps answered from the record" in replayed.stderr
    with everstep.open(str(tmp_path / "t.db")) as trail:
        steps = trail.steps("trip")
        used = trail.usage("trip").total
    ended = {step.status for step in steps if step.name == "openai chat"}
    assert Status.CANCELLED in ended
    assert (used.calls, used.tokens > 100) == (8, True)
    assert all(step.node_type == "model" for step in steps if step.name == "openai chat")
