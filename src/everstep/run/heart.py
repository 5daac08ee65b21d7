"""One thread for all runs of the process: it keeps their leases while steps take their time, and hears requests."""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING

from everstep.errors import ClosedError, EverstepError, StaleWriterError, StoreError
from everstep.trail.answers import CANCEL, STOP
from everstep.trail.scribe import Scribe

if TYPE_CHECKING:
    from everstep.run.execution import Execution

_BEAT = 0.5  # seconds between two looks

_lock = threading.Lock()
_runs: weakref.WeakSet[Execution] = weakref.WeakSet()
_kept: list[Scribe] = []  # of runs that nobody works on, and that could not be given up
_live = 0
_thread: threading.Thread | None = None


def live_runs() -> int:
    """How many runs are at work in this process."""
    return _live


def begin(run: Execution) -> None:
    """Look after a run until `end`."""
    global _live, _thread  # noqa: PLW0603 - one heart for the process
    with _lock:
        _live += 1
        if run.pen is None:
            return
        if run.pen.scribe.claim.seq == 0:  # it was made just now, and need not be renewed yet
            run.renewed = time.monotonic()
        _runs.add(run)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_beat, name="everstep-heart", daemon=True)
            _thread.start()


def end(run: Execution) -> None:
    """The opposite of `begin`."""
    global _live  # noqa: PLW0603 - as above
    with _lock:
        _live -= 1
        _runs.discard(run)


def give_up(scribe: Scribe) -> None:
    """Let others take the run. If the store cannot say so now, it is told as soon as it can."""
    try:
        scribe.store.renew(scribe.claim, 0)
    except EverstepError as error:  # a run that another has, or a trail that was closed, needs nothing more
        if isinstance(error, StoreError) and not isinstance(error, ClosedError):
            with _lock:
                _kept.append(scribe)


def give_up_again() -> None:
    """Try once more where it failed."""
    with _lock:
        again, _kept[:] = _kept[:], ()
    for scribe in again:
        give_up(scribe)


def _beat() -> None:
    while True:
        time.sleep(_BEAT)
        if _kept:
            give_up_again()
        _look_after_all()  # in a function of its own: while the heart sleeps, it holds on to no run


def _look_after_all() -> None:
    with _lock:
        runs = list(_runs)
    now = time.monotonic()
    for run in runs:
        due = now - run.renewed > run.lease / 3
        if due:
            run.renewed = now
        try:
            _look_after(run, renew=due)
        except StaleWriterError as lost:
            run.lose(lost)
        except EverstepError:
            pass  # the run's own next write meets the same, and says so


def _look_after(run: Execution, *, renew: bool) -> None:
    if run.closed or run.pen is None:
        return
    scribe = run.pen.scribe
    if renew:
        with run.keeping:
            if not run.closed and run.pen.failure is None:  # else it is being given up, or has ended
                scribe.store.renew(scribe.claim, run.lease)
    asked = scribe.store.run(run.run_id).request
    if asked == CANCEL:
        run.cancel()
    elif asked == STOP:
        run.stop()
