"""Replaying a run from its record alone, or by the code that somebody gives."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from everstep.codec.delta import apply
from everstep.codec.record import ops_of, read_payload
from everstep.codec.values import encode, view
from everstep.errors import DamagedError, PrunedError
from everstep.model import FINISHED, KIND_NUMBER, Kind, Run
from everstep.trail.reading import Reader
from everstep.trail.replayed import ReplayedStep, ReplayReport, Source

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

ReplayMode = Literal["recorded", "verify", "lenient"]
WHOLE = "A replay needs the whole run."
_MODES = get_args(ReplayMode)
_OUTCOMES = {KIND_NUMBER[kind] for kind in (Kind.STEP, Kind.ANSWER)}


class Replays(Protocol):
    """A workflow: what knows how to go through a run with its code."""

    def replay(
        self, trail: Trail, run: Run, mode: str, inputs: Mapping[str, Any] | None, rerun: Collection[str]
    ) -> ReplayReport:
        """Do so."""


def replayed(
    trail: Trail,
    run: Run,
    workflow: Replays | None,
    mode: str | None,
    inputs: Mapping[str, Any] | None,
    rerun: Collection[str],
) -> ReplayReport:
    """The report of a replay."""
    mode = mode or ("recorded" if workflow is None else "verify")
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r}: use one of {', '.join(_MODES)}")
    if mode == "recorded":
        return _rebuilt(trail, run)
    if workflow is None:
        raise ValueError(f"mode={mode!r} runs code: give the workflow of the run")
    return workflow.replay(trail, run, mode, inputs, rerun)


def _rebuilt(trail: Trail, run: Run) -> ReplayReport:
    """Follow the record from its beginning: each row after the one before, and the state that they come to."""
    began = time.perf_counter()
    if run.oldest > 0:
        raise PrunedError(run.id, 0, run.oldest, way_out=WHOLE)
    reader, state = Reader(trail.store, as_view=True), dict[str, Any]()
    row, steps = trail.store.run(run.id), list[ReplayedStep]()
    for entry in reader.entries(row, 0, row.seq):
        payload = read_payload(entry, reader.fetch, view)
        apply(state, ops_of(payload))
        if entry.kind in _OUTCOMES:
            steps.append(ReplayedStep(run.id, entry.seq, entry.name, Source.RECORDED))
    kept = trail.state(run.id, view=True)
    if encode(kept) != encode(state):
        raise DamagedError("the state is not what its steps come to", run_id=run.id, seq=row.seq)
    return ReplayReport(
        run.id, run.workflow, "recorded", run.status, (), tuple(steps), whole=run.status in FINISHED, hints=(),
        duration_ms=(time.perf_counter() - began) * 1000, original_ms=run.duration_ms,
    )  # fmt: skip
