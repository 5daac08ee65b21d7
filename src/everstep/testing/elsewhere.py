"""Somebody at a store who does what they are told, call by call: run as a program, in a process of their own.

Nothing of Everstep is imported here: the clock must be one that can be moved before a store gets to know it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

CLOCK = "move the clock"  # a call that is no store's


class Clock:
    """The clock of a process, for as long as it stands in front of the real one, can be moved."""

    def __init__(self) -> None:
        self.ahead = 0.0  # seconds
        self._time, self._time_ns = time.time, time.time_ns

    def time(self) -> float:
        """The time, moved."""
        return self._time() + self.ahead

    def time_ns(self) -> int:
        """The same in nanoseconds."""
        return self._time_ns() + round(self.ahead * 1e9)


def serve(store: Any, line: Connection, is_alive: Callable[[], bool], clock: Clock | None = None) -> None:
    """Do the calls that come down the line, in order, and answer each with what it raised and what it gave."""
    while True:
        try:
            name, arguments = line.recv()
            if not is_alive():
                return
            if name == CLOCK:
                if clock is not None:
                    clock.ahead = arguments[0]
                line.send((None, None))
            else:
                line.send(_outcome(store, name, arguments))
        except (EOFError, OSError):  # nobody listens any more
            return


def _outcome(store: Any, name: str, arguments: tuple[Any, ...]) -> tuple[Exception | None, Any]:
    try:
        return None, getattr(store, name)(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked gets it
        return error, None


def main() -> None:
    """Open the store that the first messages tell of, then serve."""
    clock = Clock()
    time.time, time.time_ns = clock.time, clock.time_ns
    line = Connection(int(sys.argv[1]))
    sys.path[:] = line.recv()  # so that what opens the store is found here as it is there
    opener = line.recv()
    store = opener()
    serve(store, line, lambda: True, clock)
    store.close()
    os._exit(0)  # nothing that a store left behind keeps the test waiting


if __name__ == "__main__":
    main()
