"""anyio's pool of threads: its jobs go on among timers and answers where they went on, as those of asyncio do."""

from __future__ import annotations

import asyncio
import functools
from types import ModuleType
from typing import Any

from everstep.capturing.clock import looked_at
from everstep.capturing.layout import checked
from everstep.run.spawning import function_name
from everstep.trail.late import running_loop

# Below all that is public, which programs import by name before a block is captured.
_START = "run_sync_in_worker_thread"


def patch(module: ModuleType) -> None:
    """Wrap what starts jobs. Those of anyio 3, a function there, go on as they end. Raises UnknownLayoutError."""
    if not hasattr(module, _START):
        plain = checked(module, f"AsyncIOBackend.{_START}", ["func", "args", "abandon_on_cancel", "limiter"])
        setattr(module.AsyncIOBackend, _START, staticmethod(_in_turn(plain, module.CancelScope)))


def _in_turn(plain: Any, scope: Any) -> Any:
    @functools.wraps(plain)
    async def run_in_turn(func: Any, args: Any, abandon_on_cancel: bool = False, limiter: Any = None) -> Any:  # noqa: FBT001, FBT002 - as it is
        found, loop = looked_at(), running_loop()
        captured = None if found is None else found[0].run.captured
        if found is None or captured is None or loop is None:
            return await plain(func, args, abandon_on_cancel, limiter)
        job = found[0].spawn("anyio", function_name(func, args))
        ended = captured.senses.timers.wait_for_job(job.path, loop)
        try:
            return await plain(func, args, abandon_on_cancel, limiter)
        finally:
            gone_on = loop.create_future()
            ended(functools.partial(_go_on, gone_on))
            with scope(shield=not abandon_on_cancel):  # as it is waited for
                await gone_on

    return run_in_turn


def _go_on(gone_on: asyncio.Future[None]) -> None:
    if not gone_on.done():
        gone_on.set_result(None)
