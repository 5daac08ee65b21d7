"""Whether a replay is the run: each tool records each case as often as asked, and replays it without a server."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.capture.tools import PROGRAMS, Ran, Tool, environment
from tests.capture.running import serving

KEY = "sk-bench-4f6d1c0a9b8e7d2c5b3a1f0e9d8c7b6a5"
ROWS = {
    "one_by_one": "one call after the other: SSE, tool call, retry, early close",
    "requests": "`requests`, whole and streamed",
    "gather": "8 identical parallel async calls, answer per task",
    "gather_streams": "the same, streaming",
    "as_completed": "the same, the answers in the order of `asyncio.as_completed`",
    "as_completed_tasks": "the same, which task ends when, and with which answer",
    "pool": "6 identical calls in a `ThreadPoolExecutor`, answer per task",
    "pool_as_completed": "the same, the answers in the order in which the threads end",
    "langgraph": "LangGraph, 3 identical parallel nodes and a join, `invoke` and `ainvoke`",
    "clock": "`datetime.now`, `uuid4` and `randint` in the prompt, and printed",
    "urllib": "`urllib`",
    "subprocess": "a command that calls the server",
}
CHANGED = "prompt changed since the recording"
HEADER, ECHOED = "API key in what is stored", "API key in what is stored, of an answer that echoes it"


@dataclass
class Cell:
    """What one tool made of one case."""

    row: str
    tool: str
    text: str
    equal: int = 0
    of: int = 0
    outcomes: list[str] = field(default_factory=list)
    reached: int = 0  # requests that a server which was up got in one more replay


class Ground:
    """Where cases are tried: a folder, and a server at one port that is there when it should be."""

    def __init__(self, folder: Path, repeats: int) -> None:
        self.folder, self.repeats = folder, repeats
        with serving(folder) as server:
            self.port = server.port  # from now on everything is asked for at this one

    def serving(self) -> Any:
        """The server, up for a while; its answers are new every time."""
        return serving(self.folder, self.port)

    def environment(self, name: str, **more: str) -> dict[str, str]:
        """What a program is told; `name` is that of the round, in record and replay."""
        url = f"http://127.0.0.1:{self.port}"
        return environment(url, KEY, self.folder / "compiled", BENCH_ROUND=name, **more)

    def new(self, name: str) -> Path:
        """A folder for one round."""
        path = self.folder / name
        path.mkdir()
        return path


def replayed(ground: Ground, tool: Tool, case: str) -> Cell:
    """Record a case, stop the server, replay each recording; then replay the last one with a server that listens."""
    program = [str(PROGRAMS / "agent.py"), case]
    names = [f"{case}-{tool.name}-{number}".replace(", ", "-").replace(" ", "-") for number in range(ground.repeats)]
    folders = [ground.new(name) for name in names]
    with ground.serving():
        recorded = [
            tool.record(folder, program, ground.environment(name)) for folder, name in zip(folders, names, strict=True)
        ]
    again = [
        tool.replay(folder, program, ground.environment(name)) for folder, name in zip(folders, names, strict=True)
    ]
    with ground.serving() as server:
        tool.replay(folders[-1], program, ground.environment(names[-1]))
        reached = len(server.log())
    for folder in folders:
        shutil.rmtree(folder)
    outcomes = [outcome(before, after) for before, after in zip(recorded, again, strict=True)]
    return cell(ROWS[case], tool.name, outcomes, reached)


def outcome(recorded: Ran, again: Ran) -> str:
    """What a replay was, in a word or two: `equal`, or how it was not."""
    if recorded.status or not recorded.stdout.endswith("done\n"):
        return "fails while recorded"
    if again.stdout == recorded.stdout:
        return "equal" if again.status == 0 else f"equal, but status {again.status}"
    if again.status == -1:
        return "hangs"
    return "stops" if again.status else "other output, status 0"


def cell(row: str, tool: str, outcomes: Sequence[str], reached: int) -> Cell:
    """The outcomes in one cell of the table: how many were equal, and what most of the others were."""
    equal = sum(each == "equal" for each in outcomes)
    others = Counter(each for each in outcomes if each != "equal").most_common(1)
    notes = [others[0][0]] if others else []
    notes += ["went to the network"] if reached else []
    text = f"{equal}/{len(outcomes)}" + (f" ({'; '.join(notes)})" if notes else "")
    return Cell(row, tool, text, equal, len(outcomes), list(outcomes), reached)


def changed(ground: Ground, tool: Tool) -> Cell:
    """Record a program, and replay it as if its second prompt had been edited."""
    program = [str(PROGRAMS / "agent.py"), "prompt"]
    folder = ground.new(f"changed-{tool.name}".replace(", ", "-").replace(" ", "-"))
    with ground.serving():
        recorded = tool.record(folder, program, ground.environment("changed"))
    again = tool.replay(folder, program, ground.environment("changed", BENCH_TOPIC="tides and winds"))
    shutil.rmtree(folder)
    return Cell(CHANGED, tool.name, verdict(recorded, again))


def verdict(recorded: Ran, again: Ran) -> str:
    """What a tool made of a request that is not the one it has recorded."""
    if recorded.status:
        return "fails while recorded"
    if again.stdout == recorded.stdout:
        said = "and says so" if "drift" in again.stderr.lower() else "and says nothing"
        return f"gives the old answer {said}"
    return "stops" if again.status else "other output, status 0"


def kept(ground: Ground, tool: Tool, row: str) -> Cell:
    """Record calls with a key, and look for it in what was stored, settings as they come."""
    folder = ground.new(f"secret-{row[-2:]}-{tool.name}".replace(", ", "-").replace(" ", "-"))
    more = {"BENCH_TOPIC": "echo"} if row == ECHOED else {}
    with ground.serving():
        recorded = tool.record(folder, [str(PROGRAMS / "agent.py"), "secret"], ground.environment("secret", **more))
    found = sum(KEY.encode() in piece for piece in tool.plain(folder))
    size = sum(len(piece) for piece in tool.plain(folder))
    shutil.rmtree(folder)
    if recorded.status or not size:
        return Cell(row, tool.name, "fails while recorded")
    return Cell(row, tool.name, "yes" if found else "no")


def measured(folder: Path, repeats: int, tools: Sequence[Tool], cases: Sequence[str]) -> Iterator[Cell]:
    """Every row for every tool, as they come."""
    ground = Ground(folder, repeats)
    for case in cases or ROWS:
        if case in ROWS:
            yield from (replayed(ground, tool, case) for tool in tools)
    if not cases or "changed" in cases:
        yield from (changed(ground, tool) for tool in tools)
    if not cases or "secret" in cases:
        for row in (HEADER, ECHOED):
            yield from (kept(ground, tool, row) for tool in tools)


def as_json(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For those who count."""
    return [asdict(each) for each in cells]
