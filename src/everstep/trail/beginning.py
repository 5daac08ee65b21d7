"""Beginning a run, continuing one, forking one: whatever ends with the right to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

from everstep import actual
from everstep.codec.chain import genesis, is_erased
from everstep.codec.record import INPUTS, read_payload
from everstep.codec.values import encode, view
from everstep.errors import (
    InputsDifferError,
    LockedError,
    QueueFullError,
    ReadOnlyError,
    RunExistsError,
    RunFinishedError,
    RunNotFoundError,
    StaleWriterError,
    UnstorableError,
)
from everstep.model import STATUSES, Kind, Status
from everstep.policy.redaction import Gate
from everstep.store.base import LEASE_SECONDS, Append, Claim, NewRun, RunRow, Store
from everstep.trail.compare import changes
from everstep.trail.detail import number_of, text
from everstep.trail.late import Late, asyncio
from everstep.trail.leaving import give_up_again
from everstep.trail.owner import is_gone, new_owner
from everstep.trail.reading import Reader
from everstep.trail.scribe import Scribe

T = TypeVar("T")
_MOMENT = 0.01  # seconds
_WORDING = Late("everstep.trail.wording")
_WIDE = 60  # characters of an input that differs


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


def begin(store: Store, gate: Gate, run_id: str | None, *, is_new: bool = False, **detail: Unpack[Beginning]) -> Scribe:
    """A scribe at the head of the run, which is made if there is none; with `is_new` there was none a moment ago."""
    if run_id is not None and not is_new:
        with suppress(RunNotFoundError):
            lease = lease_of(detail.get("lease", LEASE_SECONDS))
            return _continue(store, gate, store.run(id_of(gate, run_id)), detail.get("inputs"), lease)
    draft = drafted(store, gate, run_id, **detail)
    try:
        return made(draft.scribe, draft.first, store.create(draft.new))
    except RunExistsError:
        if run_id is None:
            raise
        run = store.run(draft.new.id)  # another was quicker
        return _continue(store, gate, run, detail.get("inputs"), draft.new.lease)


class Draft(NamedTuple):
    """A run that is not there yet: what is to be created, and who drafted its first rows."""

    scribe: Scribe
    first: Sequence[Append]
    new: NewRun


def drafted(
    store: Store,
    gate: Gate,
    run_id: str | None,
    *,
    workflow: str = "",
    inputs: Any = None,
    tags: Mapping[str, str] | None = None,
    parent: str | None = None,
    retry_of: str | None = None,
    retry_index: int | None = None,
    fingerprint: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    lease: float = LEASE_SECONDS,
) -> Draft:
    """A new run. Nothing is asked of the store."""
    known, owner, held = id_of(gate, run_id), new_owner(), lease_of(lease)
    stored = text(gate, "workflow", workflow)
    scribe = Scribe(store, gate, Claim(known, owner, 1, -1, genesis(known), 0, 0, held))
    start = scribe.step(stored or "start", kind=Kind.START, inputs=inputs, fingerprint=fingerprint, metadata=metadata)
    new = NewRun(
        id=known, owner=owner, created=start.entries[0].started, workflow=stored, tags=gated_tags(gate, tags),
        parent=_optional(gate, "parent", parent), retry_of=_optional(gate, "retry_of", retry_of),
        retry_index=None if retry_index is None else number_of("retry_index", retry_index), entries=start.entries,
        blobs=start.blobs or {}, keyframe=start.keyframe, lease=held,
    )  # fmt: skip
    return Draft(scribe, [start], new)


def made(scribe: Scribe, first: Sequence[Append], claim: Claim, *, kept: bool = True) -> Scribe:
    """The scribe at the head of the run that it drafted the first rows of, now that it was created.

    `kept` tells whether their keyframes were, too.
    """
    if scribe.source is not None and scribe.claim.generation != claim.generation:  # of a fork: it read another run
        scribe.outdate()
    scribe.claim, scribe.source = claim, claim.run_id
    for append in first:
        scribe.settled(append, kept=kept)
    return scribe


async def made_awaited(draft: Callable[[], Draft], give_up: Callable[[Scribe], object]) -> Scribe | None:
    """Make a new run, while the event loop does not wait for the disk. None if that does not do.

    Then it is to be looked for in a thread: it may be there already, and what is wrong is told as of one that is.
    If nobody waits any more when it is made, `give_up` has it, in a thread.
    """
    try:
        scribe, first, new = draft()
    except Exception:  # noqa: BLE001 - whatever it is, whoever looks for the run meets it too, or finds the run
        return None
    try:
        creation = await _submitted(scribe.store, new)
        return made(scribe, first, await owned(creation, lambda claim: give_up(made(scribe, first, claim))))
    except (RunExistsError, ReadOnlyError, LockedError):
        return None


async def _submitted(store: Store, new: NewRun) -> asyncio.Future[Claim]:
    """Hand a new run to the store, when there is room for it: those who wait are written meanwhile, or told why not."""
    while True:
        try:
            return store.submit_create(new, asyncio.get_running_loop())
        except QueueFullError:
            await asyncio.sleep(_MOMENT)


async def owned(work: asyncio.Future[T], give_up: Callable[[T], object]) -> T:
    """What the work gives. If nobody waits any more when it does, `give_up` has that, in a thread.

    No task is made for it, and none may be at work: a run that ends cancels all tasks that were begun in it.
    """
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        ended = asyncio.get_running_loop().create_future()

        def end(of: asyncio.Future[Any]) -> None:
            if not of.cancelled():
                of.exception()  # nobody is left who could be told
            if not ended.done():
                ended.set_result(None)

        def over(_: asyncio.Future[T]) -> None:
            if work.cancelled() or work.exception() is not None:
                end(work)
            else:
                threaded(partial(give_up, work.result())).add_done_callback(end)

        work.add_done_callback(over)
        await ended
        raise


def threaded(function: Callable[[], T]) -> asyncio.Future[T]:
    """What a function gives that is called in a thread, in this context. `asyncio.to_thread` without a coroutine."""
    return asyncio.get_running_loop().run_in_executor(None, partial(copy_context().run, function))


def _continue(store: Store, gate: Gate, run: RunRow, inputs: Any, lease: float) -> Scribe:
    status = STATUSES[run.status]
    if status is Status.COMPLETED:
        raise RunFinishedError(run.id, status)
    check_inputs(store, gate, run, inputs)
    give_up_again()
    give_up_for_dead(store, run)
    claim = store.claim(run.id, new_owner(), lease)
    # With another head it was worked on since it was looked at, and may have ended.
    reopens = status is not Status.ACTIVE or claim.hash != run.hash
    return Scribe(store, gate, claim, source=run.id, reopens=reopens)


def check_inputs(store: Store, gate: Gate, run: RunRow, inputs: Any) -> None:
    """Raise InputsDifferError if the run began with other inputs than these; None, or a pruned beginning, fits all."""
    if inputs is None or run.base > 0:
        return
    first = store.entries(run.id, 0, 0)[0]
    if is_erased(first):
        return
    kept = read_payload(first, Reader(store).fetch)[INPUTS : INPUTS + 1] or [None]
    given = view(gate.gate([inputs]))
    if in_order(kept) != in_order(given):
        told = [_WORDING.shown(part, "", _WIDE).lstrip(".: ") for part in changes(kept[0], given[0])]
        raise InputsDifferError(run.id, tuple(told))


def give_up_for_dead(store: Store, run: RunRow) -> None:
    """End the lease of an owner that is a process of this machine and has ended."""
    if run.owner is not None and is_gone(run.owner):
        with suppress(StaleWriterError):  # another was quicker
            store.renew(Claim(run.id, run.owner, run.epoch, run.seq, run.hash, run.key, run.generation), 0)


def in_order(value: Any) -> bytes:
    """The encoding with the keys of every dict in one order: inputs that differ in that alone are the same."""
    return encode(_sorted(value))


def _sorted(value: Any) -> Any:
    if type(value) is list:
        return [_sorted(item) for item in value]
    if type(value) is dict:
        return {key: _sorted(value[key]) for key in sorted(value, key=encode)}
    return value


def gated_tags(gate: Gate, tags: Mapping[str, str] | None) -> dict[str, str]:
    """Tags as they are stored."""
    return {
        text(gate, "tags", name): gate.named_text(name, text(gate, f"tags.{name}", value))
        for name, value in (tags or {}).items()
    }


def id_of(gate: Gate, given: str | None) -> str:
    """The id of a run: the given one, or a new one."""
    if given is None:
        return f"run-{actual.token(8)}"
    if given == "":
        raise UnstorableError("id", "it is empty", "Leave it out to get a new one.")
    return text(gate, "id", given)


def _optional(gate: Gate, what: str, given: str | None) -> str | None:
    return None if given is None else text(gate, what, given)


def lease_of(seconds: float) -> float:
    """How long a run is owned at a time."""
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise UnstorableError("lease", f"it is {seconds!r:.40}", "Give seconds, from 0 up.")
    return float(seconds)
