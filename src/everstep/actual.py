"""The time and the chance of the world, whatever the program is shown: what rows, leases and keys are made with.

A captured program has a clock that moves with its calls, and chance that can be drawn again (`everstep.capturing`).
Everstep's own code runs in the midst of it and must not. So it asks here, as `actual.time()`, never by a name that it
imported: while some program has another clock, other functions stand here.
"""

from __future__ import annotations

import os
import time as _time
from collections.abc import Callable
from datetime import UTC, datetime

time: Callable[[], float] = _time.time
time_ns: Callable[[], int] = _time.time_ns
urandom: Callable[[int], bytes] = os.urandom
sleep, monotonic = _time.sleep, _time.monotonic


def now() -> datetime:
    """The time in UTC."""
    return datetime.fromtimestamp(time(), UTC)


def token(size: int) -> str:
    """Hexadecimal digits by chance, two for each byte of the size."""
    return urandom(size).hex()
