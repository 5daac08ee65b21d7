"""Signals to processes that are recorded or played: by number they would hit whoever has that number today."""

from __future__ import annotations

import errno
import functools
import os
import signal
from typing import Any, Protocol

from everstep.run.lanes import here


class Signalled(Protocol):
    """A process that takes signals."""

    served: bool  # it is played from the record

    def signal(self, number: int) -> bool:
        """Take note of a signal. Whether it is not to be sent."""


class _Over:
    """A process on record that has ended."""

    served = True

    def signal(self, number: int) -> bool:  # noqa: ARG002 - no signal goes to it
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


TERMINATE, KILL = signal.SIGTERM, signal.SIGKILL
_OVER = _Over()
_KNOWN: dict[int, dict[Any, Signalled]] = {}  # by process id, which several runs may have on record; the newest last
_kill, _killpg, _getpgid = os.kill, os.killpg, os.getpgid


def know(pid: int, process: Signalled, run: Any) -> None:
    """Have signals to this process id told to a process, until its run ends."""
    known = _KNOWN.setdefault(pid, {})
    known.pop(run, None)
    known[run] = process


def over(pid: int, process: Signalled, run: Any) -> None:
    """A process has ended: of what went in and came out nothing is kept here."""
    known = _KNOWN.get(pid, {})
    if known.get(run) is not process:
        return
    if process.served:
        known[run] = _OVER
    else:
        _let_go(pid, run)


def forget(pid: int) -> None:
    """Have signals sent to whoever has this process id now: a process of today's that is none of the program's."""
    _KNOWN.pop(pid, None)


def leave(run: Any) -> None:
    """A run has ended: from now on a number is that of a process of today."""
    for pid in list(_KNOWN):
        _let_go(pid, run)


def _let_go(pid: int, run: Any) -> None:
    known = _KNOWN.get(pid, {})
    if known.pop(run, None) is not None and not known:
        forget(pid)


def _known(pid: int) -> Signalled | None:
    """That of the run whose code calls; where that is of none, the newest: a thread of a library may do it for any."""
    known, lane = _KNOWN.get(pid, {}), here()
    if lane is not None and lane.run.captured is not None:
        return known.get(lane.run)
    return next(reversed(known.values()), None)


@functools.wraps(_kill)
def _kill_known(pid: int, sig: int, /) -> None:
    known = _known(abs(pid))  # below 0 it is that of a group, as for `killpg`
    if known is None or not known.signal(sig):
        _kill(pid, sig)


@functools.wraps(_killpg)
def _killpg_known(pgid: int, sig: int, /) -> None:
    known = _known(pgid)
    if known is None or not known.signal(sig):
        _killpg(pgid, sig)


@functools.wraps(_getpgid)
def _getpgid_known(pid: int, /) -> int:
    known = _known(pid)
    return pid if known is not None and known.signal(0) else _getpgid(pid)


def watch() -> None:
    """Wrap the ways signals are sent. Once."""
    if os.kill is _kill:
        os.kill, os.killpg, os.getpgid = _kill_known, _killpg_known, _getpgid_known  # type: ignore[assignment] # this is the wrapping
