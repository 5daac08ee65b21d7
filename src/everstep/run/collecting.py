"""Whether the garbage collector is at work in a thread: what it closes is closed in the middle of anything.

Of a row that is being written, for one, or of a commit, which no other can wait for in the same thread.
"""

from __future__ import annotations

import gc
import threading
from typing import Any


class _OfThread(threading.local):
    is_at_work = False


_of_thread = _OfThread()


def watch() -> None:
    """Know it from now on."""
    if _noted not in gc.callbacks:
        gc.callbacks.append(_noted)


def is_at_work() -> bool:
    """Whether it is, in this thread."""
    return _of_thread.is_at_work


def _noted(phase: str, _: dict[str, Any]) -> None:
    _of_thread.is_at_work = phase == "start"
