"""One thread for all runs of the process: it keeps their leases while steps take their time, and hears requests."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from everstep.errors import DamagedError, StaleWriterError
from everstep.store.base import Store
from everstep.trail.answers import CANCEL, STOP
from everstep.trail.leaving import give_up_again, pass_over

if TYPE_CHECKING:
    from everstep.run.execution import Execution

_BEAT = 0.5  # seconds between two looks

_lock = threading.Lock()
_runs: weakref.WeakSet[Execution] = weakref.WeakSet()
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
        if run.pen is None or run.trail is None:
            return
        run.trail.at_work.add(run.pen.scribe)
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
        if run.pen is not None and run.trail is not None:
            run.trail.at_work.discard(run.pen.scribe)


def _beat() -> None:
    while True:
        time.sleep(_BEAT)
        try:
            give_up_again()
            _look_after_all()  # in a function of its own: while the heart sleeps, it holds on to no run
        except Exception as error:  # noqa: BLE001 - whatever it is, without a heart every run would be lost
            pass_over(error)


def _look_after_all() -> None:
    with _lock:
        runs = [run for run in _runs if not run.closed]
    _renew_due(runs)
    of_store: dict[int, tuple[Store, list[Execution]]] = {}
    for run in runs:
        if run.pen is not None:
            store = run.pen.scribe.store
            of_store.setdefault(id(store), (store, []))[1].append(run)
    for store, some in of_store.values():
        _hear(store, some)


def _renew_due(runs: Iterable[Execution]) -> None:
    now = time.monotonic()
    for run in runs:
        if now - run.renewed > run.lease / 3:
            run.renewed = now
            try:
                _renew(run)
            except StaleWriterError as lost:
                run.lose(lost.with_traceback(None))  # whose frames know all the others
            except Exception as error:  # noqa: BLE001 - as above, and it is no matter of the other runs
                pass_over(error)


def _renew(run: Execution) -> None:
    with run.keeping:
        if not run.closed and run.pen is not None and run.pen.failure is None:  # else it is given up, or has ended
            run.pen.scribe.store.renew(run.pen.scribe.claim, run.lease)


def _hear(store: Store, runs: Sequence[Execution]) -> None:
    """Do what the runs of a store are asked to. All are asked about at once: a process may have a thousand."""
    try:
        words = store.requests([run.run_id for run in runs])
        for run in runs if words else ():
            word = words.get(run.run_id)
            if word == CANCEL:
                run.cancel()
            elif word == STOP:
                run.stop()
    except DamagedError:  # of one of them, which is no matter of the others
        for run in runs if len(runs) > 1 else ():
            _hear(store, [run])
    except Exception as error:  # noqa: BLE001 - as above, and it is no matter of the other stores
        pass_over(error)


def _born() -> None:
    """In a forked child: the runs at work stay with the parent, which keeps their leases for as long as it lives."""
    global _lock  # noqa: PLW0603 - as above
    _lock = threading.Lock()
    _runs.clear()


os.register_at_fork(after_in_child=_born)
