"""Processes that fork, end without closing, or close in the middle of work."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import everstep
from everstep.errors import ClosedError
from tests.integration.support import output, python

FORK = """
import everstep, os, sys
trail = everstep.open(sys.argv[1])
mine = trail.record("parent")
mine.step("before", append={"log": [0]})
assert trail.state("parent") == {"log": [0]}
child = os.fork()
if child == 0:
    assert trail.state("parent", at=1) == {"log": [0]}
    with trail.record("child") as run:
        for number in range(20):
            run.step("s", append={"log": [number]})
    if sys.argv[2] == "exit":
        sys.exit(0)
    if sys.argv[2] == "close":
        trail.close()
    os._exit(0)
for number in range(1, 20):
    mine.step("beside", append={"log": [number]})
assert os.waitpid(child, 0)[1] == 0
mine.step("after", append={"log": [20]})
assert trail.state("parent") == {"log": list(range(21))}, trail.state("parent")
assert trail.state("child") == {"log": list(range(20))}
mine.finish()
assert trail.verify().ok
trail.close()
print("fine")
"""


@pytest.mark.parametrize("ending", ["exit", "close", "at once"])
def test_parent_and_forked_child_both_write(tmp_path: Path, ending: str) -> None:
    """Promises 1 and 4: however the child ends, the parent goes on."""
    assert output(FORK, tmp_path / "trail.db", ending) == "fine"
    assert not (tmp_path / "trail.db-wal").exists()  # the parent was the last, and could fold the log


STAYS = """
import everstep, os, sys
trail = everstep.open(sys.argv[1])
mine = trail.record("parent")
mine.step("before")
here, there = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    status = 1
    try:
        run = trail.record("child")
        run.step("first")
        os.write(here[1], b".")
        os.read(there[0], 1)
        assert trail.state("parent") == {}
        for number in range(5):
            run.step("s")
        status = 0
    finally:
        os._exit(status)
os.read(here[0], 1)
mine.step("after")
trail.close()
os.write(there[1], b".")
assert os.waitpid(child, 0)[1] == 0
print("fine")
"""


def test_a_child_goes_on_when_its_parent_has_closed_the_trail(tmp_path: Path) -> None:
    """Promise 1: the parent does not remove the log that the child writes to."""
    assert output(STAYS, tmp_path / "trail.db") == "fine"
    with everstep.open(tmp_path / "trail.db") as trail:
        assert [trail.run(run).head for run in ("parent", "child")] == [2, 6]
        assert trail.verify().ok


FORK_AMID = """
import everstep, os, sys, threading
trail = everstep.open(sys.argv[1])
stop, acks = threading.Event(), []
def work(name):
    run = trail.record(name)
    while not stop.is_set():
        acks.append((name, run.step("s", output=1).seq))
threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(3)]
for thread in threads: thread.start()
for number in range(30):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with trail.record(f"child-{number}") as run:
                status = 0 if run.step("s", output=2).seq == 1 else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0, number
stop.set()
for thread in threads: thread.join()
heads = {name: max(seq for other, seq in acks if other == name) for name in {name for name, _ in acks}}
assert all(trail.run(name).head == seq for name, seq in heads.items())
assert len(trail.runs()) == 33 and trail.verify().ok
trail.close()
print("fine")
"""


def test_a_fork_while_other_threads_commit_harms_neither_side(tmp_path: Path) -> None:
    """Promise 1: the child has none of the parent's threads, nor the locks they held."""
    assert output(FORK_AMID, tmp_path / "trail.db") == "fine"


POOL = """
import everstep, multiprocessing, sys
trail = everstep.open(sys.argv[1])
trail.record("parent").step("s")
def work(number):
    with trail.record(f"worker-{number}") as run:
        return run.step("s", output=number, output_to="n").seq
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(work, range(12)) == [1] * 12
    assert [trail.state(f"worker-{number}")["n"] for number in range(12)] == list(range(12))
    assert trail.verify().ok
    trail.close()
    print("fine")
"""


def test_workers_of_a_forked_pool_write_to_the_parents_trail(tmp_path: Path) -> None:
    assert output(POOL, tmp_path / "trail.db") == "fine"


LEAVE = """
import asyncio, everstep, os, sys, threading
trail = everstep.open(sys.argv[1])
run = trail.record("r")
acks = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def note(step):
    os.write(acks, f"{step.run_id} {step.seq} {step.hash.hex()}\\n".encode())
async def main():
    recorder = await everstep.AsyncTrail(trail).record("loop")
    for step in await asyncio.gather(*(recorder.step("s", output=n) for n in range(20))):
        note(step)
def work():
    other = trail.record("thread")
    while True:
        note(other.step("s"))
for number in range(20):
    note(run.step("s", append={"log": [number]}))
if sys.argv[3] == "loop":
    asyncio.run(main())
if sys.argv[3] == "thread":
    threading.Thread(target=work, daemon=True).start()
    while not trail.runs(limit=1)[0].id == "thread":
        pass
if sys.argv[3] == "error":
    raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("plain", 0), ("loop", 0), ("thread", 0), ("error", 3)])
def test_a_program_that_never_closes_its_trail_ends_and_loses_nothing(tmp_path: Path, how: str, code: int) -> None:
    """Promise 1."""
    done = python(LEAVE, tmp_path / "trail.db", tmp_path / "acks", how, timeout=30)
    assert (done.returncode, done.stderr) == (code, "")
    acks = [tuple(line.split(" ")) for line in (tmp_path / "acks").read_text().splitlines()]
    assert len(acks) >= 20
    with everstep.open(tmp_path / "trail.db") as trail:
        assert trail.verify().ok
        kept = {(run.id, str(step.seq), step.hash.hex()) for run in trail.runs() for step in trail.steps(run.id)}
        assert set(acks) - kept == set()


class Writer(threading.Thread):
    """Writes to a run of its own until it is told that the trail is closed."""

    def __init__(self, trail: everstep.Trail, name: str) -> None:
        super().__init__(name=name)
        self._trail = trail
        self.begun, self.told = threading.Event(), False
        self.acks: list[tuple[str, int]] = []

    def run(self) -> None:
        recorder = self._trail.record(self.name)
        self.begun.set()
        try:
            while True:
                self.acks.append((self.name, recorder.step("s", output="x" * 100).seq))
        except ClosedError:
            self.told = True


def test_close_while_threads_write_hangs_nobody_and_every_write_is_told(tmp_path: Path) -> None:
    """Promises 1 and 13: each write is acknowledged, and there, or it is a ClosedError."""
    for number in range(10):
        path = tmp_path / f"{number}.db"
        trail = everstep.open(path)
        writers = [Writer(trail, f"t{place}") for place in range(6)]
        for writer in writers:
            writer.start()
        assert all(writer.begun.wait(30) for writer in writers)
        trail.close()
        for writer in writers:
            writer.join(30)
        assert all(writer.told for writer in writers)
        with everstep.open(path) as again:
            assert again.verify().ok
            kept = {(run.id, step.seq) for run in again.runs() for step in again.steps(run.id)}
            assert {ack for writer in writers for ack in writer.acks} - kept == set()
