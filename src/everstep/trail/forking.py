"""Forks: a new run that shares the steps of another up to a point, with something changed there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from everstep import actual
from everstep.codec import record
from everstep.codec.delta import APPEND, SET
from everstep.codec.record import StepRecord, read_payload
from everstep.codec.values import encode, view
from everstep.errors import GraphError, NotAnOutcomeError
from everstep.model import Kind, Status
from everstep.policy.redaction import Gate
from everstep.store.base import LEASE_SECONDS, Append, Claim, NewRun, RunRow, Store
from everstep.trail import asking
from everstep.trail.beginning import gated_tags, id_of, lease_of, made
from everstep.trail.detail import Path
from everstep.trail.late import Late
from everstep.trail.owner import new_owner
from everstep.trail.reading import Reader
from everstep.trail.scribe import Scribe

REUSE = "reuse"  # in the metadata of a fork: what the parent did later may be used where it fits
TARGETS = "targets"  # in what is said of a graph's run: where each of its routes and gates can go
REPLACED = "replaced"  # in that of a step: its outcome is not the one that it had


class Forking(TypedDict, total=False):
    """What can be said of a fork: its id, what is changed before it goes on, its further tags."""

    id: str | None
    set: Mapping[Path, Any] | None
    inputs: Mapping[str, Any] | None
    outcome: Any
    reuse: bool
    tags: Mapping[str, str] | None
    lease: float


_AS_IT_WAS: Any = object()
_INPUTS = Late("everstep.trail.inputs")


def fork(
    store: Store,
    gate: Gate,
    run_id: str,
    at: int | None,
    *,
    id: str | None = None,  # noqa: A002 - the new run's id, as everywhere
    set: Mapping[Path, Any] | None = None,  # noqa: A002 - the verb of the glossary
    inputs: Mapping[str, Any] | None = None,
    outcome: Any = _AS_IT_WAS,
    reuse: bool = False,
    tags: Mapping[str, str] | None = None,
    lease: float = LEASE_SECONDS,
) -> Scribe:
    """A scribe at the head of a new run that shares the history of `run_id` up to `at`.

    With `outcome`, step `at` has another one: a value, or an exception that it failed with. Raises AnswerError where a
    question does not allow it, GraphError where a route cannot go there. Raises UnknownInputError for `inputs` that
    the run does not have.
    """
    source, new_id, owner, held = store.run(run_id), id_of(gate, id), new_owner(), lease_of(lease)
    point = Reader(store).place(source, at)
    if inputs:
        _INPUTS.check(Reader(store), source, inputs)
    replaces = outcome is not _AS_IT_WAS
    if replaces and point == 0:
        raise NotAnOutcomeError(run_id, point, "the start of the run")
    shared = store.entries(run_id, point - replaces, point - replaces)[0]
    scribe = Scribe(
        store, gate, Claim(new_id, owner, 1, shared.seq, shared.hash, 0, source.generation, held), source=run_id
    )
    rows = [_replacement(scribe, source, point, outcome)] if replaces else []
    if set or inputs or reuse:
        about = {REUSE: True} if reuse else None
        rows.append(scribe.row("fork", kind=Kind.FORK, set=set, inputs=dict(inputs or {}) or None, metadata=about))
    new = NewRun(
        id=new_id, owner=owner, created=actual.time_ns() // 1000, workflow=source.workflow, parent=source.parent,
        tags={**source.tags, **gated_tags(gate, tags)}, fork=(run_id, shared.seq), lease=held,
        entries=[entry for row in rows for entry in row.entries],
        blobs={name: blob for row in rows for name, blob in (row.blobs or {}).items()},
    )  # fmt: skip
    # Without a keyframe: retention may have taken pieces of it away meanwhile, which is not looked at for a new run.
    return made(scribe, rows, store.create(new), kept=False)


def is_replaced(row: StepRecord) -> bool:
    """Whether a fork gave a step another outcome than it had."""
    return isinstance(row.metadata, dict) and REPLACED in row.metadata


def _replacement(scribe: Scribe, source: RunRow, seq: int, outcome: Any) -> Append:
    """The row of a step with another outcome."""
    reader = Reader(scribe.store)
    [entry] = reader.entries(source, seq, seq)
    step = StepRecord(source.id, entry, reader.fetch, view)
    if step.kind not in {Kind.STEP, Kind.ANSWER}:
        what, ended = f"a row of kind {str(step.kind)!r}", None
        if step.kind is Kind.INTENT:
            what, ended = f"where step {step.name!r} begins", _outcome_of(reader, source, seq)
        raise NotAnOutcomeError(source.id, seq, what, ended)
    detail: dict[str, Any] = {
        "kind": step.kind, "id": None if step.id == seq else step.id, "parent": step.parent, "lane": step.lane or None,
        "index": step.index or None, "attempt": step.attempt, "input_digest": step.input_digest,
        "superstep": step.superstep, "input_versions": step.input_versions, "node_type": step.node_type,
        "duration_ms": step.duration_ms, "metadata": {**step.metadata, REPLACED: seq},
        "gated_inputs": None if step.inputs is None else encode(step.inputs),
        "flags": record.read_meta(entry)[record.FLAGS] or 0,
    }  # fmt: skip
    if isinstance(outcome, BaseException):
        return scribe.row(step.name, status=Status.FAILED, error=outcome, **detail)
    if step.decision is not None or step.node_type in {"route", "gate"}:
        return scribe.row(step.name, decision=_choice(reader, source, step, outcome), **detail)
    if step.kind is Kind.ANSWER and source.base <= step.id < seq:
        question = StepRecord(source.id, reader.entries(source, step.id, step.id)[0], reader.fetch, view).pause
        if question is not None:
            asking.check(question, outcome)
    return scribe.row(step.name, **detail, **_given(reader, source, step, entry, outcome))


def _choice(reader: Reader, source: RunRow, step: StepRecord, outcome: Any) -> Any:
    """Where a route or gate goes, as a fork says. Raises GraphError if that is known to be none of its targets."""
    about = record.read_meta(reader.entries(source, 0, 0)[0])[record.METADATA] if source.base == 0 else None
    known = about.get(TARGETS) if type(about) is dict else None
    targets = known.get(step.name) if type(known) is dict else None
    if type(targets) is not list or not targets:  # pruned, of an earlier version, or by a stranger
        return outcome
    if step.node_type == "gate" and type(outcome) is bool:
        return targets[0 if outcome else -1]
    chosen = outcome if isinstance(outcome, list) and isinstance(step.decision, list) else [outcome]
    if not all(each in targets for each in chosen) and outcome is not None:
        raise GraphError(
            f"{step.node_type} {step.name!r}", f"cannot have chosen {outcome!r:.60}, which is not one of its targets",
            f"Nothing was made; say one of {', '.join(map(repr, targets))}.",
        )  # fmt: skip
    return sorted(chosen) if isinstance(step.decision, list) and outcome is not None else outcome


def _outcome_of(reader: Reader, source: RunRow, begun: int) -> int | None:
    """The seq of the last outcome of a step that began there."""
    rows = (StepRecord(source.id, row, reader.fetch, view) for rows in reader.history(source) for row in rows)
    return max((row.seq for row in rows if row.kind is Kind.STEP and row.id == begun), default=None)


def _given(reader: Reader, source: RunRow, step: StepRecord, entry: Any, outcome: Any) -> dict[str, Any]:
    """How an outcome goes into the state: as the one that was there did, or that of another step of the name."""
    ops = _ops(entry)
    if step.status is Status.FAILED:
        ops = next(
            (_ops(row) for rows in reader.history(source) for row in rows if row.name == step.name and _ops(row)), []
        )
        if not ops and step.superstep is not None:
            raise NotAnOutcomeError(source.id, step.seq, f"a failure of node {step.name!r}, which gave nothing so far")
        ops = ops or [[SET, step.name.rpartition(".")[2]]]
    named = [op for op in ops if isinstance(op[1], str) and op[0] in {SET, APPEND}]
    names = list(dict.fromkeys(op[1] for op in named))
    if len(names) > 1:
        return {"set": _by_name(names, step.name, outcome)}
    if not named:
        return {"output": outcome}
    code, name = named[0][0], named[0][1]
    appends = code == APPEND and len(named[0]) == 2
    return {"output": outcome, "append_to" if appends else "output_to": name}


def _by_name(names: list[str], step: str, outcome: Any) -> dict[str, Any]:
    """What a node of several values is to have given."""
    if isinstance(outcome, tuple) and len(outcome) == len(names):
        return dict(zip(names, outcome, strict=True))
    if isinstance(outcome, Mapping) and set(outcome) == set(names):
        return dict(outcome)
    raise TypeError(f"{outcome!r:.60} is nothing that {step!r} can have given: it gives {', '.join(names)}")


def _ops(entry: Any) -> list[Any]:
    payload = read_payload(entry, None)
    return (payload[record.OPS] if len(payload) > record.OPS else None) or []
