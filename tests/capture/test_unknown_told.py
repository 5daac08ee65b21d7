"""A call that was cut off: whoever resumes its program is told which one, and every command that settles it."""

from __future__ import annotations

import shlex
import signal
import sys
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


def test_the_call_is_named_with_its_path_and_every_hint_is_a_command_that_works(tmp_path: Path) -> None:
    with ModelServer() as server:
        shell = Shell(tmp_path, server)
        shell.write(ORDER)
        here = ("--trail", "here.db")
        assert shell.everstep("record", "--id", "order", *here, CRASH="1").returncode == -signal.SIGKILL
        told = shell.everstep("resume", "order", *here)
        first, look, answer, retry, then = told.stderr.splitlines()
        assert "inside the external step 'POST 127.0.0.1/plain/orders' (step 1): whether" in first
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


def test_what_is_no_call_over_http_has_its_name(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorded:
        for name, inputs in (("read", {"url": "http://a/b"}), ("GET a", {"url": "http://[/b"}), ("GET a", None)):
            assert name_of(recorded.step(name, inputs=inputs)) == name
        assert name_of(recorded.step("GET a", inputs={"url": "http://a:80/b?c=d"})) == "GET a/b"
        assert name_of(recorded.step("GET a", inputs={"url": "http://a"})) == "GET a"
