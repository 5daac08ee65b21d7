"""A recorded run gone through again by today's code: leaves are served from the record, the code between them runs.

A step that had steps inside is code between leaves: its function is called again, and what it gives is compared with
what it gave. A step without any is where the world came in: it is never called. Nothing is live, nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everstep import errors
from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.record import read_payload
from everstep.codec.values import encode, view
from everstep.errors import (
    DivergenceError,
    GraphError,
    JournalError,
    MutatedArgumentError,
    RecordedError,
    RunNotFoundError,
    StepTimeoutError,
    UnstorableError,
    ValueRefused,
)
from everstep.journal import Journal
from everstep.journal.track import Recorded, Track, metadata_of
from everstep.model import KIND_NUMBER, STATUSES, Kind, Secret, Status
from everstep.run import causes, faults
from everstep.run.arguments import Inputs, in_words, unseen
from everstep.run.asked import Ask, Calls
from everstep.run.execution import Execution
from everstep.run.lanes import NODES, Lane, Scope
from everstep.run.retry import Retry
from everstep.run.stopping import Suspended
from everstep.trail.compare import changes
from everstep.trail.failure import described, str_of
from everstep.trail.forking import REPLACED
from everstep.trail.late import running_loop
from everstep.trail.reading import Reader
from everstep.trail.replayed import Divergence, ReplayedStep, Source
from everstep.trail.trail import Trail

_END = KIND_NUMBER[Kind.END]
_PASSED = frozenset({causes.ARGUMENT, causes.SKIPPED})  # where the record is gone on with all the same
_OUTPUT: Any = object()  # compared with the output of the row

_NEW_LANE = (
    " It is made in {!r}, and the record knows none of that name: threads, tasks and jobs of pools are known by the "
    "names of their functions, and by where they are started."
)


class Rehearsal(Execution):
    """A run that is gone through again."""

    def __init__(
        self,
        trail: Trail,
        run_id: str,
        name: str,
        entries: list[Entry],
        *,
        lenient: bool,
        rerun: frozenset[str] = frozenset(),
        **detail: Any,
    ) -> None:
        super().__init__(name, run_id, trail=trail, journal=Journal(entries, as_it_was=True), **detail)
        self.events = None
        self.lenient = lenient
        self.rerun = rerun  # the names of leaves that are called all the same
        self.found: list[Divergence] = []
        self.steps: list[ReplayedStep] = []
        self.came_to_the_end = False  # of the record, before that of the code
        self.beyond: tuple[DivergenceError, Ask] | None = None  # a lane came to its end, in a run that did
        self._skipped: list[
            tuple[Track, Recorded, int]
        ] = []  # what was not asked for in its place, and where it is told
        self._end = entries[-1] if entries and entries[-1].kind == _END else None

    # Asking.

    def ask(self, lane: Lane, name: str, inputs: Any) -> Ask:
        """The next step of a lane. Raises where there is nothing on record: DivergenceError, or Suspended."""
        position = lane.position
        try:
            ask = super().ask(lane, name, inputs)
            self._check(ask)
        except DivergenceError as error:
            digest = None if inputs is None else inputs.digest
            recorded = self._met_again(lane, name, digest) or self._passed_to(lane, position, digest, error)
            if recorded is None:
                raise
            if self.divergence is error:
                self.divergence, self.stopping = None, None
            ask = Ask(lane, name, (position, 0), inputs)
            ask.recorded = recorded
            self._check(ask)
        return ask

    def _passed_to(self, lane: Lane, position: int, digest: bytes | None, error: DivergenceError) -> Recorded | None:
        """The record to go on with, past those that are not asked for here: whether they will be, is to be seen."""
        if lane.track is None or error.cause not in _PASSED:
            return None
        skipped = lane.track.steps[position : position + len(error.skipped)]
        recorded = lane.track.steps[position + len(skipped)]
        if not self.lenient and (error.cause == causes.ARGUMENT or recorded.digest != digest):
            return None
        for step in skipped:
            self.turnstile.skip(step, whole=True)
            self._skipped.append((lane.track, step, len(self.found) - 1))
        lane.position = position + len(skipped) + 1
        return recorded

    def _met_again(self, lane: Lane, name: str, digest: bytes | None) -> Recorded | None:
        """A record that was passed over, and is asked for now: then it is the order that changed."""
        for place, (track, step, told) in enumerate(self._skipped):
            if track is lane.track and (step.name, step.digest) == (name, digest):
                del self._skipped[place], self.found[-1]
                self.found[told] = replace(self.found[told], cause=causes.ORDER)
                lane.position -= 1
                return step
        return None

    def ask_call(self, lane: Lane, name: str, index: int, inputs: Any, call: Calls) -> Ask:
        """The call of a graph's node."""
        ask = super().ask_call(lane, name, index, inputs, call)
        self._check(ask)
        return ask

    def _check(self, ask: Ask) -> None:
        recorded = ask.recorded
        if recorded is None:
            extra = self._extra(ask)
            if self._is_over(ask.lane):
                raise self.diverged(extra, ask)
            self._leave(ask, extra)
        elif recorded.outcome is None and recorded.cancelled is None and not self.is_composite(recorded):
            self._leave(ask)

    def _extra(self, ask: Ask) -> DivergenceError:
        lane, last = ask.lane, None
        if lane.unordered and lane.track is not None:
            spare = [step for steps in (lane.track.spare or {}).values() for step in steps if step.name == ask.name]
            last = min(spare, key=lambda step: step.seq, default=None)
        if last is None:
            return DivergenceError("inserted", lane=lane.path, position=ask.position, requested=ask.name)
        return DivergenceError(causes.ARGUMENT, lane=lane.path, seq=last.seq, recorded=last.name, requested=ask.name)

    def _leave(self, ask: Ask, extra: DivergenceError | None = None) -> None:
        """The record ends here, for this lane at least: whatever would follow is not on it."""
        if extra is not None and self._ended_by_itself():
            self.beyond = self.beyond or (extra, ask)  # a task that nobody waited for, or one step too many
        else:
            self.came_to_the_end = True
        # A thread of a program comes to an end by itself; a workflow's is part of the code that waits for it.
        alone = self.captured is not None or running_loop() is not None
        self.suspend(ask.lane, None, around=not alone)
        raise Suspended

    def _is_over(self, lane: Lane) -> bool:
        """Whether the record has the end of this lane's code: then a further step is one too many."""
        if lane.track is not None and lane.track.ended is not None:
            return True
        if lane.path not in {"", NODES}:
            return False  # the end of the step around it may have come first
        if lane.scope.id is not None:
            recorded = lane.scope.ask.recorded
            return recorded is not None and recorded.outcome is not None
        return self._ended_by_itself()

    def _ended_by_itself(self) -> bool:
        return self._ended_as(Status.COMPLETED) or (self._ended_as(Status.FAILED) and not self._was_misused())

    def _ended_as(self, status: Status) -> bool:
        return self._end is not None and STATUSES[self._end.status] is status

    def _was_misused(self) -> bool:
        """Whether the run failed because of how its code took a step: of that step there is no row."""
        assert self._end is not None  # noqa: S101 - it failed
        kind = getattr(errors, (self._view(self._end, record.ERROR) or [""])[0], None)
        return isinstance(kind, type) and issubclass(kind, JournalError)

    def is_composite(self, recorded: Recorded) -> bool:
        """Whether a step had steps inside, which led to its outcome: a fork can give it another one."""
        outcome = recorded.outcome
        if outcome is not None and (REPLACED in metadata_of(outcome) or self._timed_out(outcome)):
            return False
        if recorded.id is not None and recorded.id in self.journal.scopes and recorded.id not in self.journal.pauses:
            return True
        return outcome is not None and self._child_of(outcome) is not None

    def _timed_out(self, outcome: Entry) -> bool:
        """Whether it was the clock that ended a step, and not its code."""
        if STATUSES[outcome.status] is not Status.FAILED:
            return False
        return bool((self._view(outcome, record.ERROR) or [""])[0] == StepTimeoutError.__name__)

    def _child_of(self, outcome: Entry) -> str | None:
        """The run that a step is, if it is still there."""
        meta = view(outcome.meta)
        child = meta[record.CHILD] if len(meta) > record.CHILD else None
        if child is not None and self.trail is not None:
            try:
                return None if self.trail.run(child).oldest else str(child)
            except RunNotFoundError:
                pass
        return None

    def child_id(self, scope: Scope) -> str:
        """The run that a step was: of a fork, perhaps one that belongs to the run it was forked from."""
        recorded = scope.ask.recorded
        known = None if recorded is None or recorded.outcome is None else self._child_of(recorded.outcome)
        return known or super().child_id(scope)

    def serves(self, ask: Ask) -> bool:
        """Whether what a step gave is taken from the record. Not if it had steps inside, or is a quick decision."""
        recorded = ask.recorded
        if recorded is None or self.is_composite(recorded):
            return False
        if recorded.outcome is not None and REPLACED in metadata_of(recorded.outcome):
            return True
        if ask.name in self.rerun and recorded.outcome is not None:
            return False
        quick = ask.call is not None and recorded.outcome is not None
        return not (quick and ask.call.rides_along(recorded.outcome.duration / 1000))  # type: ignore[union-attr] # quick says so

    def diverged(self, error: DivergenceError, ask: Ask | None = None) -> DivergenceError:
        """Note where the code and the record part, with both sides."""
        known = self.divergence
        if self.lenient and ask is not None and ask.lane.track is not None and error.cause in _PASSED:
            noted, error.run_id = error, self.run_id  # other threads go on meanwhile: they must not find it stopped
        else:
            noted = super().diverged(error, ask)
        if known is None:
            self.found.append(self._told(noted, ask))
        if not self.lenient:
            self.turnstile.open()
        return noted

    def _told(self, error: DivergenceError, ask: Ask | None) -> Divergence:
        sides: tuple[Any, ...] = ()
        why = ""
        if error.cause == causes.ARGUMENT and ask is not None and ask.inputs is not None and error.seq is not None:
            kept = self._view(self.entry(error.seq), record.INPUTS)
            sides = tuple(changes(kept or {}, view(ask.inputs.data) if ask.inputs.data else {}))
            why = unseen(sides)
        after = "" if error.recorded or ask is None else self._before(ask)
        return Divergence(
            self.run_id,
            causes.cause_of(error),
            causes.step_of(error),
            error.seq,
            causes.said(error) + after + why,
            sides,
        )

    def _before(self, ask: Ask) -> str:
        """Where a step stands that is not on record."""
        lane, known = ask.lane, self.journal.scopes.get(ask.lane.scope.id, {})
        is_new = lane.path and not any(f"{path}/".startswith(f"{lane.path}/") for path in known)
        if self.captured is not None and is_new:
            return _NEW_LANE.format(lane.path)
        steps = [] if lane.track is None or ask.call is not None else lane.track.steps[: ask.position]
        return f" The last one is {steps[-1].name!r}, step {steps[-1].seq}." if steps else ""

    # Comparing.

    def compare(self, ask: Ask, value: Any, error: BaseException | None) -> BaseException | None:
        """See whether a step that ran again gave what it gave; what it failed with. Raises DivergenceError."""
        assert ask.recorded is not None and ask.recorded.outcome is not None  # noqa: PT018, S101 - it was looked at
        outcome, call, was = ask.recorded.outcome, ask.call, _OUTPUT
        if error is None:
            value, error = self._given(ask, value, STATUSES[outcome.status])
        if call is not None and STATUSES[outcome.status] is Status.COMPLETED:
            was = call.recorded(outcome)
        self._compare(outcome, ask.name, value, error, was)
        return error

    def _given(self, ask: Ask, value: Any, status: Status) -> tuple[Any, Exception | None]:
        """What a returned value comes to; or what it is refused with, as it is when a step is recorded."""
        if isinstance(ask.inputs, Inputs) and self.trail is not None:
            changed = ask.inputs.changed(self.trail.gate)
            if changed is not None:
                return None, MutatedArgumentError(ask.name, changed)
        try:
            given = value if ask.call is None else ask.call.given(value)
            if status is Status.FAILED:
                self._gate(given)
        except (GraphError, UnstorableError) as refused:
            return None, refused
        return given, None

    def compare_end(self, end: Entry, value: Any, error: BaseException | None, *, is_state: bool) -> None:
        """See whether the run ended as it did; with `is_state` its result is its state. Raises DivergenceError."""
        was = _OUTPUT
        if is_state:
            was, value = _sorted(self._state(end.seq)), _sorted(value or {})
        self._compare(end, self.name, value, error, was)

    def compare_state(self, end: Entry, values: Mapping[str, Any]) -> None:
        """See whether the state has these values at the end. Raises DivergenceError."""
        known = self._state(end.seq)
        was, now = {name: known.get(name) for name in values}, view(self._gate(dict(values)))
        if was != now:
            self._differ(end, self.name, tuple(changes(was, now)))

    def _state(self, seq: int) -> dict[str, Any]:
        assert self.trail is not None  # noqa: S101 - there is no replay without one
        return self.trail.state(self.run_id, seq, view=True)

    def _compare(
        self, outcome: Entry, name: str, value: Any, error: BaseException | None, expected: Any = _OUTPUT
    ) -> None:
        if STATUSES[outcome.status] in {Status.FAILED, Status.PARTIAL}:
            was: Any = self._view(outcome, record.ERROR) or ["?", ""]
            now: Any = None if error is None else described(error)
            if now is not None and was[:2] == view(self._gate(now[:2])):
                return
            if isinstance(error, RecordedError) and was[:2] == [error.type, error.message]:
                return  # it stands for the one that was raised
            if isinstance(error, UnstorableError) and was[0] == UnstorableError.__name__:
                return  # the place that its text names is another one here
            before = f"{was[0]}: {was[1]}"
            sides = [*changes({"error": before}, {"error": None if now is None else f"{now[0]}: {now[1]}"})]
        else:
            was, now = self._view(outcome, record.OUTPUT) if expected is _OUTPUT else expected, None
            if error is None:
                try:
                    data = self._gate(value)
                except UnstorableError as refused:
                    now = f"({refused})"
                else:
                    if data == encode(was) or self._gate(Secret(value)) == encode(was):
                        return
                    now = view(data)
            else:
                now = f"{type(error).__qualname__}: {str_of(error)}"
            sides = changes({"result": was}, {"result": now})
        self._differ(outcome, name, tuple(sides))

    def check_retry(self, ask: Ask, retry: Retry) -> None:
        """See whether today's policy would have tried a step as often as it was. Raises DivergenceError."""
        recorded = ask.recorded
        if recorded is None or recorded.outcome is None or REPLACED in metadata_of(recorded.outcome):
            return
        tried, limit = recorded.attempt + 1, retry.attempts + (recorded.reopened or 0)
        if tried == limit or (tried < limit and STATUSES[recorded.outcome.status] is not Status.FAILED):
            return
        if tried < limit:
            error = faults.raised_again(self.payload(recorded.outcome)[record.ERROR], self.reach)
            if isinstance(error, ValueRefused | GraphError) or not retry.applies(error):
                return
        self._differ(recorded.outcome, ask.name, tuple(changes({"attempts": tried}, {"attempts": limit})), causes.RETRY)

    def _differ(self, outcome: Entry, name: str, sides: tuple[Any, ...], cause: str = causes.CHANGED) -> None:
        error = DivergenceError(cause, seq=outcome.seq, recorded=name, requested=name)
        error.run_id, error.of_program, error.detail = self.run_id, self.captured is not None, in_words(sides)
        self.found.append(Divergence(self.run_id, cause, name, outcome.seq, f"{error.parting}.", sides))
        if not self.lenient:
            self.divergence, self.stopping = self.divergence or error, "diverged from its record"
            self.turnstile.open()
            raise error

    def _gate(self, value: Any) -> bytes:
        assert self.trail is not None  # noqa: S101 - there is no replay without one
        return self.trail.gate.gate(value)

    def _view(self, entry: Entry, place: int) -> Any:
        assert self.trail is not None  # noqa: S101 - as above
        payload = read_payload(entry, Reader(self.trail.store).fetch)
        return payload[place] if len(payload) > place else None

    def _read(self, entry: Entry, body: bytes | None) -> list[Any]:
        assert self.trail is not None  # noqa: S101 - as above
        fetch = Reader(self.trail.store).fetch
        if body is None:
            return read_payload(entry, fetch, self.reach.decode)
        found: list[Any] = self.reach.decode(body, fetch)
        return found

    def note(self, ask: Ask, *_: Any, **__: Any) -> None:
        """Note that a step was served: there is no other outcome here that is logged."""
        self.went_through(ask, Source.RECORDED)

    def went_through(self, ask: Ask, source: Source) -> None:
        """Note how a step got its outcome."""
        assert ask.recorded is not None  # noqa: S101 - it was looked at
        self.steps.append(ReplayedStep(self.run_id, ask.recorded.seq, ask.name, source))


def _sorted(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in sorted(values)}
