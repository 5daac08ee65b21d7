"""What the tests of the command line share: a trail worth looking at, and three ways to run a command."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from click.testing import CliRunner, Result

import everstep
from everstep.cli.group import cli
from everstep.model import Kind
from tests.integration.support import environment

COMMAND = [sys.executable, "-m", "everstep"]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202eevil\x7f"


def trail_to_see(path: Path) -> Path:
    """A closed trail: a run of every status, with composites, attempts, pauses, checkpoints and an unknown outcome."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with everstep.open(path) as trail:
        done = trail.record("done", workflow="research", inputs={"topic": "fusion"}, tags={"user": "ada"})
        plan = done.step("plan", kind=Kind.COMPOSITE_START).id
        done.step("ask", kind=Kind.ATTEMPT, parent=plan, error=TimeoutError("slow"))
        done.step("ask", parent=plan, output="three parts", output_to="plan", attempt=2, duration_ms=1234)
        done.step("plan", id=plan, output=["a", "b"], duration_ms=2400)
        done.checkpoint("planned", "boundary", {"parts": 3})
        done.step("read", output={"title": "page one"}, append_to="pages")
        done.finish("a report")
        with trail.fork("done", 6, id="other", set={"topic": "fission"}) as other:
            other.step("write", output="text", output_to="report")
        begun = {"code": "as a runner notes it"}
        with (
            suppress(ValueError),
            trail.record("broken", workflow="research", tags={"user": "bob"}, metadata=begun) as broken,
        ):
            broken.step("fetch", output=1)
            error = ValueError("no such page")
            broken.step("parse", error=error)
            raise error
        left = trail.record("left", workflow="chat", metadata=begun)
        left.step("charge", kind=Kind.INTENT, external=True)
        left.step("ask", kind=Kind.PAUSE, status="paused", pause={"prompt": "Send it?", "options": ["yes", "no"]})
        left.release()
    return path


def overwrite(path: Path, name: str) -> None:
    """Put other bytes where SQLite keeps the first page of a table or an index."""
    with closing(apsw.Connection(str(path))) as connection:
        [page] = connection.execute("select rootpage from sqlite_schema where name = ?", [name]).fetchone() or [0]
        size = connection.pragma("page_size")
    found = bytearray(path.read_bytes())
    found[(page - 1) * size : page * size] = b"Z" * size
    path.write_bytes(found)


def run(*words: object, **given: Any) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli, [str(word) for word in words], **given)


def data(*words: object, code: int = 0) -> dict[str, Any]:
    """What a command prints with --json, which is one object of version 1."""
    result = run(*words, "--json")
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert found.pop("everstep") == 1
    return found


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def as_a_person(*words: object) -> str:
    """What a command of this process shows on a terminal."""
    with redirect_stdout(Screen()) as screen, redirect_stderr(screen), suppress(SystemExit):
        cli.main([str(word) for word in words])
    return screen.getvalue()


class Done(NamedTuple):
    """How a process ended."""

    code: int
    stdout: str
    stderr: str


def process(*words: object, cwd: Path | None = None, stdin: str | None = None, **variables: str) -> Done:
    """Run a command as a process of its own, its streams being pipes."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], cwd=cwd, env={**environment(), **variables}, input=stdin, capture_output=True,
        text=True, encoding="utf-8", timeout=60, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def at_work(command: list[str], cwd: Path, until: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed a line and is at work; whatever the test finds, none is left behind."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{until}\n"
            yield process
        finally:
            process.kill()


def on_a_terminal(*words: object, cwd: Path | None = None, columns: int = 100, typed: str = "", **more: str) -> Done:
    """Run a command as a person does: all its streams are a terminal. What it prints is in `stdout`."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    variables = {**environment(), "TERM": "xterm-256color", **more}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        variables.pop(name, None)
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], cwd=cwd, env={**variables, **more}, stdin=its, stdout=its, stderr=its
    ) as person:
        os.close(its)
        if typed:
            os.write(ours, typed.encode())
        printed = b""
        with suppress(OSError):  # the terminal is gone when the process is
            while part := os.read(ours, 65_536):
                printed += part
        os.close(ours)
    return Done(person.returncode, printed.decode(), "")
