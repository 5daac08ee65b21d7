"""Beginning a run, continuing one, forking one: whatever ends with the right to write."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypedDict, Unpack

from everstep.codec.blobs import outline
from everstep.codec.chain import genesis
from everstep.codec.record import INPUTS, read_payload
from everstep.codec.values import encode
from everstep.errors import InputsDifferError, RunFinishedError, RunNotFoundError, StaleWriterError
from everstep.model import STATUSES, Kind, Status
from everstep.policy.redaction import Gate
from everstep.store.base import LEASE_SECONDS, Claim, NewRun, RunRow, Store
from everstep.trail.detail import Path
from everstep.trail.owner import is_gone, new_owner
from everstep.trail.reading import Reader
from everstep.trail.scribe import Scribe


class Beginning(TypedDict, total=False):
    """What can be said of a run when it begins."""

    workflow: str
    inputs: Any
    tags: Mapping[str, str] | None
    parent: str | None
    retry_of: str | None
    retry_index: int | None
    fingerprint: str | None
    metadata: Mapping[str, Any] | None
    lease: float


class Forking(TypedDict, total=False):
    """What can be said of a fork: its id, what it sets before it goes on, its further tags."""

    id: str | None
    set: Mapping[Path, Any] | None
    tags: Mapping[str, str] | None
    lease: float


def begin(store: Store, gate: Gate, run_id: str | None, **detail: Unpack[Beginning]) -> Scribe:
    """A scribe at the head of the run, which is made if there is none."""
    known = gate.text(run_id) if run_id is not None else None
    if known is not None:
        try:
            return _continue(store, gate, store.run(known), detail)
        except RunNotFoundError:
            pass
    chosen, owner, workflow = known or _new_id(), new_owner(), gate.text(detail.get("workflow", ""))
    scribe = Scribe(store, gate, Claim(chosen, owner, 1, -1, genesis(chosen), 0, 0), fresh=True)
    start = scribe.step(
        workflow or "start", kind=Kind.START, inputs=detail.get("inputs"), fingerprint=detail.get("fingerprint"),
        metadata=detail.get("metadata"),
    )  # fmt: skip
    new = NewRun(
        id=chosen, owner=owner, created=start.entries[0].started, workflow=workflow,
        tags=gated_tags(gate, detail.get("tags")), parent=detail.get("parent"), retry_of=detail.get("retry_of"),
        retry_index=detail.get("retry_index"), entries=start.entries, blobs=start.blobs or {},
        lease=detail.get("lease", LEASE_SECONDS),
    )  # fmt: skip
    scribe.claim = store.create(new)
    scribe.settled(start, kept=True)
    return scribe


def _continue(store: Store, gate: Gate, run: RunRow, detail: Beginning) -> Scribe:
    status, inputs = STATUSES[run.status], detail.get("inputs")
    if status is Status.COMPLETED:
        raise RunFinishedError(run.id, status)
    if inputs is not None and run.base == 0:
        kept = read_payload(store.entries(run.id, 0, 0)[0], None)
        given, _ = outline(gate.gate([inputs]))
        if encode(kept[INPUTS : INPUTS + 1] or [None]) != given:
            raise InputsDifferError(run.id)
    if run.owner is not None and is_gone(run.owner):
        with suppress(StaleWriterError):  # another was quicker
            store.renew(Claim(run.id, run.owner, run.epoch, run.seq, run.hash, run.key, run.generation), 0)
    claim = store.claim(run.id, new_owner(), detail.get("lease", LEASE_SECONDS))
    return Scribe(store, gate, claim, fresh=False, reopens=status is not Status.ACTIVE)


def fork(store: Store, gate: Gate, run_id: str, at: int | None, **detail: Unpack[Forking]) -> Scribe:
    """A scribe at the head of a new run that shares the history of `run_id` up to `at`."""
    source, new_id, changes = store.run(run_id), detail.get("id"), detail.get("set")
    new = NewRun(
        id=gate.text(new_id) if new_id is not None else _new_id(), owner=new_owner(), created=time.time_ns() // 1000,
        workflow=source.workflow, tags={**source.tags, **gated_tags(gate, detail.get("tags"))}, parent=source.parent,
        fork=(run_id, Reader(store).place(source, at)), lease=detail.get("lease", LEASE_SECONDS),
    )  # fmt: skip
    scribe = Scribe(store, gate, store.create(new), fresh=False)
    if changes:
        append = scribe.step("fork", kind=Kind.FORK, set=changes)
        scribe.settled(append, kept=store.append(append))
    return scribe


def gated_tags(gate: Gate, tags: Mapping[str, str] | None) -> dict[str, str]:
    """Tags as they are stored."""
    return {gate.text(name): gate.text(str(value)) for name, value in (tags or {}).items()}


def _new_id() -> str:
    return f"run-{uuid.uuid4().hex[:16]}"
