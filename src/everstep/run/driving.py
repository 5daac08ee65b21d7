"""The two drivers: they do what a flow says, one by waiting, one by awaiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from everstep.errors import UnknownLoopError
from everstep.run.flow import (
    CALL,
    DELIVER,
    RESTART,
    SLEEP,
    SUSPEND,
    WAIT,
    Flow,
    ask_flow,
    asked,
    attempts,
    completed,
    ended_by,
    gives_up,
    is_new,
)
from everstep.run.lanes import CURRENT, OF_TASK, Lane
from everstep.run.spawning import knows_loop
from everstep.run.stopping import Suspended
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.run.asked import Ask
    from everstep.run.execution import Execution
    from everstep.run.flow import AnyStep, Broken

_NONE: Mapping[str, Any] = {}


def drive(
    flow: Flow, lane: Lane, call: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NONE
) -> Any:
    """Go through a flow on this thread."""
    error: BaseException | None = None
    result: Any = None
    while True:
        try:
            what, what_with = flow.send(result) if error is None else flow.throw(error)
        except StopIteration as done:
            return done.value
        except RuntimeError as wrapped:
            if wrapped is not error and isinstance(wrapped.__cause__, StopIteration):
                raise wrapped.__cause__ from None  # the function's own, which Python lets out of no generator
            raise
        error = result = None
        try:
            if what == CALL:
                what_with.plain = True
                token = CURRENT.set(what_with)
                try:
                    result = call(*args, **kwargs)
                finally:
                    CURRENT.reset(token)
            elif what == WAIT:
                if what_with is not None:
                    what_with()
            elif what == SLEEP:
                lane.run.sleep(what_with)
            else:  # the others are said to awaited flows only
                _leave(lane, what, what_with)
        except BaseException as raised:  # noqa: BLE001 - the flow decides on all of them
            error = raised


def call_step(lane: Lane, step: AnyStep, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Ask for a step of plain code, and go through it on this thread.

    Nearly every one is new and announces nothing: it is called and recorded here, as its flow would have it. Should
    that fail, the flow goes on from there. An error is never thrown through a flow: Python would change its context.
    """
    run, call, ask = lane.run, step.function, None
    inner = duration = None
    try:
        ask = asked(lane, step, args, kwargs)
        if step.timeout is not None:
            call, args, kwargs = step.timed(partial(call, *args, **kwargs)), (), _NONE
        if is_new(run, ask) and not (step.external or run.flow or run.restarts):
            inner = run.enter(ask, 1)
            inner.plain = True
            token = CURRENT.set(inner)
            try:
                value = call(*args, **kwargs)
            finally:
                CURRENT.reset(token)
            duration = run.leave(ask)
            waiter = completed(run, ask, step, inner, value, duration, None)
            if callable(waiter):
                waiter()
            if run.events:
                run.tell_outcome(ask, None)
            ask.scope = None  # they know each other: left so, the garbage collector would have to find every step
            return value
        flow = (run.flow or ask_flow)(run, ask, step, None)
    except BaseException as error:  # what it means is decided below
        if ask is None or inner is None:
            if ask is not None:
                run.leave(ask)
            if isinstance(error, KeyboardInterrupt | SystemExit):  # its place may be taken, and no row says by what
                run.interrupt(error)
            raise
        if _ends_with(run, ask, step, (inner, duration, error)):
            raise
        flow = attempts(run, ask, step, None, made=1)
    return drive(flow, lane, call, args, kwargs)


def _ends_with(run: Execution, ask: Ask, step: AnyStep, broken: Broken) -> bool:
    """Record a first attempt that failed. Whether the step ends with it."""
    try:
        is_last = drive(gives_up(run, ask, step, broken, 1, None), ask.lane, step.function)
    except BaseException as error:  # noted, and raised again
        _left(run, ask, error)
        raise
    if is_last:
        _left(run, ask, broken[-1])
    return bool(is_last)


def _left(run: Execution, ask: Ask, error: BaseException) -> None:
    ended_by(run, ask, error, None)
    ask.scope = None


def _leave(lane: Lane, what: int, seq: int) -> None:
    if what == SUSPEND:
        lane.run.suspend(lane, seq, around=True)
    else:
        lane.run.restart(lane)
    raise Suspended


async def drive_awaited(flow: Flow, lane: Lane, call: Callable[[], Awaitable[Any]]) -> Any:
    """Go through a flow on this event loop."""
    run = lane.run
    error: BaseException | None = None
    result: Any = None
    while True:
        try:
            what, what_with = flow.send(result) if error is None else flow.throw(error)
        except StopIteration as done:
            return done.value
        except Suspended:  # at the end of a record that is replayed
            await _stay(lane, SUSPEND, None)
        error = result = None
        try:
            if what == CALL:
                result = await _called(lane, what_with, call)
            elif what == WAIT:
                await _written(what_with)
            elif what == DELIVER:
                await run.turnstile.deliver(what_with)
            elif what == SLEEP:
                await asyncio.sleep(what_with)
            else:
                await _stay(lane, what, what_with)
        except Suspended:  # of a child run: this lane waits with it
            await _stay(lane, SUSPEND, None)
        except BaseException as raised:  # noqa: BLE001 - the flow decides on all of them
            error = raised


async def _written(waiter: Any) -> None:
    if waiter is not None:
        await waiter if isinstance(waiter, asyncio.Future) else await asyncio.to_thread(waiter)


async def _called(lane: Lane, inner: Lane, call: Callable[[], Awaitable[Any]]) -> Any:
    """Await a step's function in its lane. Set for the task too: others may share its context, and set it meanwhile."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    before, token = OF_TASK.get(task), CURRENT.set(inner)
    OF_TASK[task] = inner
    try:
        return await call()
    finally:
        CURRENT.reset(token)
        OF_TASK[task] = before or lane


async def _stay(lane: Lane, what: int, seq: int | None) -> None:
    """Wait until this is cancelled."""
    if what == SUSPEND:
        lane.run.suspend(lane, seq, around=False)
    elif what == RESTART:
        lane.run.restart(lane)
    await asyncio.get_running_loop().create_future()


def guarded(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that a future waits for. It would wait for ever for a StopIteration, which no future can hold."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError("the code raised StopIteration") from error


def known_loop(name: str) -> asyncio.AbstractEventLoop:
    """The running loop, if its tasks have lanes. Raises UnknownLoopError."""
    loop = asyncio.get_running_loop()
    if not knows_loop(loop):
        raise UnknownLoopError(name)
    return loop
