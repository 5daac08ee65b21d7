"""Awaited calls that something cancelled which is not on record: they are cancelled again; nobody waits for ever."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "program", [STOPPED, WITHIN_A_TIMEOUT, BESIDE_A_HEART, SEVERAL], ids=["alone", "timeout", "heart", "several"]
)
def test_a_call_that_a_signal_cancelled_is_cancelled_by_a_replay_and_a_resume(tmp_path: Path, program: str) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, program, server)
        killed = agent.signalled(signal.SIGINT, "record", "--id", "trip", CRASH="b")
        assert killed.returncode == -9, killed.stderr
        assert killed.stdout.splitlines()[1] == "stopped"
        slow = agent.asked(SLOW)
        resumed = agent.run("resume", "trip")
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout.startswith(killed.stdout)
        assert (agent.asked(SLOW), agent.asked("/b"), agent.asked("/c")) == (slow, 1, 1)
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr
