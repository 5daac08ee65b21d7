"""The commands that a page shows, run as a person would run them: on a terminal, in the page's folder."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios

WIDTH = 120
_KILLED = -9
# What is another each time: how long something took, when it was, and how wide that makes a column.
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)|\b\d[\d,.]*\s(?:µs|ms|s|min|h|d)\b(?:\sago)?|(?<=\s)now\b|\b[\d,]+\.\d{3}\b"
)
_SETTING = re.compile(r"[A-Z_]+=")  # of a variable, before a command, as shells have it
_PROGRAMS = {"python": [sys.executable, "-u"], "everstep": [sys.executable, "-m", "everstep"]}


def commands_of(text: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with what is shown below it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:].split(" #", maxsplit=1)[0].strip(), ""))
        elif found:
            command, shown = found[-1]
            found[-1] = command, f"{shown}{line}\n"
    return found


def can_run(command: str) -> bool:
    """Whether a command is one of those that are run: Python and our own."""
    return _split(command)[1][0] in _PROGRAMS


def _split(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command sets, and its words."""
    words = shlex.split(command)
    settings: dict[str, str] = {}
    while _SETTING.match(words[0]) and len(words) > 1:
        name, _, value = words.pop(0).partition("=")
        settings[name] = value
    return settings, words


def run_command(command: str) -> str:
    """What a command prints to a terminal; as a shell does, with a word more when it was killed."""
    settings, (name, *rest) = _split(command)
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    env = {**os.environ, **settings, "TERM": "dumb", "COLUMNS": str(WIDTH), "LINES": "50", "PYTHONUTF8": "1"}
    env.pop("PYTHONUNBUFFERED", None)  # a person has not set it
    with subprocess.Popen([*_PROGRAMS[name], *rest], stdin=inside, stdout=inside, stderr=inside, env=env) as process:
        os.close(inside)
        printed = _all_from(terminal)
        code = process.wait()
    os.close(terminal)
    return printed + ("Killed\n" if code == _KILLED else "")


def _all_from(terminal: int) -> str:
    printed = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side was closed
            part = b""
        if not part:
            return printed.decode().replace("\r\n", "\n")
        printed += part


def timeless(text: str) -> str:
    """The text without what is another each time."""
    plain = _TIMES.sub("<time>", text)
    return "".join(re.sub(r"[ \t]+", " ", line).strip() + "\n" for line in plain.rstrip().splitlines())
