"""Runs that are given up, so that whoever goes on with one need not wait for a lease to end."""

from __future__ import annotations

import os
import threading

from everstep.errors import ClosedError, EverstepError, LeaseWarning, StoreError
from everstep.trail.events import warn_in_any_case
from everstep.trail.scribe import Scribe

_lock = threading.Lock()
_kept: list[Scribe] = []  # of runs that nobody works on, and that could not be given up
_told: set[type[Exception]] = set()


def give_up(scribe: Scribe) -> bool:
    """Let others take the run. False if the store cannot say so now: it is told as soon as it can."""
    if scribe.process != os.getpid():  # a fork of it, which ends or closes the trail: the run is still at work there
        return True
    try:
        scribe.store.renew(scribe.claim, 0)
    except EverstepError as error:  # a run that another has, or a trail that was closed, needs nothing more
        if isinstance(error, StoreError) and not isinstance(error, ClosedError):
            with _lock:
                _kept.append(scribe)
            return False
    return True


def give_up_again() -> None:
    """Try once more where it failed."""
    if not _kept:
        return
    with _lock:
        again, _kept[:] = _kept[:], ()
    for scribe in again:
        try:
            give_up(scribe)
        except Exception as error:  # noqa: BLE001 - it is no matter of the other runs
            with _lock:
                _kept.append(scribe)
            pass_over(error)


def pass_over(error: Exception) -> None:
    """Go on. The runs' own next writes meet what stores raise, and say so; what nobody foresaw is told here, once."""
    if not isinstance(error, EverstepError) and type(error) not in _told:
        _told.add(type(error))
        warn_in_any_case(
            f"a lease was not renewed, or a request not heard ({type(error).__name__}: {error}). It is tried again; "
            "where that fails until the lease ends, another process may take the run. Please report this.",
            LeaseWarning,
        )
