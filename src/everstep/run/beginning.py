"""Beginning a run off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everstep.run.life import Life
from everstep.run.result import RunResult
from everstep.trail.late import asyncio


async def begun(life: Life, begin: Callable[[], RunResult[Any] | None]) -> RunResult[Any] | None:
    """Begin a run in a thread: the loop does not wait for the disk. If nobody waits any more, the run is given up."""
    if life.trail is None:
        return begin()
    work = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if work.exception() is None and work.result() is None:
            await asyncio.to_thread(life.close)
        raise
