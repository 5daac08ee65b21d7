"""One lock file per trail, so that processes take turns at writing.

SQLite's own busy handler polls without a queue and lets one process starve for seconds. `flock` on a side file is
fair enough and costs about a microsecond; it goes with the process that held it, however it ended.
"""

from __future__ import annotations

import fcntl
import os
import time
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock

from everstep.errors import LockedError, UnreadableError

__all__ = ["LOCK_EX", "LOCK_UN", "flock", "is_free", "open_lock", "take"]

_NAP = 0.0002  # seconds


def open_lock(path: str) -> int:
    """The lock file, made when it is missing. Raises UnreadableError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        way_out = "Give everybody who writes to the trail the right to write to its lock file, or delete it."
        raise UnreadableError(path, error.strerror or str(error), way_out) from None


def take(file: int, where: str, patience: float, how: int = LOCK_EX) -> None:
    """Hold the lock, alone or, with LOCK_SH, with others who read.

    Raises LockedError when another process keeps it for longer than `patience` seconds.
    It waits in short naps: a blocking flock could never give up on a holder that was stopped. To let go, call
    `flock(file, LOCK_UN)` itself in a `finally`: a call into C is the one thing an interrupt cannot come before.
    """
    try:
        flock(file, how | LOCK_NB)
    except BlockingIOError:
        end = time.monotonic() + patience
        while True:
            time.sleep(_NAP)
            try:
                fcntl.flock(file, how | LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise LockedError(where, patience) from None
            else:
                return


def is_free(file: int) -> bool:
    """Whether nobody else holds the lock at the moment."""
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    flock(file, LOCK_UN)
    return True
