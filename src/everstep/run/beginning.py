"""Beginning a run off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from everstep.run.arguments import Inputs
from everstep.run.life import NAMED, Life
from everstep.run.result import RunResult
from everstep.trail.beginning import Draft, drafted, made_awaited
from everstep.trail.late import asyncio


async def begun(
    life: Life, begin: Callable[[], RunResult[Any] | None], draft: Callable[[], Draft] | None = None
) -> RunResult[Any] | None:
    """Begin a run, while the loop does not wait for the disk. If nobody waits any more, the run is given up.

    With `draft` it may be a new one, and is made as that if it is: then `begin` has nothing left to wait for. Else it
    is begun in a thread, where everything is looked up first.
    """
    if life.trail is None:
        return begin()
    if draft is not None and await _made(life, draft):
        return begin()
    work = asyncio.ensure_future(asyncio.to_thread(begin))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if work.exception() is None and work.result() is None:
            await asyncio.to_thread(life.close)
        raise


async def _made(life: Life, draft: Callable[[], Draft]) -> bool:
    if life.replays:
        return False
    try:
        new = draft()
    except Exception:  # noqa: BLE001 - whatever it is, `begin` meets it too, and knows whether the run is there
        return False
    life.made = await made_awaited(new)
    return life.made is not None


def new_run(
    life: Life,
    run_id: str | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    tags: Mapping[str, str] | None = None,
    parent: str | None = None,
) -> Draft:
    """What `life.begin` makes of the same if there is no such run."""
    trail, workflow = life.trail, life.workflow
    assert trail is not None  # noqa: S101 - else nothing is made
    given = Inputs(trail.gate, workflow.name, workflow.parameters.bind(args, kwargs))
    about = workflow.fingerprint() | {NAMED: given.named or None}
    return drafted(
        trail.store, trail.gate, run_id, workflow=workflow.name, inputs=given.values, tags=tags, parent=parent,
        lease=life.lease, metadata=about,
    )  # fmt: skip
