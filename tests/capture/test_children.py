"""Python programs that a program starts are runs of their own, below its run, and go on where they were with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import venv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import everstep
from everstep.model import Status
from tests.capture.running import environment
from tests.capture.server import ModelServer

PYTHON = Path(sys.executable)
ASKS = """
    import os, sys, time, uuid
    from urllib.request import Request, urlopen

    name, calls = sys.argv[1], int(sys.argv[2])
    for number in range(calls):
        with urlopen(f"{os.environ['MODEL_URL']}/plain/{name}/{number}/{uuid.uuid4()}") as got:
            print(name, number, got.headers["X-Counter"], flush=True)
    if "DIE" in os.environ and name == "buys":
        request = Request(os.environ["MODEL_URL"] + "/slow?s=30", data=b"2 coffees")
    elif name == "buys":
        request = Request(os.environ["MODEL_URL"] + "/echo", data=b"2 coffees")
    if name == "buys":
        with urlopen(request) as got:
            print("bought", got.read(), flush=True)
    print(sorted(each for each in os.environ if each.startswith("EVERSTEP_C")), os.environ.get("PYTHONPATH"))
"""


class Ground:
    """A folder with programs, a trail, and a server."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.folder, self.server = folder, server
        self.write("asks.py", ASKS)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(dedent(text), "utf-8")

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        before = f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}"
        env = environment(self.server.url, EVERSTEP_TRAIL="trail.db", PATH=before, TMPDIR=str(self.folder), **more)
        return subprocess.Popen(
            [sys.executable, "-m", "everstep", *words], cwd=self.folder, env=env, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *words: str, status: int = 0, **more: str) -> tuple[str, str]:
        process = self.start(*words, **more)
        out, said = process.communicate(timeout=60)
        assert process.returncode == status, said
        return out, said

    def kill(self, process: subprocess.Popen[str], asked: int) -> None:
        """Kill it, and all that it started, when the server was asked so often."""
        patience = time.monotonic() + 60
        while len(self.server.requests) < asked and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.0005)
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def runs(self, parent: str | None = None) -> dict[str, Any]:
        with everstep.open(self.folder / "trail.db") as trail:
            return {run.id: run for run in trail.runs(parent=parent)}

    def repeated(self) -> set[str]:
        return {path for path, count in Counter(each.path for each in self.server.requests).items() if count > 1}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with ModelServer() as server:
        yield Ground(tmp_path, server)


def test_whatever_starts_python_it_is_captured(ground: Ground) -> None:
    """The environment is what the program gave it, and the ids are those of the places."""
    ground.write("asks.sh", "python asks.py same 1\npython asks.py same 1\n")
    ground.write(
        "parent.py",
        """
        import asyncio, os, subprocess, sys

        given = {**os.environ, "PYTHONPATH": "elsewhere"}
        print(subprocess.check_output([sys.executable, "asks.py", "direct", "1"], env=given))
        print(subprocess.check_output(["sh", "asks.sh"]))
        print(os.system("python asks.py system 1 > /dev/null; exit 3"))

        async def main():
            words = ["-c", "import subprocess; print(subprocess.check_output(['python', '-m', 'asks', 'deep', '1']))"]
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=subprocess.PIPE)
            print(await process.communicate())

        asyncio.run(main())
        """,
    )
    out, _ = ground.run("record", "--id", "x", "--children", "--", "python", "parent.py")
    assert ("[] elsewhere" in out, out.count("[] None")) == (True, 3)
    assert len(ground.server.requests) == 5
    below = ground.runs("x")
    assert {run.status for run in below.values()} == {Status.COMPLETED}
    shell = [name for name in sorted(below) if name.startswith("x/run sh#0/")]
    assert ["".join(name.rpartition("#")[1:]) for name in shell] == ["#0", "#1"]
    deep = next(name for name in below if name.startswith("x/task"))
    assert sorted(below) == sorted(
        [*shell, deep, "x/run python#0", next(each for each in below if "python#1/" in each)]
    )
    assert list(ground.runs(deep)) == [f"{deep}/run python#0"]
    shown, _ = ground.run("show", "x")
    assert f"{shell[0]} (completed)" in shown
    ground.server.stop()
    assert ground.run("replay", "x", "--", "python", "parent.py")[0] == out
    alone, _ = ground.run("replay", "x/run python#0", "--", "python", "asks.py", "direct", "1", PYTHONPATH="elsewhere")
    assert repr(alone.encode()) in out


def test_a_parent_and_its_child_that_are_killed_go_on_where_they_were(ground: Ground) -> None:
    """Promises 1 and 2. Nobody is asked whether the process may be started again: its own record answers it."""
    ground.write(
        "parent.py",
        """
        import subprocess, sys
        print(subprocess.run([sys.executable, "asks.py", "first", "1"], capture_output=True, text=True).stdout)
        print(subprocess.run([sys.executable, "asks.py", "second", "6"], capture_output=True, text=True).stdout)
        """,
    )
    program = ("--children", "--", "python", "parent.py")
    ground.kill(ground.start("record", "--id", "x", *program), 5)
    asked = len(ground.server.requests)
    ground.kill(ground.start("resume", "x", *program), asked + 1)
    out, _ = ground.run("resume", "x", *program)
    assert [line.split()[:2] for line in out.splitlines() if "-" in line] == [
        ["first", "0"], *(["second", str(number)] for number in range(6))
    ]  # fmt: skip
    cut_off = {ground.server.requests[at].path for at in range(asked - 1, len(ground.server.requests))}
    assert ground.repeated() <= cut_off
    assert not any("first" in path for path in ground.repeated())
    assert sorted(ground.runs("x")) == ["x/run python#0", "x/run python#1"]
    ground.server.stop()
    assert ground.run("replay", "x", *program[1:])[0] == out


def test_a_child_that_was_killed_before_it_began_is_started_again(ground: Ground) -> None:
    """Nobody is asked: it did nothing yet. Not so a process of which that cannot be known."""
    (ground.folder / "site").mkdir()
    ground.write("site/sitecustomize.py", """
        import os, pathlib, sys, time
        if "SLOW" in os.environ and "asks.py" in sys.orig_argv:
            pathlib.Path("began").touch()
            time.sleep(60)
        """)  # fmt: skip
    ground.write(
        "parent.py",
        """
        import subprocess, sys
        python = [sys.executable, *sys.argv[1:]]
        print(subprocess.check_output([*python, "asks.py", "buys" if sys.argv[1:] else "late", "1"], text=True))
        """,
    )
    began, program = ground.folder / "began", ("--children", "--", "python", "parent.py")
    process = ground.start("record", "--id", "x", *program, SLOW="1", PYTHONPATH=str(ground.folder / "site"))
    while not began.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)
    ground.kill(process, 0)
    assert ground.runs("x") == {}
    assert "late 0 " in ground.run("resume", "x", *program)[0]
    ground.kill(ground.start("record", "--id", "y", *program, "-I", DIE="1"), 3)
    ground.run("resume", "y", *program, "-I", status=7)


def test_a_script_that_is_killed_goes_on_with_the_programs_that_it_starts(ground: Ground) -> None:
    """Those that had completed say the same again, and ask nothing."""
    ground.write("asks.sh", "python asks.py first 2\npython asks.py second 6\n")
    refused = ground.run("record", "--", "sh", "asks.sh", status=1)[1]
    assert "--children" in refused
    ground.kill(ground.start("record", "--id", "x", "--children", "--", "sh", "asks.sh"), 5)
    cut_off = ground.server.requests[-1].path
    assert "{'command': ['sh', 'asks.sh']}" in ground.run("show", "x")[0]
    out, _ = ground.run("resume", "x", "--", "sh", "asks.sh")
    assert [line.split()[:2] for line in out.splitlines() if "-" in line] == [
        [name, str(number)] for name, calls in (("first", 2), ("second", 6)) for number in range(calls)
    ]
    assert ground.repeated() <= {cut_off}
    ground.server.stop()
    ground.run("replay", "x", "--", "sh", "asks.sh")


@pytest.mark.parametrize("way", ["blocking", "awaited", "looked_at", "left"])
def test_a_parent_waits_with_its_child_for_an_answer(ground: Ground, way: str) -> None:
    ground.write(
        "parent.py",
        """
        import asyncio, os, subprocess, sys

        ASKS = [sys.executable, "asks.py", "buys", "1"]

        def blocking():
            print(subprocess.run(ASKS, stdout=subprocess.PIPE).stdout)

        def awaited():
            async def main():
                process = await asyncio.create_subprocess_exec(*ASKS, stdout=subprocess.PIPE)
                print((await process.communicate())[0])
            asyncio.run(main())

        def looked_at():
            async def main():
                asks = "sleep 1 & exec " + " ".join(ASKS)  # what it leaves behind holds its pipe
                process = await asyncio.create_subprocess_shell(asks, stdout=subprocess.PIPE)
                while process.returncode is None:
                    await asyncio.sleep(0.01)
                print("goes on", (await process.communicate())[0])
            asyncio.run(main())

        def left():
            process = subprocess.Popen(ASKS)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        globals()[sys.argv[1]]()
        """,
    )
    program = ("--children", "--", "python", "parent.py", way)
    ground.kill(ground.start("record", "--id", "x", *program, DIE="1"), 2)
    child = next(iter(ground.runs("x")))
    out, said = ground.run("resume", "x", *program, status=7, DIE="1")
    assert child in said
    assert "goes on" not in out
    assert (ground.runs()["x"].status, ground.runs("x")[child].status) == (Status.PAUSED, Status.PAUSED)
    ground.run("answer", child, "two, thanks")
    out, _ = ground.run("resume", "x", *program, DIE="1")
    assert "two, thanks" in out
    assert len(ground.server.requests) == 2


def test_a_python_without_everstep_says_so_and_another_sitecustomize_is_run(ground: Ground) -> None:
    venv.EnvBuilder(symlinks=True).create(ground.folder / "bare")
    (ground.folder / "site").mkdir()
    ground.write("site/sitecustomize.py", "import sys; sys.customized = True\n")
    ground.write("prints.py", "import sys, sitecustomize; print(sys.customized, sitecustomize.__file__, sys.path[1])\n")
    ground.write(
        "parent.py",
        """
        import os, subprocess, sys
        for python in ("bare/bin/python", sys.executable):
            print(subprocess.run([python, "prints.py"], capture_output=True, text=True))
        print(subprocess.run([sys.executable, "-"], input="print('typed')", capture_output=True, text=True))
        """,
    )
    site = str(ground.folder / "site")
    out, _ = ground.run("record", "--id", "x", "--children", "--", "python", "parent.py", PYTHONPATH=site)
    bare, captured, typed = out.splitlines()
    assert "everstep: bare" not in bare
    assert "has no everstep, so what it runs is not recorded; install it there" in bare
    assert f"stdout='True {site}/sitecustomize.py {site}" in bare
    assert f"stdout='True {site}/sitecustomize.py {site}" in captured
    assert "stderr=''" in captured
    assert "stdout='typed\\n'" in typed
    assert "is not recorded: there is no program after Python's options" in typed
    assert list(ground.runs("x")) == ["x/run python#1"]
