"""A run that ends while another wants it: who looked at it before must not go on with what has completed since."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Kind, Runner, Status, Trail, step, workflow
from everstep.errors import OwnedError, RunFinishedError
from tests.integration.running import Calls, crashed
from tests.integration.support import environment
from tests.places import in_each_place

PROCESSES, TASKS, ROUNDS = 3, 5, 20
CALLS = Calls()


@step
def work(n: int) -> Any:
    return CALLS(n)


@workflow
def job() -> int:
    CALLS("begin")
    return sum(work(n) for n in range(3))


def ends(trail: Trail, run_id: str = "r") -> list[str]:
    """How the run ended, each time that it did."""
    return [row.status.value for row in trail.steps(run_id) if row.kind is Kind.END]


def slow(trail: Trail, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Between its look at a run and its claim others have the time to do something, once."""
    claim = trail.store.claim

    def late(*args: Any) -> Any:
        monkeypatch.setattr(trail.store, "claim", claim)
        meanwhile()
        return claim(*args)

    monkeypatch.setattr(trail.store, "claim", late)


@in_each_place()
@pytest.mark.parametrize("before", ["crash", "fail"])
def test_a_run_that_completes_between_look_and_claim_gives_its_result(
    trail_url: str, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promises 4 and 5: whether it had been cut off when it was looked at, or had failed."""
    with everstep.open(trail_url) as quick, everstep.open(trail_url) as trail:
        if before == "crash":
            CALLS.crash = {2}
            crashed(quick, job, id="r")
        else:
            CALLS.fail = {2}
            Runner(quick).run(job, id="r", error_handling="continue")
        CALLS.forget()
        slow(trail, monkeypatch, lambda: Runner(quick).run(job, id="r"))
        result = Runner(trail).run(job, id="r")
        assert (result.value, result.restored) == (3, True)
        assert CALLS == ["begin", 2]
        assert ends(trail) == (["completed"] if before == "crash" else ["failed", "completed"])
        assert (trail.run("r").status, trail.store.run("r").owner) == (Status.COMPLETED, None)


@in_each_place()
def test_recording_to_a_run_that_completes_between_look_and_claim_is_refused(
    trail_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 5."""
    with everstep.open(trail_url) as quick, everstep.open(trail_url) as trail:
        quick.record("r", workflow="w").release()
        slow(trail, monkeypatch, lambda: quick.record("r").finish())
        with pytest.raises(RunFinishedError, match="is completed"):
            trail.record("r")
        assert ends(trail) == ["completed"]
        assert quick.store.run("r").owner is None


def test_cancelling_a_run_that_completes_between_look_and_claim_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 5."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as quick, everstep.open(path) as trail:
        quick.record("r", workflow="w").release()
        slow(trail, monkeypatch, lambda: quick.record("r").finish())
        with pytest.raises(RunFinishedError, match="is completed"):
            trail.cancel("r")
        assert ends(trail) == ["completed"]


@in_each_place()
def test_a_run_that_fails_between_look_and_claim_is_active_again_with_the_next_step(
    trail_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with everstep.open(trail_url) as quick, everstep.open(trail_url) as trail:
        quick.record("r", workflow="w").release()
        slow(trail, monkeypatch, lambda: quick.record("r").finish(status=Status.FAILED))
        run = trail.record("r")
        assert trail.run("r").status is Status.FAILED
        run.step("on")
        assert (trail.run("r").status, trail.run("r").ended_at) == (Status.ACTIVE, None)
        run.finish()
        assert ends(trail) == ["failed", "completed"]


@step
async def brief(n: int) -> Any:
    await asyncio.sleep(0)
    return CALLS(n)


@workflow
async def awaited() -> int:
    CALLS("begin")
    return sum(await asyncio.gather(*(brief(n) for n in range(4))))


def test_tasks_that_want_one_run_as_it_ends_go_through_its_code_once(tmp_path: Path) -> None:
    """Promises 4 and 5."""

    async def want(run_id: str) -> None:
        while True:
            try:
                assert (await AsyncRunner(trail).run(awaited, id=run_id)).value == 6
            except OwnedError:
                await asyncio.sleep(0)
            else:
                return

    async def all_want(run_id: str) -> None:
        await asyncio.gather(*(want(run_id) for _ in range(TASKS)))

    with everstep.open(tmp_path / "trail.db") as trail:
        for number in range(ROUNDS):
            asyncio.run(all_want(f"r{number}"))
            assert sorted(map(str, CALLS.taken())) == ["0", "1", "2", "3", "begin"]
            assert ends(trail, f"r{number}") == ["completed"]


WANTS = """
import os, sys, everstep
from everstep import Runner, step, workflow

side = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@step
def fetch(n):
    return n

@workflow
def job(name):
    os.write(side, f"{name}\\n".encode())
    return sum(fetch(n) for n in range(3))

with everstep.open(sys.argv[1]) as trail:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[3])):
        while True:
            try:
                assert Runner(trail).run(job, f"r{number}", id=f"r{number}").value == 3
                break
            except everstep.errors.OwnedError:
                pass
"""


@in_each_place()
def test_processes_that_want_one_run_as_it_ends_go_through_its_code_once(trail_url: str, tmp_path: Path) -> None:
    """Promises 4 and 5: nobody takes up what another has completed."""
    everstep.open(trail_url).close()
    side = tmp_path / "side"
    command = [sys.executable, "-c", WANTS, trail_url, str(side), str(ROUNDS)]
    processes = [
        subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
    assert [process.returncode for process in processes] == [0] * PROCESSES
    assert sorted(side.read_text().split()) == sorted(f"r{number}" for number in range(ROUNDS))
    with everstep.open(trail_url) as trail:
        assert {tuple(ends(trail, f"r{number}")) for number in range(ROUNDS)} == {("completed",)}


def test_a_child_that_completes_just_now_leaves_the_others_to_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with everstep.open(tmp_path / "trail.db") as trail:
        trail.record("parent", workflow="w").release()
        for child in ("a", "b", "c"):
            trail.record(child, workflow="w", parent="parent").release()
        claim = trail.store.claim

        def claimed(run_id: str, *more: Any) -> Any:
            if run_id == "b":
                monkeypatch.undo()
                trail.record("b").finish()
            return claim(run_id, *more)

        monkeypatch.setattr(trail.store, "claim", claimed)
        trail.cancel("parent")
        assert {run.id: str(run.status) for run in trail.runs()} == {
            "parent": "cancelled", "a": "cancelled", "b": "completed", "c": "cancelled",
        }  # fmt: skip
