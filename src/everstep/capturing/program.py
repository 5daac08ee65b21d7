"""A program run in this process as if Python had been called with it."""

from __future__ import annotations

import atexit
import runpy
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from everstep.capturing.command import OUTER
from everstep.errors import CaptureError


class Target:
    """What is to be run: a file, a module, or code from the command line."""

    def __init__(self, words: Sequence[str]) -> None:
        if not words:
            raise CaptureError("there is no program to run: name a file, or -m MODULE, or -c CODE.")
        self.kind = words[0] if words[0] in {"-m", "-c"} else ""
        if self.kind and len(words) == 1:
            raise CaptureError(f"{self.kind} needs a word after it.")
        self.what = words[1] if self.kind else words[0]
        self.args = list(words[2 if self.kind else 1 :])
        self._check()

    def _check(self) -> None:
        """Raise CaptureError if there is no such file: it is no run that failed."""
        if not self.kind:
            try:
                Path(self.what).open("rb").close()
            except OSError as error:
                raise CaptureError(f"{self.what} cannot be read: {error.strerror}.") from None

    @property
    def name(self) -> str:
        """What its runs are known by."""
        if self.what == OUTER and self.args:
            return Path(self.args[0]).name
        return "-c" if self.kind == "-c" else self.what if self.kind else Path(self.what).name

    def code(self) -> str | None:
        """A digest of its text, None where that is not at hand."""
        text = self.what.encode() if self.kind == "-c" else None
        if not self.kind:
            with suppress(OSError):
                text = Path(self.what).read_bytes()
        return None if text is None else blake2b(text, digest_size=8).hexdigest()

    def run(self) -> None:
        """Run it as the main module. Raises what it raises."""
        {"": self._file, "-m": self._module, "-c": self._text}[self.kind]()

    def _file(self) -> None:
        path = Path(self.what)
        sys.argv = [self.what, *self.args]
        sys.path[0] = str(path.parent.resolve())
        code = compile(path.read_bytes(), self.what, "exec", dont_inherit=True)
        main = _main_module()
        main.__file__ = str(path.absolute())  # it holds wherever the program goes
        main.__loader__ = None
        exec(code, main.__dict__)  # noqa: S102 - this is what was asked for

    def _module(self) -> None:
        sys.argv = ["-m", *self.args]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(self.what, run_name="__main__", alter_sys=True)

    def _text(self) -> None:
        sys.argv = ["-c", *self.args]
        sys.path[0] = ""
        exec(compile(self.what, "<string>", "exec", dont_inherit=True), _main_module().__dict__)  # noqa: S102 - as above


def _main_module() -> ModuleType:
    main = ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    return main


def finish() -> None:
    """Do what Python does when the main module is through, however it ended: it belongs to the run.

    Pools that nobody shut down are told to end, threads are waited for, and exit handlers are called.
    """
    for tell in reversed(getattr(threading, "_threading_atexits", ())):
        tell()
    while left := [thread for thread in threading.enumerate() if not thread.daemon and _is_other(thread)]:
        left[0].join()
    atexit._run_exitfuncs()  # noqa: SLF001 - the run is over when Python calls them


def _is_other(thread: threading.Thread) -> bool:
    return thread not in {threading.main_thread(), threading.current_thread()}


def status_of(exit_: SystemExit) -> int:
    """The status that a program exits with, as Python has it; a text is printed."""
    code: Any = exit_.code
    if code is None or isinstance(code, int):
        return int(code or 0)
    print(code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1
