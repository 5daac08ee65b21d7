"""One call to the outside: what the record has of it, or what becomes of it.

Its outcome is written when the last chunk was read, or the answer was closed, or failed. How one waits for it is the
business of `calling`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from everstep.capturing import meanwhile, turns
from everstep.capturing.calls import Call
from everstep.capturing.halting import Halted
from everstep.capturing.known import known_inputs
from everstep.capturing.reviving import FAILED, error_on_record, exit_on_record, unpacked
from everstep.capturing.threads import Ticket
from everstep.codec import record
from everstep.errors import DivergenceError, HiddenValueError, RunStoppedError, UnknownOutcomeError
from everstep.journal.track import AGAIN, ASKED, TURNS, UNKNOWN
from everstep.model import Kind, Status
from everstep.run import effects, faults, flow
from everstep.run.execution import Execution
from everstep.run.lanes import CURRENT, Lane
from everstep.run.outcomes import is_outcome
from everstep.run.restoring import restored
from everstep.run.stopping import Suspended
from everstep.trail.late import asyncio

if TYPE_CHECKING:
    from everstep.capturing.telemetry import Aside

_BEGUN_ANEW = " It may come of a process that was begun anew, {}: what that said before it was cut off is not kept."
_PARTED = (DivergenceError, RunStoppedError, Suspended)  # what says that a lane cannot go on


class Exchange:
    """A call on its way: what the two drivers share. Defaults are the class's: most calls need few others."""

    over = False  # what is done in its context from now on is no part of it
    lingers = False  # what is still to be done about it takes too long to be waited for
    outlived = False  # the run ended before it: what still comes is not recorded, and the code's all the same
    head: Any = None
    inner: Lane | None = None
    ticket: Ticket | None = None  # of an outcome that waits until the code may have it
    place: asyncio.Future[None] | None = None  # the same, among what is awaited
    queued: asyncio.Future[None] | None = None  # that of a part
    _task: asyncio.Task[Any] | None = None
    _cancels = 0
    _began = 0.0
    _read: list[Any] | None = None  # what the row with its outcome carries, once that was looked at

    def __init__(self, lane: Lane, call: Call, loop: asyncio.AbstractEventLoop | None) -> None:
        self.run: Execution = lane.run
        self.session = lane.run.captured
        self.call, self.loop = call, loop
        self._asked: float | None = None  # its place in the order, where timers may end before it does
        self.chunks: list[Any] = []
        self._offsets: list[float] = []
        self.turns: list[float] = []  # where its parts stand among what was awaited; 0 where that is all one
        if loop is not None and (task := asyncio.current_task()) is not None:
            self._task, self._cancels = task, task.cancelling()
        inputs, self._body = known_inputs(lane, call)  # with what the row says that tells of both, it and the outcome
        inputs = inputs or meanwhile.inputs_of(call, lane)
        self.session.broken.go_on()
        self._begin_others(lane)
        try:
            self.ask = self.run.ask(lane, self.clean(call.name), inputs)
        except _PARTED as error:
            raise self._halted(lane, error) from error
        self.session.senses.asked(self.ask)
        if self.ask.recorded is not None and self.run.flow is not None:  # a replay does not go into it
            self.run.turnstile.skip(self.ask.recorded)

    def _halted(self, lane: Lane, error: BaseException) -> Halted:
        if isinstance(error, DivergenceError) and self.session.begun_anew:
            error.detail += _BEGUN_ANEW.format(", ".join(map(repr, self.session.begun_anew)))
        self.session.refused_to(lane, error)
        return self.halted(error)

    def halted(self, cause: BaseException | None = None) -> Halted:
        """What takes the program out."""
        found: Halted = self.session.host.halted(cause)
        return found

    def _begin_others(self, lane: Lane) -> None:
        """Draft the beginnings of answers that are still read in a lane: its rows stand in the order of its steps.

        Most answers are read before the next call is made. Then one row tells all of it.
        """
        for other in tuple(self.session.open_calls):
            if other.ask.lane is lane and other.inner.scope.start:
                with self.run.lock:
                    self.run.begun(other.inner.scope)

    @property
    def is_whole(self) -> bool:
        """Whether the code has had all of the answer, and has only not looked for its end."""
        is_whole = self.call.is_whole
        return is_whole is not None and self.head is not None and not self.over and is_whole(self.head, self.chunks)

    # On record.

    @property
    def outcome(self) -> Any:
        """The row with its outcome, if there is one."""
        return None if self.ask.recorded is None else self.ask.recorded.outcome

    @property
    def cancelled(self) -> int | None:
        """The row that says that it was cancelled."""
        return None if self.ask.recorded is None else self.ask.recorded.cancelled

    def recorded(self) -> tuple[Any, list[Any]]:
        """Head and chunks on record; a head of None if the call failed before there was one."""
        entry = self.outcome if self.cancelled is None else self.run.entry(self.cancelled)
        payload = self.run.payload(entry, self._body)
        self._read = payload if self.cancelled is None else None
        stored = payload[record.OUTPUT] if len(payload) > record.OUTPUT else None
        if stored is None and (self.cancelled is not None or entry.status == FAILED):
            return None, []
        return unpacked(self.call, stored, (self.run.run_id, entry.seq), self.ask.lane, self._halted)

    def give(self, head: Any) -> None:
        """The code gets what is on record, from its head on."""
        self.head = head
        if self.outcome is not None:
            self.session.given.add(self)

    def served(self) -> None:
        """All chunks on record were given: what follows them. Raises what the call failed with."""
        entry, error = self.outcome, self.had()
        if error is None:
            self.session.passed(self.ask, entry)
            return
        raised = self._revived(self.run.payload(entry)[record.ERROR])
        passed = functools.partial(self.session.passed, self.ask, entry)
        if not self.session.broken.keep(self, raised, passed, is_new=False):
            passed()
        faults.mark(raised, self.ask.lane.scope, entry.seq)
        raise raised

    def had(self) -> BaseException | None:
        """Note that the code got to the end of what is on record, or was cancelled there. What the call failed with."""
        self.over = True
        self.session.given.discard(self)
        turns.outcome_due(self)
        return restored(self.run, self.ask, self._read)[1]

    def _revived(self, kept: list[Any]) -> BaseException:
        """An error on record: of the library, or ours, where a call was failed because nobody knew its outcome."""
        kind, message = kept[:2]
        if kind == UnknownOutcomeError.__name__ and self.ask.recorded is not None:
            return UnknownOutcomeError(self.run.run_id, self.ask.name, self.ask.recorded.seq)
        return exit_on_record(kept) or error_on_record(kept, self.call.revive(kind, message))

    def left(self) -> None:
        """The code closed an answer that is on record."""
        if not self.over and self.run.stopping is None:
            self.over = True
            if self.outcome is not None:
                self.had()
                self.session.passed(self.ask, self.outcome)

    @property
    def is_left(self) -> bool:
        """Whether its code waits only for what is still to be done about it: no answer will tell when that is over.

        Not while a part of it waits for its turn: those before it would wait for it, and it for them.
        """
        if self.queued is not None and not self.queued.done():
            return False
        if self.over or self.lingers:
            return self.over
        return self._task is not None and self._task.cancelling() > self._cancels

    async def until_cancelled(self) -> None:
        """Wait to be cancelled, as the record has it."""
        try:
            await self.session.cancelling.wait(self)
        finally:
            if self.cancelled is not None:
                self.run.note(self.ask, self.cancelled, 0.0, Status.RESTORED, None)
                self.session.passed(self.ask, self.run.entry(self.cancelled))

    def unknown(self) -> None:
        """See to a call that was announced, and has no outcome. Raises Halted, or UnknownOutcomeError."""
        recorded, run = self.ask.recorded, self.run
        if recorded is None or not recorded.intent or not self.call.external:
            return
        if self.session.unknown == "retry":
            if self.call.node_type == "process":
                self.session.begun_anew.append(self.ask.name)
            return
        if self.session.unknown == "fail":
            error = UnknownOutcomeError(run.run_id, self.ask.name, recorded.seq)
            inner = run.enter(self.ask, recorded.attempt + 1)
            wait(flow.failed(run, self.ask, inner, error, run.leave(self.ask), None))
            raise error
        if self._children is not None and self._children.goes_on(self.ask, self.call.request):
            return
        run.suspend(self.ask.lane, recorded.id or recorded.seq, around=True)
        self.session.refused_to(self.ask.lane, Suspended())
        raise self.halted()

    def diverged(self, cause: str, recorded: str, requested: str, detail: str = "") -> DivergenceError:
        """Note that the program does other than it did, in the course of a call that is on record."""
        ask = self.ask
        error = DivergenceError(
            cause, lane=ask.lane.path, position=ask.position, seq=None if ask.recorded is None else ask.recorded.seq,
            recorded=recorded, requested=requested,
        )  # fmt: skip
        error.detail = detail
        return self.run.diverged(error)

    # Live.

    def in_place(self) -> Iterator[float]:
        """Seconds to wait, as long as another lane may come to this call, which has it on record. Raises Halted."""
        if self.ask.recorded is None and self.run.journal.scopes:
            try:
                for _, seconds in flow.in_place(self.run, self.ask):
                    yield seconds
            except _PARTED as error:
                raise self._halted(self.ask.lane, error) from error

    def begin(self) -> Any:
        """Have its beginning written. What to wait for before the call is made. Raises Halted."""
        run, known = self.run, self.ask.recorded
        if run.journal.scopes and self.call.is_hidden is not None and self.call.is_hidden():
            raise self.halted(HiddenValueError(run.run_id, self.ask.name))
        if run.pen is not None and run.pen.failure is not None:
            raise self.halted(run.pen.failure)  # whatever the program made of it: what cannot be recorded is not asked
        inner = self.inner = run.enter(self.ask, 1 if known is None else known.attempt + 1)
        inner.scope.leaf = self
        self.ask.lane.busy = None  # the code goes on between the chunks
        run.at_work.discard(inner.scope)
        inner.scope.waits = True
        meanwhile.listen(self)
        if self.loop is not None and run.pen is not None:
            self._asked = run.turnstile.place(run.pen.seq)
        self._began = time.perf_counter()
        if run.pen is None or not inner.scope.start or not self.call.external:
            return None
        return effects.announce(run, self.ask, self.call, inner, self.loop)  # type: ignore[arg-type] # a step, as far as that goes

    def answered(self, head: Any) -> None:
        """The other side began to answer."""
        self.head, self._began = head, time.perf_counter()

    def keep(self, chunk: Any) -> None:
        """Remember a chunk."""
        self.chunks.append(chunk)
        self._offsets.append((time.perf_counter() - self._began) * 1000)

    def end(self, error: BaseException | None = None, *, early: bool = False, awaits: bool = False) -> Any:
        """Record the outcome. What to wait for; None where there is nothing to record.

        `early`: the code closed the answer before its end, and if it `awaits` more of it, it had not seen that coming.
        """
        if self.over:
            return None
        partial = early and (awaits or not self.is_whole)
        self.over = True
        run, ask, inner = self.run, self.ask, self.inner
        assert inner is not None  # noqa: S101 - what has not begun does not end
        self.session.open_calls.discard(self)
        duration = run.leave(ask)
        if error is None:
            self.wait_with_children()
        if error is not None and not is_outcome(run, error, inner):
            stored = self.packed()
            ended = functools.partial(self._broken_off, stored, duration, error)
            if not self.session.broken.keep(self, error, ended) and not isinstance(error, Exception):
                got = self._got(stored, duration)
                flow.broken_off(run, ask, error, self.loop, metadata=self._cut_off(), **got)
            return None
        if error is None and run.stopping is not None and early:
            return None  # it was not the code that had enough of it
        is_late = error is None and meanwhile.may_be_late(self.call, self.run)
        if not is_late:
            meanwhile.take_inputs(self)
        stored = None if is_late else self.packed()
        with run.lock:  # so that outcomes are queued in the order of their rows
            if is_late:
                waiter = meanwhile.put_later(self, duration, partial=partial)
            else:
                waiter = self.put(stored, duration, error, partial=partial)
            self.ticket, self.place = turns.outcome_came(self)
        return waiter

    def packed(self) -> Any:
        """The stored form of what was answered."""
        head, form = self.head, self.call.form
        return None if head is None else form.pack(head, self.chunks, self._offsets, self.clean)

    def _broken_off(self, stored: Any, duration: float, error: BaseException) -> None:
        """Record that the code was taken out of it, by what it went on from."""
        with self.run.lock:
            waiter = self.put(stored, duration, error, partial=False)
        wait(waiter)
        self.told(error)
        self.session.passed(self.ask)

    @property
    def _children(self) -> Any:
        """Of a process, what knows of the runs that it is; None where it is none."""
        return self.session.children if self.call.node_type == "process" else None

    def wait_with_children(self) -> None:
        """Record no outcome of a process that ended because a run in it waits for an answer. Raises Halted."""
        waiting = [] if self._children is None or self.inner is None else self._children.waiting(self.inner.scope)
        if waiting:
            self.over = True
            self.session.open_calls.discard(self)
            self.run.waiting += waiting
            self.run.suspend(self.ask.lane, None, around=True)
            raise self.halted()

    @property
    def clean(self) -> Callable[[str], str]:
        """What takes the secrets out of a text."""
        return str if self.run.trail is None else self.run.trail.gate.text

    def _got(self, stored: Any, duration: float) -> dict[str, Any]:
        """What a row says of what was answered."""
        used = self.call.form.used(self.call.request, stored)
        usage = None if used is None else self.session.priced({**used, "latency_ms": round(duration, 3)})
        return {"output": stored, "duration_ms": duration, "usage": usage, "node_type": self.call.node_type}

    def _turns_taken(self) -> dict[str, Any]:
        return {TURNS: self.turns} if any(self.turns) else {}

    def _cut_off(self) -> dict[str, Any]:
        """What a row says of a call that did not come to its end."""
        return self._turns_taken() | ({} if self._asked is None else {ASKED: self._asked})

    def _about(self, stored: Any, error: BaseException | None) -> dict[str, Any] | None:
        about = self._turns_taken() if error is None else self._cut_off()
        if error is not None and self.call.external and self.call.may_have_been(error):
            about[UNKNOWN] = about[AGAIN] = True
        elif error is not None or (self.call.is_temporary is not None and self.call.is_temporary(stored)):
            about[AGAIN] = True
        return about or None

    def put(self, stored: Any, duration: float, error: BaseException | None, *, partial: bool, **when: Any) -> Any:
        """Write the row of the outcome. What to wait for."""
        run, ask, scope, call = self.run, self.ask, self.inner.scope, self.call  # type: ignore[union-attr] # it has begun
        flags = (record.PARTIAL if partial else 0) | (record.EXTERNAL if call.external else 0)
        if self.loop is not None:
            flags |= record.AWAITED
        status = Status.COMPLETED if error is None else Status.FAILED
        seq, waiter = run.put(
            ask, self.loop, whole=scope.id is None, kind=Kind.STEP, status=status, error=error, attempt=scope.attempt,
            id=scope.id, flags=flags, metadata=self._about(stored, error), **self._got(stored, duration), **when,
        )  # fmt: skip
        if error is not None:
            faults.mark(error, ask.lane.scope, seq)
        run.note(ask, scope.id or seq, duration, status, error, None)
        return waiter

    def told(self, error: BaseException | None = None) -> None:
        """Tell of the outcome, now that it is durable."""
        if self.run.events:
            self.run.tell_outcome(self.ask, error)


def wait(waiter: Any) -> None:
    """Wait on this thread for what a row gave."""
    if callable(waiter):
        waiter()


class inside:  # noqa: N801 - it is used as a function is
    """Round what the call does itself, never round the code that made it. No generator: a call has several of these."""

    __slots__ = ("_lane", "_token")

    def __init__(self, call: Exchange | Aside) -> None:
        assert call.inner is not None  # noqa: S101 - it has begun
        self._lane = call.inner

    def __enter__(self) -> None:
        self._token = CURRENT.set(self._lane)
        self._lane.run.at_work.add(self._lane.scope)

    def __exit__(self, *_: object) -> None:
        self._lane.run.at_work.discard(self._lane.scope)
        try:  # noqa: SIM105 - a call has several of these, and `suppress` takes longer than all else here
            CURRENT.reset(self._token)
        except ValueError:  # closed from elsewhere, where another context is in use
            pass
