"""Timers of event loops: a replay need not wait for them, and they end among the answers where they ended.

A sleep, a timeout and a deadline are timers of the loop. Which of them ended, and between which answers, is noted in
the next row that is written, by the lane that set the timer and how many it had set before. In a replay none of them
waits: when the loop has nothing to do and no other thread has either, the one whose place in the order has come ends,
and the time of the loop goes on to where it was due. One that is not on record ends only when nothing else can happen.
While other threads are at work the time is that of the world: what they do takes as long as it takes.

Where a run is resumed the same holds for timers on record, as long as no call is under way: the others are real.
Loops that do not wait by a selector (uvloop, Windows' own) keep their timers.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from everstep.capturing import stillness
from everstep.capturing.clock import Hand
from everstep.codec.chain import Entry
from everstep.journal.track import metadata_of
from everstep.run.execution import Execution
from everstep.run.lanes import Lane
from everstep.trail.late import Late, asyncio

if TYPE_CHECKING:
    from everstep.capturing.seams.asyncio import Held

FIRED = "fired"  # in what a row says: the timers that ended before it, each with its place in the order
_FIRST_NAP, _LONGEST_NAP = 1e-4, 5e-3  # seconds between two looks at what other threads do

_PATIENCE = 1.0  # seconds until a job that has ended goes on, whether its turn has come or not
_LONG_PATIENCE = 10.0  # seconds until a timer ends in a replay, though on record a job ended first that is at work

_SEAM = Late("everstep.capturing.seams.asyncio")  # loaded by whoever loads asyncio
_Id = tuple[str, int]  # of a timer: the lane that set it, and how many it had set before; of a job: its lane, and 0


class Fired(NamedTuple):
    """A timer on record that ended, or a job."""

    mark: float  # its place in the order
    ns: int | None = None  # the clock of the day then: for how long it was set may follow from time that code took


def fired(entries: Iterable[Entry]) -> dict[_Id, Fired]:
    """The timers on record that ended."""
    needle = FIRED.encode()  # few rows have some, and to read what a row says takes longer than to search it
    rows = (metadata_of(entry).get(FIRED) or () for entry in entries if needle in entry.meta)
    return {(lane, number): Fired(mark, *ns) for row in rows for mark, lane, number, *ns in row}


class Timers:
    """Those of one captured program."""

    def __init__(self, run: Execution, *, replays: bool, on_record: dict[_Id, Fired]) -> None:
        self._run, self._replays, self._on_record = run, replays, on_record
        self._counts: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()
        self._held: list[Held] = []
        self._jobs: set[float] = set()  # places of jobs that are at work
        self._watch: stillness.Watch | None = None
        marks = [each.mark for each in on_record.values()]
        run.journal.marks, run.turnstile.marks = sorted(marks), set(marks)
        if run.captured is not None:
            run.captured.gate.held = self._places

    def _places(self) -> list[float]:
        return [held.mark for held in self._held.copy() if held.mark is not None]

    def set(self, lane: Lane, hand: Hand, when: float, delay: float, job: tuple[Any, ...], context: Any) -> Any:
        """The handle of a new timer."""
        loop: Any = job[2]
        self._run.turnstile.adopt(loop)
        number = self._counts[lane] = self._counts.get(lane, 0) + 1
        place = f"{lane.scope.key()}|{lane.path}" if lane.scope.place is not None else lane.path
        known = self._on_record.get((place, number))
        ns = hand.ns + round(delay * 1e9) if known is None or known.ns is None else known.ns
        due = functools.partial(_come, hand, ns, hand.monotonic() + delay)
        if (self._replays or known is not None) and _follow(loop, self):
            held: Held = _SEAM.Held(self, when, job, context)
            held.mark, held.due = None if known is None else known.mark, due
            self._held.append(held)
            return held
        live = Live(self._run, (place, number, ns), due)
        live.handle = _SEAM.call_at(loop, when, live, *job[:2], context=context)
        return live.handle

    def wait_for_job(self, path: str, loop: Any) -> Callable[[Callable[[], None]], None]:
        """What to call when the job of a lane has come to its end: it goes on, by what it is given, in its turn."""
        known = self._on_record.get((path, 0))
        if known is not None and _follow(loop, self):
            self._jobs.add(known.mark)
            return functools.partial(self._job_ended, loop, known.mark)
        return lambda go_on: Live(self._run, (path, 0), _nothing)(go_on, ())

    def _job_ended(self, loop: Any, mark: float, go_on: Callable[[], None]) -> None:
        self._jobs.discard(mark)
        held: Held = _SEAM.Held(self, loop.time() + _PATIENCE, (go_on, (), loop), None)
        held.mark, held.takes_time = mark, False
        self._held.append(held)

    def forget(self, held: Held) -> None:
        """A timer was cancelled."""
        if held in self._held:
            self._held.remove(held)
            if held.mark is not None:
                self._run.turnstile.pass_mark(held.mark)

    # When a loop has nothing to do.

    def select(self, loop: Any, selector: Any, timeout: float | None) -> Any:
        """What the selector gives; nothing, once a timer has ended or the time is over."""
        if not any(held.loop is loop for held in self._held):
            return selector.select(timeout)
        end = None if timeout is None else time.monotonic() + timeout
        nap = _FIRST_NAP
        while True:
            held = self._next(loop)
            may_end = held is not None and self._may_end(held)
            events = selector.select(0)  # asked last: what other threads did until then is seen
            if events:
                return events
            if held is not None and may_end:
                self._end(held)
                return []
            left = nap if end is None else min(nap, end - time.monotonic())
            if left <= 0:
                return []
            events = selector.select(left)
            if events:
                return events
            nap = min(nap * 1.5, _LONGEST_NAP)

    def _next(self, loop: Any) -> Held | None:
        """The timer that may end now."""
        run, mine = self._run, [held for held in self._held if held.loop is loop]
        if run.stopping is not None:
            return min(mine, key=_when)
        mark = run.turnstile.next_mark()
        by_mark = {held.mark: held for held in self._held if held.mark is not None}
        if mark in by_mark:
            return by_mark[mark] if by_mark[mark].loop is loop else None
        if not self._replays or mark in self._jobs:
            latest = loop.time() - (_LONG_PATIENCE if self._replays else 0)
            return min((held for held in mine if held.when() <= latest), key=_when, default=None)
        if not run.turnstile.idle():
            return None  # an answer is on its way, or waited for
        marked = [held for held in mine if held.mark is not None]
        if not marked and run.captured.cancelling.holds():
            return None
        return min(marked, key=_mark) if marked else min(mine, key=_when)

    def _may_end(self, held: Held) -> bool:
        """Whether nothing else can happen first, or its time has come, as far as that of the world goes."""
        captured = self._run.captured
        if self._run.stopping is not None:
            return True
        if not captured.gate.is_clear(held.mark):
            return False  # an answer is about to be let out
        if held.when() <= held.loop.time():
            return True
        if not self._replays and captured.open_calls:
            return False
        if threading.active_count() == 1:
            return True
        self._watch = self._watch or stillness.watch()
        return self._watch.is_still()

    def _end(self, held: Held) -> None:
        self._held.remove(held)
        if held.mark is not None:
            self._run.turnstile.pass_mark(held.mark)
        if held.takes_time:
            held.loop.time.go_on(held.when())
        held.loop.call_soon(_run, held)


class Live:
    """A timer that really takes its time, or a job that did."""

    def __init__(self, run: Execution, known_by: _Id | tuple[str, int, int], due: Callable[[], None]) -> None:
        """`known_by` is what is written of it: of a timer with the clock of the day when it is due."""
        self._run, self._known_by, self._due = run, known_by, due
        self.handle: asyncio.TimerHandle | None = None

    def __call__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """It ends, in its turn if answers are being given out."""
        run, pen = self._run, self._run.pen
        if pen is None or run.closed:
            callback(*args)
            return
        with run.lock:
            mark = run.turnstile.mark(pen.scribe.claim.seq)
        turn = run.turnstile.beside(asyncio.get_running_loop())
        if turn is None:
            self._end(mark, callback, args)
        else:
            turn.add_done_callback(lambda _: self._end(mark, callback, args), context=self._context)

    @property
    def _context(self) -> Context | None:
        """Where it is to run: where it was set."""
        return None if self.handle is None else self.handle._context  # type: ignore[attr-defined] # noqa: SLF001 - nothing public tells it

    def _end(self, mark: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self.handle is not None and self.handle.cancelled():
            return
        pen, gate = self._run.pen, self._run.captured.gate
        if gate.is_leaving():  # what the program does with that comes first
            asyncio.get_running_loop().call_soon(self, callback, args, context=self._context)
            return
        if pen is not None:
            mark = gate.mark(mark)  # it goes on before answers that wait, though they have rows
            with pen.lock:
                pen.beside.setdefault(FIRED, []).append([mark, *self._known_by])
        self._due()
        callback(*args)


def _run(held: Held) -> None:
    if not held.cancelled():
        held.due()
        held._run()  # noqa: SLF001 - what a loop does with a handle


def _come(hand: Hand, ns: int, moment: float) -> None:
    """A timer is due: by the clock of the day, and by the one that goes on."""
    hand.move(ns)
    hand.reach(moment)


def _nothing() -> None:
    pass


def _when(held: Held) -> float:
    return held.when()


def _mark(held: Held) -> float:
    return held.mark or 0.0


# The loops.


class _Time:
    """The time of a loop, which can be put forward."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real, self._ahead = real, 0.0

    def __call__(self) -> float:
        return self._real() + self._ahead

    def go_on(self, to: float) -> None:
        """Be at least at this time."""
        self._ahead += max(to - self(), 0.0)


class _Selector:
    """The selector of a loop, around the one that it has: asked when the loop has nothing to do."""

    def __init__(self, loop: Any, selector: Any) -> None:
        self._loop, self._selector = loop, selector
        self.timers: Timers | None = None

    def select(self, timeout: float | None = None) -> Any:
        """What happened."""
        if self.timers is None or (timeout is not None and timeout <= 0):
            return self._selector.select(timeout)
        return self.timers.select(self._loop, self._selector, timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def _follow(loop: Any, timers: Timers) -> bool:
    """Have a loop ask for timers when it has nothing to do. False if it is of another kind."""
    selector = getattr(loop, "_selector", None)
    if selector is None:
        return False
    if not isinstance(selector, _Selector):
        loop._selector = selector = _Selector(loop, selector)  # noqa: SLF001 - nothing public is asked before a loop waits
        loop.time = _Time(loop.time)
    selector.timers = timers
    return True
