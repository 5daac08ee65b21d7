"""Beginning a run, while an event loop does not wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from everstep.errors import EverstepError
from everstep.run.life import Life
from everstep.run.result import RunResult
from everstep.store.turns import enter_turn
from everstep.trail.beginning import Draft, drafted, made_awaited, owned, threaded
from everstep.trail.late import asyncio
from everstep.trail.scribe import Scribe

Begin = Callable[[], RunResult[Any] | None]


async def begun(life: Life, begin: Begin, draft: Callable[[], Draft] | None = None) -> RunResult[Any] | None:
    """Begin a run, while the loop does not wait for the disk. If nobody waits any more, the run is given up.

    With `draft` it may be a new one, and is made as that if it is: then `begin` has nothing left to wait for. Else it
    is begun in a thread, where everything is looked up first.
    """
    if life.trail is None:
        return begin()
    if draft is not None and not life.replays:
        turn = enter_turn(asyncio.get_running_loop())
        if turn is not None:
            await turn
        if not life.workflow.is_read:
            await asyncio.to_thread(life.workflow.fingerprint)
        life.made = await made_awaited(draft, partial(_dropped, life, begin))
        if life.made is not None:
            return begin()
    return await owned(threaded(begin), partial(_closed, life))


def _closed(life: Life, done: RunResult[Any] | None) -> None:
    with suppress(EverstepError):  # nobody is left who could be told
        if done is None:
            life.close()


def _dropped(life: Life, begin: Begin, scribe: Scribe) -> None:
    """Give up a run that was made when nobody waited for it any more; one that others ask to cancel is cancelled."""
    life.made = scribe
    with suppress(EverstepError):
        _closed(life, begin())


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
    trail = life.trail
    assert trail is not None  # noqa: S101 - else nothing is made
    said = life.said(trail, life.workflow.parameters.bind(args, kwargs), tags, parent)
    return drafted(trail.store, trail.gate, run_id, **said)
