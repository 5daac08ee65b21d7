"""A map that is taken up again: after a kill, a failure or an answer, with other items, beside another process."""

from __future__ import annotations

import asyncio
import gc
import os
import pty
import signal
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, MapResult, Runner, Secret, Trail, node, pause, workflow
from everstep.errors import CodeChangedWarning, GraphChangedError, ItemsDifferError, OwnedError
from tests.integration.running import Crash, act, act_later, calls
from tests.integration.support import environment, output

PATIENCE = 30.0  # seconds until a test that hangs is said to


@pytest.fixture(autouse=True)
def _as_good_as_new() -> None:
    calls.forget()


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened


@workflow
def plain(x: Any) -> Any:
    return act(x)


@workflow
async def awaited(x: Any) -> Any:
    return await act_later(x)


def over(trail: Trail, items: Any, flow: Any = plain, **how: Any) -> MapResult:
    return Runner(trail).map(flow, {"x": list(items)}, map_over="x", id="m", **how)


def failed_at(trail: Trail, items: Any, *fail: Any) -> None:
    """A map that has failed in these items, and completed in the others."""
    calls.fail = set(fail)
    over(trail, items, error_handling="continue")
    calls.forget()


# Which items are which.


def test_only_what_did_not_complete_is_executed_again(trail: Trail) -> None:
    """Promise 2: what completed is restored."""
    failed_at(trail, "abcd", "b", "d")
    many = over(trail, "abcd")
    assert (many.values, calls) == (list("abcd"), ["b", "d"])
    assert [result.restored for result in many] == [True, False, True, False]
    assert (many.restored_count, many.requested_count, many.status) == (2, 4, "completed")


def test_reordered_items_are_restored_wherever_they_stand(trail: Trail) -> None:
    failed_at(trail, "abcd", "b")
    many = over(trail, "dbca")
    assert (many.values, calls, many.restored_count) == (list("dbca"), ["b"], 3)


def test_changed_items_are_new_and_removed_ones_are_left_alone(trail: Trail) -> None:
    failed_at(trail, "abcd", "b")
    before = {run.id: run for run in trail.runs(parent="m")}
    many = over(trail, "aXd")
    assert (many.values, calls, many.restored_count) == (list("aXd"), ["X"], 2)
    after = {run.id: run for run in trail.runs(parent="m")}
    assert len(after) == 5
    assert {run_id: after[run_id] for run_id in before} == before


def test_the_same_item_twice_is_two_runs_and_each_serves_once(trail: Trail) -> None:
    failed_at(trail, "aab", "b")
    assert len(trail.runs(parent="m")) == 3
    many = over(trail, "abaa", error_handling="continue")
    assert (many.values, calls.taken(), many.restored_count) == (list("abaa"), ["b", "a"], 2)
    assert len({result.run_id for result in many}) == 4
    assert (over(trail, "aaab").restored_count, calls) == (4, [])
    with pytest.raises(ItemsDifferError, match="the first at 3"):
        over(trail, "aaaa")


def test_items_are_the_same_whatever_the_order_of_their_keys(trail: Trail) -> None:
    calls.fail = {"end"}
    over(trail, [{"a": 1, "b": {"c": [2], "d": 3}}, "end"], error_handling="continue")
    calls.forget()
    many = over(trail, ["end", {"b": {"d": 3, "c": [2]}, "a": 1}])
    assert (calls, many.restored_count) == (["end"], 1)


def test_items_of_other_types_are_others(trail: Trail) -> None:
    failed_at(trail, [1, "1", 1.0, True, "end"], "end")
    assert (over(trail, [True, 1.0, "1", 1, "end"]).values, calls) == ([True, 1.0, "1", 1, "end"], ["end"])
    assert len(trail.runs(parent="m")) == 5


def test_another_mode_or_another_list_finds_the_items_that_are_the_same(trail: Trail) -> None:
    @workflow
    def both(x: str, y: str = "1") -> str:
        return str(act(x + y))

    calls.fail = {"b1"}
    with pytest.raises(ValueError, match="b1"):
        Runner(trail).map(both, {"x": ["a", "b"]}, map_over="x", id="m")
    calls.forget()
    many = Runner(trail).map(
        both, {"x": ["a", "b"], "y": ["1", "2"]}, map_over=["x", "y"], mode="product", id="m"
    )  # fmt: skip
    assert (many.values, calls) == (["a1", "a2", "b1", "b2"], ["a2", "b1", "b2"])


def test_items_that_are_secrets_are_known_again_and_are_nowhere_on_disk(tmp_path: Path) -> None:
    """Promise 10: not in the id of an item's run either."""

    @workflow
    def login(password: Any) -> int:
        return len(calls(password.reveal()))

    words = ["correct horse", "battery staple"]
    with everstep.open(tmp_path / "trail.db") as trail:
        calls.crash = {words[1]}
        with pytest.raises(Crash):
            Runner(trail).map(login, {"password": list(map(Secret, words))}, map_over="password", id="m")
        calls.forget()
        Runner(trail).map(login, {"password": list(map(Secret, words))}, map_over="password", id="m")
        assert calls == [words[1]]
        assert trail.run("m").status == "completed"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(word.encode() in stored for word in words)


# A map that has completed.


@pytest.mark.parametrize("flow", [plain, awaited])
def test_a_map_that_has_completed_gives_its_results_and_executes_nothing(trail: Trail, flow: Any) -> None:
    first = over(trail, "abc", flow)
    calls.forget()
    rows = {run.id: run for run in trail.runs()}
    many = over(trail, "cb", flow)
    assert (many.values, many.restored_count, many.status, calls) == (["c", "b"], 2, "completed", [])
    assert [result.run_id for result in many] == [first[2].run_id, first[1].run_id]
    assert {run.id: run for run in trail.runs()} == rows
    twin = asyncio.run(AsyncRunner(trail).map(flow, {"x": list("ab")}, map_over="x", id="m"))
    assert (twin.values, twin.restored_count) == (["a", "b"], 2)


def test_items_that_a_completed_map_did_not_have_are_refused_and_point_to_a_new_id(trail: Trail) -> None:
    over(trail, "abc")
    calls.forget()
    with pytest.raises(ItemsDifferError, match="under a new id") as refused:
        over(trail, "aXcY")
    assert (refused.value.run_id, refused.value.indexes, calls) == ("m", (1, 3), [])


def test_an_item_that_was_left_behind_unfinished_is_none_of_a_completed_map(trail: Trail) -> None:
    failed_at(trail, "ab", "b")
    over(trail, "a")
    with pytest.raises(ItemsDifferError):
        over(trail, "ab")


# How the run of the map stands.


def test_a_map_that_is_taken_up_is_active_while_it_works(trail: Trail) -> None:
    seen = []

    @workflow
    def flow(x: str) -> str:
        seen.append((trail.run("m").status, trail.run("m").owner is not None))
        return str(act(x))

    calls.fail = {"b"}
    for status in ("partial", "partial"):
        assert over(trail, "ab", flow, error_handling="continue").status == status
    assert seen == [("active", True)] * 3
    assert trail.run("m").owner is None


@workflow
def asking(x: str) -> str:
    act(x)
    return f"{x} {pause(f'What of {x}?')}" if x in "bd" else x


def test_an_answer_to_one_item_lets_that_item_go_on_and_no_other(trail: Trail) -> None:
    many = over(trail, "abcd", asking)
    assert (many.status, calls.taken()) == ("paused", list("abcd"))
    trail.answer(many[3].run_id, "yes")
    many = over(trail, "abcd", asking)
    assert (many.values, many.status, many.restored_count) == (["a", None, "c", "d yes"], "paused", 2)
    assert trail.state("m") == {"items": 4, "completed": 3, "failed": 0, "waiting": 1}
    trail.answer("m", "no")  # the only question that is left
    many = over(trail, "abcd", asking)
    assert (many.values, many.status, many.restored_count) == (["a", "b no", "c", "d yes"], "completed", 3)
    assert calls == []


@pytest.mark.parametrize("how", [{}, {"error_handling": "continue"}, {"max_concurrency": 3}])
def test_to_map_again_without_an_answer_adds_nothing(trail: Trail, how: Any) -> None:
    over(trail, "abcd", asking)
    rows = {run.id: run.head for run in trail.runs()}
    for _ in range(2):
        many = over(trail, "abcd", asking, **how)
        assert (many.status, len(many.pauses)) == ("paused", 2)
    assert {run.id: run.head for run in trail.runs()} == rows


def test_what_failed_beside_an_item_that_waits_is_tried_again_with_it(trail: Trail) -> None:
    calls.fail = {"c"}
    many = over(trail, "abc", asking, error_handling="continue")
    assert (many.status, [result.status for result in many]) == ("paused", ["completed", "paused", "failed"])
    calls.forget()
    many = over(trail, "abc", asking, error_handling="continue")
    assert (many.status, calls) == ("paused", ["c"])


def test_changed_code_is_told_once_and_not_for_every_item(trail: Trail) -> None:
    failed_at(trail, "abcd", *"abcd")

    @workflow(name="plain")
    def changed(x: Any) -> Any:
        found = act(x)
        return found * 2

    with pytest.warns(CodeChangedWarning, match="run 'm' goes on") as told:
        assert over(trail, "abcd", changed)["none"] == [None] * 4
    assert len(told) == 1


def test_a_changed_graph_is_refused_before_any_item_is_taken_up(trail: Trail) -> None:
    @node(output="y")
    def first(x: str) -> Any:
        return calls(x)

    @node(output="z")
    def second(y: str) -> str:
        return y

    calls.fail = {"a"}
    with pytest.raises(ValueError, match="a"):
        over(trail, "ab", Graph([first], name="g"))
    calls.forget()
    with pytest.raises(GraphChangedError, match="'second' is new"):
        over(trail, "ab", Graph([first, second], name="g"))
    assert (calls, trail.run("m").owner) == ([], None)


@pytest.mark.parametrize("how", [{}, {"max_concurrency": 2}])
def test_what_is_no_failure_gives_the_map_up_for_another_to_go_on_with(trail: Trail, how: Any) -> None:
    calls.crash = {"b"}
    with pytest.raises(Crash):
        over(trail, "abc", **how)
    assert (trail.run("m").status, trail.run("m").owner) == ("active", None)
    assert not trail.runs(parent="m", status="failed")
    assert over(trail, "abc").values == list("abc")


def test_a_task_that_is_cancelled_leaves_its_map_to_be_gone_on_with(trail: Trail) -> None:
    async def cancelled(flow: Any) -> None:
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()
        tell.append(lambda: loop.call_soon_threadsafe(begun.set))
        mapping = asyncio.create_task(
            AsyncRunner(trail).map(flow, {"x": list("abcd")}, map_over="x", id=flow.name, max_concurrency=2)
        )
        await begun.wait()
        mapping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await mapping

    tell: list[Any] = []
    hold = True

    @workflow
    async def hanging(x: str) -> str:
        if x == "b" and hold:
            tell[-1]()
            await asyncio.Event().wait()
        return str(await act_later(x))

    @workflow
    def hanging_plain(x: str) -> str:
        if x == "b" and hold:
            tell[-1]()
            everstep.sleep(PATIENCE)
        return str(act(x))

    asyncio.run(cancelled(hanging))
    asyncio.run(cancelled(hanging_plain))
    for name in ("hanging", "hanging_plain"):
        assert (trail.run(name).status, trail.run(name).owner) == ("active", None)
        assert {run.owner for run in trail.runs(parent=name)} == {None}
    hold = False
    many = Runner(trail).map(hanging, {"x": list("abcd")}, map_over="x", id="hanging")
    assert (many.values, many.status) == (list("abcd"), "completed")


# Processes.

PROGRAM = """
import asyncio, os, sys
import everstep
from everstep import AsyncRunner, Graph, Runner, node, step, workflow

path, side, kind, limit, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
lines = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def effect(name, x):
    os.write(lines, f"{name} {x}\\n".encode())
    return x

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
    path, side, count = tmp_path / "trail.db", tmp_path / "side", 60
    program = (PROGRAM, path, side, kind, limit, count)
    done: set[str] = set()
    for _ in range(3):
        before = len(lines(side))
        process, end = started(*program), time.monotonic() + PATIENCE
        while len(lines(side)) < before + 20:
            assert time.monotonic() < end
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
        assert not done & set(lines(side)[before:])
        done |= completed(path)
    assert 0 < len(done) < 2 * count
    restored = len(done) // 2
    before = len(lines(side))
    status, again, total = output(*program).split()
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
import sys, threading
import everstep
from everstep import Runner, step, workflow

reading = threading.Lock()

@step
def act(x):
    print(x, flush=True)
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
    process = started(
        WAITING, tmp_path / "trail.db", 1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "a\n"
    with everstep.open(tmp_path / "trail.db") as trail:
        with pytest.raises(OwnedError, match="run 'm' is owned by"):
            over(trail, "ab")
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
import sys
import everstep.run.bar
from everstep import Runner, step, workflow

everstep.run.bar._PATIENCE = 0.0

@workflow
def counting(x): return input()

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


def test_no_bar_is_shown_where_nobody_looks() -> None:
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
            gc.collect()
            return tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.unfreeze()


def check_memory(folder: Path, runner: Any, flow: Any, few: int) -> None:
    needed(folder, runner, flow, 50)  # what is made once, and kept
    kept, most = needed(folder, runner, flow, few)
    kept_of_many, most_of_many = needed(folder, runner, flow, 10 * few)
    assert kept_of_many <= 10 * kept
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
