"""How long, and how much of, what a node gave is kept for the next time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from everstep.store.cache import Limits


@dataclass(frozen=True, slots=True)
class Cache:
    """Use again what a node gave for the same inputs, for `max_age` seconds (or a timedelta), or for good.

    Of each node at most `max_items` outcomes and `max_bytes` bytes are kept: what was used longest ago goes first. None
    is no limit. `clock` gives the time, for tests.
    """

    max_age: float | timedelta | None = None
    max_items: int | None = 10_000
    max_bytes: int | None = 100_000_000
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = (self.max_items, self.max_bytes)
        if any(size is not None and size < 1 for size in sizes) or (self._seconds is not None and self._seconds <= 0):
            raise ValueError(
                f"{self} makes no sense: max_age above 0, max_items and max_bytes from 1; None is no limit"
            )

    @property
    def _seconds(self) -> float | None:
        return self.max_age.total_seconds() if isinstance(self.max_age, timedelta) else self.max_age

    @property
    def limits(self) -> Limits:
        """What holds now."""
        return Limits(self.clock(), self._seconds, self.max_items, self.max_bytes)
