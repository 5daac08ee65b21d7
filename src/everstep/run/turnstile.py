"""The order in which awaited outcomes are delivered: one at a time, evenly spaced, the same when it is replayed.

Which of two tasks goes on first decides what the code does next. So outcomes are recorded when they exist, and leave
in the order of the record, a few turns of the event loop apart; recorded ones first, in the recorded order, then live
ones. While the run has one lane there is nothing to order.

The tasks of a captured program can be told from what goes on inside its calls. There the next one leaves when the
program has done all it can with the one before, or has been at it for two hundred turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from everstep.journal import Journal
from everstep.journal.track import Recorded
from everstep.run.lanes import outside
from everstep.trail.late import asyncio, running_loop

TURNS = 4  # of the loop between two outcomes: with one, code that sleeps between its steps still saw another order
_MOST_TURNS = 200  # of a loop whose program is never still, as one that looks around all the time
_NAP = 2e-3  # seconds instead of a turn where nothing is to be done, and yet the program is not still
_BETWEEN = 1e-6  # from one place between two rows to the next
_PATIENCE = 1.0  # seconds without movement until a recorded outcome that nobody asks for is passed over


def _nothing() -> None:
    """Nothing is waited for that could take too long."""


def _always(_: asyncio.AbstractEventLoop) -> bool:
    return True


class Turnstile:
    """Delivers the outcomes of one run on one event loop."""

    def __init__(self, journal: Journal) -> None:
        self.lanes = 1  # live ones
        self.shared = False  # whether there ever were several
        self.is_at_work: Callable[[asyncio.AbstractEventLoop], bool] = _always  # whether the code has more to do now
        self.lose_patience: Callable[[], object] = _nothing  # with what is still to be done about calls
        self.tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._journal = journal
        self._order: deque[float] | None = None  # of the recorded outcomes that have not left yet
        self._early: set[float] = set()  # those of them that left without waiting
        self._recorded: dict[float, asyncio.Future[None]] = {}  # who waits, by seq
        self._live: deque[asyncio.Future[None]] = deque()
        self._unready: set[asyncio.Future[None]] = set()  # places of live ones that are not there yet
        self._turning = False
        self._marked = 0.0
        self.marks: set[float] = set()  # places in the order that are those of timers

    async def deliver(self, seq: float | None, place: asyncio.Future[None] | None = None) -> None:
        """Wait for this outcome's turn: `seq` of a recorded one, None for a live one, `place` if it has one."""
        if place is not None:
            self._unready.discard(place)
            self._wake()
            if not place.done():  # else it was given up
                await place
            return
        self._ordered()
        if self.lanes <= 1 and not self._recorded and not self._live:
            if seq is not None:
                self._early.add(seq)
            return
        loop = asyncio.get_running_loop()
        if loop is not self.loop:  # another loop of the same run, in a thread: order is promised per lane only
            if seq is not None:
                self._early.add(seq)
                self._wake()
            return
        turn: asyncio.Future[None] = loop.create_future()
        if seq is None:
            self._live.append(turn)
        else:
            self._recorded[seq] = turn
        self._begin(loop)
        await turn

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver on this loop, if the one before is over: a program may start several, one after the other."""
        if self.loop is loop or (self.loop is not None and self.loop.is_running()):
            return
        self.loop, self._turning = loop, False
        self._live.clear()
        self._unready.clear()
        self._recorded.clear()

    def skip(self, step: Recorded, *, whole: bool = False) -> None:
        """Wait for no outcome inside a step: nobody will ask for them. With `whole`, nor for its own."""
        if step.id is None and not whole:
            return  # it has none, as most
        inside = [] if step.id is None else [found for _, found in self._journal.inside(step.id)]
        steps = [*inside, step] if whole else inside
        self._early.update(each.outcome.seq for each in steps if each.outcome is not None)
        self._early.update(turn for each in steps for turn in each.turns)

    def leave(self, step: Recorded) -> None:
        """Let the outcome of a step go by, as nobody will wait for it, and then those who wait for that."""
        self.skip(step, whole=True)
        self._wake()

    def reserve(self) -> asyncio.Future[None] | None:
        """A place among the live ones for what has its place on record now, and leaves later. None if nobody waits.

        A row has to be durable before its outcome leaves, and what comes in the meantime must not overtake it.
        """
        if self.lanes <= 1 and not self._recorded and not self._live:
            return None
        if self.loop is None or running_loop() is not self.loop:
            return None
        place: asyncio.Future[None] = self.loop.create_future()
        self._live.append(place)
        self._unready.add(place)
        return place

    def give_up(self, place: asyncio.Future[None] | None) -> None:
        """Let those behind a place go on, whether it was taken or not."""
        if place is not None and place in self._unready:
            self._unready.discard(place)
            place.cancel()
            self._wake()

    def _wake(self) -> None:
        """Look who is next, from whichever thread: another loop may let by what this one waits for."""
        loop = self.loop
        if loop is None or self._turning or not (self._recorded or self._live) or loop.is_closed():
            return
        if running_loop() is loop:
            self._begin(loop)
        else:
            loop.call_soon_threadsafe(self._begin, loop, context=outside())

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the next one leave in its turn."""
        if not self._turning:
            self._turning = True
            self._again(loop, self._turns(loop))

    def _again(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        loop.call_soon(self._turn, loop, left, context=outside())  # it is nothing that the program does

    def _turns(self, loop: asyncio.AbstractEventLoop) -> int:
        """How many turns to wait at most; a loop that is not asyncio's own does not tell what it has to do."""
        return TURNS if self.is_at_work is _always or not hasattr(loop, "_ready") else _MOST_TURNS

    async def settled(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the code do what it can with what it was given."""
        for _ in range(self._turns(loop)):
            await asyncio.sleep(0)
            if not self.is_at_work(loop):
                return

    def mark(self, seq: int) -> float:
        """A place in the order after this row and before the next one, for what has no row of its own."""
        self._marked = max(seq, self._marked) + _BETWEEN
        return self._marked

    def place(self, seq: int) -> float:
        """Where in the order we are, after this row: whatever comes is marked as later."""
        return max(seq, self._marked)

    def next_mark(self) -> float | None:
        """The place of a timer, if that is what comes next."""
        first = self._first()
        return first if first in self.marks else None

    def is_past(self, place: float) -> bool:
        """Whether all that stands before a place in the order has left."""
        first = self._first()
        return first is None or first > place

    def _first(self) -> float | None:
        order = self._ordered()
        while order and order[0] in self._early:
            self._early.discard(order.popleft())
        return order[0] if order else None

    def pass_mark(self, mark: float) -> None:
        """A timer ended, or will not: whoever waits for that may go on."""
        self._early.add(mark)
        self._wake()

    def beside(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        """A turn among the others, for what has no outcome; None if it need not wait. Whoever comes next has to."""
        if loop is not self.loop:
            return None
        is_busy = not self.idle() or (self.is_at_work is not _always and self.is_at_work(loop))
        if self.lanes <= 1 and not is_busy:
            return None
        turn: asyncio.Future[None] | None = None
        if is_busy:
            turn = loop.create_future()
            self._live.append(turn)
        self._begin(loop)
        return turn

    def _ordered(self) -> deque[float]:
        if self._order is None:
            self._order = deque(self._journal.order())
        return self._order

    def open(self) -> None:
        """Let everything leave as it comes: what the run gives is of no interest any more."""
        self._order = deque()
        if self.loop is not None and not self._turning and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        if not self._turning and self.loop is not None:
            self._turning = True
            self._turn(self.loop, 0)

    def idle(self) -> bool:
        """Whether nothing waits for its turn."""
        return not self._turning and not self._recorded and not self._live

    def _turn(self, loop: asyncio.AbstractEventLoop, left: int) -> None:
        is_busy = self.is_at_work is _always or getattr(loop, "_ready", True)
        if left > 0 and self.is_at_work(loop):
            if is_busy:
                self._again(loop, left - 1)
            else:  # what was cancelled is being cleared away, which takes its time: a process that was killed, say
                loop.call_later(_NAP, self._turn, loop, left - 1, context=outside())
            return
        if left == 0 and not is_busy:
            self.lose_patience()
        turn = self._next()
        if turn is not None:
            turn.set_result(None)
            self._turning = False
            self._begin(loop)
        elif self._recorded or self._live:
            # The next one in order was not asked for yet. If it never is, the code has changed, and the ends of lanes
            # will tell; until then it must not hold up the others for good.
            self._turning = False
            loop.call_later(_PATIENCE, self._pass_over, loop, self._order[0] if self._order else None)
        else:
            self._turning = False

    def _next(self) -> asyncio.Future[None] | None:
        order = self._order
        while order:
            if order[0] in self._early:
                self._early.discard(order.popleft())
                continue
            turn = self._recorded.pop(order[0], None)
            if turn is None:
                return self._late()
            order.popleft()
            if not turn.done():  # else its waiter was cancelled
                return turn
        return self._late() or self._first_live()

    def _late(self) -> asyncio.Future[None] | None:
        """An outcome whose place in the order has passed."""
        known = self._order or ()
        first = known[0] if known else None
        for seq in sorted(self._recorded):
            if first is None or seq < first:
                turn = self._recorded.pop(seq)
                if not turn.done():
                    return turn
        return None

    def _first_live(self) -> asyncio.Future[None] | None:
        while self._live and self._live[0] not in self._unready:
            turn = self._live.popleft()
            if not turn.done():
                return turn
        return None

    def _pass_over(self, loop: asyncio.AbstractEventLoop, held_up: float | None) -> None:
        if loop is not self.loop:
            return
        if self._order and self._order[0] == held_up and not self._turning and (self._recorded or self._live):
            self._order.popleft()
        self._wake()  # also if it went by in the meantime, seen from another loop
