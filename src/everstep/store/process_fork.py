"""Forking with trails open.

SQLite keeps in memory which locks its process holds. A forked child inherits that memory and not the locks: were it to
open the file beside an inherited connection it would take none of its own, and its log could be deleted under it. So
nothing of SQLite crosses a fork: before one, every store comes to rest and closes its connections, and both sides open
them again when they need them.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

_PATIENCE = 10.0  # seconds that a fork waits for stores to come to rest
_NAP = 0.0002

_gate = threading.Lock()  # held while a fork is on its way
_at_work: set[object] = set()


class Forks(Protocol):
    """A store that can come to rest for a fork."""

    def rest(self, patience: float) -> bool:
        """Commit nothing until `wake`; False when that could not be had in time."""

    def part(self) -> None:
        """Close every connection. All of them are at rest."""

    def wake(self) -> None:
        """Go on after `rest`."""

    def born(self) -> None:
        """In the child: begin anew."""


_stores: weakref.WeakSet[Forks] = weakref.WeakSet()
_resting: list[Forks] = []


def watch(store: Forks) -> None:
    """Bring this store to rest whenever the process forks."""
    _stores.add(store)


@contextmanager
def at_work() -> Iterator[None]:
    """While this thread uses SQLite, a fork in another waits. Not to be nested."""
    token = object()
    try:
        with _gate:
            _at_work.add(token)
        yield
    finally:
        _at_work.discard(token)


def _before() -> None:
    end = time.monotonic() + _PATIENCE
    _resting[:] = [store for store in list(_stores) if store.rest(max(end - time.monotonic(), 0))]
    _gate.acquire()
    while _at_work and time.monotonic() < end:
        time.sleep(_NAP)
    if not _at_work:
        for store in _resting:
            with suppress(
                Exception
            ):  # one that fails to part must not take the others across; the child leaves it alone
                store.part()


def _in_parent() -> None:
    _gate.release()
    for store in _resting:
        store.wake()
    _resting.clear()


def _in_child() -> None:
    _resting.clear()
    _at_work.clear()
    _gate.release()
    for store in list(_stores):
        store.born()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
