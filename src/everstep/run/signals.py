"""Ctrl-C and SIGTERM, which are heard in the process of a run, and in none that is forked off from it.

What is forked off is no part of the run: signals do to it what they would have done without us, from its first moment
on. A pool of multiprocessing ends its workers by SIGTERM, however new they are, and waits for them. Python forgets what
a new process was told while it was made, so the signals are held until it has its own handlers back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from everstep.trail.late import asyncio

Handler = Callable[[int, FrameType | None], None]
# Ctrl-C first, and given back last: it is in our hands, which can wait, while others are taken.
_ENDING: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
_heard: list[Callable[[], None]] = []  # what gives a process its own handlers back
_masks = threading.local()


def is_free(number: int) -> bool:
    """Whether nobody but Python itself would hear of the signal, and we may."""
    return threading.current_thread() is threading.main_thread() and signal.getsignal(number) is _ENDING[number]


@contextmanager
def heard(handler: Handler) -> Iterator[None]:
    """Have the signals that are free handled, in this process."""
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in _ENDING if is_free(number)}

    def give_back() -> None:
        for number, was in reversed(before.items()):
            if signal.getsignal(number) is handler:  # else the program has set its own meanwhile
                signal.signal(number, was)

    with _until_forked(give_back):
        try:
            yield
        finally:
            give_back()


@contextmanager
def heard_on_loop(loop: asyncio.AbstractEventLoop, leave: Callable[[], None]) -> Iterator[None]:
    """Have SIGTERM, which is free, handled by an event loop in this process.

    The loop wakes up by a socket, whatever its thread is about to do. A forked process has that socket too.
    """
    loop.add_signal_handler(signal.SIGTERM, leave)
    handler = signal.getsignal(signal.SIGTERM)

    def give_back() -> None:
        if signal.getsignal(signal.SIGTERM) is handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    with _until_forked(give_back):
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTERM)


@contextmanager
def _until_forked(give_back: Callable[[], None]) -> Iterator[None]:
    _heard.append(give_back)
    try:
        yield
    finally:
        _heard.remove(give_back)


def _hold() -> None:
    if _heard:
        _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _let_go() -> None:
    before = vars(_masks).pop("before", None)
    if before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _let_go_in_child() -> None:
    for give_back in reversed(_heard):
        give_back()
    _let_go()


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_let_go_in_child)
