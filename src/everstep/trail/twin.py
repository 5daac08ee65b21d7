"""The trail for event loops: the same questions, awaited, none of them on the loop's thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from everstep.policy.rules import Rule
from everstep.trail.beginning import Beginning, begin, drafted, made_awaited, owned, threaded
from everstep.trail.forking import Forking, fork
from everstep.trail.late import asyncio
from everstep.trail.leaving import give_up
from everstep.trail.recorder import AsyncRecorder
from everstep.trail.scribe import Scribe
from everstep.trail.trail import Trail
from everstep.trail.trail import open as open_trail

if TYPE_CHECKING:
    from everstep.trail.copying import Copied

P = ParamSpec("P")
T = TypeVar("T")


def _off_the_loop(
    method: Callable[Concatenate[Trail, P], T],
) -> Callable[Concatenate[AsyncTrail, P], Coroutine[Any, Any, T]]:
    """The same method, awaited."""

    async def ask(self: AsyncTrail, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(partial(method, self.trail, *args, **kwargs))

    ask.__name__, ask.__doc__ = method.__name__, method.__doc__
    return ask


class AsyncTrail:
    """`Trail` for event loops. `trail` is the one underneath, for code off the loop."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.on = trail.on

    @classmethod
    async def open(
        cls, url: str | os.PathLike[str], *, read_only: bool = False, redact: Iterable[Rule] = ()
    ) -> AsyncTrail:
        """Open a trail, as `everstep.open` does."""
        return cls(await asyncio.to_thread(partial(open_trail, url, read_only=read_only, redact=redact)))

    async def record(self, run_id: str | None = None, **detail: Unpack[Beginning]) -> AsyncRecorder:
        """Begin a run, or continue one that has not ended, as `Trail.record` does."""
        where = self.trail.store, self.trail.gate, run_id
        new = await made_awaited(partial(drafted, *where, **detail), give_up)
        return AsyncRecorder(new) if new is not None else await self._recorder(partial(begin, *where, **detail))

    async def fork(self, run_id: str, at: int | None = None, **detail: Unpack[Forking]) -> AsyncRecorder:
        """A new run that shares this one's steps up to `at`, as `Trail.fork` does."""
        return await self._recorder(partial(fork, self.trail.store, self.trail.gate, run_id, at, **detail))

    @staticmethod
    async def _recorder(made: Callable[[], Scribe]) -> AsyncRecorder:
        def make() -> Scribe:
            scribe = made()
            scribe.prepare()  # here, so that the first step need not read on the loop
            return scribe

        return AsyncRecorder(await owned(threaded(make), give_up))

    run = _off_the_loop(Trail.run)
    runs = _off_the_loop(Trail.runs)
    steps = _off_the_loop(Trail.steps)
    step = _off_the_loop(Trail.step)
    state = _off_the_loop(Trail.state)
    checkpoints = _off_the_loop(Trail.checkpoints)
    list_workflows = _off_the_loop(Trail.list_workflows)
    get_steps = _off_the_loop(Trail.get_steps)
    get_state = _off_the_loop(Trail.get_state)
    get_checkpoint = _off_the_loop(Trail.get_checkpoint)
    get_run_inputs = _off_the_loop(Trail.get_run_inputs)
    step_at = _off_the_loop(Trail.step_at)
    lineage = _off_the_loop(Trail.lineage)
    answer = _off_the_loop(Trail.answer)
    cancel = _off_the_loop(Trail.cancel)
    stop = _off_the_loop(Trail.stop)
    replay = _off_the_loop(Trail.replay)
    export = _off_the_loop(Trail.export)
    import_run = _off_the_loop(Trail.import_run)
    diff = _off_the_loop(Trail.diff)
    compare = _off_the_loop(Trail.compare)
    bisect = _off_the_loop(Trail.bisect)
    search = _off_the_loop(Trail.search)
    why = _off_the_loop(Trail.why)
    usage = _off_the_loop(Trail.usage)
    verify = _off_the_loop(Trail.verify)
    prune = _off_the_loop(Trail.prune)
    drop = _off_the_loop(Trail.drop)
    reclaim = _off_the_loop(Trail.reclaim)
    clear_cache = _off_the_loop(Trail.clear_cache)
    close = _off_the_loop(Trail.close)

    async def copy(self, to: AsyncTrail | Trail, *runs: str) -> Copied:
        """Copy runs to another trail, as `Trail.copy` does."""
        return await asyncio.to_thread(self.trail.copy, to.trail if isinstance(to, AsyncTrail) else to, *runs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
