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
from everstep.errors import InputsDifferError, RunFinishedError, RunNotFoundError, StaleWriterError, UnstorableError
from everstep.model import STATUSES, Kind, Status
from everstep.policy.redaction import Gate
from everstep.store.base import LEASE_SECONDS, Append, Claim, NewRun, RunRow, Store
from everstep.trail.detail import Path, text
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
    known = _id(gate, run_id)
    if run_id is not None:
        try:
            return _continue(store, gate, store.run(known), detail)
        except RunNotFoundError:
            pass
    owner, lease = new_owner(), detail.get("lease", LEASE_SECONDS)
    workflow = text(gate, "workflow", detail.get("workflow", ""))
    scribe = Scribe(store, gate, Claim(known, owner, 1, -1, genesis(known), 0, 0, lease))
    start = scribe.step(
        workflow or "start", kind=Kind.START, inputs=detail.get("inputs"), fingerprint=detail.get("fingerprint"),
        metadata=detail.get("metadata"),
    )  # fmt: skip
    new = NewRun(
        id=known, owner=owner, created=start.entries[0].started, workflow=workflow,
        tags=gated_tags(gate, detail.get("tags")), parent=_optional(gate, "parent", detail.get("parent")),
        retry_of=_optional(gate, "retry_of", detail.get("retry_of")), retry_index=_number(detail.get("retry_index")),
        entries=start.entries, blobs=start.blobs or {}, keyframe=start.keyframe, lease=lease,
    )  # fmt: skip
    return _made(scribe, start, new)


def _made(scribe: Scribe, first: Append | None, new: NewRun) -> Scribe:
    """The scribe at the head of the run that it drafted the first row of."""
    scribe.claim, scribe.source = scribe.store.create(new), new.id
    if first is not None:
        scribe.settled(first, kept=True)
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
    return Scribe(store, gate, claim, source=run.id, reopens=status is not Status.ACTIVE)


def fork(store: Store, gate: Gate, run_id: str, at: int | None, **detail: Unpack[Forking]) -> Scribe:
    """A scribe at the head of a new run that shares the history of `run_id` up to `at`."""
    source, changes, lease = store.run(run_id), detail.get("set"), detail.get("lease", LEASE_SECONDS)
    point, new_id, owner = Reader(store).place(source, at), _id(gate, detail.get("id")), new_owner()
    shared = store.entries(run_id, point, point)[0]
    claim = Claim(new_id, owner, 1, point, shared.hash, 0, source.generation, lease)
    scribe = Scribe(store, gate, claim, source=run_id)
    first = scribe.step("fork", kind=Kind.FORK, set=changes) if changes else None
    new = NewRun(
        id=new_id, owner=owner, created=time.time_ns() // 1000, workflow=source.workflow, parent=source.parent,
        tags={**source.tags, **gated_tags(gate, detail.get("tags"))}, fork=(run_id, point), lease=lease,
        entries=first.entries if first else (), blobs=(first.blobs if first else None) or {},
        keyframe=first.keyframe if first else None,
    )  # fmt: skip
    return _made(scribe, first, new)


def gated_tags(gate: Gate, tags: Mapping[str, str] | None) -> dict[str, str]:
    """Tags as they are stored."""
    return {text(gate, "tags", name): text(gate, f"tags.{name}", value) for name, value in (tags or {}).items()}


def _id(gate: Gate, given: str | None) -> str:
    """The id of a run: the given one, or a new one."""
    if given is None:
        return f"run-{uuid.uuid4().hex[:16]}"
    if given == "":
        raise UnstorableError("id", "it is empty", "Leave it out to get a new one.")
    return text(gate, "id", given)


def _optional(gate: Gate, what: str, given: str | None) -> str | None:
    return None if given is None else text(gate, what, given)


def _number(given: int | None) -> int | None:
    if given is not None and (type(given) is not int or not 0 <= given < 1 << 31):
        raise UnstorableError("retry_index", f"it is {given!r:.40}", "Give a small whole number.")
    return given
