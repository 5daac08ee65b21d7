"""The line of code at which a run failed: the innermost that is the program's own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from everstep.model import StepError

_LIBRARY = re.compile(r"[/\\](?:site-packages|dist-packages|lib[/\\]python[\d.]+)[/\\]|^<")
_OURS = re.compile(
    r"[/\\]everstep[/\\](?:(?:capturing|cli|codec|graph|journal|models|policy|run|store|testing|trail)[/\\]|\w+\.py$)"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)$')


class Frame(NamedTuple):
    """A line of a traceback."""

    file: str
    line: str
    function: str
    code: str

    @property
    def is_own(self) -> bool:
        """Whether it is of no library, and not of ours."""
        return not _LIBRARY.search(self.file) and not self.is_ours

    @property
    def is_ours(self) -> bool:
        """Whether it is of this package: nobody looks for a fault of a program there."""
        return _OURS.search(self.file) is not None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.code}"


def frames(error: StepError | None) -> list[Frame]:
    """The lines of an error's traceback, the innermost last."""
    lines = (error.traceback or "").splitlines() if error is not None else []
    return [
        Frame(found["file"], found["line"], found["function"], lines[at + 1].strip() if at + 1 < len(lines) else "")
        for at, line in enumerate(lines)
        if (found := _FRAME.match(line)) is not None
    ]


def of_the_program(trace: str) -> list[str]:
    """The lines of a traceback without those of this package; all of them where there are no others."""
    kept, is_ours, has_others = list[str](), False, False
    for line in trace.splitlines():
        found = _FRAME.match(line)
        if found is not None:
            is_ours = _OURS.search(found["file"]) is not None
            has_others |= not is_ours
        elif not line.startswith("  "):  # what was raised, or how two tracebacks belong together
            is_ours = False
        kept += [] if is_ours else [line]
    return kept if has_others else trace.splitlines()


def where(errors: Iterable[StepError]) -> str | None:
    """Where it failed, told by the first error that has come through the program; else the innermost line there is."""
    seen = [[frame for frame in frames(error) if not frame.is_ours] for error in errors]
    own = ([frame for frame in some if frame.is_own] for some in seen)
    return next((str(some[-1]) for some in [*own, *seen] if some), None)
