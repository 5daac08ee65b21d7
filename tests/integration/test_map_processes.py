"""Maps in processes: killed, beside one another, told to end; the bar of a terminal; memory."""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, Runner, node, workflow
from everstep.errors import OwnedError
from tests.integration.mapping import PATIENCE, plain
from tests.integration.running import calls
from tests.integration.support import environment, output

PROGRAM = """
import asyncio, itertools, os, signal, sys, threading
import everstep
from everstep import AsyncRunner, Graph, Runner, node, step, workflow

path, side, kind, limit, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
lines, written = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND), itertools.count(1)
enough = threading.Event()

def effect(name, x):
    os.write(lines, f"{name} {x}\\n".encode())
    if next(written) == int(sys.argv[6]):
        enough.set()
    return x

def die():  # in a thread of its own: whatever the others are at
    enough.wait()
    os.kill(os.getpid(), signal.SIGKILL)

threading.Thread(target=die, daemon=True).start()

@step
def one(x): return effect("one", x)
@step
def two(x): return effect("two", x)
@workflow
def plain(x): return two(one(x))

@node(output="a")
async def first(x): return effect("one", x)
@node(output="b")
async def second(a): return effect("two", a)

flow = Graph([first, second], name="graph") if kind == "graph" else plain
runner = (AsyncRunner if kind == "graph" else Runner)(everstep.open(path))
many = runner.map(flow, {"x": list(range(count))}, map_over="x", id="m", max_concurrency=limit)
many = asyncio.run(many) if kind == "graph" else many
print(many.status, many.restored_count, sum(many["b"]) if kind == "graph" else sum(many.values))
"""


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def started(*args: object, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", *map(str, args)]
    return subprocess.Popen(command, env=environment(), text=True, **options)


@pytest.mark.parametrize(("kind", "limit"), [("plain", 1), ("plain", 4), ("graph", 8)])
def test_a_map_that_is_killed_again_and_again_executes_nothing_twice_that_completed(
    tmp_path: Path, kind: str, limit: int
) -> None:
    """Promises 1 and 2: kill -9 in the middle; items that completed, and steps that were acknowledged, are served."""
    path, side, count = tmp_path / "trail.db", tmp_path / "side", 80
    program = (PROGRAM, path, side, kind, limit, count)
    done: set[str] = set()
    for effects in (20, 21, 22):
        before = len(lines(side))
        assert started(*program, effects).wait(PATIENCE) == -signal.SIGKILL
        assert not done & set(lines(side)[before:])
        done |= completed(path)
    assert 0 < len(done) < 2 * count
    restored = len(done) // 2
    before = len(lines(side))
    status, again, total = output(*program, 0).split()
    assert (status, total) == ("completed", str(sum(range(count))))
    assert int(again) >= restored > 0
    assert not done & set(lines(side)[before:])
    assert set(lines(side)) == {f"{name} {x}" for name in ("one", "two") for x in range(count)}
    assert max(Counter(lines(side)).values()) <= 4


def completed(path: Path) -> set[str]:
    """The effects of items that completed."""
    with everstep.open(path) as trail:
        found = [trail.step(run.id, 0).inputs["x"] for run in trail.runs(parent="m", status="completed", limit=1000)]
    return {f"{name} {x}" for name in ("one", "two") for x in found}


WAITING = """
import os, sys, threading
import everstep
from everstep import Runner, step, workflow

reading = threading.Lock()

@step
def act(x):
    os.write(1, (x + "\\n").encode())  # in one piece: two threads say it at once
    with reading:
        return input()
@workflow
def plain(x): return act(x)

many = Runner(everstep.open(sys.argv[1])).map(
    plain, {"x": list("ab")}, map_over="x", id="m", max_concurrency=int(sys.argv[2])
)
print(many.values)
"""


def test_a_second_process_cannot_take_a_map_that_is_at_work(tmp_path: Path) -> None:
    """Promise 4."""
    calls.forget()
    process = started(
        WAITING, tmp_path / "trail.db", 1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "a\n"
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(OwnedError, match="run 'm' is owned by"):
            Runner(trail).map(plain, {"x": ["a", "b"]}, map_over="x", id="m")
        with pytest.raises(OwnedError, match="run 'm' is owned by"):
            asyncio.run(AsyncRunner(trail).map(plain, {"x": ["c"]}, map_over="x", id="m"))
        assert len(trail.runs(parent="m")) == 1
    told, _ = process.communicate("1\n2\n", PATIENCE)
    assert (told, process.returncode, calls) == ("b\n['1', '2']\n", 0, [])


def test_a_process_that_is_told_to_end_keeps_what_is_at_work_in_its_threads(tmp_path: Path) -> None:
    process = started(
        WAITING, tmp_path / "trail.db", 2, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {"a\n", "b\n"}
    process.send_signal(signal.SIGTERM)
    process.communicate("1\n2\n", PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    with everstep.open(tmp_path / "trail.db") as trail:
        assert (trail.run("m").status, trail.run("m").owner) == ("active", None)
    again = started(WAITING, tmp_path / "trail.db", 2, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    told, _ = again.communicate("", PATIENCE)  # there is nothing to read, and nobody asks for it
    assert told in {"['1', '2']\n", "['2', '1']\n"}


BAR = """
import sys, threading
import everstep.run.bar
from everstep import Runner, step, workflow

everstep.run.bar._PATIENCE = 0.0

@workflow
def counting(x):
    for thread in threading.enumerate():
        if thread.name == "everstep-bar":
            thread.join()  # the bar is drawn, if one is to be
    return input()

print(Runner().map(counting, {"x": [1, 2]}, map_over="x", progress=sys.argv[1] == "yes").values)
"""


def test_a_bar_is_shown_on_a_terminal_and_nothing_of_it_goes_anywhere_else() -> None:
    terminal, theirs = pty.openpty()
    process = started(
        BAR, "yes", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs
    )  # fmt: skip
    os.close(theirs)
    assert process.stdin is not None
    seen = b""
    while b"0/2" not in seen:
        seen += os.read(terminal, 1000)
    process.stdin.write("1\n")
    process.stdin.flush()
    while b"1/2" not in seen:
        seen += os.read(terminal, 1000)
    told, _ = process.communicate("2\n", PATIENCE)
    os.close(terminal)
    assert (told, process.returncode) == ("['1', '2']\n", 0)
    assert b"counting" in seen


def test_no_bar_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # colours, and not that somebody looks
    process = started(BAR, "yes", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.communicate("1\n2\n", PATIENCE) == ("['1', '2']\n", "")


def test_no_bar_is_shown_to_who_does_not_want_one() -> None:
    terminal, theirs = pty.openpty()
    process = started(BAR, "no", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert process.communicate("1\n2\n", PATIENCE)[0] == "['1', '2']\n"
    with pytest.raises(OSError, match="Input/output error"):  # the other end is closed, and nothing was written
        os.read(terminal, 1000)
    os.close(terminal)


# Many items.


def needed(folder: Path, runner: Any, flow: Any, count: int) -> tuple[int, int]:
    """How many bytes are in use when a map of so many items has ended, and how many were at the worst moment."""
    gc.collect()
    gc.freeze()  # what was there before is not looked through again and again
    with everstep.open(folder / f"{count}.db") as trail:
        tracemalloc.start()
        try:
            found = runner(trail, durability="exit").map(
                flow, {"x": range(count)}, map_over="x", max_concurrency=8, progress=False
            )  # fmt: skip
            many = asyncio.run(found) if runner is AsyncRunner else found
            assert (len(many), many.status) == (count, "completed")
            trail.close()  # its threads hold what they wrote last until they write something else
            gc.collect()
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.unfreeze()


def check_memory(folder: Path, runner: Any, flow: Any, few: int) -> None:
    needed(folder, runner, flow, 50)  # what is made once, and kept
    kept, most = needed(folder, runner, flow, few)
    kept_of_many, most_of_many = needed(folder, runner, flow, 10 * few)
    assert kept_of_many <= 13 * kept  # lists and dicts grow by leaps, and what is kept of few varies by a sixth
    beyond = (most_of_many - kept_of_many) - (most - kept)
    assert beyond < 512 * 9 * few  # an item that waits has an id, and no task, thread or inputs of its own


def clean(x: int) -> int:
    """Have garbage collected now and then: when Python does it by itself is no matter of items."""
    if x % 100 == 0:
        gc.collect()
    return x


@workflow
def little(x: int) -> int:
    return clean(x)


@node(output="y")
async def little_later(x: int) -> int:
    return clean(x)


MANY = [(Runner, little), (AsyncRunner, Graph([little_later], name="little"))]


@pytest.mark.parametrize(("runner", "flow"), MANY, ids=["threads", "tasks"])
def test_ten_times_as_many_items_need_no_more_memory_for_each(tmp_path: Path, runner: Any, flow: Any) -> None:
    """Promise 11."""
    check_memory(tmp_path, runner, flow, 200)


@pytest.mark.torture
@pytest.mark.parametrize(("runner", "flow"), MANY, ids=["threads", "tasks"])
def test_ten_thousand_items_need_no_more_memory_for_each(tmp_path: Path, runner: Any, flow: Any) -> None:
    """Promise 11."""
    check_memory(tmp_path, runner, flow, 1_000)
