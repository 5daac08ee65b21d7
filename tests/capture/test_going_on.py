"""Programs that go on while something of theirs is open: a stream, a task, a thread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.capture.running import environment
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND

HEAD = """
import asyncio, httpx, os, signal, sys
url = os.environ["MODEL_URL"]
asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Plan. [chunks 4]"}]}

def crash():
    if "CRASH" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""
LEFT_OPEN = """
client = httpx.Client()
answer = client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked), stream=True)
for line in answer.iter_lines():
    print(line)
    if line == "data: [DONE]":
        break
print(httpx.get(url + "/plain/a").text)
print(httpx.get(url + "/plain/b").text)
crash()
print(httpx.get(url + "/plain/c").text)
"""
LEFT_OPEN_AWAITED = """
async def main():
    client = httpx.AsyncClient()
    answer = await client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked), stream=True)
    async for line in answer.aiter_lines():
        print(line)
        if line.startswith("data: [DONE]"):
            break
    print((await client.get(url + "/plain/a")).text)
    print((await client.get(url + "/plain/b")).text)
    crash()
    print((await client.get(url + "/plain/c")).text)

asyncio.run(main())
"""
NEVER_CLOSED = """
import subprocess
client = httpx.Client()
answer = client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked), stream=True)
next(answer.iter_lines())
child = subprocess.Popen(["sleep", "0.1"])

async def main():
    global awaited
    client = httpx.AsyncClient()
    awaited = await client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked), stream=True)
    async for line in awaited.aiter_lines():
        if line == "data: [DONE]":
            break

asyncio.run(main())
"""
FULL_DISK = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
client = httpx.Client()
for number in range(5):
    if number == 2 and "FITS" not in os.environ:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, -1))
    try:
        client.post(url + "/v1/chat/completions", json={**asked, "stream": False, "n": number})
        print("asked", number, flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
"""
SEVERAL = """
client = httpx.Client()
answers = [
    client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked | {"n": number}), stream=True)
    for number in range(3)
]
for answer in reversed(answers):
    for line in answer.iter_lines():
        print(line)
        if line == "data: [DONE]":
            break
print(httpx.get(url + "/plain/a").text)
print(httpx.get(url + "/plain/b").text)
crash()
print(httpx.get(url + "/plain/c").text)
"""
BOTH_WAYS = """
async def main():
    client = httpx.Client()
    answer = client.send(client.build_request("POST", url + "/v1/chat/completions", json=asked), stream=True)
    for line in answer.iter_lines():
        print(line)
        if line == "data: [DONE]":
            break
    async with httpx.AsyncClient() as other:
        print((await other.get(url + "/plain/a")).text)
    print(httpx.get(url + "/plain/b").text)
    crash()
    print(httpx.get(url + "/plain/c").text)

asyncio.run(main())
"""
ORDERS = """
with httpx.stream("POST", url + "/v1/chat/completions", json=asked) as answer:
    for number, line in enumerate(line for line in answer.iter_lines() if line):
        if number == 1:
            print("ordered", httpx.post(url + "/plain/order", json={"item": line}).text, flush=True)
        if number == 2:
            crash()
"""
BLOCKS = """
url = url.replace("127.0.0.1", "localhost")  # which the loop looks up in a thread

async def worker(name, client):
    got = []
    for number in range(3):
        got.append((await client.get(f"{url}/plain/{name}-{number}")).json()["counter"])
        got.append(httpx.get(f"{url}/plain/tool-{name}-{number}").json()["counter"])  # a tool that blocks the loop
    return got

async def main():
    async with httpx.AsyncClient() as client:
        for got in await asyncio.gather(*(worker(name, client) for name in range(8))):
            print(got)

asyncio.run(main())
"""


class Recorded:
    """A program in a folder, and the server that it asks."""

    def __init__(self, folder: Path, program: str, server: ModelServer) -> None:
        self.folder, self.server = folder, server
        (folder / "agent.py").write_text(HEAD + program)

    def run(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A command on it."""
        command = [*COMMAND, *words, "--trail", "t.db", "--", sys.executable, "agent.py"]
        known = environment(self.server.url, **more)
        return subprocess.run(
            command, cwd=self.folder, env=known, capture_output=True, text=True, timeout=60, check=False
        )

    def asked(self, path: str) -> int:
        """How often the server was asked for something."""
        return sum(request.path.endswith(path) for request in self.server.requests)


@pytest.mark.parametrize(("program", "streams"), [(LEFT_OPEN, 1), (LEFT_OPEN_AWAITED, 1), (SEVERAL, 3), (BOTH_WAYS, 1)])
def test_a_stream_that_was_had_whole_and_left_open_is_not_asked_again(
    tmp_path: Path, program: str, streams: int
) -> None:
    """Promise 2: the client stopped at its last event, and went on; so do those of several libraries."""
    with ModelServer() as server:
        agent = Recorded(tmp_path, program, server)
        killed = agent.run("record", "--id", "trip", CRASH="1")
        assert killed.returncode == -9
        resumed = agent.run("resume", "trip")
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout.startswith(killed.stdout)
        assert [agent.asked(path) for path in ("completions", "/a", "/b", "/c")] == [streams, 1, 1, 1]
        replayed = agent.run("replay", "trip", "--sealed")
        assert replayed.returncode == 0, replayed.stderr
        assert replayed.stdout == resumed.stdout


def test_an_effect_that_followed_chunks_which_came_otherwise_is_not_repeated(tmp_path: Path) -> None:
    """Promise 3: the stream was cut off, is asked again and says something else. The order was placed all the same."""
    with ModelServer() as server:
        agent = Recorded(tmp_path, ORDERS, server)
        agent.run("record", "--id", "trip", CRASH="1")
        assert agent.asked("/order") == 1
        for _ in range(2):
            resumed = agent.run("resume", "trip")
            assert resumed.returncode == 4
            assert "changed argument" in resumed.stderr
            assert "Traceback" not in resumed.stderr
        assert agent.asked("/order") == 1


def test_a_call_that_blocks_a_loop_beside_calls_that_are_awaited_there_holds_up_nothing(tmp_path: Path) -> None:
    with ModelServer(delay=0.02) as server:
        agent = Recorded(tmp_path, BLOCKS, server)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        replayed = agent.run("replay", "trip", "--sealed")
        assert replayed.returncode == 0, replayed.stderr
        assert replayed.stdout == recorded.stdout
    with everstep.open(tmp_path / "t.db") as trail:
        assert trail.verify("trip").ok


def test_a_program_that_goes_on_when_its_calls_cannot_be_recorded_makes_no_more(tmp_path: Path) -> None:
    """Promise 13. What was had and could not be recorded is asked for again when the run goes on."""
    (tmp_path / "agent.py").write_text(HEAD + FULL_DISK)
    with ModelServer() as server:
        env = environment(server.url)
        for verb, status, printed, asked in (
            (["record", "--id", "x"], 1, "asked 0\nasked 1\nStoreError\n", 3),
            (["resume", "x"], 0, "".join(f"asked {number}\n" for number in range(5)), 6),
        ):
            got = subprocess.run(
                [*COMMAND, *verb, "--trail", "t.db", "--", sys.executable, "agent.py"], cwd=tmp_path, env=env,
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (got.returncode, got.stdout, len(server.requests)) == (status, printed, asked), got.stderr
            assert ("the file system failed" in got.stderr) is (status == 1)
            env["FITS"] = "yes"


def test_a_replay_counts_the_answers_that_its_program_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(HEAD + NEVER_CLOSED)
    with ModelServer() as server:
        for verb in (["record", "--id", "x"], ["replay", "x"]):
            got = subprocess.run(
                [*COMMAND, *verb, "--trail", "t.db", "--", sys.executable, "agent.py"], cwd=tmp_path,
                env=environment(server.url), capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert got.returncode == 0, got.stderr
    assert "identical: 3 steps answered from the record" in got.stderr
