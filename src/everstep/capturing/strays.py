"""Threads that no lane of the program started: their calls get lanes of their own, and are named in the end.

Two kinds: those that are started below `threading` (`_thread.start_new_thread`), which get the lane of a thread as all
others do, and those that were there before or that native code started. Of the latter nobody knows where in the program
they belong, so a lane counts the threads of one name in the order of their first calls: with several of one name that
may be another order in a replay. Only where the whole process is captured; else such threads are not ours.
"""

from __future__ import annotations

import _thread
import functools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from everstep.capturing.stillness import OURS
from everstep.run.lanes import CURRENT, Lane, here

if TYPE_CHECKING:
    from everstep.capturing.session import Session

KIND = "unattributed"
_start = _thread.start_new_thread
_whole: Session | None = None  # the program that the process is


class _Here(threading.local):
    lane: Lane | None = None


_here = _Here()


@contextmanager
def gathered(session: Session) -> Iterator[None]:
    """Take every thread of the process for one of this program."""
    global _whole  # noqa: PLW0603 - there is one process
    before, _whole = _whole, session
    try:
        yield
    finally:
        _whole = before


def lane_of_stray() -> Lane | None:
    """The lane of a thread that has none; None if the thread is none of the program's."""
    session = _whole
    thread = threading.current_thread()
    if session is None or CURRENT.get() is not None or thread.name.startswith(OURS):
        return None  # a context that is outside of all runs is so on purpose
    if _here.lane is None or _here.lane.run is not session.run:
        name = re.sub(r"[\d-]+", "", thread.name).strip() or "thread"
        _here.lane = _beside(session.run.root, name)
        session.strays.append(thread.name)
    return _here.lane


def _beside(root: Lane, name: str) -> Lane:
    """A lane from the beginning of the program on: how far that was when the thread made its first call is chance."""
    path = root.spawn(KIND, name).path.rpartition("@")[0]
    return Lane(root.run, root.scope, f"{path}@0", root)


@functools.wraps(_start)
def _start_in_lane(function: Callable[..., Any], args: tuple[Any, ...], *kwargs: Any) -> int:
    origin = here()
    if origin is None or origin.run.captured is None or origin.run.closed:
        return _start(function, args, *kwargs)
    lane = origin.spawn("thread", getattr(function, "__qualname__", None) or type(function).__qualname__)

    def run(*args: Any, **kwargs: Any) -> None:
        CURRENT.set(lane)
        whole = False
        try:
            function(*args, **kwargs)
            whole = True
        finally:
            lane.run.lane_ended(lane, whole=whole, task=False, counted=False)

    return _start(run, args, *kwargs)


def watch() -> None:
    """Wrap the way that threads start below `threading`, which keeps its own name for it. Once, as elsewhere."""
    if _thread.start_new_thread is _start:
        _thread.start_new_thread = _thread.start_new = _start_in_lane
