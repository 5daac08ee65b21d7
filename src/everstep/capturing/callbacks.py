"""What is called when a job of a pool has ended: in a lane of its own, which begins where it was said."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from everstep.capturing import clock
from everstep.run.spawning import callback_of

_OTHERS = ("asyncio.", "everstep.")  # modules that hand over to a loop what a job gave: that has lanes
_add = Future.add_done_callback


@functools.wraps(_add)
def _add_in_lane(self: Future[Any], fn: Callable[[Future[Any]], object]) -> None:
    is_others = (getattr(fn, "__module__", None) or "").startswith(_OTHERS)
    told = fn if is_others else callback_of(fn)
    if told is fn:
        _add(self, fn)
        return

    def ended(future: Future[Any]) -> None:
        clock.went_on(told.__dict__["lane"], future)
        told(future)

    _add(self, ended)


def install() -> None:
    """Wrap the way to be called. Once, as elsewhere."""
    if Future.add_done_callback is _add:
        Future.add_done_callback = _add_in_lane  # type: ignore[method-assign] # this is the wrapping
