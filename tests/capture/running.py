"""How tests run agent programs, and the model server as a process of its own."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

ROOT = Path(__file__).resolve().parents[2]
AGENTS = Path(__file__).parent / "agents"
BARE = (sys.executable,)
CAPTURED = (*BARE, str(Path(__file__).with_name("within.py")))  # as EVERSTEP_CAPTURE says
STATUS = {"failing": 1, "exits": 3}  # of agents that do not end well, on purpose


def names() -> list[str]:
    """All agents."""
    return sorted(path.stem for path in AGENTS.glob("*.py"))


def environment(url: str, **more: str) -> dict[str, str]:
    """The environment of an agent: that of the test, without proxies, and the address of the server."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**kept, "MODEL_URL": url, **more}


def run(
    agent: str, url: str, cwd: Path, *, python: Sequence[str] = BARE, timeout: float = 60, **more: str
) -> subprocess.CompletedProcess[str]:
    """An agent, run to its end. `python` is the command before its path; `more` is added to its environment."""
    command = [*python, str(AGENTS / f"{agent}.py")]
    return subprocess.run(
        command, cwd=cwd, env=environment(url, **more), capture_output=True, text=True, timeout=timeout, check=False
    )


@contextmanager
def started(agent: str, url: str, cwd: Path, *, python: Sequence[str] = BARE, **more: str) -> Iterator[Any]:
    """An agent that runs, a `Popen` with its lines in `stdout`; what is left of it at the end is killed."""
    command = [*python, str(AGENTS / f"{agent}.py")]
    with subprocess.Popen(
        command, cwd=cwd, env=environment(url, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def log(self) -> list[dict[str, Any]]:
        """What it was asked, as `server.Request` names it."""
        with urllib.request.urlopen(f"{self.url}/_log", timeout=10) as got:
            return list(json.load(got))


@contextmanager
def serving(folder: Path, port: int = 0, *, delay: float = 0.004, seed: int | None = None) -> Iterator[Served]:
    """The model server as a process of its own. Fails if it says anything, or does not end well unless it is killed."""
    file = folder / "port"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.capture.server", "--port-file", str(file), "--port", str(port)]
    command += ["--delay", str(delay), *([] if seed is None else ["--seed", str(seed)])]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not file.exists():
                assert process.poll() is None, process.communicate()[1]
                time.sleep(0.01)
            yield Served(process, int(file.read_text("utf-8")))
        finally:
            process.terminate()
            _, said = process.communicate(timeout=20)
    assert (process.returncode, said) in {(0, ""), (-9, "")}, said


def commits(path: Path) -> int:
    """How many there are in the log of a trail: a frame that ends one says how large the file is then."""
    page = apsw.Connection(str(path)).pragma("page_size")
    log, size = Path(f"{path}-wal").read_bytes()[32:], 24 + int(page)
    sizes = (struct.unpack_from(">I", log, start + 4)[0] for start in range(0, len(log), size))
    return sum(map(bool, sizes))
