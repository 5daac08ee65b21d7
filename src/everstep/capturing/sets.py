"""Tasks, futures and jobs in sets: in the same order whenever a program runs.

`asyncio.wait`, `concurrent.futures.wait` and their like give sets, and a set has its items by their hashes. Those of
such objects tell where they lie in memory, which is chance. Here they tell where in the program they were started.
"""

from __future__ import annotations

import functools
import zlib
from concurrent.futures import Future
from typing import Any

from everstep.run.lanes import Lane
from everstep.trail.late import asyncio

_ORDER = "_everstep_order"


def order_of(lane: Lane) -> int:
    """The hash of what has this lane: next to those of its siblings, so that in a set none is in the way of another."""
    place, _, number = lane.path.rpartition("#")
    count = number.partition("@")[0]
    return (zlib.crc32(place.encode()) << 16) + (int(count) if count.isdecimal() else 0)


@functools.cache
def _classes() -> tuple[type[asyncio.Task[Any]], type[asyncio.Future[Any]]]:
    """Made when they are needed: most programs have no use for asyncio."""

    class Task(asyncio.Task[Any]):
        def __init__(self, coro: Any, order: int, **options: Any) -> None:
            setattr(self, _ORDER, order)  # first: to make a task puts it into a set
            super().__init__(coro, **options)

        __hash__ = _hash

    class Ordered(asyncio.Future[Any]):
        __hash__ = _hash

    return Task, Ordered


def task(lane: Lane, coro: Any, **options: Any) -> asyncio.Task[Any]:
    """A task of asyncio."""
    return _classes()[0](coro, order_of(lane), **options)  # type: ignore[call-arg, arg-type] # as it is defined above


def awaited(lane: Lane, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
    """A future of asyncio that a job of this lane ends."""
    future = _classes()[1](loop=loop)
    setattr(future, _ORDER, order_of(lane))
    return future


def started(future: Future[Any], lane: Lane) -> None:
    """A pool has taken a job."""
    setattr(future, _ORDER, order_of(lane))


def _hash(self: Any) -> int:
    order: int | None = getattr(self, _ORDER, None)
    return object.__hash__(self) if order is None else order


def install() -> None:
    """Have jobs hashed so. Others keep the hash that they have."""
    Future.__hash__ = _hash  # type: ignore[method-assign] # this is the wrapping
