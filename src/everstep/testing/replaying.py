"""Replay after every step, so that hidden nondeterminism shows up in a test and not after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from everstep.run import always


@contextmanager
def always_replay() -> Iterator[None]:
    """Have every run in here go through its code from the beginning after each of its steps.

    What was recorded is served, so no step is executed twice. Code that asks for other steps the second time, because
    it looks at the clock, at random numbers or at anything else that is not a step, raises a DivergenceError. A run
    without a trail gets one in memory. A plain step in a task of an `asyncio.TaskGroup` has the group cancel the steps
    that its other tasks await: those are begun again.
    """
    before, always.replays = always.replays, True
    try:
        yield
    finally:
        always.replays = before
