"""Lanes for tasks, threads and pool jobs, whoever starts them.

Tasks: a factory on the event loop, while runs are live on it. Threads and jobs: `Thread.start` and
`ThreadPoolExecutor.submit` are wrapped once, when the first run begins, and stay so; without a run they pass straight
through; jobs of `multiprocessing`'s pools of threads likewise (pools.py). Other pools are served by `everstep.submit`.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from everstep.errors import JournalError
from everstep.run.lanes import CURRENT, OF_TASK, OF_THREAD, Lane, here
from everstep.run.stopping import Suspended, came_of_stopping
from everstep.trail.late import asyncio

P = ParamSpec("P")
T = TypeVar("T")

_POOLS = "multiprocessing.pool"
_NO_LANES = ("concurrent.futures.thread", _POOLS, "everstep.")  # threads of pools, whose jobs have lanes, and our own
_SPAWNING = ("asyncio.", "everstep.")  # modules between a factory and who asks for a task
_LOOK_BACK = 6  # frames of theirs, at most
_lock = threading.RLock()  # loops of one thread are entered from others; to set a factory comes back to here
_factories: WeakKeyDictionary[asyncio.AbstractEventLoop, _Factory] = WeakKeyDictionary()


# Tasks.


class _Factory:
    """The task factory of one loop while runs are live on it, around the one that was there before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.runs = 0
        self.previous = loop.get_task_factory()
        eager = getattr(asyncio, "eager_task_factory", None)
        is_eager = eager is not None and getattr(self.previous, "__code__", None) is eager.__code__
        # Libraries tell an eager loop by the code of its factory, so an eager one must be made by asyncio's own maker.
        self.installed: Any = asyncio.create_eager_task_factory(self._construct) if is_eager else self._make  # type: ignore[attr-defined, unused-ignore] # 3.12 and later

    def _make(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        spawned = _lane_for(coro, options)
        if self.previous is None:
            return _watched(functools.partial(_new_task, coro, spawned, loop=loop, **options), spawned)
        return _watched(functools.partial(self.previous, loop, coro, **options), spawned)  # type: ignore[arg-type] # a Task, or what acts as one

    def _construct(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        spawned = _lane_for(coro, options)
        inner = self.previous.__closure__[0].cell_contents if self.previous.__closure__ else asyncio.Task  # type: ignore[union-attr] # an eager factory has it
        if inner is asyncio.Task:
            return _watched(functools.partial(_new_task, coro, spawned, **options), spawned)
        return _watched(functools.partial(inner, coro, **options), spawned)


def _new_task(coro: Any, spawned: tuple[Lane, Lane] | None, **options: Any) -> asyncio.Task[Any]:
    captured = None if spawned is None else spawned[1].run.captured
    if spawned is None or captured is None:
        return asyncio.Task(coro, **options)
    task: asyncio.Task[Any] = captured.task(spawned[1], coro, **options)
    return task


def enter_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Give the tasks of a loop their lanes, until as many `leave_loop`."""
    with _lock:
        factory = _factories.get(loop)
        if factory is None or loop.get_task_factory() is not factory.installed:
            factory = _Factory(loop)
            loop.set_task_factory(factory.installed)
            _factories[loop] = factory
        factory.runs += 1


def leave_loop(loop: asyncio.AbstractEventLoop) -> None:
    """The opposite of `enter_loop`. A factory that somebody put over ours stays."""
    with _lock:
        factory = _factories.get(loop)
        if factory is None:
            return
        factory.runs -= 1
        if factory.runs == 0:
            del _factories[loop]
            if loop.get_task_factory() is factory.installed:
                loop.set_task_factory(factory.previous)


def knows_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether tasks of this loop get lanes."""
    return loop in _factories


def adopt_loop() -> None:
    """Make an event loop that was started inside a run known to it. Call it first thing in that loop."""
    loop = asyncio.get_running_loop()
    lane = here()
    if lane is not None and not knows_loop(loop):
        enter_loop(loop)
        task = asyncio.current_task()
        if task is not None:
            OF_TASK[task] = lane


def _lane_for(coro: Any, options: dict[str, Any]) -> tuple[Lane, Lane] | None:
    """Where a new task belongs, put into the context it gets; with the lane it comes from. None outside of a run."""
    context: contextvars.Context | None = options.get("context")
    origin = here()
    if origin is None and context is not None:
        origin = context.get(CURRENT)
    if origin is None or origin.run.closed:
        return None
    lane = _spawn(origin, coro)
    if context is None:
        context = options["context"] = contextvars.copy_context()
    context.run(CURRENT.set, lane)
    return origin, lane


def _spawn(origin: Lane, coro: Any) -> Lane:
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - who spawns is to be seen nowhere else
    for _ in range(_LOOK_BACK):
        module = "" if frame is None else str(frame.f_globals.get("__name__"))
        if frame is None or not module.startswith(_SPAWNING):
            break  # who asks for a task; what that is called by, as `wait_for` from 3.12 on, spawns nothing
        if module == "asyncio.tasks":
            name = frame.f_code.co_name
            if name == "wait_for":  # 3.11 spawns here and later versions do not: one lane on all of them
                return origin
            if name == "as_completed" or frame.f_code.co_qualname.startswith("_AsCompletedIterator"):
                return origin.spawn(*_place_in(origin, frame, coro, name))
        frame = frame.f_back
    return origin.spawn("task", _name_of(coro))


def _place_in(origin: Lane, frame: FrameType, coro: Any, name: str) -> tuple[str, str, int]:
    """Which call of as_completed this is, and which of the awaitables given to it: it spawns a set, in any order."""
    given = frame.f_locals.get("fs" if name == "as_completed" else "aws")
    if isinstance(given, list | tuple):
        for place, item in enumerate(given):
            if item is coro:
                return f"completed{origin.group(id(frame), len(given))}", _name_of(coro), place
    raise JournalError(
        "asyncio.as_completed spawns what it is given in any order, so the steps inside could not be told apart. "
        "Give it a list or tuple, or tasks made beforehand."
    )


def _name_of(coro: Any) -> str:
    return getattr(coro, "__qualname__", None) or type(coro).__qualname__


def _watched(make: Callable[[], asyncio.Task[Any]], spawned: tuple[Lane, Lane] | None) -> asyncio.Task[Any]:
    if spawned is None:
        return make()
    origin, lane = spawned
    if lane is not origin:
        lane.run.lane_began(lane, task=True)  # before it is made: an eager one begins at once, and is one of several
    try:
        task = make()
    except BaseException:  # whatever it is, there is no task: it goes on its way
        if lane is not origin:
            lane.run.lane_ended(lane, whole=False, task=True)
        raise
    if not task.done():  # an eager one may be, or is in a step by now
        OF_TASK.setdefault(task, lane)
    if lane is not origin:
        lane.run.turnstile.tasks.add(task)
        task.add_done_callback(functools.partial(_ended, lane))
    return task


def _ended(lane: Lane, task: asyncio.Task[Any]) -> None:
    # Who asks for its exception has seen it: one that nobody but us has asked for is told, as it is without us.
    error: BaseException | None = getattr(task, "_exception", None)
    if error is not None and is_stopped(lane, error):
        task.exception()
    lane.run.lane_ended(lane, whole=not task.cancelled() and error is None, task=True)


def is_stopped(lane: Lane, error: BaseException) -> bool:
    """Whether the run took code out by this: it waits, or is gone through anew. No news for who looks at failures."""
    captured = lane.run.captured
    is_halt = isinstance(error, Suspended) if captured is None else captured.is_halt(error)
    return is_halt or (lane.run.stopping is not None and came_of_stopping(error))


# Threads and pools.


def submit(pool: Executor, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """`pool.submit`, for any pool of threads: the steps of the job belong to this run."""
    lane = here()
    if lane is None:
        return pool.submit(function, *args, **kwargs)
    job = job_of(lane, function, args)
    if isinstance(pool, ThreadPoolExecutor):
        return _submit(pool, job, *args, **kwargs)
    return pool.submit(job, *args, **kwargs)


@contextmanager
def _standing(lane: Lane) -> Iterator[None]:
    """While this lasts the code of this thread is in a lane."""
    before, OF_THREAD.lane = OF_THREAD.lane, lane
    token = CURRENT.set(lane)
    try:
        yield
    finally:
        CURRENT.reset(token)
        OF_THREAD.lane = before


def job_of(origin: Lane, function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """The function, run in a lane of its own. Also set for the thread: the job may bring a context copied earlier."""
    lane = beside(origin, "job", function_name(function, args))
    if lane is not origin:
        lane.run.lane_began(lane, task=False)
    begin = _beginning(origin)

    def job(*args: Any, **kwargs: Any) -> Any:
        begin()
        whole = False
        try:
            with _standing(lane):
                result = function(*args, **kwargs)
            whole = True
            return result
        finally:
            if lane is not origin:
                lane.run.lane_ended(lane, whole=whole, task=False)

    job.__dict__["lane"] = lane
    return job


def callback_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for whoever calls it when a job has ended, in a lane of its own; the same one where none is needed.

    A thread of the pool calls it, or the one that it is said in, if the job was quicker: which of them is chance. Its
    context is that of who calls, as it is without us.
    """
    origin = here()
    if origin is None or origin.run.captured is None or origin.run.closed or origin.scope.leaf is not None:
        return function
    lane = beside(origin, "callback", function_name(function))

    def told(*args: Any) -> Any:
        try:
            with _standing(lane):
                return function(*args)
        except BaseException as error:  # what stops a run is none
            if not is_stopped(lane, error):
                raise
            return None  # no Exception, it would end the thread of the pool, and others wait for that

    told.__dict__["lane"] = lane
    return told


def beside(origin: Lane, kind: str, name: str) -> Lane:
    """A new lane for what a thread does; of a run that is over, the same one, where every step is refused."""
    if origin.run.closed:
        return origin
    lane = origin.spawn(kind, name)
    if origin.run.captured is not None:
        origin.run.captured.senses.parted(origin, lane)
    return lane


def _beginning(origin: Lane) -> Callable[[], None]:
    """What a thread that is started from a lane is to call before it does anything."""
    begin: Callable[[], None] = at_once if origin.run.captured is None else origin.run.captured.starting(origin)
    return begin


def at_once() -> None:
    """Called by a thread that waits for nobody."""


def function_name(function: Any, args: tuple[Any, ...] = ()) -> str:
    """The name of what a job does: libraries wrap it in a copied context, some of them twice."""
    words = [function, *args]
    while True:
        if isinstance(words[0], functools.partial):  # the way that asyncio.to_thread hands a function over
            words = [words[0].func, *words[0].args, *words[1:]]
        elif len(words) > 1 and isinstance(getattr(words[0], "__self__", None), contextvars.Context):
            del words[0]
        else:
            return getattr(words[0], "__qualname__", None) or type(words[0]).__qualname__


_submit = ThreadPoolExecutor.submit
_start = threading.Thread.start


@functools.wraps(_submit)  # type: ignore[arg-type] # its type has variables of its own
def _submit_in_lane(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    lane = here()
    if lane is None:
        return _submit(self, fn, *args, **kwargs)
    job = job_of(lane, fn, args)
    future = _submit(self, job, *args, **kwargs)
    if lane.run.captured is not None:
        lane.run.captured.submitted(future, job.__dict__["lane"])
    return future


@functools.wraps(_start)
def _start_in_lane(self: threading.Thread) -> None:
    target = getattr(self, "_target", None)
    module = getattr(target, "__module__", None) or ""
    if module == _POOLS:
        _watch_pools()
        self.run = functools.partial(_run_quietly, self.run)  # type: ignore[method-assign] # of this one thread
    origin = None if module.startswith(_NO_LANES) else here()
    if origin is None:
        _start(self)
        return
    lane = beside(origin, "thread", function_name(self if target is None else target))
    run, is_new = self.run, lane is not origin
    awaited = is_new and not self.daemon  # a daemon may never end, and nobody waits for it to
    ended = functools.partial(lane.run.lane_ended, lane, task=False, counted=awaited) if is_new else None
    self.run = functools.partial(_run_in_lane, lane, run, _beginning(origin), ended)  # type: ignore[method-assign] # of this one thread
    if awaited:
        lane.run.lane_began(lane, task=False)
    if lane.run.captured is not None:
        lane.run.captured.senses.joined_by(self, lane)
    try:
        _start(self)
    except BaseException:  # it never began, so it will not end
        if awaited:
            lane.run.lane_ended(lane, whole=False, task=False)
        raise


def _run_in_lane(
    lane: Lane, run: Callable[[], None], begin: Callable[[], None], ended: Callable[..., None] | None
) -> None:
    begin()
    # The context only, not the thread's own variable: a long-lived worker would keep the lane of who started it.
    CURRENT.set(lane)
    whole = False
    try:
        run()
        whole = True
    except SystemExit:  # as `threading` leaves it; but that tells of its subclasses, of which one is ours
        pass
    except BaseException as error:  # what stops a run is no Exception
        if not is_stopped(lane, error):
            raise
    finally:
        if ended is not None:
            ended(whole=whole)


def _run_quietly(run: Callable[[], None]) -> None:
    """A thread of a pool that ends with a job which exits, as `threading` leaves it, whoever looks at that."""
    with suppress(SystemExit):
        run()


def watch_threads() -> None:
    """Wrap the ways threads start. Once: to unwrap would race with others who wrap them."""
    if ThreadPoolExecutor.submit is _submit:
        ThreadPoolExecutor.submit = _submit_in_lane  # type: ignore[assignment, method-assign] # this is the wrapping
    if threading.Thread.start is _start:
        threading.Thread.start = _start_in_lane  # type: ignore[method-assign] # as above
    _watch_pools()


def _watch_pools() -> None:
    """Those of `multiprocessing`, where somebody has loaded them."""
    loaded = sys.modules.get(_POOLS)
    if hasattr(loaded, "ThreadPool"):  # else it is half loaded, and has started nothing
        import_module("everstep.run.pools").watch_pools(loaded)
