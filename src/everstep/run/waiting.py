"""Steps that wait: for a person, or for time to pass. And lanes without an order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from everstep import actual
from everstep.codec import record
from everstep.errors import JournalError, PauseExpiredError
from everstep.model import Kind, Status
from everstep.run.arguments import Inputs
from everstep.run.asked import Ask
from everstep.run.awaiting import ToAwait
from everstep.run.driving import drive, drive_awaited, known_loop
from everstep.run.execution import Execution
from everstep.run.flow import DELIVER, FOREVER, SLEEP, SUSPEND, WAIT, Flow, broken_off, failed, in_place, settled
from everstep.run.given import LONGEST
from everstep.run.lanes import CURRENT, Lane, here
from everstep.run.restoring import serve
from everstep.trail.asking import expired, question
from everstep.trail.late import running_loop


def pause(
    prompt: str,
    schema: Any = None,
    options: list[Any] | None = None,
    deadline: timedelta | float | datetime | None = None,
) -> Any:
    """Wait for a person's answer and give it. No process is held meanwhile: the run ends with the status `paused`.

    Await it in async code. The answer is checked against the schema and the options before it is taken; when nobody
    answers before the deadline, PauseExpiredError is raised here. Siblings of the waiting lane finish first.
    """
    asked = question(prompt, schema, options, deadline)
    return _on_either(lambda lane, loop: _pause_flow(lane, asked, loop), "pause")


def sleep(seconds: float) -> Any:
    """Sleep, once: a run that is resumed sleeps only for what is left. Await it in async code."""
    if not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST:
        raise ValueError(f"cannot sleep for {seconds!r:.60} seconds: give a number from 0 to {LONGEST:,}")
    return _on_either(lambda lane, loop: _sleep_flow(lane, float(seconds), loop), "sleep", seconds)


@contextmanager
def unordered() -> Iterator[None]:
    """Steps in here may be taken in any order: each is known by its name and arguments alone.

    For results that come as they come, as from `concurrent.futures.as_completed`.
    """
    lane = here()
    if lane is None:
        yield
        return
    free = lane.spawn("unordered", "")
    free.unordered = True
    lane.scope.lanes[free.path] = free
    token = CURRENT.set(free)
    try:
        yield
    finally:
        CURRENT.reset(token)
        lane.seen = max(lane.seen, free.seen)


def _on_either(flow: Any, name: str, seconds: float | None = None) -> Any:
    """Go through a flow by waiting; where an event loop runs, what is given is to be awaited."""
    lane = here()
    if running_loop() is not None:
        if lane is not None and lane.plain:
            raise JournalError(
                f"the plain step {lane.scope.name!r} cannot {name} on an event loop, which would stand still. Make the "
                "step async and await it, or call it with asyncio.to_thread."
            )
        return ToAwait(_awaited(flow, name, seconds), name, lane)
    if lane is None:
        return _outside(name, seconds)
    return drive(flow(lane, None), lane, _nothing)


async def _awaited(flow: Any, name: str, seconds: float | None) -> Any:
    lane = here()
    if lane is None:
        if seconds is None:
            return _outside(name, None)
        return await asyncio.sleep(seconds)
    return await drive_awaited(flow(lane, known_loop(name)), lane, _nothing)


def _outside(name: str, seconds: float | None) -> Any:
    if seconds is None:
        raise JournalError(f"there is no run here that could {name}: call it in a step or a workflow")
    time.sleep(seconds)
    return None


def _nothing() -> Any:
    raise AssertionError("nothing is called for these steps")


def _pause_flow(lane: Lane, asked: dict[str, Any], loop: asyncio.AbstractEventLoop | None) -> Flow:
    run = lane.run
    if run.trail is None:
        raise JournalError("a run without a trail cannot pause: nobody could answer it. Give the runner a trail")
    _check_not_external(lane)
    # The deadline is no part of what is asked: it is counted from the first time.
    inputs = Inputs(run.trail.gate, "pause", {name: asked[name] for name in ("prompt", "schema", "options")})
    ask = run.ask(lane, "pause", inputs)
    recorded = ask.recorded
    if recorded is None:
        yield from in_place(run, ask)
        seq, waiter = run.put(ask, loop, now=True, kind=Kind.PAUSE, status=Status.PAUSED, pause=asked)
        yield WAIT, waiter
        recorded = run.remember(ask, seq)
    elif recorded.outcome is not None:
        if loop is not None:
            yield DELIVER, recorded.outcome.seq
        return serve(run, ask)
    else:
        asked = run.trail.step(run.run_id, recorded.id or recorded.seq, view=True).pause
    if expired(asked, actual.now()):
        inner = run.enter(ask, 1)
        error = PauseExpiredError(run.run_id, asked["prompt"], asked["deadline"])
        yield from settled(run, ask, failed(run, ask, inner, error, run.leave(ask), loop), loop, error)
        raise error
    yield SUSPEND, recorded.id or recorded.seq
    raise AssertionError("a suspended lane does not go on")


def _check_not_external(lane: Lane) -> None:
    """Raise JournalError inside an external step: it is announced, and would count as begun while a person thinks."""
    around: Lane | None = lane
    while around is not None:
        if around.scope.external:
            raise JournalError(
                f"the external step {around.scope.name!r} cannot wait for a person: nobody could tell meanwhile "
                "whether it took effect. Pause before it, in the code that calls it."
            )
        around = around.up


def _sleep_flow(lane: Lane, seconds: float, loop: asyncio.AbstractEventLoop | None) -> Flow:
    run = lane.run
    inputs = None if run.trail is None else Inputs(run.trail.gate, "sleep", {"seconds": seconds})
    ask = run.ask(lane, "sleep", inputs)
    recorded = ask.recorded
    if recorded is not None and recorded.cancelled is not None:
        yield FOREVER, None
    if recorded is not None and recorded.outcome is not None:
        if loop is not None:
            yield DELIVER, recorded.outcome.seq
        return serve(run, ask)
    try:
        yield from _slept(run, ask, seconds, loop)
    except BaseException as error:  # those that are no Exception end no step, and are noted
        if not isinstance(error, Exception):
            broken_off(run, ask, error, loop)
        raise
    return None


def _slept(run: Execution, ask: Ask, seconds: float, loop: asyncio.AbstractEventLoop | None) -> Flow:
    """Sleep for what is left, and record that it is over."""
    left, recorded = seconds, ask.recorded
    inner = run.enter(ask, 1)
    inner.scope.waits = True
    try:
        if run.pen is not None and run.trail is not None:
            if recorded is not None:
                began = run.trail.step(run.run_id, recorded.seq, view=True).started_at
                # All of it at most: the clock may have been set back since.
                left = min(max(0.0, seconds - (actual.now() - began).total_seconds()), seconds)
            else:
                with run.lock:
                    run.begun(inner.scope)
                    waiter = run.pen.send(loop)
                yield WAIT, waiter
        yield SLEEP, left
    finally:  # whoever cancels it may do so while its beginning is written
        duration = run.leave(ask)
    _, waiter = run.put(
        ask, loop, whole=False, id=inner.scope.id, duration_ms=duration,
        flags=record.AWAITED if loop is not None else 0,
    )  # fmt: skip
    run.note(ask, inner.scope.id or 0, duration, Status.COMPLETED, None)
    yield from settled(run, ask, waiter, loop)
