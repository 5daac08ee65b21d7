"""Programs that catch what takes them out of a call: they go on as without us, and a replay goes the same way."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

import everstep
from everstep.model import Status
from tests.capture.interrupting import SLOW, Interrupted
from tests.capture.server import ModelServer

CAUGHT = """
def wait():
    return httpx.get(slow, timeout=None).text

print(ask("a"), flush=True)
try:
    print(wait())
except KeyboardInterrupt:
    print("stopped", time.time(), flush=True)
print(ask("b"), flush=True)
crash("b")
print(ask("c"), flush=True)
"""
AT_THE_END = CAUGHT.partition('print(ask("b")')[0]
STREAMED = CAUGHT.replace(
    "return httpx.get(slow, timeout=None).text",
    """with httpx.stream("GET", url + "/lines?n=3") as answer:
        print(next(answer.iter_lines()))
        return httpx.get(slow, timeout=None).text""",
)
IN_A_COROUTINE = """
async def chat():
    print(ask("a"), flush=True)
    try:
        httpx.get(slow, timeout=None)  # it blocks the loop
    except KeyboardInterrupt:
        print("stopped", time.time(), flush=True)
    print(ask("b"), flush=True)
    crash("b")
    print(ask("c"), flush=True)

asyncio.run(chat())
"""
BLOCKS_ANOTHER = """
async def main():
    asked = asyncio.Event()

    async def trace(name, info):
        if name.endswith("receive_response_headers.started"):
            asked.set()

    async with httpx.AsyncClient(timeout=None) as client:
        beside = asyncio.create_task(client.get(url + os.environ["ASKED"], extensions={"trace": trace}))
        await asked.wait()
        print(httpx.get(url + os.environ["ASKED"], timeout=None).status_code)  # it blocks the loop
        print((await beside).status_code)

asyncio.run(main())
"""
IS_ASKED = """
import threading

def answer():
    ask(os.environ.get("ASKS_FOR", "a"))

asked = threading.Thread(target=answer)
asked.start()
asked.join()
print("asked", flush=True)
if "WAITS" in os.environ:
    signal.pause()
"""
UNCAUGHT = """
print(ask("a"), flush=True)
try:
    print(httpx.get(slow, timeout=None).json()["counter"], flush=True)
finally:
    print("saved", ask("save"), flush=True)
"""
CHAT = """
for _ in range(4):
    try:
        said = input("> ")
    except KeyboardInterrupt:
        print("(type exit to leave)", flush=True)
        continue
    except EOFError:
        break
    print(ask(said), flush=True)
    crash(said)
print("bye")
"""
EXITS = (
    """
def leave(number, frame):
    sys.exit(5)

signal.signal(signal.SIGTERM, leave)
"""
    + UNCAUGHT
)


@pytest.mark.parametrize("program", [CAUGHT, STREAMED, IN_A_COROUTINE], ids=["get", "stream", "coroutine"])
def test_a_call_that_was_interrupted_and_caught_is_so_again(tmp_path: Path, program: str) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, program, server)
        killed = agent.signalled(signal.SIGINT, "record", "--id", "trip", CRASH="b")
        assert killed.returncode == -9, killed.stderr
        assert "stopped" in killed.stdout
        resumed = agent.run("resume", "trip")
        assert resumed.returncode == 0, resumed.stderr
        assert resumed.stdout.startswith(killed.stdout)
        assert (agent.asked(SLOW), agent.asked("/b"), agent.asked("/c")) == (1, 1, 1)
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


def test_a_program_may_end_after_it_caught_an_interrupt(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, AT_THE_END, server)
        recorded = agent.signalled(signal.SIGINT, "record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_an_interrupt_that_is_not_caught_leaves_the_run_and_its_call_is_made_anew(
    tmp_path: Path, number: int, code: int
) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, UNCAUGHT.replace("slow", 'url + os.environ["ASKED"]'), server)
        ended = agent.signalled(number, "record", "--id", "trip", ASKED=SLOW)
        assert (ended.returncode, agent.asked("/save")) == (code, 0), ended.stderr
        assert "everstep: trip was interrupted. Go on with it: everstep resume trip" in ended.stderr
        resumed = agent.run("resume", "trip", ASKED="/slow?s=0")
        assert (resumed.returncode, agent.asked("/a"), agent.asked("/save")) == (0, 1, 1), resumed.stderr


@pytest.mark.parametrize(
    ("asks_for", "told"), [("a", ["nothing differed"]), ("b", ["this differed:", "/plain/a' -> '"])]
)
def test_a_replay_that_is_interrupted_says_how_far_it_came(tmp_path: Path, asks_for: str, told: list[str]) -> None:
    """A server, say, waits for ever to be asked. Its run is none that could be gone on with."""
    with ModelServer() as server:
        agent = Interrupted(tmp_path, IS_ASKED, server)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        with agent.started("replay", "trip", WAITS="yes", ASKS_FOR=asks_for) as process:
            assert process.stdout is not None
            assert "asked" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
    for each in ("the replay of trip was interrupted", *told):
        assert each in said
    assert "resume" not in said


def test_an_interrupt_that_ends_a_loop_cancels_nothing_of_what_its_tasks_asked_for(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, BLOCKS_ANOTHER, server)
        ended = agent.signalled(signal.SIGINT, "record", "--id", "trip", calls=2, ASKED=SLOW)
        assert ended.returncode == -signal.SIGINT, ended.stderr
        resumed = agent.run("resume", "trip", ASKED="/slow?s=0")
        assert (resumed.returncode, resumed.stdout) == (0, "200\n200\n"), resumed.stderr


def test_a_chat_goes_on_after_ctrl_c_at_its_prompt(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, CHAT, server)
        here, there = pty.openpty()
        command, options = agent.command("record", "--id", "chat"), agent.options(CRASH="two")
        with subprocess.Popen(command, stdin=there, stdout=there, **options) as chat:
            os.close(there)
            shown = _until(here, b"> ")
            os.write(here, b"one\n")
            shown += _until(here, b"> ")
            time.sleep(0.3)  # it is asking: what comes between two calls is not on record
            chat.send_signal(signal.SIGINT)
            shown += _until(here, b"leave)\r\n> ")
            os.write(here, b"two\n")
            assert chat.wait(60) == -9
        os.close(here)
        resumed = agent.run("resume", "chat", typed="three\n")
        assert resumed.returncode == 0, resumed.stderr
        assert "(type exit to leave)" in resumed.stdout
        assert [agent.asked(name) for name in ("/one", "/two", "/three")] == [1, 1, 1]
        replayed = agent.run("replay", "chat", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


def _until(terminal: int, word: bytes) -> bytes:
    """What is shown at a terminal, up to this."""
    shown = b""
    while word not in shown:
        assert select.select([terminal], [], [], 60)[0], shown
        shown += os.read(terminal, 1000)
    return shown


def test_a_handler_of_a_signal_that_exits_has_its_cleanup_made_and_a_resume_asks_anew(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, EXITS, server)
        ended = agent.signalled(signal.SIGTERM, "record", "--id", "trip")
        assert (ended.returncode, agent.asked("/save")) == (5, 1), ended.stderr
        with everstep.open(tmp_path / "t.db", read_only=True) as trail:
            assert trail.run("trip").status is Status.FAILED
        replayed = agent.run("replay", "trip", "--sealed")
        assert (replayed.returncode, replayed.stdout) == (0, ended.stdout), replayed.stderr
        resumed = agent.signalled(signal.SIGTERM, "resume", "trip")
        assert (resumed.returncode, agent.asked("/a"), agent.asked(SLOW)) == (5, 1, 2), resumed.stderr


IN_TIME = """
import tools
from tools import in_time

def of_mine(number, frame):
    raise TookTooLong("of mine")

class TookTooLong(Exception):
    def __init__(self, message, by=3):
        super().__init__(message)
        self.by = by

client = httpx.Client(timeout=None)  # before the alarm is set: to make one takes long
print(ask("a"))
signal.signal(signal.SIGALRM, of_mine)
signal.setitimer(signal.ITIMER_REAL, 0 if "REPLAY" in os.environ else 0.3)
try:
    client.get(slow)
except TookTooLong as error:
    print("gave up", error, error.by)
print(in_time(lambda: client.get(slow)), ask("b"))
"""
TOOLS = """
import os, signal

class TimeoutException(Exception):  # httpx has one of that name
    pass

def leave(number, frame):
    raise TimeoutException("of the tools")

def in_time(call):
    signal.signal(signal.SIGALRM, leave)
    signal.setitimer(signal.ITIMER_REAL, 0 if "REPLAY" in os.environ else 0.3)
    try:
        return call()
    except TimeoutException as error:
        return f"gave up {error!r}"
"""


def test_what_a_handler_of_a_signal_raised_amid_a_call_is_of_its_class_in_a_replay(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, IN_TIME, server)
        (tmp_path / "tools.py").write_text(TOOLS)
        recorded = agent.run("record", "--id", "trip")
        assert recorded.returncode == 0, recorded.stderr
        assert recorded.stdout.count("gave up") == 2
        replayed = agent.run("replay", "trip", "--sealed", REPLAY="1")
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


# Processes of the program get the signal as well, or are killed by it on its way out.

TOOL = """
tool = 'test -n "$CALM" || { ' + os.environ["SENDS"] + '; }; echo done'

def use():
    return subprocess.run(["sh", "-c", tool], check=True, capture_output=True, text=True).stdout
"""
AWAY = (
    TOOL
    + """
print(ask("a"), flush=True)
print(use(), ask("b"))
"""
)
IN_A_THREAD = (
    TOOL
    + """
async def main():
    print(await asyncio.to_thread(use), ask("b"))

print(ask("a"), flush=True)
asyncio.run(main())
"""
)
STAYS = (
    TOOL
    + """
try:
    print(use())
except KeyboardInterrupt:
    print("stopped")
try:
    raise SystemExit
except SystemExit:  # this is not what takes the code out of the next
    print(subprocess.run(["sh", "-c", "exit 4"], check=False).returncode, ask("b"))
"""
)


@pytest.mark.parametrize(
    ("program", "sends", "code"),
    [
        (AWAY, "kill -s INT 0", -signal.SIGINT),  # as a terminal does: to all that belong together
        (AWAY, "kill -s TERM 0", 128 + signal.SIGTERM),
        (AWAY, "kill -s TERM $PPID; exec sleep 20", 128 + signal.SIGTERM),
        (IN_A_THREAD, "kill -s INT 0", -signal.SIGINT),
        (IN_A_THREAD, "kill -s TERM 0", 128 + signal.SIGTERM),
    ],
    ids=["ctrl-c", "all ended", "program ended", "ctrl-c in a loop", "all ended in a loop"],
)
def test_how_a_process_ended_that_was_cut_off_with_its_program_is_no_answer(
    tmp_path: Path, program: str, sends: str, code: int
) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, program, server)
        ended = agent.run("record", "--id", "trip", SENDS=sends)
        assert ended.returncode == code, ended.stderr
        asked = agent.run("resume", "trip", SENDS=sends, CALM="1")
        assert (asked.returncode, "whether it took effect is not known" in asked.stderr) == (7, True), asked.stderr
        resumed = agent.run("resume", "trip", "--unknown", "retry", SENDS=sends, CALM="1")
        assert (resumed.returncode, "done" in resumed.stdout, agent.asked("/a")) == (0, True, 1), resumed.stderr
        replayed = agent.run("replay", "trip", "--sealed", SENDS=sends)
        assert (replayed.returncode, replayed.stdout) == (0, resumed.stdout), replayed.stderr


def test_a_program_that_was_stopped_in_its_wait_for_a_process_and_goes_on_is_so_in_a_replay(tmp_path: Path) -> None:
    with ModelServer() as server:
        agent = Interrupted(tmp_path, STAYS, server)
        recorded = agent.run("record", "--id", "trip", SENDS="kill -s INT 0")
        assert (recorded.returncode, recorded.stdout[:10]) == (0, "stopped\n4 "), recorded.stderr
        replayed = agent.run("replay", "trip", "--sealed", SENDS="kill -s INT 0")
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr
