"""Going through the code of a run that has begun: by waiting, or by awaiting."""

from __future__ import annotations

import contextlib
import contextvars
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import FrameType
from typing import Any, Literal

from everstep.errors import EverstepError
from everstep.run import faults
from everstep.run.awaiting import forgotten
from everstep.run.children import child_step
from everstep.run.driving import guarded
from everstep.run.execution import Execution
from everstep.run.lanes import CURRENT, OF_TASK
from everstep.run.life import Life
from everstep.run.result import RunResult
from everstep.run.signals import heard, heard_on_loop, is_free
from everstep.run.spawning import enter_loop, leave_loop
from everstep.run.stopping import Suspended, came_of_stopping
from everstep.trail.beginning import owned, threaded
from everstep.trail.late import asyncio

ErrorHandling = Literal["raise", "continue"]
_QUIET, _QUIET_TURNS = 0.01, 3  # how long, and how often in a row, nothing may move in a run that waits for an answer


def go_through(life: Life, error_handling: ErrorHandling = "raise") -> RunResult[Any]:
    """Run the function of a run that has begun, on this thread."""
    life.run.goes_on = error_handling == "continue"
    if life.workflow.is_async:
        return asyncio.run(go_through_awaited(life, error_handling))
    try:
        value, error = _called(life)
        while life.again():
            value, error = _called(life)
        if life.run.waiting:
            _let_others_finish(life.run)
        elif error is not None:
            _keep_what_is_at_work(life.run, error)
            while life.run.busy():
                time.sleep(_QUIET)
        lost = forgotten(life.run.unawaited)
        for waiter in life.end(value, error or lost, None):
            if callable(waiter):
                waiter()
        return life.result(error_handling)
    finally:
        life.close()


def _called(life: Life) -> tuple[Any, BaseException | None]:
    """What the function returned, and what it raised."""
    token = CURRENT.set(life.run.root)
    try:
        with terminable(life.run):
            return life.workflow.function(*life.args, **life.kwargs), None
    except (Exception, Suspended) as raised:  # noqa: BLE001 - whatever the code raises is recorded, then raised
        return None, raised
    except SystemExit as left:
        if not faults.is_marked(left, life.run.root.scope):
            raise  # the code itself, or a signal, ended the program
        return None, left
    finally:
        CURRENT.reset(token)


def _let_others_finish(run: Execution) -> None:
    """Wait for what other threads have at work, because a lane waits for an answer."""
    quiet = 0
    while quiet < _QUIET_TURNS:
        time.sleep(_QUIET)
        quiet = quiet + 1 if run.idle() else 0


def _keep_what_is_at_work(run: Execution, error: BaseException) -> None:
    """Take no further step in a run that failed. What its other tasks and threads have at work is still recorded."""
    run.failing = error
    with contextlib.suppress(EverstepError):  # what the code raised is told; a stream without an outcome begins again
        run.closing.close(run.root.scope)  # first: of most of these the code had enough before it failed
    run.failing = None
    run.stopping = run.stopping or "has failed"
    for child in run.children:
        child.interrupt(asyncio.CancelledError())
        child.halt()


@contextlib.contextmanager
def terminable(run: Execution) -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does: what it did is kept, no further step is taken, and it is given up."""

    def leave(number: int, _: FrameType | None) -> None:
        error = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
        run.interrupt(error)
        raise error

    with heard(leave):
        yield


@contextlib.contextmanager
def terminable_task(run: Execution, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """`terminable` for an event loop, which hears of Ctrl-C by itself: SIGTERM cancels this task, then it is told."""
    task, given_up = asyncio.current_task(), SystemExit(128 + signal.SIGTERM)
    if task is None or not is_free(signal.SIGTERM):
        yield
        return

    def leave() -> None:
        run.interrupt(given_up)
        task.cancel()

    try:
        with heard_on_loop(loop, leave):
            yield
    except asyncio.CancelledError:
        if run.interrupted is given_up:
            raise given_up from None
        raise


async def in_a_thread(life: Life, error_handling: ErrorHandling) -> RunResult[Any]:
    """Run a plain function off the loop. If nobody waits for it any more, the step at work is its last."""
    work = asyncio.ensure_future(asyncio.to_thread(guarded, go_through, life, error_handling))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError as error:
        life.run.interrupt(error)
        life.run.halt()
        await asyncio.wait([work])
        raise


async def go_through_awaited(life: Life, error_handling: ErrorHandling = "raise") -> RunResult[Any]:
    """Run the function of a run that has begun, on this event loop."""
    life.run.goes_on = error_handling == "continue"
    loop = asyncio.get_running_loop()
    enter_loop(loop)
    try:
        with terminable_task(life.run, loop):
            value, error = await _awaited(life, loop)
        while life.run.restarts and await owned(threaded(life.again), lambda _: life.close()):
            value, error = await _awaited(life, loop)
        lost = forgotten(life.run.unawaited)
        for waiter in life.end(value, error or lost, loop):
            if isinstance(waiter, asyncio.Future):
                await waiter
        result = life.result(error_handling)
        if life.run.events:
            await life.run.events.drained()
        return result
    finally:
        # First: tasks that are left over take no step any more, so that none is taken without its lane.
        life.run.stopping = life.run.stopping or "was interrupted"
        leave_loop(loop)
        await asyncio.shield(asyncio.to_thread(life.close)) if life.left_open else life.close()


async def _awaited(life: Life, loop: asyncio.AbstractEventLoop) -> tuple[Any, BaseException | None]:
    """What the function returned, and what it raised."""
    run = life.run
    run.turnstile.loop, run.is_dropped = loop, _watched()
    stopped = asyncio.Event()
    # Before there is a task: an eager one begins at once, and may wait for an answer before it is given back here.
    run.on_suspend = run.on_halt = lambda: loop.call_soon_threadsafe(stopped.set)
    main = loop.create_task(_main(life), context=without_run())
    try:
        await _settled(life, main, stopped)
    except asyncio.CancelledError as stop:
        run.interrupt(stop)
        await cancel_all(main, *run.turnstile.tasks)
        raise
    error = None if main.cancelled() else main.exception()
    if error is not None and not isinstance(error, Exception) and not came_of_stopping(error):
        raise error  # the run was interrupted, and has not ended
    value = None
    if error is None and not main.cancelled():
        value, error = main.result()
    if error is not None and not run.waiting:
        _keep_what_is_at_work(run, error)
        await _finished(run)
    if main.cancelled():  # nothing moved any more
        return None, Suspended()
    return value, error


def _watched() -> Callable[[], bool]:
    """Tells whether this task was cancelled since."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    before = task.cancelling()
    return lambda: task.cancelling() > before


def without_run() -> contextvars.Context:
    """The caller's context outside of any run: the function's task belongs to the new run alone."""
    context = contextvars.copy_context()
    context.run(CURRENT.set, None)
    return context


async def _main(life: Life) -> tuple[Any, SystemExit | None]:
    """What the function returned, or the exit of a step that it did not catch."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    OF_TASK[task] = life.run.root
    token = CURRENT.set(life.run.root)
    try:
        function: Callable[..., Coroutine[Any, Any, Any]] = life.workflow.function
        return await function(*life.args, **life.kwargs), None
    except SystemExit as left:
        if not faults.is_marked(left, life.run.root.scope):
            raise
        return None, left  # not raised: out of a task it would end the loop
    finally:
        CURRENT.reset(token)


async def _settled(life: Life, main: asyncio.Task[Any], stopped: asyncio.Event) -> None:
    """Wait until the function has ended, or until nothing moves any more because a lane waits for an answer."""
    run = life.run
    watch = asyncio.get_running_loop().create_task(stopped.wait(), context=contextvars.Context())
    try:
        await asyncio.wait([main, watch], return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
    quiet, enough = 0, 1 if run.restarts else _QUIET_TURNS
    while not main.done() and quiet < enough:
        await asyncio.wait([main], timeout=0 if run.restarts else _QUIET)
        quiet = quiet + 1 if run.idle() else 0
    if stopped.is_set():
        run.stopping = run.stopping or "waits for an answer"
        await _finished(run)  # the function itself may have ended before
        await cancel_all(main, *run.turnstile.tasks)
    elif main.cancelled():
        raise asyncio.CancelledError


async def _finished(run: Execution) -> None:
    """Wait for the steps at work, whose outcomes are still kept."""
    while run.busy():  # threads are among it; an event would be one more thing for every step
        await asyncio.sleep(_QUIET)


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    left = [task for task in tasks if not task.done()]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)
    for task in left:
        if not task.cancelled():
            task.exception()  # that nobody wants to know: what is told is why they were cancelled


AS_CHILD = partial(child_step, go_through, go_through_awaited)
