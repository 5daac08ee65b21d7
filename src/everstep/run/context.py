"""What the code of a step or workflow can ask about its run: `everstep.current()`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from everstep.codec.values import Kept, decode, encode, plain
from everstep.errors import JournalError, RunCancelledError, StateError
from everstep.model import CheckpointKind, Kind
from everstep.run.arguments import Inputs
from everstep.run.asked import Ask
from everstep.run.heart import live_runs
from everstep.run.lanes import Lane, here
from everstep.trail.late import running_loop
from everstep.trail.reading import Reader


class Current:
    """The run and the step that the calling code belongs to."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    @property
    def run_id(self) -> str:
        return self._lane.run.run_id

    @property
    def workflow(self) -> str:
        return self._lane.run.name

    @property
    def step(self) -> str | None:
        """The name of the step; None in the workflow's own code."""
        scope = self._lane.scope
        return None if scope.place is None else scope.name

    @property
    def attempt(self) -> int:
        """Which attempt at the step this is, from 1."""
        return self._lane.scope.attempt

    @property
    def idempotency_key(self) -> str:
        """A key for this step that is the same after every crash and in every attempt, and no other step has."""
        return f"{self.run_id}/{self._lane.scope.key()}"

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop."""
        return self._lane.run.stopping is not None

    def check_cancelled(self) -> None:
        """Raise RunCancelledError if the run was asked to stop."""
        if self.cancelled:
            raise RunCancelledError(self.run_id)

    @property
    def state(self) -> State:
        """The state as this code may know it; what is set becomes part of it."""
        return State(self._lane)

    def usage(self, **used: Any) -> None:
        """Note what this attempt at the step used: a model's name, tokens, cost. It is recorded with the outcome.

        Said again, later words win. Raises JournalError in the workflow's own code, which has no outcome of its own.
        """
        scope = self._lane.scope
        if scope.place is None:
            raise JournalError("there is no step here that could have used something: call usage() in a step.")
        scope.usage = {**(scope.usage or {}), **decode(encode(used))}  # as it is now, not as it may become

    def checkpoint(
        self, name: str, kind: CheckpointKind | str = CheckpointKind.MANUAL, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Name this point of the run. It copies nothing."""
        word = CheckpointKind(kind)
        about = dict(metadata or {})
        _record(
            self._lane, name, {"kind": word.value, "metadata": about}, kind=Kind.CHECKPOINT, node_type=word.value,
            metadata=about,
        )  # fmt: skip


class State(MutableMapping[str, Any]):
    """The state of the run. In a step, what is set is recorded with the step's outcome; else at once."""

    __slots__ = ("_lane",)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def __setitem__(self, name: str, value: Any) -> None:
        lane = self._lane
        run, scope = lane.run, lane.scope
        if not isinstance(name, str):
            raise TypeError(f"{name!r:.60} is no name: what the state holds is known by texts")
        if run.is_graph:
            raise StateError(
                f"state.{name}", "the state of a graph is what its nodes give", "Return it from a node as an output."
            )
        if scope.place is not None:  # as it is now, not as it may become: its bytes if they can be stored so, or a copy
            data = None if run.trail is None else plain(value, run.trail.gate.names)
            scope.ops[name] = decode(encode(value)) if data is None else Kept(data)
        elif run.trail is None:
            run.state[name] = decode(encode(value))
        else:
            _record(lane, "state", {"set": {name: value}}, kind=Kind.SAVE, set={name: value})

    def __getitem__(self, name: str) -> Any:
        return copy.deepcopy(self._values()[name])

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"state[{name!r}] cannot be deleted; set it to None")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def _values(self) -> dict[str, Any]:
        """What is recorded up to the newest row this lane has seen, which is the same in every replay."""
        lane = self._lane
        run, pen = lane.run, lane.run.pen
        if run.trail is None:
            values = dict(run.state)
        else:
            if _reads_more(lane):
                _record(lane, "state", _READ, kind=Kind.SAVE)
            known, seen = run.known_state, _seen(lane)  # other threads ask for other points
            if known[0] != seen:
                if pen is not None:
                    pen.flush()
                known = seen, Reader(run.trail.store).state(run.run_id, seen) if seen >= 0 else {}
                run.known_state = known
            values = dict(known[1])
        scopes = []
        scope = lane.scope
        while scope.place is not None:
            scopes.append(scope.ops)
            scope = scope.place.scope
        for ops in reversed(scopes):
            values.update((name, decode(given.data) if type(given) is Kept else given) for name, given in ops.items())
        return values


def _seen(lane: Lane) -> int:
    """The newest row that the lane's code may know of: that of a fork too, once it has all that was on record there."""
    track, recorded = lane.track, None if lane.scope.ask is None else lane.scope.ask.recorded
    outcome = None if recorded is None else recorded.outcome
    seen = lane.seen
    for fork in lane.run.journal.forks:
        was_over = (track is not None and track.ended is not None) or (outcome is not None and outcome.seq < fork.seq)
        if not was_over and (
            track is None or lane.position >= len(track.steps) or track.steps[lane.position].seq > fork.seq
        ):
            seen = max(seen, fork.seq)
    return seen


_READ = {"read": True}


def _reads_more(lane: Lane) -> bool:
    """Whether the state is now read with what ended threads have done. That is recorded: when they ended is chance."""
    run, track = lane.run, lane.track
    if run.stopping is not None or lane.stopped or lane.busy is not None or lane.unordered or run.trail is None:
        return False
    if track is None or lane.position >= len(track.steps):
        return lane.joined > lane.seen
    known = track.steps[lane.position]
    return known.name == "state" and known.digest == Inputs(run.trail.gate, "state", _READ).digest


def _record(lane: Lane, name: str, values: dict[str, Any], **detail: Any) -> None:
    """Record something that the code says, unless it is on record. Not waited for: it is durable with what follows."""
    run = lane.run
    if run.trail is None:
        return
    ask: Ask = run.ask(lane, name, Inputs(run.trail.gate, name, values))
    if ask.recorded is None:
        on_a_loop = running_loop() is not None
        waiter = run.put(ask, None, whole=False, unawaited=on_a_loop, **detail)[1]
        if callable(waiter):
            waiter()
        if run.events and ask.entry is not None and detail["kind"] is Kind.CHECKPOINT:
            run.tell("checkpoint", ask.entry)
    elif ask.recorded.outcome is not None and ask.recorded.outcome.seq > lane.seen:
        lane.seen = ask.recorded.outcome.seq


_NO_RUN = "Run a workflow that calls it; a Runner() without a trail, as in a test, will do."


def current() -> Current:
    """The run and the step that this code belongs to. Raises JournalError outside of a run."""
    lane = here()
    if lane is None:
        hint = "Was this thread or task started outside of the run that is live?" if live_runs() else _NO_RUN
        raise JournalError(f"there is no run here: current() is for code of steps and workflows in a run. {hint}")
    return Current(lane)
