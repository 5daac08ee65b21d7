"""Programs that leave at once, by `os._exit`, or make a call on their way out."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import httpx
import pytest

import everstep
from everstep.capturing import stubborn
from everstep.errors import DivergenceError
from everstep.model import Status
from tests.capture.interrupting import SLOW, Interrupted
from tests.capture.server import ModelServer

AT_ONCE = """
print(ask("a"), flush=True)
os._exit(int(os.environ.get("STATUS", 0)))
"""
IN_A_THREAD = """
import threading

def work():
    print(ask("a"), flush=True)
    os._exit(3)

threading.Thread(target=work).start()
time.sleep(60)
"""
FORKED = """
import warnings
warnings.simplefilter("ignore")
print(ask("a"), flush=True)
if not os.fork():
    {leave}
print(os.WEXITSTATUS(os.wait()[1]), ask("b"), flush=True)
"""
WHATEVER_COMES = """
try:
    print(ask(os.environ.get("NAME", "a")), flush=True)
finally:
    os._exit(0)
"""
CLOSES = """
print(ask("a"), flush=True)
try:
    httpx.get(slow, timeout=None)
finally:
    print("closed", ask("close"), flush=True)
"""


@pytest.mark.parametrize(
    ("program", "status", "stands"),
    [(AT_ONCE, 0, Status.COMPLETED), (AT_ONCE, 7, Status.FAILED), (IN_A_THREAD, 3, Status.FAILED)],
    ids=["well", "badly", "in a thread"],
)
def test_a_program_that_leaves_at_once_has_its_run_ended(
    tmp_path: Path, program: str, status: int, stands: Status
) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, program, server)
        recorded = agent.run("record", "--id", "trip", STATUS=str(status))
        assert recorded.returncode == status, recorded.stderr
        assert f"everstep: trip {'is completed' if status == 0 else 'failed'}." in recorded.stderr
        with everstep.open(tmp_path / "t.db", read_only=True) as trail:
            assert trail.run("trip").status is stands
            assert trail.state("trip")["stdout"] == recorded.stdout
        replayed = agent.run("replay", "trip", "--sealed", STATUS=str(status))
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
        assert "trip: identical" in replayed.stderr
        assert len(server.requests) == 1


def test_a_replay_tells_of_a_divergence_though_the_program_leaves_at_once(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, WHATEVER_COMES, server)
        assert agent.run("record", "--id", "trip").returncode == 0
        replayed = agent.run("replay", "trip", "--sealed", NAME="b")
        assert replayed.returncode == 4, replayed.stderr
        assert "diverged" in replayed.stderr


@pytest.mark.parametrize(
    ("leave", "status"), [("os._exit(9)", 9), ("sys.exit(9)", 9), ("print('x'); sys.exit()", 0), ("raise OSError", 1)]
)
def test_a_forked_process_leaves_alone(tmp_path: Path, leave: str, status: int) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, FORKED.format(leave=leave), server)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        said = recorded.stdout.splitlines()
        assert said[-1].startswith(f"{status} ")
        assert ("x" in said) is ("print" in leave)
        assert recorded.stderr.count("everstep:") == 1, recorded.stderr


def test_a_replay_comes_to_the_end_of_the_record_whatever_a_program_asks_on_its_way_out(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, CLOSES, server)
        with agent.started("record", "--id", "trip") as process:
            while not agent.asked(SLOW):
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)
        replayed = agent.run("replay", "trip", "--sealed")
        assert replayed.returncode == 0, replayed.stderr
        assert "identical, as far as the record goes" in replayed.stderr


TALKS = """
shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
for turn in range(2):
    shell.stdin.write("echo $RANDOM $$\\n")
    print(ask(shell.stdout.readline().strip()), flush=True)
    crash("talking")
shell.communicate()
"""


def test_a_divergence_after_a_process_was_begun_anew_names_the_process(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, TALKS, server)
        assert agent.run("record", "--id", "trip", CRASH="talking").returncode == -9
        resumed = agent.run("resume", "trip", "--unknown", "retry")
        assert resumed.returncode == 4, resumed.stderr
        assert "It may come of a process that was begun anew, 'run bash'" in resumed.stderr


def _waits_for_a_thread(url: str, last: int) -> list[str]:
    said: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: said.put(httpx.get(f"{url}/plain/{last}").text)).start()
    return [said.get(timeout=20)]


def _waits_for_a_pool(url: str, last: int) -> list[str]:
    with ThreadPool(2) as pool:
        return pool.map_async(lambda number: httpx.get(f"{url}/plain/{number}").text, [1, last]).get(20)


@pytest.mark.parametrize("program", [_waits_for_a_thread, _waits_for_a_pool])
def test_a_block_that_waits_for_a_thread_of_its_own_that_was_taken_out_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    """In the main thread, that is, as tests are."""
    monkeypatch.setattr(stubborn, "_SECONDS", 0.5)
    with ModelServer() as server, everstep.open(tmp_path / "trail.db") as trail:
        with everstep.capture(trail, "x"):
            recorded = program(server.url, 2)
        with pytest.raises(DivergenceError) as parted, everstep.capture(trail, "x", mode="verify"):
            program(server.url, 3)
        assert not isinstance(parted.value.__context__, queue.Empty | TimeoutError)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with everstep.capture(trail, "x", mode="verify"):
            assert program(server.url, 2) == recorded


def test_what_a_block_itself_failed_with_goes_before_what_it_did_not_ask_for(trail: everstep.Trail) -> None:
    """Else a test that replays a block tells of a missing step where its own assertion failed."""

    def run(**how: Any) -> None:
        with everstep.capture(trail, "run", **how):
            httpx.get(f"{server.url}/plain/a")
            assert not how, "the answer must be another"
            httpx.get(f"{server.url}/plain/b")

    with ModelServer() as server:
        run()
        with pytest.raises(AssertionError, match="the answer must be another") as raised:
            run(mode="verify")
    assert any(note.startswith("everstep: run 'run' diverged") for note in raised.value.__notes__)
