"""A bar that shows how far a map is: for a person at a terminal, and for nobody else."""

from __future__ import annotations

import sys
import threading
from typing import Any

_PATIENCE = 1.0  # seconds: what is over sooner needs no bar


class Bar:
    """How many items are done, on stderr, once it takes long enough to be worth a look. Nothing stays of it."""

    def __init__(self, title: str, total: int, *, wanted: bool) -> None:
        self._title, self._total, self._wanted = title, total, wanted
        self._done = self._failed = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._drawn: Any = None
        self._task: Any = None

    def show(self) -> None:
        """Have it drawn, until `close`."""
        if self._wanted and sys.stderr is not None and sys.stderr.isatty():
            threading.Thread(target=self._draw, name="everstep-bar", daemon=True).start()

    def _draw(self) -> None:
        if self._closed.wait(_PATIENCE):
            return
        # 50 ms that only somebody who looks pays.
        from rich.console import Console  # noqa: PLC0415 - as said above
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - as said above

        with self._lock:
            if self._closed.is_set():
                return
            self._drawn = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                TextColumn("{task.fields[failed]}", markup=False), TimeRemainingColumn(), console=Console(stderr=True),
                transient=True, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._task = self._drawn.add_task(self._title, total=self._total, completed=self._done, failed="")
            self._tell()
            self._drawn.start()

    def advance(self, *, failed: bool) -> None:
        """One more is done."""
        with self._lock:
            self._done += 1
            self._failed += failed
            if self._drawn is not None:
                self._tell()

    def _tell(self) -> None:
        said = f"{self._failed} failed" if self._failed else ""
        self._drawn.update(self._task, completed=self._done, failed=said)

    def close(self) -> None:
        """Take it away."""
        with self._lock:
            self._closed.set()
            if self._drawn is not None:
                self._drawn.stop()
