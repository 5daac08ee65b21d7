"""MCP servers over stdio: each request is a step; a replay needs no server, and a resumed program one when it must."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp_types import CreateMessageResult, TextContent

import everstep
from everstep.capturing.session import capture
from everstep.errors import DivergenceError
from everstep.model import Kind

SERVER = """
import json, os, sys

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def chance():
    return os.urandom(4).hex()

for line in sys.stdin:
    asked = json.loads(line)
    with open(sys.argv[1], "a") as log:
        log.write(asked.get("method", "answer") + " " + str(asked.get("params", {}).get("arguments", "")) + "\\n")
    method, params, number = asked.get("method"), asked.get("params", {}), asked.get("id")
    if method == "initialize":
        info = {"name": "demo", "version": chance()}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        say({"id": number, "result": result})
    elif method == "tools/list":
        tools = [{"name": name, "description": chance(), "inputSchema": {"type": "object"}} for name in ("draw", "ask")]
        say({"id": number, "result": {"tools": tools}})
    elif method == "tools/call":
        token, text = params.get("_meta", {}).get("progressToken"), chance()
        if token is not None:
            for part in range(3):
                news = {"progressToken": token, "progress": part, "message": chance()}
                say({"method": "notifications/progress", "params": news})
        if params["name"] == "fail":
            say({"id": number, "error": {"code": -32000, "message": "no " + chance()}})
            continue
        if params["name"] == "never":
            continue
        if params["name"] == "die":
            os._exit(3)
        if params["name"] == "ask":
            question = {"role": "user", "content": {"type": "text", "text": chance()}}
            say({"id": 900, "method": "sampling/createMessage", "params": {"messages": [question], "maxTokens": 5}})
            text += " " + json.loads(sys.stdin.readline())["result"]["content"]["text"]
        say({"id": number, "result": {"content": [{"type": "text", "text": text}]}})
"""


class Place:
    """A folder with a server, what it was asked, and a trail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server, self.log = folder, folder / "server.py", folder / "log"
        self.server.write_text(SERVER, "utf-8")

    def asked(self) -> list[str]:
        return self.log.read_text("utf-8").splitlines() if self.log.exists() else []

    def run(self, program: Callable[..., Any], mode: Any = "record", **more: Any) -> list[Any]:
        said: list[Any] = []

        async def main() -> None:
            words = ["-I", "-S", str(self.server), str(self.log)]
            answers = Answers(said, more.pop("answer", "yes"))
            async with (
                stdio_client(StdioServerParameters(command=sys.executable, args=words)) as (read, write),
                ClientSession(read, write, sampling_callback=answers) as session,
            ):
                await program(session, said, **more)

        with everstep.open(self.folder / "trail.db") as trail, capture(trail, "run", mode=mode):
            asyncio.run(main())
        return said

    def steps(self) -> list[str]:
        with everstep.open(self.folder / "trail.db") as trail:
            return [step.name for step in trail.steps("run") if step.kind is Kind.STEP]


class Answers:
    """The program's answers to what the server asks of its model."""

    def __init__(self, said: list[Any], text: str) -> None:
        self._said, self._text = said, text

    async def __call__(self, context: Any, params: Any) -> CreateMessageResult:
        self._said.append(["asked", params.messages[0].content.text])
        content = TextContent(type="text", text=self._text)
        return CreateMessageResult(role="assistant", content=content, model="m")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def drawn(session: ClientSession, number: int, name: str = "draw", **more: Any) -> Any:
    content: Any = (await session.call_tool(name, {"number": number}, **more)).content[0]
    return content.text


async def everything(session: ClientSession, said: list[Any]) -> None:
    async def progress(*news: Any) -> None:
        said.append(list(news))

    async def one(number: int) -> None:
        said.append([number, await drawn(session, 0)])

    said.append((await session.initialize()).model_dump())
    said.append((await session.list_tools()).model_dump())
    said += [await drawn(session, number) for number in range(3)]
    said.append(await drawn(session, 3, progress_callback=progress))
    said.append(await drawn(session, 4, "ask"))
    await asyncio.gather(*(one(number) for number in range(5)))
    for name in ("fail", "never", "draw", "die"):
        try:
            said.append(await drawn(session, 5, name, read_timeout_seconds=0.3 if name == "never" else 20))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the same in replay
            said.append([type(error).__name__, str(error)])


def test_a_session_is_the_same_in_replay_without_its_server(place: Place) -> None:
    first = place.run(everything)
    asked = place.asked()
    place.server.unlink()
    for _ in range(2):
        assert place.run(everything, "verify") == first
    assert place.asked() == asked
    assert place.steps()[:4] == [
        "mcp server.py start", "mcp server.py initialize", "mcp server.py tools/list", "mcp server.py tools/call draw"
    ]  # fmt: skip


@pytest.mark.torture
def test_replays_of_a_session_are_identical_20_of_20(place: Place) -> None:
    first = place.run(everything)
    place.server.unlink()
    assert [place.run(everything, "verify") for _ in range(20)] == [first] * 20


async def draws(
    session: ClientSession, said: list[Any], numbers: tuple[int, ...] = (1, 2, 3), name: str = "draw"
) -> None:
    await session.initialize()
    said += [await drawn(session, number, name) for number in numbers]


@pytest.mark.parametrize(("changed", "step"), [({"numbers": (1, 9, 3)}, 2), ({"name": "ask"}, 1)])
def test_another_argument_or_tool_is_a_divergence_at_that_call(place: Place, changed: Any, step: int) -> None:
    place.run(draws)
    with everstep.open(place.folder / "trail.db") as trail:
        calls = [each.seq for each in trail.steps("run") if "tools/call" in each.name]
    with pytest.raises(DivergenceError) as found:
        place.run(draws, "verify", **changed)
    assert found.value.seq == calls[2 * step - 2]  # each call is announced, then has its outcome


def test_another_answer_to_the_server_is_a_divergence(place: Place) -> None:
    place.run(draws, name="ask", numbers=(1,))
    with pytest.raises(DivergenceError, match=r"tools/call ask.*yes.*no"):
        place.run(draws, "verify", name="ask", numbers=(1,), answer="no")


CRASHES = """
import asyncio, os, sys
from pathlib import Path
from tests.capture.test_mcp import Place, draws, drawn

async def crashes(session, said):
    await session.initialize()
    for number in (1, 2):
        await drawn(session, number)
    os._exit(9)

Place(Path(sys.argv[1])).run(crashes)
"""


def test_a_resumed_program_repeats_no_answered_call_and_starts_the_server_when_it_needs_it(place: Place) -> None:
    root = str(Path(__file__).parents[2])
    crashed = subprocess.run(
        [sys.executable, "-c", CRASHES, str(place.folder)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    assert crashed.returncode == 9
    first = place.asked()
    assert sum(line.startswith("tools/call") for line in first) == 2
    said = place.run(draws)
    since = place.asked()[len(first) :]
    assert since[:2] == ["initialize ", "notifications/initialized "]
    assert [line for line in since if line.startswith("tools/call")] == ["tools/call {'number': 3}"]
    assert place.run(draws, "verify") == said


def test_a_server_that_cannot_be_started_fails_in_replay_as_it_did(place: Place) -> None:
    async def main() -> None:
        async with stdio_client(StdioServerParameters(command="/no/such/server")):
            pass

    for mode in ("record", "verify"):
        with (
            pytest.raises(FileNotFoundError, match="/no/such/server"),
            everstep.open(place.folder / "trail.db") as trail,
            capture(trail, "run", mode=mode),
        ):
            asyncio.run(main())
