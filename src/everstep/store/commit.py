"""Group commit: whoever finds nobody committing commits for everyone who waits, in one transaction.

A lone caller commits its own work on its own thread, with no hop. Callers that arrive meanwhile queue; when the
leader is done, the first of them leads. For event loops one background thread leads, woken once a turn of the loop,
so that all the steps of that turn share a commit; or the loop itself, where that takes less than to wake a thread.

An interrupt (Ctrl-C lands between any two bytecodes of the main thread) may end a leader anywhere. So the batch in
flight is kept here until all of it is marked done, the next leader takes it over, and the work is idempotent. No
wake-up is relied on: a waiter that is not rung looks for itself after a moment.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from everstep.errors import ClosedError, EverstepError, LockedError, QueueFullError
from everstep.store.turns import turns_of

if TYPE_CHECKING:
    import asyncio

QUEUE_BOUND = 10_000
BATCH_BOUND = 1_000
_FAILURES = (EverstepError, OverflowError, TypeError, ValueError, MemoryError)
_LOOK_AGAIN = 0.05  # seconds until a waiter that nobody rang looks for itself
_URGENT = True  # said by the bell: somebody waits
_NAP = 0.05  # seconds that work waits for more if nobody waits for it: a commit beside it costs a program a millisecond
_SHARED = 0.02  # seconds that a commit waits for steps whose turn has not come: others may crowd the loop for long
_QUICK = 0.0001  # seconds of a commit that a loop does not feel: to hand it to a thread and back takes it about as long
_SLOW_TO_FORGET = 0.9  # of how long a commit took, what is still expected after the next one
_CLOSE_PATIENCE = 10.0  # seconds that close waits for a leader before it says that something is stuck


class Job:
    """A piece of work, and what came of it. Defaults are the class's: a lone caller sets almost nothing."""

    done = False
    result: Any = None
    error: Exception | None = None
    bell: SimpleQueue[None] | None = None  # of a thread that waits
    loop: asyncio.AbstractEventLoop | None = None
    future: asyncio.Future[Any] | None = None
    settled: Callable[[Exception | None, Any], None] | None = None

    def __init__(self, work: Any) -> None:
        self.work = work


class GroupCommit:
    """Runs `commit(jobs)` for callers of any thread or event loop, one batch at a time.

    `commit` does the work of all jobs durably and sets each one's result or error; what it raises fails them all.
    `is_free` tells whether it would wait for nobody; without it, event loops leave everything to the thread.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Job]], None],
        where: str,
        bound: int = QUEUE_BOUND,
        is_free: Callable[[], bool] = lambda: False,
    ) -> None:
        self._commit = commit
        self._where = where
        self._bound = bound
        self._is_free = is_free
        self._reset()

    def _reset(self) -> None:
        self._lead = threading.Lock()
        self._queue: deque[Job] = deque()
        self._soon: deque[Callable[[], None]] = deque()  # what is to be done after a nap, before others are looked for
        self._flight: list[Job] = []
        self._closed = False
        self._helper: threading.Thread | None = None
        self._helper_bell: SimpleQueue[bool] = SimpleQueue()  # whether somebody waits
        self._napping = False  # the helper lets work come that nobody waits for
        self._kicked: set[asyncio.AbstractEventLoop] = set()
        self._takes = 0.001  # seconds that a commit may take, by those before

    born = _reset  # a forked child has none of its parent's waiters, and locks that nobody will release

    def do(self, work: Any) -> Any:
        """Do the work and give its result. It is durable on return."""
        job = Job(work)
        self._enqueue(job)
        return self.finish(job)

    def post(self, work: Any, settled: Callable[[Exception | None, Any], None] | None = None) -> Job:
        """Take the work in now, in order; `finish` waits for it. With `settled`, nobody needs to: a thread does it."""
        job = Job(work)
        job.settled = settled
        self._enqueue(job)
        if settled is not None and not self._napping:
            self._wake_helper(urgent=False)
        return job

    def soon(self, work: Callable[[], None]) -> None:
        """Have the thread do this when it has napped, or twice. It may post what it is about, and raises nothing."""
        self._soon.append(work)
        if not self._napping:
            self._wake_helper(urgent=False)

    def finish(self, job: Job) -> Any:
        """The result of posted work. It is durable on return."""
        while not job.done:
            # `with` on a plain lock cannot be interrupted between taking it and being bound to release it.
            if not self._lead.locked():
                with self._lead:
                    if not job.done:
                        self._lead_once()
                if self._queue:
                    self._promote()
            else:
                self._wait(job)
        if job.error is not None:
            raise job.error
        return job.result

    def submit(
        self, work: Any, loop: asyncio.AbstractEventLoop, settled: Callable[[Exception | None, Any], None] | None = None
    ) -> asyncio.Future[Any]:
        """Do the work soon; the future of `loop` is done when it is durable. Call it on that loop's thread.

        `settled` is told how it went, whether somebody still waits for the future or not.
        """
        job = Job(work)
        job.loop = loop
        job.settled = settled
        job.future = future = loop.create_future()
        self._enqueue(job)
        if loop not in self._kicked:
            loop.call_soon(self._kick, loop, time.monotonic() + _SHARED)  # first: kicked twice, if interrupted here
            self._kicked.add(loop)
        return future

    def close(self) -> None:
        """Finish what waits, then refuse more. A leader that is stuck is reported, not waited for without end."""
        self._do_soon()
        self._closed = True  # first: as long as others may write, a moment without a leader may never come
        end = time.monotonic() + _CLOSE_PATIENCE
        while self._lead.locked():
            if time.monotonic() > end:
                raise LockedError(self._where, _CLOSE_PATIENCE)
            time.sleep(0.001)
        with self._lead:
            while self._queue or self._flight:
                self._lead_once()
        helper, self._helper = self._helper, None
        if helper is not None:
            self._helper_bell.put(_URGENT)
            if helper is not threading.current_thread():
                helper.join(_CLOSE_PATIENCE)

    def rest(self, patience: float) -> bool:
        """Keep everybody from leading until `wake`; False when somebody led for all that time."""
        return self._lead.acquire(timeout=patience)

    def wake(self) -> None:
        """Let them lead again."""
        self._lead.release()

    def _enqueue(self, job: Job) -> None:
        if self._closed:
            raise ClosedError(self._where)
        if len(self._queue) >= self._bound:
            raise QueueFullError(self._bound)
        self._queue.append(job)

    def _lead_once(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Commit one batch, on the thread of the loop `here` if one is given. Holds the lead lock."""
        flight, queue = self._flight, self._queue
        was_left = bool(flight)  # by a leader who was interrupted: some of it may be done
        while queue and len(flight) < BATCH_BOUND:
            flight.append(queue[0])  # before it leaves the queue: interrupted here it is done twice, never lost
            queue.popleft()
        batch = [job for job in flight if not job.done] if was_left else flight
        began = time.monotonic()
        try:
            self._commit(batch)
        except Exception as error:  # anything, for the reason below
            if is_interrupt(error):
                raise
            # What failed the transaction failed all who shared it.
            for job in batch:
                job.error = error
        self._takes = max(time.monotonic() - began, self._takes * _SLOW_TO_FORGET)
        elsewhere = False
        for job in flight:  # not the batch alone: an interrupted leader may have told nobody
            job.done = True
            if job.bell is not None:
                job.bell.put(None)
            elsewhere = elsewhere or job.settled is not None or job.loop is not None
        if elsewhere:
            self._deliver(flight, here)
        flight.clear()

    def _promote(self) -> None:
        """Wake the first who waits, to lead next."""
        try:
            first = self._queue[0]
        except IndexError:
            return
        if first.bell is not None:
            first.bell.put(None)
        elif first.loop is not None or first.settled is not None:
            self._wake_helper()

    @staticmethod
    def _wait(job: Job) -> None:
        if job.bell is None:
            job.bell = SimpleQueue()
        if not job.done:
            with contextlib.suppress(Empty):
                job.bell.get(timeout=_LOOK_AGAIN)

    @staticmethod
    def _deliver(batch: Sequence[Job], here: asyncio.AbstractEventLoop | None) -> None:
        """Tell each event loop once what of its work is done, and the one whose thread this is at once."""
        by_loop: dict[asyncio.AbstractEventLoop, deque[Job]] = {}
        for job in batch:
            if job.loop is not None:
                by_loop.setdefault(job.loop, deque()).append(job)
            elif job.settled is not None:
                job.settled(job.error, job.result)
        for loop, jobs in by_loop.items():
            if loop is here:
                _settle(jobs)
                continue
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                loop.call_soon_threadsafe(_settle, jobs)

    def _kick(self, loop: asyncio.AbstractEventLoop, latest: float) -> None:
        if turns_of(loop).is_crowded and len(self._queue) < BATCH_BOUND and time.monotonic() < latest:
            loop.call_soon(self._kick, loop, latest)  # those who wait for their turn share the commit
            return
        self._kicked.discard(loop)
        try:
            if self._queue and self._takes < _QUICK and not self._lead.locked():
                with self._lead:
                    if self._is_free():
                        self._lead_once(loop)
        finally:  # also of what an interrupt left here
            if self._queue or self._flight:
                self._wake_helper()

    def _do_soon(self) -> None:
        for work in tuple(self._soon):
            work()
            with contextlib.suppress(ValueError):  # last: who closes meanwhile does it too, and so waits for it
                self._soon.remove(work)

    def _wake_helper(self, *, urgent: bool = True) -> None:
        if self._helper is None:
            # A daemon: a program that never closes its trail still ends. Started before it is known: close joins it.
            helper = threading.Thread(target=self._help, name="everstep-commit", daemon=True)
            helper.start()
            self._helper = helper
        self._helper_bell.put(urgent)

    def _help(self) -> None:
        bell = self._helper_bell
        while True:
            if not bell.get():
                self._napping = True  # said by the helper alone: whoever reads it before or after rings once too often
                _nap(bell)
                self._napping = False  # before it looks: what comes later rings again
            self._do_soon()
            while self._queue or self._flight:  # in flight: should its leader be interrupted, nobody else may come
                with self._lead:
                    if self._queue or self._flight:
                        self._lead_once()
            if self._closed:
                self._helper = None  # before the last look: who comes too late starts another
                if not self._queue:
                    bell.put(_URGENT)  # for a second one, which an interrupt may have left behind
                    return


def is_interrupt(error: Exception) -> bool:
    """Whether an error came from a signal handler, which is run by the main thread: then it is not of what failed."""
    return not isinstance(error, _FAILURES) and threading.current_thread() is threading.main_thread()


def _nap(bell: SimpleQueue[bool]) -> None:
    """Let more work come, until somebody waits for it."""
    end = time.monotonic() + _NAP
    with contextlib.suppress(Empty):
        while not bell.get(timeout=max(0.0, end - time.monotonic())):
            pass


def _settle(jobs: deque[Job]) -> None:
    """Tell an event loop what was done, on its thread. What an interrupt cuts off is told when the loop goes on."""
    try:
        while jobs:
            _tell(jobs[0])
            jobs.popleft()
    except Exception:  # whatever it is, it would come again
        jobs.popleft()
        raise
    finally:
        if jobs and (loop := jobs[0].loop) is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon(_settle, jobs)


def _tell(job: Job) -> None:
    future = job.future
    if job.settled is not None:
        job.settled(job.error, job.result)
    if future is None or future.done():
        return
    if job.error is not None:
        future.set_exception(job.error)
    else:
        future.set_result(job.result)
