"""Programs that are sent a signal amid a call, recorded, replayed and gone on with."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.capture.running import environment
from tests.capture.server import ModelServer
from tests.integration.cli_support import COMMAND

SLOW = "/slow?s=20"  # what a program asks for that is to be interrupted
HEAD = f"""
import asyncio, httpx, os, signal, subprocess, sys, time
url, slow = os.environ["MODEL_URL"], os.environ["MODEL_URL"] + "{SLOW}"

def ask(name):
    return httpx.get(f"{{url}}/plain/{{name}}").json()["counter"]

def crash(name):
    if os.environ.get("CRASH") == name:
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Interrupted:
    """A program in a folder, and the server that it asks."""

    def __init__(self, folder: Path, program: str, server: ModelServer) -> None:
        self.folder, self.server = folder, server
        (folder / "agent.py").write_text(HEAD + program)

    def command(self, *words: str) -> list[str]:
        return [*COMMAND, *words, "--trail", "t.db", "--", sys.executable, "agent.py"]

    def options(self, **more: str) -> dict[str, Any]:
        """Where it runs, with this in its environment."""
        return {
            "cwd": self.folder,
            "env": environment(self.server.url, **more),
            "stderr": subprocess.PIPE,
            "text": True,
            "start_new_session": True,  # a signal that it sends to all that belong to it does not come to us
        }

    def started(self, *words: str, **more: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*words), stdin=pipe, stdout=pipe, **self.options(**more))

    def run(self, *words: str, typed: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """A command on it, to its end."""
        with self.started(*words, **more) as process:
            try:
                out, said = process.communicate(typed, timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, said)

    def signalled(self, number: int, *words: str, calls: int = 1, **more: str) -> subprocess.CompletedProcess[str]:
        """The same; it is sent a signal when it has asked for what is slow, by so many calls."""
        before = self.asked(SLOW)
        with self.started(*words, **more) as process:
            try:
                patience = time.monotonic() + 60
                while self.asked(SLOW) < before + calls and process.poll() is None and time.monotonic() < patience:
                    time.sleep(0.005)
                time.sleep(0.1)  # it waits for the answer
                process.send_signal(number)
                out, said = process.communicate(timeout=60)
            finally:
                process.kill()
        return subprocess.CompletedProcess(words, process.returncode, out, said)

    def asked(self, path: str) -> int:
        """How often the server was asked for something."""
        return sum(request.path.endswith(path) for request in self.server.requests)
