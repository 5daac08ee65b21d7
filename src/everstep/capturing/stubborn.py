"""Programs that do not leave: they catch whatever takes them out of a run that cannot go on, and try again for ever.

Or they wait for ever, for a thread of theirs that was taken out. And those that leave at once, by `os._exit`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import WeakKeyDictionary

from everstep import actual
from everstep.capturing.output import flush
from everstep.capturing.stillness import watch
from everstep.run.lanes import Lane

_TIMES = 20  # that one lane may ask again: code that cleans up asks a few times
_SECONDS = 10.0  # after which nobody may, for those that try again in a new task each time
_IDLE = 0.3  # the share of a processor that a program uses at most which only waits
_exit = os._exit  # the real one, whatever a program gets


class Patience:
    """How often, and how long, a program asks on when it was told that the run cannot go on."""

    def __init__(self) -> None:
        self._asked: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()
        self._first: float | None = None

    def is_over(self, lane: Lane) -> bool:
        """Whether it is enough. Said each time that a lane asks."""
        self._first = self._first or actual.monotonic()
        times = self._asked[lane] = self._asked.get(lane, 0) + 1
        return times > _TIMES or actual.monotonic() - self._first > _SECONDS


def when_idle(act: Callable[[], None]) -> None:
    """Do something once the program has been waiting for some seconds. One that ends before that takes this with it."""

    def waiting() -> None:
        seen = watch()
        while True:
            used = seen.used()
            actual.sleep(_SECONDS)
            if seen.used() - used < _SECONDS * _IDLE:
                return act()

    threading.Thread(target=waiting, name="everstep-patience", daemon=True).start()


class Leaving:
    """Ends the process in the place of its program: `end` ends the run and says with which status."""

    def __init__(self, end: Callable[[BaseException], int]) -> None:
        self._end = end
        self._process = os.getpid()
        self._once = threading.Lock()
        self._by: int | None = None  # the thread that does it

    def __call__(self, error: BaseException) -> None:
        """Does not return. No exception would get past the program, and no exit handler is to go on with it."""
        self._leave(lambda: self._end(error), 1)

    @contextmanager
    def exits(self, end: Callable[[int], int]) -> Iterator[None]:
        """While this lasts, `os._exit` has the run ended first. A process that was forked leaves as ever."""

        def exits(status: int) -> None:
            self.leave_copy(status)
            if self._by == threading.get_ident():
                _exit(status)
            self._leave(lambda: end(status), status)

        os._exit = exits  # type: ignore[assignment] # it does not return either
        try:
            yield
        finally:
            os._exit = _exit

    def leave_copy(self, status: int, *, flush: bool = False) -> None:
        """Does not return in a process that was forked off: the run is not its own, and so not its to end."""
        if os.getpid() != self._process:
            if flush:
                _flush()
            _exit(status)

    def _leave(self, end: Callable[[], int], status: int) -> None:
        self._once.acquire()  # whoever comes second waits for the end
        self._by = threading.get_ident()
        try:
            status = end()
            _flush()
        finally:
            _exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            flush(stream)
