"""Signals to processes that are recorded or played: by number they would hit whoever has that number today."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any, Protocol


class Signalled(Protocol):
    """A process that takes signals."""

    def signal(self, number: int) -> bool:
        """Take note of a signal. Whether it is not to be sent."""


TERMINATE, KILL = signal.SIGTERM, signal.SIGKILL
_KNOWN: dict[int, Signalled] = {}  # by process id; the newest of that id
_kill, _killpg, _getpgid = os.kill, os.killpg, os.getpgid


def know(pid: int, process: Signalled) -> None:
    """Have signals to this process id told to a process."""
    _KNOWN[pid] = process


def forget(pid: int) -> None:
    """Have signals sent to whoever has this process id now: a process of today's that is none of the program's."""
    _KNOWN.pop(pid, None)


@functools.wraps(_kill)
def _kill_known(pid: int, sig: int, /) -> None:
    known = _KNOWN.get(pid)
    if known is None or not known.signal(sig):
        _kill(pid, sig)


@functools.wraps(_killpg)
def _killpg_known(pgid: int, sig: int, /) -> None:
    known = _KNOWN.get(pgid)
    if known is None or not known.signal(sig):
        _killpg(pgid, sig)


@functools.wraps(_getpgid)
def _getpgid_known(pid: int, /) -> int:
    known: Any = _KNOWN.get(pid)
    return pid if known is not None and known.served else _getpgid(pid)


def watch() -> None:
    """Wrap the ways signals are sent. Once."""
    if os.kill is _kill:
        os.kill, os.killpg, os.getpgid = _kill_known, _killpg_known, _getpgid_known  # type: ignore[assignment] # this is the wrapping
