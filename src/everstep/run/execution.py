"""A run at work: it asks the journal for every step, has the rows written, and knows its lanes.

Everything here is decided without waiting. The flow of a step (flow.py) says what to wait for; the two drivers do.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from everstep.codec import chain, frame, record
from everstep.codec.delta import APPEND, SET
from everstep.codec.values import encode
from everstep.errors import ConcurrentStepsError, DivergenceError, EverstepError, RunStoppedError, UnknownOutcomeError
from everstep.journal import Journal
from everstep.journal.track import CANCELS, CHAIN, STEPS, UNKNOWN, Recorded, flags_of, unasked
from everstep.model import Kind, Status
from everstep.policy.redaction import PLACEHOLDER
from everstep.run import faults
from everstep.run.arguments import Inputs, told_changes
from everstep.run.asked import Ask, Calls
from everstep.run.forked import Forked
from everstep.run.lanes import Closing, Lane, Scope
from everstep.run.pen import Pen, Waiter
from everstep.run.placing import Places
from everstep.run.stopping import Stoppable
from everstep.run.telling import Telling
from everstep.run.turnstile import Turnstile
from everstep.store.base import LEASE_SECONDS
from everstep.trail.late import asyncio
from everstep.trail.reading import Reader
from everstep.trail.trail import Trail

if TYPE_CHECKING:
    from everstep.run.steps import Step

_COMPLETED = Status.COMPLETED
_TOO_LATE = "has given up the step around it, which took too long"


class Execution(Telling, Stoppable):
    """One run in this process, from its beginning, or from where it was left, to its end."""

    def __init__(
        self,
        name: str,
        run_id: str,
        *,
        trail: Trail | None = None,
        pen: Pen | None = None,
        journal: Journal | None = None,
        lease: float = LEASE_SECONDS,
        durability: str = "sync",
        as_child: Callable[[Any], Any] | None = None,
        restarts: bool = False,
    ) -> None:
        super().__init__(None if trail is None else trail.events)
        self.name = name
        self.run_id = run_id
        self.trail = trail
        self.pen = pen
        self.journal = journal = journal or Journal()
        self.lease = lease
        self.renewed = -math.inf  # when that was, as far as is known
        self.durability = durability
        self.as_child = as_child  # makes a step of a workflow
        self.restarts = restarts  # the code is gone through anew after every step
        self.forked = Forked()
        self.flow: Callable[..., Any] | None = None  # of a step, where it is another than that of a live run
        self.life: Callable[..., Any] | None = None  # of a child run, where it is another, too
        self.captured: Any = None  # the program that it is the record of
        self.goes_on = False  # past a node that fails
        self.is_partial = False  # some nodes completed, though others failed
        self.partial_values: Callable[[], dict[str, Any]] | None = None  # what a graph has given so far
        self.corrections: dict[str, Any] = {}  # what the end of a graph's run sets and deletes in the state
        self.also_failed: list[int] = []  # nodes of a graph that failed beside the one whose error ends the run
        self.divergence: DivergenceError | None = None  # kept: the code may have swallowed the exception
        self.keeping = threading.Lock()  # held while its lease is renewed, and while that ends
        self.reach = faults.Reach()
        self.root = Lane(self, Scope(None, name, 0, 1), "", None)
        self.lock = pen.lock if pen is not None else threading.RLock()
        self.turnstile = Turnstile(journal)
        self.state: dict[str, Any] = {}  # of a run without a store
        self.known_state: tuple[int, dict[str, Any]] = (-2, {})  # as it was read last, and after which row
        self._places = Places(journal)
        self.held: set[Ask] = set()  # steps of new lanes that stand elsewhere on record, until it is seen why
        self.closing = Closing()
        self._ended: list[Lane] = []  # lanes whose end goes with the next row
        self._count = 0

    # Asking.

    def ask(self, lane: Lane, name: str, inputs: Inputs | None) -> Ask:
        """The next step of a lane, with what the record has of it. Raises DivergenceError."""
        if self.stopping is not None or lane.stopped or self.overdue or self.closing:
            self.check_stopped(lane, name)
            self.closing.close(lane)
        if lane.unordered:
            with self.lock:
                return self._ask_unordered(lane, name, inputs)
        if lane.busy is not None:
            raise ConcurrentStepsError(name, lane.busy, lane.path)
        ask = Ask(lane, name, lane.take(name), inputs)
        if ask.position == 0:
            lane.scope.lanes[lane.path] = lane
        track = lane.track
        if track is not None:
            try:
                ask.recorded = self.journal.ask(track, ask.position, name, ask.digest)
            except DivergenceError as error:
                raise self.diverged(error, ask) from None
            if track.rewritten == ask.position:
                self.journal.cut(lane.scope.id, track, ask.position)
                ask.rewritten, track.rewritten = True, None
        if self.journal.scopes and ask.recorded is None and not ask.rewritten:
            misplaced = self._places.fault(lane, ask.position, name)
            if misplaced is not None:
                raise self.diverged(misplaced)
        return ask

    def _ask_unordered(self, lane: Lane, name: str, inputs: Inputs | None) -> Ask:
        digest = b"" if inputs is None else inputs.digest
        _, index = lane.take(f"{name} {digest.hex()}")
        ask = Ask(lane, name, (lane.position - 1, index), inputs)
        lane.scope.lanes[lane.path] = lane
        if lane.track is not None:
            ask.recorded = lane.track.take(name, ask.digest)
        return ask

    def ask_call(self, lane: Lane, name: str, index: int, inputs: Any, call: Calls) -> Ask:
        """The call of a graph's node, known by its name and what it takes, with what the record has of it."""
        with self.lock:
            if self.stopping is not None or lane.stopped:
                self.check_stopped(lane, name)
            ask = Ask(lane, name, (0, index), inputs)
            ask.call = call
            lane.scope.lanes[lane.path] = lane
            if lane.track is not None:
                ask.recorded = lane.track.take(name, ask.digest)
            return ask

    def serves(self, ask: Ask) -> bool:
        """Whether what a step gave is taken from the record.

        Not if tasks of it were still at work when it ended: its code is gone through again, for their sake.
        """
        known = ask.recorded
        if known is None or known.outcome is None:
            return False
        return known.id is None or not flags_of(known.outcome) & record.OPEN

    def check_stopped(self, lane: Lane, name: str) -> None:
        """Raise RunStoppedError if no step of this lane is taken any more."""
        late = lane.scope.is_over()
        if late or lane.stopped or self.stopping is not None:
            lane.scope.refuse()
            raise RunStoppedError(self.run_id, name, _TOO_LATE if late else self.stopping or "waits for an answer")

    def _check_over(self, ask: Ask) -> None:
        if ask.lane.scope.is_over():
            raise RunStoppedError(self.run_id, ask.name, _TOO_LATE)

    def diverged(self, error: DivergenceError, ask: Ask | None = None) -> DivergenceError:
        """Note that the code and the record part here; say what differs, where it can be told."""
        error.run_id, error.of_program = self.run_id, self.captured is not None
        if ask is not None and error.cause == "changed argument" and ask.inputs is not None and self.trail is not None:
            error.detail = told_changes(self.trail, self.run_id, error.seq or 0, ask.inputs)
        self.divergence = self.divergence or error
        self.stopping = "diverged from its record"
        return error

    def entry(self, seq: int) -> chain.Entry:
        """A row of the run."""
        assert self.trail is not None  # noqa: S101 - a run without a store has no rows
        return Reader(self.trail.store).entries(self.trail.store.run(self.run_id), seq, seq)[0]

    def payload(self, entry: chain.Entry, body: bytes | None = None) -> list[Any]:
        """What a row carries, its classes found where the code can name them; with its body, if that was unpacked."""
        try:
            return self._read(entry, body)
        except EverstepError as error:
            self.cannot_read(error)
            raise

    def _read(self, entry: chain.Entry, body: bytes | None) -> list[Any]:
        assert self.pen is not None  # noqa: S101 - a run without a store has no rows
        body = frame.unpack(entry.data[chain.KEY_SIZE :]) if body is None else body
        found = self.reach.payload(body, self.pen.scribe.fetch)
        if PLACEHOLDER in body and PLACEHOLDER in encode(found[record.OUTPUT :]):
            faults.warn_of_redaction(self.run_id, entry)
        return found

    # Writing.

    def enter(self, ask: Ask, attempt: int) -> Lane:
        """The main lane of a step's body, for one attempt at it."""
        scope = Scope(ask.lane, ask.name, ask.index, attempt)
        if self.pen is None:
            scope.id = self._count = self._count + 1  # for the log
        recorded = ask.recorded
        if recorded is not None and recorded.id is not None:
            scope.id = recorded.id  # its beginning is written, and perhaps some of its steps
        else:
            scope.start = True
        ask.lane.busy = ask.name
        ask.scope, scope.ask = scope, ask
        self.at_work.add(scope)
        ask.began = time.perf_counter()
        return Lane(self, scope, "", ask.lane)

    def child_id(self, scope: Scope) -> str:
        """The id of the run that a step is: it follows from the step's place, so that resume finds it again."""
        return f"{self.run_id}/{scope.key()}"

    def leave(self, ask: Ask) -> float:
        """The body was left; how long it took, in milliseconds."""
        ask.lane.busy = None
        if ask.scope is not None:
            self.at_work.discard(ask.scope)
        return (time.perf_counter() - ask.began) * 1000

    def put(
        self,
        ask: Ask,
        loop: asyncio.AbstractEventLoop | None,
        *,
        whole: bool = True,
        now: bool = False,
        unawaited: bool = False,
        late: bool = False,
        **detail: Any,
    ) -> tuple[int, Waiter]:
        """Write a row of a step, unless it is `late` what goes before it first. Its seq, and what to wait for."""
        if self.pen is None:
            self._count += 1
            return self._count, None
        with self.lock:
            lane = ask.lane
            if not late:
                self.lead_in(ask)
            about = ask.about()
            if not whole:
                about.pop("gated_inputs", None)
            if "metadata" in about and "metadata" in detail:
                about["metadata"] |= detail.pop("metadata") or {}
            ask.rewritten = False
            ask.entry = self.pen.draft(ask.name, parent=lane.scope.id, lane=lane.path or None, **about, **detail)
            lane.seen = max(lane.seen, ask.entry.seq)  # newer ones may be on their way, if this was left for later
            return ask.entry.seq, self.pen.send(loop, now=now, unawaited=unawaited)

    def lead_in(self, ask: Ask) -> None:
        """Draft what goes before a row of a step: the beginnings of the steps around it, and lanes that have ended."""
        if self.overdue:
            self._check_over(ask)
        self.begun(ask.lane.scope)
        self._write_lane_ends()

    def put_outcome(
        self,
        ask: Ask,
        step: Step[..., Any],
        scope: Scope,
        value: Any,
        duration: float,
        flags: int,
        loop: asyncio.AbstractEventLoop | None,
    ) -> Waiter:
        """`put` for a step that completed, by a shorter way, because nearly every row is one. What to wait for."""
        pen, lane, output, call = self.pen, ask.lane, step.output, ask.call
        if pen is None:
            if call is not None:
                call.outcome(value)
            else:
                self.keep(output, value, scope, append=step.append)
                lane.scope.override((output, *scope.ops))
            self.note(ask, scope.id or 0, duration, Status.COMPLETED, None, scope.child)
            return None
        ops: list[Any] = [[SET, name, given] for name, given in scope.ops.items()] if scope.ops else []
        extra = None
        if call is not None:
            ops, value, extra = call.outcome(value)
        elif output is not None and not self.is_graph:  # the state of a graph is what its nodes give
            ops.append([APPEND if step.append else SET, output])
        inputs = ask.inputs
        with self.lock:
            if self.overdue:
                self._check_over(ask)
            outer = lane.scope
            parent = self.begun(outer) if outer.start else outer.id
            if self._ended:
                self._write_lane_ends()
            if ask.rewritten:  # its row says where it stands: a beginning does, and the rest follows as usual
                self.begun(scope)
            entry = ask.entry = pen.drafted(pen.ready().outcome(
                ask.name, (scope.id, parent, lane.path or None, ask.index or None), scope.attempt, flags,
                None if inputs is None else inputs.digest, scope.child,
                None if inputs is None or scope.id is not None else inputs.data, value, ops, duration, extra,
                scope.usage,
            ))  # fmt: skip
            lane.seen = entry.seq
            if outer.place is not None:
                outer.override((output, *scope.ops))
            about = None if call is None else call.logged()
            self.log.append((ask.name, scope.id or entry.seq, outer, duration, _COMPLETED, None, about, scope.child))
            if call is not None and call.rides_along(duration) and not self.events and not self.restarts:
                return None  # it is written with the next row
            return pen.send(loop)

    @staticmethod
    def remember(ask: Ask, seq: int) -> Recorded:
        """What the record has of a step whose beginning was just written."""
        recorded = ask.recorded = Recorded(seq, ask.name, ask.index, ask.digest)
        recorded.id = seq
        return recorded

    def begun(self, scope: Scope) -> int | None:
        """The id of a scope, its beginning drafted if it was not."""
        if scope.start and scope.place is not None and self.pen is not None:
            parent = self.begun(scope.place.scope)
            entry = self.pen.draft(
                scope.name, kind=Kind.COMPOSITE_START, status=Status.ACTIVE, parent=parent,
                lane=scope.place.path or None, attempt=scope.attempt, **scope.ask.about(),
            )  # fmt: skip
            scope.id, scope.start = entry.seq, False
            scope.ask.rewritten = False
        return scope.id

    def _write_lane_ends(self) -> None:
        ended, self._ended = self._ended, []
        for lane in ended:
            if self.pen is not None and not lane.scope.start:
                self.pen.draft(
                    "lane end", kind=Kind.LANE_END, parent=lane.scope.id, lane=lane.path,
                    metadata={STEPS: lane.position},
                )  # fmt: skip

    def failed_row(self, error: BaseException, inner: Lane) -> dict[str, Any]:
        """What a failed row says beside the error: the steps inside that it came from."""
        found, recorded = faults.chain(error, inner.scope), inner.scope.ask.recorded
        about: dict[str, Any] = {CHAIN: found} if found else {}
        if isinstance(error, UnknownOutcomeError) and recorded is not None and recorded.intent:
            about[UNKNOWN] = True
        if isinstance(error, asyncio.CancelledError):
            about[CANCELS] = True
        return {"metadata": about} if about else {}

    # Lanes.

    def lane_began(self, lane: Lane, *, task: bool) -> None:
        """A lane is spawned."""
        with self.lock:
            lane.scope.at_work += 1
            self.turnstile.lanes += task
            self.turnstile.shared = self.turnstile.shared or task

    def lane_ended(self, lane: Lane, *, whole: bool, task: bool, counted: bool = True) -> None:
        """A lane ended; with `whole`, by itself. What it recorded and did not ask for was removed from the code.

        Not `counted` is one that was never said to have begun.
        """
        with self.lock:
            lane.scope.at_work -= counted
            self.turnstile.lanes -= task
            if self.closed or self.stopping is not None or lane.up is None:
                return
            if task:
                lane.up.seen = max(lane.up.seen, lane.seen)
            lane.up.joined = max(lane.up.joined, lane.joined, lane.seen)
            if not whole or lane.position == 0:
                return
            if lane.track is not None:
                error = unasked(lane.track, lane.position, self.journal.shared)
                if error is not None:
                    self.diverged(error)
                if lane.track.ended is not None:
                    return
            self._ended.append(lane)

    def check_left(self, scope: Scope) -> None:
        """Raise DivergenceError if the scope, which ended by itself, recorded more than its code asked for."""
        if self.divergence is not None:
            raise self.divergence
        if scope.start or scope.id not in self.journal.scopes or scope.at_work:
            return
        error = self.journal.left(scope.id, {path: lane.position for path, lane in scope.lanes.items()})
        if error is not None:
            raise self.diverged(error)

    # Without a store.

    def keep(self, output: str | None, value: Any, scope: Scope, *, append: bool) -> None:
        """Put what a step gave into the state of a run that is not stored."""
        self.state.update(scope.ops)
        if output is not None and append:
            self.state.setdefault(output, []).append(value)
        elif output is not None:
            self.state[output] = value
