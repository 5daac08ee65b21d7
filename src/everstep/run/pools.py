"""Jobs of `multiprocessing.pool.ThreadPool`, in lanes of their own: which of its threads takes which job is chance.

So is what is called when they have ended: one thread of a pool calls it all, in the order in which they end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from everstep.run.lanes import Lane, here
from everstep.run.spawning import beside, callback_of, is_stopped, job_of


def watch_pools(module: ModuleType) -> None:
    """Wrap how `multiprocessing.pool` takes jobs for threads. Once, as for other threads."""
    pool, plain = module.ThreadPool, module.Pool
    if "apply_async" in vars(pool):
        return
    take_all, take_each = plain._map_async, plain._guarded_task_generation  # noqa: SLF001 - its public ways come to these

    @functools.wraps(plain.apply_async)
    def apply_async(self: Any, func: Callable[..., Any], args: Any = (), *more: Any, **named: Any) -> Any:
        lane = here()
        return plain.apply_async(self, func if lane is None else _job_of(lane, func, tuple(args)), args, *more, **named)

    @functools.wraps(take_all)
    def _map_async(
        self: Any, func: Callable[..., Any], iterable: Iterable[Any], mapper: Any, *more: Any, **named: Any
    ) -> Any:
        lane = here()
        if lane is not None:
            each = module.starmapstar is mapper
            iterable = [functools.partial(_job_of(lane, func, ()), *(item if each else (item,))) for item in iterable]
            func, mapper = _call, module.mapstar
        return take_all(self, func, iterable, mapper, *more, **named)

    @functools.wraps(take_each)
    def _guarded_task_generation(self: Any, job: Any, func: Callable[..., Any], iterable: Iterable[Any]) -> Any:
        lane = here()
        if lane is not None:  # a thread of the pool's takes the items: how far this one is by then is chance
            origin, plain_func = beside(lane, "pool", getattr(func, "__qualname__", "")), func
            iterable = (functools.partial(_job_of(origin, plain_func, ()), item) for item in iterable)
            func = _call
        return take_each(self, job, func, iterable)

    begin = module.ApplyResult.__init__

    @functools.wraps(begin)
    def begin_with(self: Any, pool: Any, *callbacks: Any, **named: Any) -> None:
        told = {name: each and callback_of(each) for name, each in named.items()}
        begin(self, pool, *(each and callback_of(each) for each in callbacks), **told)

    module.ApplyResult.__init__ = begin_with
    for made in (apply_async, _map_async, _guarded_task_generation):
        setattr(pool, made.__name__, made)


def _job_of(origin: Lane, function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """`job_of`, for threads that end with a job which the run takes out: quietly, as by an exit. Others take theirs."""
    job = job_of(origin, function, args)

    @functools.wraps(function, assigned=("__name__", "__qualname__"), updated=())
    def quietly(*args: Any, **kwargs: Any) -> Any:
        try:
            return job(*args, **kwargs)
        except BaseException as error:  # what stops a run is no Exception
            if is_stopped(origin, error):
                raise SystemExit from error
            raise

    return quietly


def _call(job: Callable[[], Any]) -> Any:
    return job()
