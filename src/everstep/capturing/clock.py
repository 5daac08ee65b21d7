"""The clock that a captured program sees: it moves with what the program does, and so the same way each time.

It begins with the run, and goes to the time of a call's row when the call has its outcome, on by as much as the code
slept, and stands in between. Every way to ask for the time of day shows it, because time-machine replaces them where
they are made, in C. Monotonic time goes on as it does; but what a replay need not wait for, a sleep or an answer, has
taken its time there, too: deadlines are kept by it. perf_counter and the times of processes and files know nothing.

Each thread and each job of a pool has a hand of its own, which starts where that of its parent stands and meets it when
it is waited for; else a thread would see when others were answered, which is chance. Tasks share that of their loop.
The time of the world is shown outside of captured code, and to a call that is being made: signatures and certificates
are of today.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any, SupportsIndex
from weakref import WeakKeyDictionary

from everstep import actual
from everstep.capturing.imports import when_imported
from everstep.run.lanes import Lane, here

_BUSY = 100_000  # reads between two movements, after which the code must be waiting for the clock itself
_TICK = 100_000  # nanoseconds that each further read then takes, where nothing is live
_REAL = ("asyncio.", "everstep.")  # modules that are shown the monotonic time of the world
_NAP = 0.001  # seconds that a sleep takes which needs none, while other threads may have to get on


class Hand:
    """Where a clock stands."""

    __slots__ = ("ahead", "clock", "ns", "reads")

    def __init__(self, clock: Clock, ns: int, ahead: float = 0.0) -> None:
        self.clock, self.ns = clock, ns
        self.ahead = ahead  # seconds that monotonic time was put forward by
        self.reads = 0

    def move(self, ns: int) -> None:
        """Go to a time, unless it has passed."""
        if ns > self.ns:
            self.ns, self.reads = ns, 0

    def meet(self, lane: Lane) -> None:
        """Know what a lane knew that was waited for."""
        other = hand_of(lane)
        if other is not None:
            self.move(other.ns)
            self.ahead = max(self.ahead, other.ahead)

    def monotonic(self) -> float:
        """The time that goes on, in seconds."""
        return _monotonic() + self.ahead

    def reach(self, moment: float) -> None:
        """Have the time that goes on be at least there: what ends now took until then."""
        self.ahead += max(moment - self.monotonic(), 0.0)

    def read(self) -> int:
        """The time that it shows. Code that does nothing but look at it would wait for ever: for that it goes on."""
        self.reads += 1
        if self.reads > _BUSY:
            self.ns = self.ns + _TICK if self.clock.replays else max(self.ns, actual.time_ns())
        return self.ns


class Clock:
    """The clock of one captured program."""

    def __init__(self, started: int, *, shown: bool, replays: bool) -> None:
        """`started` is when the run began, in nanoseconds. If it is not `shown`, it only knows who need not sleep."""
        self.shown = shown
        self.replays = replays
        self.root = Hand(self, started)

    @staticmethod
    def part(origin: Lane, lane: Lane) -> None:
        """Give a lane a hand of its own."""
        hand = hand_of(origin)
        if hand is not None:
            lane.hand = Hand(hand.clock, hand.ns, hand.ahead)


def hand_of(lane: Lane | None) -> Hand | None:
    """The hand that a lane looks at, None where that is the clock of the world."""
    try:
        known: Hand | None = lane.hand  # type: ignore[union-attr] # None has none either
    except AttributeError:
        return _inherited(lane)
    return known


def _inherited(lane: Lane | None) -> Hand | None:
    found, hand = lane, None
    while found is not None:
        try:
            hand = found.hand
            break
        except AttributeError:
            found = found.up
    if lane is not None and found is not lane:
        lane.hand = hand  # it need not be looked for again
    return hand


def looked_at() -> tuple[Lane, Hand] | None:
    """The lane of the code that calls, and its hand; None where the time is that of the world."""
    lane = here()
    hand = None if lane is None else hand_of(lane)
    if lane is None or hand is None or lane.run.closed:
        return None
    leaf = lane.scope.leaf
    return None if leaf is not None and not leaf.over else (lane, hand)


def is_served(lane: Lane, hand: Hand) -> bool:
    """Whether what a lane waits for has happened already: in a replay, and as long as there is record ahead."""
    return hand.clock.replays or (lane.track is not None and lane.position < len(lane.track.steps))


# What is told the time.


def _shown() -> int:
    found = looked_at()
    if found is None or not found[1].clock.shown:
        return actual.time_ns()
    return found[1].read()


_ctime, _asctime, _sleep, _wait = time.ctime, time.asctime, time.sleep, threading.Condition.wait
_monotonic, _monotonic_ns = time.monotonic, time.monotonic_ns
_join, _result, _exception = threading.Thread.join, Future.result, Future.exception


@functools.wraps(_ctime)
def _ctime_shown(seconds: float | SupportsIndex | None = None, /) -> str:
    return _ctime(time.time() if seconds is None else seconds)  # the one that time-machine leaves out


@functools.wraps(_asctime)
def _asctime_shown(*moment: Any) -> str:
    return _asctime(*(moment or (time.localtime(),)))


def _put_forward() -> float:
    """The seconds by which monotonic time is ahead where this is asked. Loops have their own way, and we none."""
    found = looked_at()
    if found is None or not found[1].ahead:
        return 0.0
    asks = str(sys._getframe(2).f_globals.get("__name__", ""))  # noqa: SLF001 - whose line it is
    return 0.0 if asks.startswith(_REAL) else found[1].ahead


@functools.wraps(_monotonic)
def _monotonic_shown() -> float:
    return _monotonic() + _put_forward()


@functools.wraps(_monotonic_ns)
def _monotonic_ns_shown() -> int:
    return _monotonic_ns() + round(_put_forward() * 1e9)


# What takes time.


@functools.wraps(_sleep)
def _sleep_shown(seconds: float | SupportsIndex, /) -> None:
    found = looked_at()
    if found is None or not float(seconds) >= 0:
        _sleep(seconds)
        return
    lane, hand = found
    seconds = float(seconds)
    if not is_served(lane, hand):
        _sleep(seconds)
    else:
        until = hand.monotonic() + seconds
        _sleep(min(seconds, _NAP) if threading.active_count() > 1 else 0)
        hand.reach(until)
    hand.move(hand.ns + round(seconds * 1e9))


@functools.wraps(_wait)
def _wait_shown(self: threading.Condition, timeout: float | None = None) -> bool:
    met = _wait(self, timeout)
    if not met and timeout is not None and timeout > 0 and (found := looked_at()) is not None:
        # `queue.Queue.get` has worked it out from monotonic time: by some microseconds it is another each time.
        found[1].move(found[1].ns + round((round(timeout, 3) or timeout) * 1e9))
    return met


# Threads and jobs that are waited for.

_lanes: WeakKeyDictionary[Any, Lane] = WeakKeyDictionary()  # of threads and futures


def joined_by(waited_for: Any, lane: Lane) -> None:
    """Whoever waits for this thread, or this future, knows what its lane knew."""
    _lanes[waited_for] = lane


def lane_of(future: Any) -> Lane | None:
    """The lane of a job. From now on it meets only whom it is said to."""
    return _lanes.pop(future, None)


def went_on(lane: Lane, ended: Any) -> None:
    """This lane goes on after the end of a thread, or a job."""
    hand, known = hand_of(lane), _lanes.get(ended)  # once: whoever awaits the job takes it from there meanwhile
    if hand is not None and known is not None:
        hand.meet(known)


def _meets(wait: Callable[..., Any], is_over: Callable[[Any], bool]) -> Callable[..., Any]:
    @functools.wraps(wait)
    def waits(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return wait(self, *args, **kwargs)
        finally:
            if is_over(self) and (found := looked_at()) is not None:
                went_on(found[0], self)

    return waits


def watch(*, serves: bool) -> None:
    """Wrap what takes time, and what waits. Once: to unwrap would race with others who wrap it.

    And where something `serves` what is on record, the time that goes on.
    """
    if serves and time.monotonic is _monotonic:
        time.monotonic, time.monotonic_ns = _monotonic_shown, _monotonic_ns_shown
    if time.sleep is _sleep:
        time.sleep = _sleep_shown
        threading.Condition.wait = _wait_shown  # type: ignore[method-assign] # this is the wrapping
        threading.Thread.join = _meets(_join, lambda thread: not thread.is_alive())  # type: ignore[method-assign] # as above
        Future.result = _meets(_result, Future.done)  # type: ignore[method-assign] # as above
        Future.exception = _meets(_exception, Future.done)  # type: ignore[method-assign] # as above


# The clocks of the process.

_lock = threading.Lock()
_running = 0
_travel: Any = None


# What time-machine would load for tests alone: pytest for a fixture, and unittest to know a class of tests.
_FOR_TESTS = {"pytest": None, "unittest": SimpleNamespace(TestCase=type("TestCase", (), {}))}


def is_there() -> bool:
    """Whether time-machine is, without which no other clock can be shown."""
    if "time_machine" in sys.modules:
        return True
    hidden: dict[str, Any] = {name: each for name, each in _FOR_TESTS.items() if name not in sys.modules}
    sys.modules.update(hidden)
    try:
        machine = import_module("time_machine")
    except ImportError:
        return False
    finally:
        for name in hidden:
            del sys.modules[name]
    if "unittest" in hidden:
        when_imported({"unittest": lambda module: setattr(machine, "TestCase", module.TestCase)})
    return True


@contextmanager
def shown() -> Iterator[None]:
    """While this lasts, captured code sees its own clock."""
    _start()
    try:
        yield
    finally:
        _stop()


def _start() -> None:
    global _running, _travel  # noqa: PLW0603 - there is one clock in a process
    with _lock:
        _running += 1
        if _running > 1:
            return
        machine, hidden = import_module("time_machine"), import_module("_time_machine")
        _travel = machine.travel(0, tick=False)
        _travel.start().time_ns = _shown
        actual.time, actual.time_ns = (
            _past(hidden.original_time, time.time),
            _past(hidden.original_time_ns, time.time_ns),
        )
        time.ctime, time.asctime = _ctime_shown, _asctime_shown


def _stop() -> None:
    global _running, _travel  # noqa: PLW0603 - as above
    with _lock:
        _running -= 1
        if _running:
            return
        actual.time, actual.time_ns = time.time, time.time_ns
        time.ctime, time.asctime = _ctime, _asctime
        _travel.stop()
        _travel = None


def _past(hidden: Callable[[], Any], plain: Callable[[], Any]) -> Callable[[], Any]:
    """The time of the world behind that of time-machine; also for who comes when that has just ended."""

    def asked() -> Any:
        try:
            return hidden()
        except ValueError:
            return plain()

    return asked
