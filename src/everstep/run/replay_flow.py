"""What happens when replayed code asks for a step: it is served from the record, or gone through and compared."""

from __future__ import annotations

import asyncio
from typing import Any

from everstep.journal.track import Recorded
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.flow import CALL, DELIVER, FOREVER, SUSPEND, Flow
from everstep.run.rehearsal import Rehearsal
from everstep.run.restoring import check_form, serve
from everstep.run.stopping import came_of_stopping
from everstep.trail.replayed import Source


def replay_flow(run: Rehearsal, ask: Ask, step: Any, loop: asyncio.AbstractEventLoop | None) -> Flow:
    """A step of a replay: from the record, or by its code, and then compared."""
    recorded = ask.recorded
    assert recorded is not None  # noqa: S101 - what is not on record was not given out
    if recorded.cancelled is not None:
        yield FOREVER, None
    check_form(run, ask, is_stream=False)
    run.check_retry(ask, step.retry)
    ordered = loop is not None and ask.call is None
    if not run.serves(ask):
        return (yield from _by_code(run, ask, recorded, ordered=ordered))
    run.turnstile.skip(recorded)
    if ordered and recorded.outcome is not None:
        yield DELIVER, recorded.outcome.seq
    return serve(run, ask)


def _by_code(run: Rehearsal, ask: Ask, recorded: Recorded, *, ordered: bool) -> Flow:
    inner = run.enter(ask, recorded.attempt + 1)
    value: Any = None
    error: BaseException | None = None
    try:
        value = yield CALL, inner
        run.check_left(inner.scope)
    except (Exception, SystemExit) as raised:  # whatever it is, it is compared with what was raised then
        if run.divergence is not None:
            raise run.divergence from None
        if run.stopping is not None and came_of_stopping(raised):
            raise
        error = raised
    finally:
        run.leave(ask)
    if recorded.outcome is None:  # the run was cut off inside
        run.came_to_the_end = True
        yield SUSPEND, None
    assert recorded.outcome is not None  # noqa: S101 - a suspended lane does not go on
    run.went_through(ask, Source.RE_EXECUTED)
    if ordered:
        yield DELIVER, recorded.outcome.seq
    error = run.compare(ask, value, error)
    if ask.call is not None and error is not None:
        ask.call.restore(recorded.outcome)
    ask.lane.seen = max(ask.lane.seen, recorded.outcome.seq)
    if error is not None:
        faults.mark(error, ask.lane.scope, recorded.outcome.seq)
        raise error
    return value
