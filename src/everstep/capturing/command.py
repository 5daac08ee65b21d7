"""The command line of a program, taken apart: which Python runs it, with which options, and what it runs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from everstep.errors import CaptureError

VARIABLE = "EVERSTEP_CAPTURE"
ENTRY = "everstep.cli.within"  # the module that runs a program, as the variable says
_RUNS = "everstep.cli.captured"  # what that loads, with all that it needs
OUTER = "everstep.capturing.outer"  # the program that stands for a command that is none of Python
HASHES = "0"  # the seed of all hashes: sets and dicts of a program are in the same order whenever it runs
CHILDREN = "children"  # in the same: that the programs which it starts are recorded, too
CAPTURED = "captured"  # in what is said of a run: that it is one of a program, and how that was called
PYTHON = "{python}"  # in what is asked, stands for the interpreter: another machine has it elsewhere
_PYTHON = r"python(\d+(\.\d+)?)?(\.exe)?"
_ALONE, _WITH_WORD = frozenset("bBdEhiIOPqsSuvVx?"), frozenset("WX")
_DEAF = frozenset("EI")  # with these Python does not hear its environment, and so not the seed of its hashes
_SHEBANG = 256  # bytes of a file that tell what runs it


class Launch(NamedTuple):
    """How a program is started."""

    python: str
    options: list[str]
    target: list[str]  # a file, or -m and a module, or -c and code; then the program's own words

    def start(self, entry: str, environment: Mapping[str, str]) -> None:
        """Become that Python, running `entry`, which runs the target. Does not return."""
        words = [self.python, *self.options, "-m", entry, *self.target]
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(self.python, words, dict(environment))  # noqa: S606 - this is what was asked for


def parsed(words: Sequence[str], *, others: bool = False) -> Launch:
    """What a command line says. Raises CaptureError if it is not that of a Python program, unless others go too."""
    if not words:
        raise CaptureError("there is no program to run; say it after two dashes: -- python agent.py")
    first, rest = words[0], list(words[1:])
    if re.fullmatch(_PYTHON, Path(first).name):
        python = shutil.which(first)
        if python is None:
            raise CaptureError(f"there is no {first!r} here. Activate the program's environment, or give the path.")
        return _checked(Launch(python, *split(first, rest)))
    if first.endswith(".py"):
        return _checked(Launch(sys.executable, [], [first, *rest]))
    found = shutil.which(first)
    if found is None:
        raise CaptureError(f"there is no program {first!r}.")
    python = _behind(Path(found))
    if others and (python is None or not _has_everstep(python)):
        return Launch(sys.executable, [], ["-m", OUTER, first, *rest])
    if python is None:
        raise CaptureError(
            f"{first!r} is no Python program; say how Python runs it: -- python FILE, or -- python -m MODULE. Or have "
            "the Python programs recorded that it starts: --children."
        )
    return _checked(Launch(python, [], [found, *rest]))


def split(python: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Python's own options, and what it is to run. Raises CaptureError for those that do not go."""
    options: list[str] = []
    while words:
        word = words[0]
        if word in {"-m", "-c"} or not word.startswith("-") or word == "-":
            break
        options.append(words.pop(0))
        if not word.startswith("--") and _takes_word(python, word) and words:
            options.append(words.pop(0))
    if not words or words[0] == "-":
        raise CaptureError("there is no program after Python's options: name a file, or -m MODULE, or -c CODE.")
    return options, words


def _takes_word(python: str, word: str) -> bool:
    """Whether the next word belongs to options that stand in one. Raises CaptureError for those that do not go."""
    letters = word[1:]
    for at, letter in enumerate(letters):
        if letter in {"m", "c"}:
            raise CaptureError(f"write -{letter} apart from the other options: {python} -{letter} ...")
        if letter in _DEAF:
            raise CaptureError(f"with -{letter} Python ignores the seed of its hashes, which must be the same twice.")
        if letter in _WITH_WORD:
            return at == len(letters) - 1
        if letter not in _ALONE:
            raise CaptureError(f"{word!r} is no option of Python that is known here.")
    return False


def _behind(file: Path) -> str | None:
    """The Python that a script names in its first line."""
    with suppress(OSError, UnicodeDecodeError), file.open("rb") as opened:
        line = opened.readline(_SHEBANG)
        if line.startswith(b"#!"):
            words = line[2:].decode().split()
            if words and Path(words[0]).name == "env":
                words = [word for word in words[1:] if not word.startswith("-")]
            if words and re.fullmatch(_PYTHON, Path(words[0]).name):
                return shutil.which(words[0])
    return None


def _checked(launch: Launch) -> Launch:
    """The same. Raises CaptureError if that Python has no everstep."""
    if not _has_everstep(launch.python):
        raise CaptureError(
            f"{launch.python} has no everstep; install it there: {launch.python} -m pip install FOLDER, which is a "
            "clone of it."
        )
    return launch


def _has_everstep(python: str) -> bool:
    named, ours = Path(python).absolute(), Path(sys.executable).absolute()
    if named.parent == ours.parent and named.resolve() == ours.resolve():  # `python` and `python3` of one folder
        return True
    subprocess = import_module("subprocess")  # nobody needs it whose Python is this one
    tried = subprocess.run([python, "-c", f"import {ENTRY}, {_RUNS}"], capture_output=True, check=False)
    return bool(tried.returncode == 0)
