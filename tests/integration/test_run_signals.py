"""Ctrl-C and SIGTERM, into real processes: the run is given up as it stands, and goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Runner, Status, Trail, step, workflow
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.support import output, python
from tests.integration.test_run_kills import recorded
from tests.integration.workloads import KINDS, lines, started, until
from tests.integration.workloads import go as workload

ENDS = {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 128 + signal.SIGTERM}


@pytest.mark.parametrize("number", ENDS, ids=lambda number: number.name)
@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_gives_the_run_up_and_loses_and_repeats_nothing(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    """Promises 1 and 2: sync and async, with threads, tasks and child runs."""
    trail, side = tmp_path / "trail.db", tmp_path / "side"
    process = started(kind, trail, "r", side, 0.02)
    until(side, 12)
    process.send_signal(number)
    said, wrong = process.communicate(timeout=20)
    assert process.returncode == ENDS[number], wrong
    assert (said, "never retrieved" in wrong) == ("", False)
    known, before = recorded(trail, "r"), len(lines(side))
    with everstep.open(trail) as opened:
        run = opened.run("r")
        assert (run.status, run.owner) == (Status.ACTIVE, None)  # given up: whoever comes next need not wait
    acknowledged = {line.removeprefix("ack ") for line in lines(side) if line.startswith("ack ")} - {""}
    assert acknowledged - set(known) == set()
    finished = started(kind, trail, "r", side, 0.0)
    said, wrong = finished.communicate(timeout=20)
    assert finished.returncode == 0, wrong
    assert [line for line in lines(side)[before:] if line.removeprefix("begin ") in known and line[0] == "b"] == []
    assert json.loads(json.dumps(workload(kind, ":memory:", "whole", str(tmp_path / "other"), 0.0))) == json.loads(said)


# Nothing is taken on the way out: it would stand where the resumed run asks for something else.


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


def press() -> None:
    """Ctrl-C, in the middle of this code."""
    signal.raise_signal(signal.SIGINT)


@workflow
def cleans_up() -> str:
    act("a")
    try:
        if WORLD.bad:
            press()
    except BaseException:
        act("clean")
        raise
    return act("c")


@step(output=None)
def composite() -> str:
    try:
        act("b")
        if WORLD.bad:
            press()
    finally:
        act("clean")
    return act("c")


@workflow
def cleans_up_inside() -> str:
    try:
        return composite()
    finally:
        act("done")


@workflow
def child() -> str:
    return composite()


@workflow
def cleans_up_in_a_child() -> str:
    try:
        return child()
    finally:
        act("done")


@workflow
def swallows() -> str:
    with contextlib.suppress(BaseException):  # what is not to be done, and must do no harm
        composite()
    return act("done")


@workflow
def converts() -> str:
    try:
        return composite()
    except BaseException as error:
        raise ValueError("never mind") from error


@pytest.mark.parametrize("workflow", [cleans_up, cleans_up_inside, cleans_up_in_a_child, swallows, converts], ids=repr)
def test_an_interrupted_run_takes_no_step_on_its_way_out(trail: Trail, workflow: Any) -> None:
    """Promise 2, whatever the code makes of Ctrl-C."""
    with everstep.open(":memory:") as other:
        value, calls = go(other, workflow).value, WORLD.taken()
    WORLD.bad.add("press")
    with pytest.raises(KeyboardInterrupt):
        go(trail, workflow)
    assert not {"clean", "done", "c"} & set(WORLD)
    assert trail.run("r").status is Status.ACTIVE
    WORLD.bad.clear()
    assert go(trail, workflow).value == value
    assert WORLD.taken() == calls
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@workflow
async def cleans_up_later() -> str:
    await act_later("a")
    try:
        await act_later("slow")
    finally:
        await act_later("clean")
    return await act_later("c")


@workflow
async def tasks_clean_up() -> str:
    async def branch(name: str) -> str:
        try:
            return await act_later(name)
        finally:
            await act_later(f"clean {name}")

    await asyncio.gather(branch("slow"), branch("a"))
    return await act_later("c")


@pytest.mark.parametrize("workflow", [cleans_up_later, tasks_clean_up], ids=repr)
def test_a_run_whose_task_is_cancelled_takes_no_step_on_its_way_out(trail: Trail, workflow: Any) -> None:
    """Promise 2: as when the loop is shut down, or a server's request is dropped."""
    with everstep.open(":memory:") as other:
        value = go(other, workflow).value
    WORLD.taken()
    WORLD.slow["slow"] = 60

    async def drop() -> None:
        running = asyncio.ensure_future(AsyncRunner(trail).run(workflow, id="r"))
        while "a" not in WORLD or len(trail.steps("r")) < 2:  # noqa: ASYNC110 - there is nothing else to wait for
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(drop())
    done = WORLD.taken()
    assert "clean" not in done
    run = trail.run("r")
    assert (run.status, run.owner) == (Status.ACTIVE, None)
    WORLD.heal()
    assert go(trail, workflow).value == value
    assert "a" not in WORLD.taken()


def test_a_plain_workflow_whose_task_is_cancelled_takes_no_further_step(trail: Trail) -> None:
    """It runs in a thread, which cannot be ended: the step at work is its last, and is kept."""

    @workflow
    def plain() -> str:
        act("a")
        time.sleep(0.1)
        return act("c")

    async def drop() -> None:
        running = asyncio.ensure_future(AsyncRunner(trail).run(plain, id="r"))
        while "a" not in WORLD:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(drop())
    run = trail.run("r")
    assert (run.status, run.owner) == (Status.ACTIVE, None)
    assert WORLD.taken() == ["a"]
    assert Runner(trail).run(plain, id="r").value == "c"
    assert WORLD.taken() == ["c"]


def test_the_handlers_of_a_program_stay_its_own(trail: Trail) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:

        @workflow
        def terminated() -> str:
            act("a")
            signal.raise_signal(signal.SIGTERM)
            return act("c")

        assert go(trail, terminated).value == "c"
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


TERMINATED_IN_A_THREAD = """
import asyncio, os, signal, sys, time, everstep
from everstep import AsyncRunner, step, workflow

@step
def act(number):
    if number == 1:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
    return number

@workflow
def plain():
    return [act(number) for number in range(3)]

asyncio.run(AsyncRunner(everstep.open(sys.argv[1]), durability="exit").run(plain, id="r"))
"""


def test_a_plain_workflow_on_a_loop_that_is_terminated_keeps_the_step_at_work(tmp_path: Path) -> None:
    """Promise 2: also where nothing was written before."""
    assert python(TERMINATED_IN_A_THREAD, tmp_path / "trail.db").returncode == 128 + signal.SIGTERM
    with everstep.open(tmp_path / "trail.db") as trail:
        assert [row.name for row in trail.steps("r")] == ["plain", "act", "act"]
        assert trail.run("r").owner is None


CTRL_C_AGAIN_AND_AGAIN = """
import os, random, signal, sys, threading, time
import everstep
from everstep import Runner, step, workflow

@step
def act(number):
    os.write(side, b".")
    return number

@workflow
def counts():
    return [act(number) for number in range(1_000)]

def press():
    time.sleep(0.005 + random.random() * 0.03 + tries * 0.003)  # more and more: a busy machine gets on too
    os.kill(os.getpid(), signal.SIGINT)

def run():
    try:
        threading.Thread(target=press, daemon=True).start()
        Runner(everstep.open(sys.argv[1])).run(counts, id="r")
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)

side = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
everstep.open(":memory:").close()
tries, code = 0, 130
while code == 130:
    process = os.fork()
    if process == 0:
        run()
    tries, code = tries + 1, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
assert code == 0, code
print(tries)
"""


def test_ctrl_c_at_any_moment_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    """Promises 1 and 2: wherever it lands, again and again; each step is on record once."""
    tries = int(output(CTRL_C_AGAIN_AND_AGAIN, tmp_path / "trail.db", tmp_path / "side"))
    assert tries > 3
    executed = len((tmp_path / "side").read_bytes())
    assert 1_000 <= executed < 1_000 + tries  # a step that was cut off is executed again; no other is
    with everstep.open(tmp_path / "trail.db") as trail:
        assert trail.verify().ok
        assert [row.inputs["number"] for row in trail.steps("r") if row.name == "act"] == list(range(1_000))


POOLS = """
import asyncio, multiprocessing, os, signal, sys, everstep

def double(number):
    return 2 * number

def forked():
    "A process that SIGTERM comes to while it is still being made: it sends it to itself."
    os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))
    child = multiprocessing.get_context("fork").Process(target=double, args=(1,))
    child.start()
    child.join()
    return child.exitcode

def pooled():
    "Many, as a worker that is ended right after it was made is a matter of chance."
    for _ in range(10):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(double, range(3))
    return found

@everstep.step
def crunch(how):
    return globals()[how]()

@everstep.step
async def crunch_later(how):
    return await asyncio.to_thread(globals()[how])

@everstep.workflow
def plain():
    return [crunch("pooled"), crunch("forked")]

@everstep.workflow
async def awaited():
    return [await crunch_later("pooled"), await asyncio.to_thread(crunch, "forked")]

runner = everstep.Runner(everstep.open(sys.argv[1]))
print(runner.run(globals()[sys.argv[2]], id="r").value)
"""


@pytest.mark.parametrize("workflow", ["plain", "awaited"])
def test_a_process_of_a_pool_that_is_told_to_end_does_and_its_run_goes_on(tmp_path: Path, workflow: str) -> None:
    """A pool ends its workers by SIGTERM, and waits for them; what a run does with that signal is not theirs."""
    assert output(POOLS, tmp_path / "trail.db", workflow) == f"[[0, 2, 4], {-signal.SIGTERM}]"
