"""A program run in this process as if Python had been called with it."""

from __future__ import annotations

import atexit
import os
import pkgutil
import runpy
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from everstep.capturing.command import OUTER
from everstep.errors import CaptureError


class Target:
    """What is to be run: a file, a folder or archive with a `__main__`, a module, or code from the command line."""

    def __init__(self, words: Sequence[str]) -> None:
        if not words:
            raise CaptureError("there is no program to run: name a file, or -m MODULE, or -c CODE.")
        self.kind = words[0] if words[0] in {"-m", "-c"} else ""
        if self.kind and len(words) == 1:
            raise CaptureError(f"{self.kind} needs a word after it.")
        self.what = words[1] if self.kind else words[0]
        self.args = list(words[2 if self.kind else 1 :])
        # What it is called with, the inputs of its run; a command that is no Python program stands for itself.
        self.command = self.args if self._is_outer else list(words)
        self._check()

    def _check(self) -> None:
        """Raise CaptureError if there is no such file: it is no run that failed."""
        if not self.kind:
            if Path(self.what).is_dir() and not main_of(self.what).is_file():
                raise CaptureError(
                    f"{self.what} is a folder without a __main__.py: name the file in it that is to run."
                )
            try:
                main_of(self.what).open("rb").close()
            except OSError as error:
                raise CaptureError(f"{self.what} cannot be read: {error.strerror}.") from None

    @property
    def _is_outer(self) -> bool:
        return self.kind == "-m" and self.what == OUTER and bool(self.args)

    @property
    def name(self) -> str:
        """What its runs are known by."""
        if self._is_outer:
            return Path(self.args[0]).name
        if self.kind:
            return "-c" if self.kind == "-c" else self.what
        return Path(self.what).name or Path(self.what).resolve().name

    def code(self) -> str | None:
        """A digest of its text, None where that is not at hand."""
        text = self.what.encode() if self.kind == "-c" else None
        if not self.kind:
            with suppress(OSError):
                text = main_of(self.what).read_bytes()
        return None if text is None else blake2b(text, digest_size=8).hexdigest()

    def run(self) -> None:
        """Run it as the main module. Raises what it raises."""
        {"": self._file, "-m": self._module, "-c": self._text}[self.kind]()

    def _file(self) -> None:
        path = os.path.join(Path.cwd(), self.what)  # noqa: PTH118 - as it is typed, dots too: so does Python
        sys.argv = [self.what, *self.args]
        if pkgutil.get_importer(path) is not None:
            self._folder(path)
            return
        _lead_path(str(Path(path).resolve().parent))
        main = _main_module()
        main.__file__ = path  # it holds wherever the program goes
        if sys.version_info < (3, 15):  # from there on modules have none
            main.__dict__["__cached__"] = None
        if path.endswith(".pyc"):
            main.__loader__ = compiled = SourcelessFileLoader("__main__", path)
            code: Any = compiled.get_code("__main__")
        else:
            main.__loader__ = SourceFileLoader("__main__", path)
            code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102 - this is what was asked for

    def _folder(self, path: str) -> None:
        """Run the `__main__` of a folder or an archive, from which it imports too."""
        _lead_path(path, always=True)
        _main_module()
        _run_as_main("__main__", alter_argv=False)

    def _module(self) -> None:
        sys.argv = ["-m", *self.args]
        _lead_path(str(Path.cwd()))
        _main_module()
        _run_as_main(self.what)

    def _text(self) -> None:
        sys.argv = ["-c", *self.args]
        _lead_path("")
        main = _main_module()
        main.__loader__ = BuiltinImporter
        exec(compile(self.what, "<string>", "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - as above


_run_as_main = runpy._run_module_as_main  # type: ignore[attr-defined] # noqa: SLF001 - Python itself calls it


def main_of(what: str) -> Path:
    """The file that Python begins with: of a folder its `__main__`."""
    return Path(what, "__main__.py") if Path(what).is_dir() else Path(what)


def _lead_path(folder: str, *, always: bool = False) -> None:
    """Put a folder where Python does, in the place of that which Python put there for us."""
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif always:
        sys.path.insert(0, folder)


def _main_module() -> ModuleType:
    main, before = ModuleType("__main__"), sys.modules["__main__"].__dict__
    if "__annotations__" in before:  # Pythons differ in whether it is there before there are any
        main.__annotations__ = {}
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
