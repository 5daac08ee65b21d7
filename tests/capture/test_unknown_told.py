"""A call that was cut off: whoever resumes its program is told which one, and every command that settles it."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from pathlib import Path

import everstep
from everstep.trail.answers import name_of
from tests.capture.server import ModelServer
from tests.capture.test_programs import Shell

ORDER = """
import os, httpx
hooks = {"response": [lambda _: os.kill(os.getpid(), 9) if "CRASH" in os.environ else None]}
httpx.Client(event_hooks=hooks).post(os.environ["MODEL_URL"] + "/plain/orders")
print("ordered")
"""
ORDERS = """
import os, httpx
from concurrent.futures import ThreadPoolExecutor

def order(number):
    return httpx.post(f"{os.environ['MODEL_URL']}/slow?s=30&n={number}", timeout=60).json()

with ThreadPoolExecutor(2) as pool:
    print("ordered", *pool.map(order, range(2)))
"""

TOGETHER = """
import asyncio, os

async def order(number):
    process = await asyncio.create_subprocess_exec("true", str(number))
    if "CRASH" in os.environ:
        os.kill(os.getpid(), 9)
    return await process.wait()

async def main():
    print("ordered", await asyncio.gather(*(order(number) for number in range(3))))

asyncio.run(main())
"""


def test_the_call_is_named_with_its_path_and_every_hint_is_a_command_that_works(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(ORDER)
        here = ("--trail", "here.db")
        assert shell.everstep("record", "--id", "order", *here, CRASH="1").returncode == -signal.SIGKILL
        told = shell.everstep("resume", "order", *here)
        first, look, answer, retry, then = told.stderr.splitlines()
        assert "no outcome of the external step 'POST 127.0.0.1/plain/orders' (step 1): whether" in first
        assert first.endswith("it was not repeated. Look there, then say what it gave, or have it made again.")
        assert look == "what was asked for: everstep show order@1 --trail here.db"
        assert answer == "next: everstep answer order VALUE --trail here.db"
        shown = shell.run(*shlex.split(look)[5:])
        assert "/plain/orders" in shown.stdout, shown.stderr
        assert shell.run(*shlex.split(retry)[2:]).returncode == 0
        done = shell.run(*shlex.split(then)[2:])
    assert (done.returncode, done.stdout) == (0, "ordered\n"), done.stderr
    assert then.endswith(shlex.join(["--", sys.executable, "agent.py", "--city", "Oslo"]))


def test_a_program_that_fails_by_such_a_call_is_followed_by_the_commands_that_settle_it(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(ORDER)
        here = ("--trail", "here.db")
        assert shell.everstep("record", "--id", "order", *here, CRASH="1").returncode == -signal.SIGKILL
        told = shell.everstep("resume", "order", "--unknown", "fail", *here)
        failed, look, answer, retry, then = told.stderr.splitlines()[-5:]
        assert (told.returncode, failed.startswith("everstep: order failed.")) == (1, True)
        assert look == "what was asked for: everstep show order@1 --trail here.db"
        assert answer == "next: everstep answer order VALUE --trail here.db"
        assert answer in shell.run("show", "order", *here).stderr
        assert shell.run(*shlex.split(retry)[2:]).returncode == 0
        done = shell.run(*shlex.split(then)[2:])
    assert (done.returncode, done.stdout) == (0, "ordered\n"), done.stderr


LATE = """
import os, httpx
try:
    print("ordered", httpx.post(os.environ["MODEL_URL"] + "/slow?s=1", timeout=0.2).status_code)
except httpx.TimeoutException:
    raise SystemExit("no luck")
"""


def test_a_call_that_nobody_waited_for_is_asked_about_though_its_program_left_by_itself(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(LATE)
        assert shell.everstep("record", "--id", "order").returncode == 1
        for command in ("show", "why"):
            assert "next: everstep answer order VALUE" in shell.run(command, "order").stderr
        told = shell.everstep("resume", "order")
        assert (told.returncode, "no outcome of the external step 'POST 127.0.0.1/slow'" in told.stderr) == (7, True)
        assert len(server.requests) == 1
        assert shell.run("answer", "order", "7").returncode == 0
        done = shell.everstep("resume", "order")
        assert len(server.requests) == 1
    assert (done.returncode, done.stdout) == (0, "ordered 200\n"), done.stderr


def test_each_of_several_such_calls_is_told_with_the_command_that_answers_it(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(ORDERS)
        process = shell.start("record", "--id", "order", "--", sys.executable, "agent.py", "--city", "Oslo")
        while len(server.requests) < 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
        process.communicate()
        for left in (2, 1):
            told = shell.everstep("resume", "order")
            answer = next(line for line in told.stderr.splitlines() if line.startswith("next: everstep answer"))
            assert ("--pause" in answer) == (left > 1)
            taken = shell.run(*(str(left) if word == "VALUE" else word for word in shlex.split(answer)[2:]))
            assert taken.returncode == 0, taken.stderr
        done = shell.everstep("resume", "order")
        assert len(server.requests) == 2
    assert (done.returncode, done.stdout) == (0, "ordered 2 1\n"), done.stderr


def test_what_is_no_call_over_http_has_its_name(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorded:
        for name, inputs in (("read", {"url": "http://a/b"}), ("GET a", {"url": "http://[/b"}), ("GET a", None)):
            assert name_of(recorded.step(name, inputs=inputs)) == name
        assert name_of(recorded.step("GET a", inputs={"url": "http://a:80/b?c=d"})) == "GET a/b"
        assert name_of(recorded.step("GET a", inputs={"url": "http://a"})) == "GET a"


def test_tasks_that_the_question_takes_out_together_are_not_told_of_as_failures(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(TOGETHER)
        assert shell.everstep("record", "--id", "order", CRASH="1").returncode == -signal.SIGKILL
        told = shell.everstep("resume", "order")
    assert told.returncode == 7, told.stderr
    first, *hints = [line.split()[0] for line in told.stderr.splitlines()]
    assert (first, hints) == ("everstep:", ["what", "next:", "or:", "then:"])
