"""A trail that lets go of history by itself, and takes steps that another system made."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from everstep import actual
from everstep.codec.record import StepRecord
from everstep.errors import RunNotFoundError
from everstep.model import STATUSES, Durability, Status, StepError
from everstep.policy.rules import Rule
from everstep.store.base import ALL
from everstep.trail.detail import About
from everstep.trail.opening import open_store
from everstep.trail.owner import is_gone
from everstep.trail.retention import prune
from everstep.trail.supersteps import Supersteps
from everstep.trail.trail import Trail

Retention = Literal["full", "latest", "windowed"]
# How records of other systems call what a step says here.
_SPELLINGS = {
    "workflow_id": "run_id", "node_name": "name", "values": "set", "created_at": "started", "started_at": "started",
    "child_workflow_id": "child_run_id", "graph_name": "workflow",
}  # fmt: skip
_FIELDS = frozenset({"run_id", "name", "set", "workflow", "completed_at", *About.__annotations__})


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How durable the steps of a run are, and what is kept of it. Raises ValueError when the parts do not fit."""

    durability: Durability = "sync"
    retention: Retention = "full"  # every superstep; the latest alone; or as many as the window says
    window: int | None = None
    ttl: timedelta | float | None = None  # seconds, or a timedelta, that a run is kept after its end

    def __post_init__(self) -> None:
        _one_of("durability", self.durability, Durability)
        _one_of("retention", self.retention, Retention)
        if self.durability == "exit" and self.retention != "latest":
            raise ValueError('durability="exit" writes when a run ends: it needs retention="latest"')
        if (self.window is None) == (self.retention == "windowed"):
            raise ValueError(f'window={self.window!r}: retention="windowed" needs one, and only it takes one')
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise ValueError(f"window={self.window!r}: give the number of supersteps to keep, from 1 up")
        if self.ttl is not None:
            seconds = self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else self.ttl
            if type(seconds) not in {int, float} or not 0 < seconds < timedelta.max.total_seconds():
                raise ValueError(f"ttl={self.ttl!r}: give a positive timedelta, or seconds")

    @property
    def kept(self) -> int | None:
        """How many supersteps of a completed run are kept; None for all."""
        return {"full": None, "latest": 1, "windowed": self.window}[self.retention]

    @property
    def lifetime(self) -> timedelta | None:
        """How long a run is kept after its end; None for ever."""
        return self.ttl if self.ttl is None or isinstance(self.ttl, timedelta) else timedelta(seconds=self.ttl)


def _one_of(name: str, value: object, words: Any) -> None:
    known = get_args(words)
    if value not in known:
        raise ValueError(f"{name}={value!r}: use one of {', '.join(known)}")


class SqliteCheckpointer(Trail):
    """A trail with a policy. Runners use its durability, and it lets go of what the policy does not keep.

    That happens when a runner has ended a run. Only of a run that has completed are supersteps let go: any other can
    be gone on with, for which all its steps are needed. The `ttl` is for all that have ended.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        policy: CheckpointPolicy | None = None,
        durability: Durability | None = None,
        retention: Retention | None = None,
        window: int | None = None,
        redact: Iterable[Rule] = (),
        clock: Callable[[], datetime] = actual.now,
    ) -> None:
        if policy is not None and (durability, retention, window) != (None, None, None):
            raise ValueError("give a policy, or durability, retention and window; not both")
        self.policy = policy or CheckpointPolicy(durability or "sync", retention or "full", window)
        super().__init__(open_store(path, read_only=False), redact=redact)
        self.durability = self.policy.durability
        self._clock = clock
        self._none_before: datetime | None = None  # until then no run is too old
        if self.policy.kept is not None or self.policy.ttl is not None:
            self.after_run = self._let_go

    # Letting go.

    def _let_go(self, run_id: str) -> None:
        """A runner has ended a run."""
        run, kept, lifetime = self.store.run(run_id), self.policy.kept, self.policy.lifetime
        if kept is not None and STATUSES[run.status] is Status.COMPLETED:
            cut = Supersteps(self.store, run_id).cut_before(kept)
            if cut is not None:
                prune(self._retaining(), self.store, run_id, run.seq - cut)
        if lifetime is not None and run.parent is None:
            self._drop_old(run_id, lifetime)

    def _drop_old(self, newest: str, lifetime: timedelta) -> None:
        """Drop the runs that ended too long ago, with the runs inside them; never the one that has just ended."""
        now = self._clock()
        if self._none_before is not None and now < self._none_before:
            return
        left = [now]
        for run in self.runs(parent=None, limit=ALL):
            if run.ended_at is None or (run.owner is not None and not is_gone(run.owner)):
                continue
            if run.ended_at + lifetime <= now and run.id != newest:
                self._drop_with_children(run.id)
            else:
                left.append(run.ended_at)
        self._none_before = min(left) + lifetime

    def _drop_with_children(self, run_id: str) -> None:
        for child in self.runs(parent=run_id, limit=ALL):
            self._drop_with_children(child.id)
        with suppress(RunNotFoundError):  # another process was quicker
            self.drop(run_id)

    # Steps of others.

    def save_step(self, record: Mapping[str, Any] | None = None, /, **fields: Any) -> StepRecord:
        """Record a step that another system took: a mapping or fields, with `run_id` and `name` at least.

        What a step can say is what `Recorder.step` takes, and `values`, which go into the state. The names of earlier
        systems are known too: `workflow_id`, `node_name`, `created_at`, `completed_at`. The run is begun if there is
        none, and given up again: `record(run_id).finish()` ends it. Supersteps never go backwards.
        """
        detail = _detail({**(record or {}), **fields})
        run_id, name, workflow = detail.pop("run_id"), detail.pop("name"), detail.pop("workflow", "")
        recorder = self.record(run_id, workflow=workflow)
        try:
            newest, superstep = Supersteps(self.store, recorder.run_id).newest(), detail.get("superstep")
            if superstep is not None and newest is not None and superstep < newest.superstep:
                raise ValueError(
                    f"run {recorder.run_id!r} is in superstep {newest.superstep} already; a step of superstep "
                    f"{superstep} cannot come after it. Give it a later one: what is done again is a step of its own."
                )
            return recorder.step(name, **detail)
        finally:
            recorder.release()


def _detail(given: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says, in the words of a step."""
    found: dict[str, Any] = {}
    for field, value in given.items():
        name = _SPELLINGS.get(field, field)
        if name not in _FIELDS:
            near = difflib.get_close_matches(field, [*_FIELDS, *_SPELLINGS], 1)
            raise TypeError(f"a step has no {field!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if name in found:
            raise TypeError(f"{field!r} is given twice, under another name too")
        found[name] = value
    missing = [name for name in ("run_id", "name") if not found.get(name)]
    if missing:
        raise TypeError(f"a step needs {' and '.join(missing)}")
    ended = found.pop("completed_at", None)
    if ended is not None and found.get("started") is not None and "duration_ms" not in found:
        found["duration_ms"] = (ended - found["started"]) / timedelta(milliseconds=1)
    if isinstance(found.get("error"), str):
        found["error"] = StepError("Error", found["error"])
    return found
