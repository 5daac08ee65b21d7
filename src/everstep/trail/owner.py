"""Who owns a run, and whether that process is still there."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypeGuard

from everstep import actual

COPY = "a copy by "  # begins the names of owners that copy: no process, because only a copy goes on with half a run
HELD = 1e8  # seconds that a copy owns a run: until all of it is there, whenever that is
_BOOT, _PROCESSES = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")


def new_owner() -> str:
    """A name for a writer that nobody else has."""
    return f"{os.uname().nodename}:{os.getpid()}:{_place()}{actual.token(4)}"


def is_copy(owner: str | None) -> TypeGuard[str]:
    """Whether the owner is a copy, at work or cut off: the run is not all there."""
    return owner is not None and owner.startswith(COPY)


def is_gone(owner: str) -> bool:
    """Whether the owner is a process of this machine that has ended: its run need not wait for the lease to end."""
    host, _, process = owner.rpartition(":")[0].rpartition(":")
    here = host == os.uname().nodename and owner.rpartition(":")[2].startswith(_place())
    if not here or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False  # it is there and another user's, or it is no process id
    return _is_unburied(process)


def is_at_work(owner: str | None, lease: float) -> bool:
    """Whether somebody works on a run, as far as can be told: its owner, until the lease ends."""
    return owner is not None and not is_gone(owner) and lease >= actual.time()


def _is_unburied(process: str) -> bool:
    """Whether a process has ended, and whoever should ask how has not: in containers perhaps nobody ever does."""
    try:
        told = Path("/proc", process, "stat").read_bytes()
    except OSError:
        return False
    return told.rpartition(b")")[2].split()[:1] == [b"Z"]


@cache
def _place() -> str:
    """Where process ids mean the same: containers may share a host's name and still number their processes anew."""
    try:
        # Bytes: to decode them could import a codec, and a fork just then would leave the child without it for good.
        names = _BOOT.read_bytes() + os.readlink(os.fsencode(_PROCESSES))  # noqa: PTH115 - as bytes
    except OSError:
        names = b""
    return sha256(names).hexdigest()[:8]
