"""Jobs of `multiprocessing.pool.ThreadPool`, in lanes of their own: which of its threads takes which job is chance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from everstep.run.lanes import here
from everstep.run.spawning import beside, job_of


def watch_pools(module: ModuleType) -> None:
    """Wrap how `multiprocessing.pool` takes jobs for threads. Once, as for other threads."""
    pool, plain = module.ThreadPool, module.Pool
    if "apply_async" in vars(pool):
        return
    take_all, take_each = plain._map_async, plain._guarded_task_generation  # noqa: SLF001 - its public ways come to these

    @functools.wraps(plain.apply_async)
    def apply_async(self: Any, func: Callable[..., Any], args: Any = (), *more: Any, **named: Any) -> Any:
        lane = here()
        return plain.apply_async(self, func if lane is None else job_of(lane, func, tuple(args)), args, *more, **named)

    @functools.wraps(take_all)
    def _map_async(
        self: Any, func: Callable[..., Any], iterable: Iterable[Any], mapper: Any, *more: Any, **named: Any
    ) -> Any:
        lane = here()
        if lane is not None:
            each = module.starmapstar is mapper
            iterable = [functools.partial(job_of(lane, func, ()), *(item if each else (item,))) for item in iterable]
            func, mapper = _call, module.mapstar
        return take_all(self, func, iterable, mapper, *more, **named)

    @functools.wraps(take_each)
    def _guarded_task_generation(self: Any, job: Any, func: Callable[..., Any], iterable: Iterable[Any]) -> Any:
        lane = here()
        if lane is not None:  # a thread of the pool's takes the items: how far this one is by then is chance
            origin, plain_func = beside(lane, "pool", getattr(func, "__qualname__", "")), func
            iterable = (functools.partial(job_of(origin, plain_func, ()), item) for item in iterable)
            func = _call
        return take_each(self, job, func, iterable)

    for made in (apply_async, _map_async, _guarded_task_generation):
        setattr(pool, made.__name__, made)


def _call(job: Callable[[], Any]) -> Any:
    return job()
