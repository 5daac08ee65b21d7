"""The order in which answers reach threads: that of the record, one at a time, each when the one before has settled.

Which of two threads goes on first decides what a program does next: what `as_completed` gives first, what stands first
in a queue. So while a program has threads, every answer waits at a gate before the code gets it, its parts too while
several are under way. The usher lets out the first in the order of the rows (or of the marks between them) once the
program is still: no thread of it runs or is about to, but for those that are inside a call. That holds in a recording
and in a replay, so the code finds the same after each answer: whoever is woken by it had the time to act. Threads, and
jobs of pools, begin in the same way, in the order in which they were started, and before any answer is let out. A
stretch of one thread that has started no other waits for none: it has no share in what the process does beside it.

It cannot deadlock: a row is drafted before its answer is let out, so no answer on record can depend on a later one.
Where the record does not fit the code (it was changed, or it is a matter of chance which of two threads gets a lock),
an answer that nobody asks for is passed over in the end.

What is not settled by this, and may differ in a replay:
- what threads do in time of their own: who sleeps, polls, or waits for something that is not recorded, goes on when
  that is over, and not when its turn has come;
- computations of more than a quarter of a second that run at once, and of more than a moment when threads begin;
- elsewhere than on Linux, stillness is told by the processor time of the whole process, and may be missed on a
  machine with much to do.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
import threading
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from everstep import actual
from everstep.capturing.stillness import OURS, Watch, inside_call, watch
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.run.execution import Execution

T = TypeVar("T")
Given = TypeVarTuple("Given")

_PAUSE = 5e-5  # seconds between two looks, at first
_LONGEST_PAUSE = 2e-3
_AWHILE = 0.25  # seconds of processor time that may pass until the next answer is let out all the same
_MOMENT = 0.1  # the same, until the next thread begins: it may have to compute beside the others. Time that a busy host
# takes from a virtual processor counts as its own, and that is tens of milliseconds now and then
_AT_MOST = 2.0  # the same, by the clock on the wall
_PATIENCE = 5.0  # seconds until an answer that nobody asks for is passed over, in a program that hardly works
_IDLE = 0.3  # the share of a processor that such a program uses at most: some look around all the time
_LAST_PATIENCE = 60.0  # the same for one that is at work
_BETWEEN = 1e-9  # from one place between two answers to the next: parts of answers have 1e-6 between them
_LINGER = 1.0  # seconds that the usher stays when nobody waits
_turn_of = attrgetter("turn")


def away(function: Callable[[*Given], T]) -> Callable[[*Given], T]:
    """Mark the thread as being inside a call while this runs, up to the moment its answer is let out."""

    @functools.wraps(function)
    def marked(*args: *Given) -> T:
        mine = threading.current_thread().native_id or 0  # it also makes a thread known that `threading` did not start
        inside_call.add(mine)
        try:
            return function(*args)
        finally:
            inside_call.discard(mine)

    return marked


def look_up() -> None:
    """Have known what libraries look up once for a process, by a call: which thread comes to it first is chance."""
    with suppress(Exception):  # whatever is wrong with it, the library will find that too
        known = vars(platform.uname())
        if "processor" not in known:
            known["processor"] = _processor()


def _processor() -> str:
    """What `uname -p` says, as `platform` has it; by hand, because what else starts processes takes long to load."""
    source, target = os.pipe()
    streams = [(os.POSIX_SPAWN_DUP2, target, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
    try:
        started = os.posix_spawnp("uname", ["uname", "-p"], os.environ, file_actions=streams)
    finally:
        os.close(target)
        with open(source, encoding="utf-8") as said:  # noqa: PTH123 - it has no path
            text = said.read().strip()
    os.waitpid(started, 0)
    return "" if text == "unknown" else text


class Ticket:
    """An answer, or a part of one, on its way to the code; or a thread that is about to begin."""

    __slots__ = ("_future", "_lock", "_loop", "leaving", "ready", "thread", "turn")

    def __init__(self, turn: float, loop: asyncio.AbstractEventLoop | None) -> None:
        self.turn = turn
        self.ready = False  # it has come to the gate: before, its row is being written
        self.leaving = False  # it was let out, and its loop has not heard of it
        self.thread = threading.current_thread().native_id or 0
        self._loop = loop
        self._lock = threading.Lock()
        self._future: asyncio.Future[None] | None = None if loop is None else loop.create_future()
        self._lock.acquire()

    @property
    def holds_thread(self) -> bool:
        """Whether its thread waits for it, and does nothing else."""
        return self.ready and self._loop is None

    def wait(self) -> None:
        """Wait to be let out."""
        self._lock.acquire()

    async def awaited(self) -> None:
        """Wait to be let out, on a loop."""
        assert self._future is not None  # noqa: S101 - it was made for a loop
        await self._future

    def is_leaving(self) -> bool:
        """Whether it was let out, and its loop is about to hear of it."""
        return self.leaving and self._loop is not None and self._loop.is_running()

    def let_out(self) -> None:
        """From now on its thread does what the program says."""
        if self._loop is None:
            inside_call.discard(self.thread)
            self._lock.release()
        elif not self._loop.is_closed():
            self.leaving = True
            self._loop.call_soon_threadsafe(self._done)

    def _done(self) -> None:
        self.leaving = False
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Gate:
    """Lets the answers of one run out."""

    def __init__(self, run: Execution, *, is_whole: bool) -> None:
        """Of a program that is the whole process, or of one that is a stretch of this thread until it starts others."""
        self._run = run
        self._is_of_one = not is_whole  # and whatever other threads do, it has no share in it
        self._thread = threading.get_ident()
        self._order: deque[float] | None = None  # of what is on record and has not been let out
        self._early: set[float] = set()  # what of it did not have to wait
        self._tickets: list[Ticket] = []  # in the order of their turns
        self._beginning: list[Ticket] = []  # threads that are about to begin, in the order in which they were started
        self._started = itertools.count()
        self._changed = threading.Condition(threading.Lock())
        self._usher: threading.Thread | None = None
        self._leaving: Ticket | None = None  # the one that was let out last
        self._is_open = False
        self.shared = False  # whether there ever were several threads
        self.held: Callable[[], Iterable[float]] = tuple  # places of timers, and of jobs that ended, that wait as well
        self._overdue = 0.0  # whatever waits before this place is not waited for
        self._passed = self._unheld = self._marked = 0.0  # places: of what was let out last, did not wait, was marked
        self._last = 0.0, 0.0  # when the last one was let out, and the processor time then

    def queue(self, turn: float, loop: asyncio.AbstractEventLoop | None = None) -> Ticket | None:
        """Take a place for an answer whose row was just drafted, under the run's lock. None if it need not wait."""
        self._is_of_one = self._is_of_one and threading.get_ident() == self._thread
        others = not self._is_of_one and _has_others()
        self.shared = self.shared or others
        if self._is_over() or not (self._tickets or others or self.is_leaving()):  # nobody overtakes one that waits
            self._unheld = turn
            return None
        ticket = Ticket(turn, loop)
        with self._changed:
            insort(self._tickets, ticket, key=_turn_of)
        return ticket

    def pass_(self, ticket: Ticket | None) -> None:
        """Wait until a live answer is let out."""
        if ticket is None:
            return
        try:
            self._come(ticket)
            ticket.wait()
        finally:
            self.drop(ticket)

    def pass_recorded(self, turn: float) -> None:
        """Wait until an answer on record is let out."""
        ticket = self.queue(turn)
        if ticket is None:
            self.went(turn)
        else:
            self._pass_inside(ticket)

    @away
    def _pass_inside(self, ticket: Ticket) -> None:
        self.pass_(ticket)

    async def pass_awaited(self, ticket: Ticket | None) -> None:
        """`pass_`, for an answer that is awaited."""
        if ticket is None:
            return
        try:
            self._come(ticket)
            await ticket.awaited()
        finally:
            self.drop(ticket)

    async def pass_recorded_awaited(self, turn: float) -> None:
        """`pass_recorded`, for an answer that is awaited."""
        ticket = self.queue(turn, asyncio.get_running_loop())
        if ticket is None:
            self.went(turn)
        await self.pass_awaited(ticket)

    def start(self) -> Callable[[], None]:
        """What a thread, or a job of a pool, that is started now is to call before it does anything of the program."""
        self._is_of_one = False
        return functools.partial(self._begin, next(self._started))

    @away
    def _begin(self, place: int) -> None:
        """Wait until the program has done all it can without this thread."""
        ticket = Ticket(place, None)
        with self._changed:
            self.shared = True
            if self._is_over():
                return
            insort(self._beginning, ticket, key=_turn_of)
            self._call_usher()
        ticket.wait()

    def is_waited_at(self) -> bool:
        """Whether an answer is on its way to the code."""
        return bool(self._tickets)

    def went(self, turn: float) -> None:
        """An answer on record is with the code by now, whichever way it took."""
        self._early.add(turn)

    def open(self) -> None:
        """Let everything out as it comes: the program is over."""
        self._is_open = True
        with self._changed:
            self._changed.notify()

    def drop(self, ticket: Ticket | None) -> None:
        """Give up a place, whether it was let out or not: nobody is to wait for it."""
        if ticket is None:
            return
        with self._changed:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                self._changed.notify()

    def is_clear(self, mark: float | None) -> bool:
        """Whether no answer is to be let out before this place in the order; with None, whether none waits at all."""
        with self._changed:
            if self._beginning:
                return False
            return not self._tickets or (mark is not None and mark < self._tickets[0].turn)

    def is_leaving(self) -> bool:
        """Whether an answer is on its way from here to its loop."""
        return self._leaving is not None and self._leaving.is_leaving()

    def mark(self, newest: float) -> float:
        """A place in the order for what happens now: after what was let out, and before the answers that wait.

        `newest` is its place among what is awaited on its loop.
        """
        with self._changed:
            mark = max(newest, max(self._passed, self._marked) + _BETWEEN)
            first = self._tickets[0].turn if self._tickets else mark + 1
            if mark >= first:  # an answer that came before it is still at the gate
                mark = max(place for place in (self._passed, self._unheld, self._marked) if place < first) + _BETWEEN
            self._marked = mark
            return mark

    def _is_over(self) -> bool:
        return self._is_open or self._run.stopping is not None

    def _come(self, ticket: Ticket) -> None:
        with self._changed:
            ticket.ready = True
            self._call_usher()

    def _call_usher(self) -> None:
        if self._usher is None or not self._usher.is_alive():  # after a fork it is not
            self._usher = threading.Thread(target=self._serve, name="everstep-usher", daemon=True)
            self._usher.start()
        self._changed.notify()

    # The usher.

    def _serve(self) -> None:
        seen = watch()
        self._last = actual.monotonic(), seen.used()
        try:
            while self._is_needed(seen):
                self._settle(seen)
                self._attend(seen)
        finally:
            if self._usher is threading.current_thread():  # it failed: without an usher nobody may wait
                self.open()
                self._let_all_out()

    def _is_needed(self, watch: Watch) -> bool:
        """Wait for somebody to come. False if nobody did for long."""
        with self._changed:
            if not self._is_awaited():
                self._changed.wait_for(self._is_awaited, _LINGER)
                self._last = actual.monotonic(), watch.used()
            if not self._is_awaited():
                self._usher = None
            return self._is_awaited()

    def _is_awaited(self) -> bool:
        return bool(self._tickets or self._beginning)

    def _attend(self, watch: Watch) -> None:
        """Let the next one out, or wait a little for it to come."""
        with self._changed:
            if self._is_over():
                self._let_all_out()
            ticket = None if self._beginning else self._next()
            if self._beginning:
                self._beginning.pop(0).let_out()
                self._last = actual.monotonic(), watch.used()
            elif ticket is not None:
                self._tickets.remove(ticket)
                self._passed, self._leaving = ticket.turn, ticket
                ticket.let_out()
                self._last = actual.monotonic(), watch.used()
            elif self._is_overdue(actual.monotonic() - self._last[0], watch.used() - self._last[1]):
                self._pass_over()
                self._last = actual.monotonic(), watch.used()
            else:
                self._changed.wait(_LONGEST_PAUSE)

    def _settle(self, watch: Watch) -> None:
        """Wait until the program is still, or has been at work for long."""
        began, used, pause = actual.monotonic(), watch.used(), _PAUSE
        while not self._is_over() and not watch.is_still():
            if watch.used() - used > (_MOMENT if self._beginning else _AWHILE) or actual.monotonic() - began > _AT_MOST:
                return
            actual.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def _let_all_out(self) -> None:
        for ticket in [*self._beginning, *self._tickets]:
            ticket.let_out()
        self._beginning.clear()
        self._tickets.clear()

    def _next(self) -> Ticket | None:
        """Whose turn it is, if it is there."""
        order = self._order
        if order is None:
            order = self._order = deque(self._run.journal.order(awaited=False))
        while order and order[0] in self._early:
            self._early.discard(order.popleft())
        # A loop whose thread waits here itself cannot have what is awaited on it, though its turn came before.
        busy = {each.thread for each in self._tickets if each.holds_thread}
        first = next((each for each in self._tickets if each.ready or each.thread not in busy), None)
        if first is None or not first.ready or (order and first.turn > order[0]):
            return None
        if any(self._overdue < mark < first.turn for mark in self.held()):
            return None
        if order and first.turn == order[0]:
            order.popleft()
        return first

    @staticmethod
    def _is_overdue(waited: float, used: float) -> bool:
        return waited > _LAST_PATIENCE or (waited > _PATIENCE and used < waited * _IDLE)

    def _pass_over(self) -> None:
        """Wait no longer for what nobody asks for."""
        if self._tickets:
            self._overdue = self._tickets[0].turn
        while self._order and self._order[0] < self._overdue:
            self._order.popleft()


def _has_others() -> bool:
    """Whether there are threads beside this one."""
    if threading.active_count() == 1:
        return False
    here = threading.current_thread()
    for each in threading.enumerate():  # noqa: SIM110 - it is asked with every call, and `any` takes twice as long
        if each is not here and not each.name.startswith(OURS):
            return True
    return False
