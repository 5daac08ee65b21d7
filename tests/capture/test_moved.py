"""Calls that moved into tasks or threads of their own while a program was down are not made again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.running import environment
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND

HEAD = """
import asyncio, httpx, os, signal
from concurrent.futures import ThreadPoolExecutor
url = os.environ["MODEL_URL"]
client, others = httpx.Client(), httpx.AsyncClient()

def crash():
    if "CRASH" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)

def ask(number):
    return client.get(f"{url}/plain/{number}").text

async def ask_awaited(number):
    return (await others.get(f"{url}/plain/{number}")).text
"""
LOOP = """
for number in range(4):
    if number == 3:
        crash()
    print(ask(number))
"""
POOL = """
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(ask, range(4)), sep="\\n")
"""
LOOP_AWAITED = """
async def main():
    for number in range(4):
        if number == 3:
            crash()
        print(await ask_awaited(number))

asyncio.run(main())
"""
GATHER = """
async def main():
    print(*await asyncio.gather(*(ask_awaited(number) for number in range(4))), sep="\\n")

asyncio.run(main())
"""
HEDGED = """
async def late():
    if "CRASH" in os.environ:
        await asyncio.sleep(60)
    return await ask_awaited(0)

async def main():
    task = asyncio.create_task(late())
    await asyncio.sleep(0)
    print(await ask_awaited(0))
    crash()
    print(await task)

asyncio.run(main())
"""
HEDGED_IN_A_THREAD = """
import threading
stop = threading.Event()

def late():
    if "CRASH" in os.environ:
        stop.wait(60)
    return ask(0)

with ThreadPoolExecutor(1) as pool:
    later = pool.submit(late)
    print(ask(0))
    crash()
    print(later.result())
"""


def _everstep(folder: Path, url: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *words, "--trail", "trail.db", "--", sys.executable, "agent.py"]
    return subprocess.run(
        command, cwd=folder, env=environment(url, **more), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(("before", "after"), [(LOOP, POOL), (LOOP_AWAITED, GATHER)], ids=["pool", "gather"])
def test_a_loop_whose_calls_came_to_run_at_once_makes_none_of_them_again(
    tmp_path: Path, before: str, after: str
) -> None:
    """Promise 2. Put back, the program goes on where it was."""
    agent = tmp_path / "agent.py"
    with ModelServer() as server:
        agent.write_text(HEAD + before, "utf-8")
        assert _everstep(tmp_path, server.url, "record", "--id", "r", CRASH="1").returncode == -9
        agent.write_text(HEAD + after, "utf-8")
        changed = _everstep(tmp_path, server.url, "resume", "r")
        assert (changed.returncode, changed.stdout) == (4, "")
        assert "diverged at step 1" in changed.stderr
        assert "moved" in changed.stderr
        assert "next: everstep fork r --at 0" in changed.stderr
        assert len(server.requests) == 3
        agent.write_text(HEAD + before, "utf-8")
        resumed = _everstep(tmp_path, server.url, "resume", "r")
        assert resumed.returncode == 0, resumed.stderr
        assert len(resumed.stdout.splitlines()) == len(server.requests) == 4


@pytest.mark.parametrize("program", [HEDGED, HEDGED_IN_A_THREAD], ids=["task", "thread"])
def test_a_call_that_is_made_twice_at_once_goes_out_for_the_one_that_is_not_on_record(
    tmp_path: Path, program: str
) -> None:
    """Code that did not change comes to what is on record by itself."""
    (tmp_path / "agent.py").write_text(HEAD + program, "utf-8")
    with ModelServer() as server:
        assert _everstep(tmp_path, server.url, "record", "--id", "r", CRASH="1").returncode == -9
        resumed = _everstep(tmp_path, server.url, "resume", "r")
        assert resumed.returncode == 0, resumed.stderr
        assert len(set(resumed.stdout.splitlines())) == len(server.requests) == 2
