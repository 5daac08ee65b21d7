"""Whether a program is still: no thread of it is at work, or about to be, but for those inside a call."""

from __future__ import annotations

import os
import sys
import threading
import time

from everstep import actual

# How the names of threads begin that do nothing of the program: our own, and asyncio's, one for each of its processes.
OURS = ("everstep", "waitpid-")
inside_call: set[int] = set()  # threads whose doing is not the program's
_TASKS = "/proc/self/task"
_AT_WORK = b"RD"  # states of a thread that runs, is about to, or waits for a disk
_SHORT = 5e-5  # seconds


class Watch:
    """Tells whether a program is still, by the processor time of its process."""

    def used(self) -> float:
        """Seconds of processor time, but for this thread."""
        return time.process_time() - time.thread_time()

    def is_still(self) -> bool:
        """Whether nothing happens for as long as a thread waits until it insists on its turn."""
        before = self.used()
        actual.sleep(sys.getswitchinterval() + _SHORT)
        return self.used() - before < _SHORT


class ThreadsWatch(Watch):
    """The same thread by thread, so that one that is about to go on is seen, and without those inside a call.

    One that waits for the interpreter's lock looks like any that waits. It is woken when this gives up the lock, as it
    does with each file it reads, and then either is seen as running or has used time when all are looked at for the
    second time. But if others compete for the lock, say inside a call, it may not get it: then the program is still
    if it was so for longer than the interval after which a thread insists on its turn, for which it has to wake up.
    """

    def __init__(self) -> None:
        self._since = 0.0
        self._at: dict[int, float] = {}  # the times of the program's threads then
        self._used = 0.0
        self._seen: dict[int, float] = {}  # the times of all threads when that was summed up

    def used(self) -> float:
        """Seconds of processor time, of the program's threads; of others none, though they become its own."""
        inside, times = _inside(), _look()
        grown = (used - self._seen.get(thread, 0.0) for thread, used in times.items() if thread not in inside)
        self._used += sum(each for each in grown if each > 0)  # one that is gone has less than nothing
        self._seen = times
        return self._used

    def is_still(self) -> bool:
        """Whether no thread is at work."""
        inside = _inside()
        before = _look()
        at_work = [thread for thread in before if _is_at_work(thread)]
        after = _look()
        if before == after and not at_work:
            return True
        inside &= _inside()  # one that has just gone inside may have woken another
        program, now = {thread: used for thread, used in after.items() if thread not in inside}, actual.monotonic()
        if program != self._at or not inside.issuperset(at_work):
            self._at, self._since = program, now
        return now - self._since > 1.5 * sys.getswitchinterval()


class Others:
    """The threads beside the one that asks: most programs have none, and then nothing is watched."""

    _watch: Watch | None = None

    def are_still(self) -> bool:
        """Whether there are none, or none of them is at work."""
        if threading.active_count() == 1:
            return True
        self._watch = self._watch or watch()
        return self._watch.is_still()


def _inside() -> set[int]:
    """Threads whose doing is not the program's."""
    return {each.native_id or 0 for each in threading.enumerate() if each.name.startswith(OURS)} | inside_call


def _look() -> dict[int, float]:
    """The processor times of all threads but this one."""
    mine = threading.get_native_id()
    threads = map(int, os.listdir(_TASKS))  # noqa: PTH208 - many times a second, as the next one
    return {each: _time_of(each) for each in threads if each != mine}


def _time_of(thread: int) -> float:
    """The processor time of a thread. The number of its clock is made as the C library makes it from a thread."""
    try:
        return time.clock_gettime((~thread << 3) | 6)
    except OSError:  # it is gone
        return -1.0


def _is_at_work(thread: int) -> bool:
    try:
        with open(f"{_TASKS}/{thread}/stat", "rb", buffering=0) as file:  # noqa: PTH123 - as above
            said = file.read(256)
    except OSError:  # it is gone
        return True
    return said[said.rindex(b")") + 2] in _AT_WORK


def watch() -> Watch:
    """What tells best on this system."""
    try:
        mine = threading.get_native_id()
        if _time_of(mine) > 0 and _is_at_work(mine):
            return ThreadsWatch()
    except (AttributeError, ValueError):  # not Linux, or not as this knows it
        pass
    return Watch()
