"""Timers of event loops: a replay need not wait for them, and they end among the answers where they ended.

A sleep, a timeout and a deadline are timers of the loop. Which of them ended, and between which answers, is noted in
the next row that is written, by the lane that set the timer and how many it had set before. In a replay none of them
waits: when the loop has nothing to do and no other thread has either, the one whose place in the order has come ends,
and the time of the loop goes on to where it was due. One that is not on record ends only when nothing else can happen.
While other threads are at work the time is that of the world: what they do takes as long as it takes.

Where a run is resumed the same holds for timers on record, as long as no call is under way: the others are real. A job
that is on record goes on in its turn.
Loops that do not wait by a selector (uvloop, Windows' own) keep their timers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from everstep import actual
from everstep.capturing import stillness
from everstep.capturing.clock import Hand, looked_at
from everstep.codec.chain import Entry
from everstep.journal.track import ASKED, FIRED, lane_of, metadata_of
from everstep.run.execution import Execution
from everstep.run.lanes import Lane
from everstep.trail.late import Late, asyncio

if TYPE_CHECKING:
    from everstep.capturing.seams.asyncio import Held

_FIRST_NAP, _LONGEST_NAP = 1e-4, 5e-3  # seconds between two looks at what other threads do

_PATIENCE = 1.0  # seconds until a job that has ended goes on, whether its turn has come or not
_LONG_PATIENCE = 10.0  # seconds until a timer ends in a replay, though on record a job ended first that is at work

_SEAM = Late("everstep.capturing.seams.asyncio")  # loaded by whoever loads asyncio
_Id = tuple[str, int]  # of a timer: the lane that set it, and how many it had set before; of a job: its lane, and 0


class Fired(NamedTuple):
    """A timer on record that ended, or a job."""

    mark: float  # its place in the order
    ns: int | None = None  # the clock of the day then: for how long it was set may follow from time that code took


def fired(entries: Sequence[Entry], taken_back: Collection[int]) -> dict[_Id, Fired]:
    """The timers on record that ended; but for those that ended a call which is `taken_back`: it may be in time now."""
    needle = FIRED.encode()  # few rows have some, and to read what a row says takes longer than to search it
    rows = (metadata_of(entry).get(FIRED) or () for entry in entries if needle in entry.meta)
    found = {(lane, number): Fired(mark, *ns) for row in rows for mark, lane, number, *ns in row}
    for entry in entries if taken_back and found else ():
        asked = metadata_of(entry).get(ASKED) if entry.seq in taken_back else None
        if asked is not None:
            path = lane_of(entry)
            beside = [known for known in found if asked < found[known].mark < entry.seq and _is_around(known[0], path)]
            for known in beside:
                del found[known]
    return found


def _is_around(one: str, other: str) -> bool:
    """Whether one of two lanes was spawned by the other, or both are the same."""
    shorter, longer = sorted((one, other), key=len)
    return not shorter or shorter == longer or longer.startswith(f"{shorter}/")


class Timers:
    """Those of one captured program."""

    def __init__(self, run: Execution, *, replays: bool, on_record: dict[_Id, Fired]) -> None:
        self._run, self._replays, self._on_record = run, replays, on_record
        self._counts: WeakKeyDictionary[Lane, int] = WeakKeyDictionary()
        self._held: list[Held] = []
        self._jobs: set[float] = set()  # places of jobs that are at work
        self._others = stillness.Others()
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
        left = when - loop.time()  # `delay` is rounded: to the clock of the day a moment more is another time
        due = functools.partial(_come, hand, ns, hand.monotonic() + left)
        if (self._replays or known is not None) and _follow(loop):
            held: Held = _SEAM.Held(self, when, job, context)
            held.mark, held.due, held.hand = None if known is None else known.mark, due, hand
            self._hold(held)
            return held
        live = Live(self._run, (place, number, ns), due)
        live.handle = _SEAM.call_at(loop, real_time(loop, when), live, *job[:2], context=context)
        return live.handle

    def _hold(self, held: Held) -> None:
        self._held.append(held)
        waiting = held.loop._selector.timers  # noqa: SLF001 - we put it there
        if self not in waiting:
            waiting.append(self)

    def wait_for_job(self, path: str, loop: Any) -> Callable[[Callable[[], None]], None]:
        """What to call when the job of a lane has come to its end: it goes on, by what it is given, in its turn."""
        known = self._on_record.get((path, 0))
        if known is not None and _follow(loop):
            self._jobs.add(known.mark)
            return functools.partial(self._job_ended, loop, known.mark)
        return lambda go_on: Live(self._run, (path, 0), _nothing)(go_on, ())

    def _job_ended(self, loop: Any, mark: float, go_on: Callable[[], None]) -> None:
        self._jobs.discard(mark)
        held: Held = _SEAM.Held(self, real_time(loop) + _PATIENCE, (go_on, (), loop), None)
        held.mark = mark
        self._hold(held)

    def forget(self, held: Held) -> None:
        """A timer was cancelled."""
        if held in self._held:
            self._held.remove(held)
            if held.mark is not None:
                self._run.turnstile.pass_mark(held.mark)

    # When a loop has nothing to do.

    def holds(self, loop: Any) -> bool:
        """Whether a timer of this loop is to end here."""
        return any(held.loop is loop for held in self._held.copy())

    def next(self, loop: Any) -> Held | None:
        """The timer that ends if nothing else happens."""
        held = self._next(loop)
        return held if held is not None and self._may_end(held) else None

    def _next(self, loop: Any) -> Held | None:
        """The one whose turn it is."""
        run, mine = self._run, [held for held in self._held if held.loop is loop]
        if run.stopping is not None:
            return min(mine, key=_when, default=None)
        mark = run.turnstile.next_mark()
        by_mark = {held.mark: held for held in self._held if held.mark is not None}
        if mark in by_mark:
            return by_mark[mark] if by_mark[mark].loop is loop else None
        if not self._replays or mark in self._jobs:
            latest = real_time(loop) - (_LONG_PATIENCE if self._replays else 0)
            return min((held for held in mine if _when(held) <= latest), key=_when, default=None)
        if not run.turnstile.idle():
            return None  # an answer is on its way, or waited for
        marked = [held for held in mine if held.mark is not None]
        if not marked and run.captured.cancelling.holds():
            return None
        return min(marked, key=_mark) if marked else min(mine, key=_when, default=None)

    def _may_end(self, held: Held) -> bool:
        """Whether nothing else can happen first, or its time has come, as far as that of the world goes."""
        captured = self._run.captured
        if self._run.stopping is not None:
            return True
        if not captured.gate.is_clear(held.mark):
            return False  # an answer is about to be let out
        if _when(held) <= real_time(held.loop):
            return True
        if not self._replays and captured.open_calls and held.hand is not None:
            return False  # a timer is real by now; a job has really ended, and live answers wait until it has gone on
        return self._others.are_still()

    def end(self, held: Held) -> None:
        """A timer ends."""
        self._held.remove(held)
        if held.mark is not None:
            self._run.turnstile.pass_mark(held.mark)
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
            mark = run.turnstile.mark(pen.seq)
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
    """When it would end in the world: what its program is shown may be ahead of that."""
    return held.when() - put_forward(held.loop, held.hand)


def _mark(held: Held) -> float:
    return held.mark or 0.0


# The loops.


def put_forward(loop: Any, hand: Hand | None) -> float:
    """By how much the time of a loop is ahead of the world's, to captured code. One that tells its own is left that."""
    return 0.0 if hand is None or type(loop).time is not _SEAM.time_shown else hand.ahead


def put_forward_here(loop: Any) -> float:
    """The same, for whoever asks: all others that share a loop see the world's."""
    found = looked_at()
    return 0.0 if found is None else put_forward(loop, found[1])


def real_time(loop: Any, shown: float | None = None) -> float:
    """The time of a loop in the world; or what a moment is there that it has for who asks."""
    return float(loop.time() if shown is None else shown) - put_forward_here(loop)


class _Selector:
    """The selector of a loop, around the one that it has: asked when the loop has nothing to do."""

    def __init__(self, loop: Any, selector: Any) -> None:
        self._loop, self._selector = loop, selector
        self.timers: list[Timers] = []  # of those that hold some: several programs may share a loop

    def select(self, timeout: float | None = None) -> Any:
        """What happened; nothing, once a timer has ended or the time is over."""
        self.timers = [timers for timers in self.timers if timers.holds(self._loop)]
        if not self.timers or (timeout is not None and timeout <= 0):
            return self._selector.select(timeout)
        end = None if timeout is None else actual.monotonic() + timeout
        nap = _FIRST_NAP
        while True:
            ends = next(((each, held) for each in self.timers if (held := each.next(self._loop)) is not None), None)
            events = self._selector.select(0)  # asked last: what other threads did until then is seen
            if events:
                return events
            if ends is not None:
                ends[0].end(ends[1])
                return []
            left = nap if end is None else min(nap, end - actual.monotonic())
            if left <= 0:
                return []
            events = self._selector.select(left)
            if events:
                return events
            nap = min(nap * 1.5, _LONGEST_NAP)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)


def _follow(loop: Any) -> bool:
    """Have a loop ask for timers when it has nothing to do. False if it is of another kind."""
    selector = getattr(loop, "_selector", None)
    if selector is None:
        return False
    if not isinstance(selector, _Selector):
        loop._selector = _Selector(loop, selector)  # noqa: SLF001 - nothing public is asked before a loop waits
    return True
