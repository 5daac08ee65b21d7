"""Writing to PostgreSQL: many appends in one statement, and runs that are made, claimed, renewed.

Every write checks the epoch, and every append the head, in the statement that writes. What does not fit is refused
alone; whether it is there already, because the answer to it was lost, is asked then. Work checks before it writes: what
raises a typed error has changed nothing, so that one transaction can serve all who wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Generic, LiteralString, TypeVar

from everstep.codec.record import blob_ids
from everstep.errors import ConflictError, EverstepError, StaleWriterError
from everstep.model import FINISHED, KIND_NUMBER, STATUS_NUMBER, STATUSES, Kind, Status
from everstep.store import postgres_reading as reading
from everstep.store.base import Append, Claim, Keyframe
from everstep.store.postgres_link import Blobs, Link, Longs, Texts, ask, do
from everstep.store.rows import keyframe_seal

T = TypeVar("T")

_CHECKPOINT = KIND_NUMBER[Kind.CHECKPOINT]
_COMPLETED = STATUS_NUMBER[Status.COMPLETED]
LONGEST = 1e11  # seconds: the longest lease, some three thousand years
NOW: LiteralString = "extract(epoch from clock_timestamp())::double precision"

# One row for each run that moves; status -1 leaves that as it is.
_MOVED: LiteralString = f"""
with moved as (
  update everstep_run as r set
    seq = h.seq, hash = h.hash, lease = greatest(r.lease, {NOW} + h.lease / 1e6),
    status = case when h.status < 0 then r.status else h.status end,
    ended = case when h.status < 0 then r.ended when h.finished = 1 then h.ended end,
    owner = case when h.ends = 1 then null else r.owner end,
    request = case when h.ends = 1 then null else r.request end
  from unnest(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b)
    as h(key, epoch, before, seq, hash, lease, status, finished, ended, ends)
  where r.key = h.key and r.epoch = h.epoch and r.hash = h.before and r.id is not null
  returning r.key)
"""
_PLAIN: LiteralString = f"""{_MOVED}, added as (
  insert into everstep_step(run, seq, kind, status, name, started, duration, hash, meta, data)
  select s.* from unnest(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b)
    as s(run, seq, kind, status, name, started, duration, hash, meta, data)
  where s.run in (select key from moved))
select key, null from moved
"""
# The counter of marks is taken inside the commit, so that their order is that of commits. The generation is held until
# then: whoever removes pieces waits, and whoever comes after that sees another one.
_FULL: LiteralString = f"""{_MOVED}, counted as (
  update everstep_fact set value = value + %s where name = 'mark' and %s > 0 returning value),
added as (
  insert into everstep_step(run, seq, kind, status, name, started, duration, hash, meta, data, mark)
  select s.run, s.seq, s.kind, s.status, s.name, s.started, s.duration, s.hash, s.meta, s.data,
    case when s.mark > 0 then (select value from counted) - %s + s.mark end
  from unnest(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b, %b)
    as s(run, seq, kind, status, name, started, duration, hash, meta, data, mark)
  where s.run in (select key from moved)),
generation as materialized (select value from everstep_fact where name = 'generation' for share),
held as (
  insert into everstep_blob(id, data)
  select b.id, b.data from unnest(%b, %b, %b, %b, %b) as b(run, id, data, always, generation) cross join generation as g
  where b.run in (select key from moved) and (b.always = 1 or b.generation = g.value)
  on conflict (id) do nothing),
named as (
  insert into everstep_ref(run, seq, blob)
  select n.run, n.seq, n.blob from unnest(%b, %b, %b) as n(run, seq, blob) where n.run in (select key from moved)
  on conflict (run, seq, blob) do nothing),
kept as (
  insert into everstep_keyframe(run, seq, shared, hash, data, seal)
  select k.run, k.seq, true, k.hash, k.data, k.seal
  from unnest(%b, %b, %b, %b, %b, %b) as k(run, seq, hash, data, seal, generation) cross join generation as g
  where k.run in (select key from moved) and k.generation = g.value
  on conflict (run, seq) do update
    set shared = true, hash = excluded.hash, data = excluded.data, seal = excluded.seal)
select key, (select value from generation) from moved
"""
_STANDS: LiteralString = """
select r.seq, r.epoch, r.base, s.hash,
  exists(select 1 from everstep_keyframe k where k.run = r.key and k.seq = %s)
from everstep_run as r left join everstep_step as s on s.run = r.key and s.seq = %s
where r.key = %s and r.id is not null
"""

Outcome = bool | EverstepError


def add(link: Link, appends: Sequence[Append]) -> list[Outcome]:
    """Add the rows of many appends, in their order; what came of each. A run's appends that follow move it once."""
    outcomes: list[Outcome] = [False] * len(appends)
    waiting = list(enumerate(appends))
    while waiting:
        groups: dict[int, list[tuple[int, Append]]] = {}
        later: list[tuple[int, Append]] = []
        blocked: set[int] = set()
        for place, append in waiting:
            key, group = append.claim.key, groups.setdefault(append.claim.key, [])
            if key in blocked or (group and not _follows(append, group[-1][1])):
                blocked.add(key)
                later.append((place, append))
            else:
                group.append((place, append))
        _add_groups(link, groups, outcomes)
        waiting = later
    return outcomes


def _follows(append: Append, before: Append) -> bool:
    last, claim = before.entries[-1], append.claim
    return (claim.epoch, claim.seq, claim.hash) == (before.claim.epoch, last.seq, last.hash)


def _add_groups(link: Link, groups: dict[int, list[tuple[int, Append]]], outcomes: list[Outcome]) -> None:
    moved = _move(link, [[append for _, append in group] for group in groups.values()])
    for key, group in groups.items():
        for place, append in group:
            if key in moved:
                outcomes[place] = append.keyframe is None or moved[key] == append.claim.generation
            else:
                outcomes[place] = _alone(link, append, tried=len(group) == 1)


def _alone(link: Link, append: Append, *, tried: bool) -> Outcome:
    """Add one append, or say why it does not fit: nothing if its rows are there already, as it was sent again."""
    claim, last = append.claim, append.entries[-1]
    if not tried:
        moved = _move(link, [[append]])
        if claim.key in moved:
            return append.keyframe is None or moved[claim.key] == claim.generation
    frame = append.keyframe.seq if append.keyframe is not None else -1
    found = ask(link, _STANDS, (frame, last.seq, claim.key))
    if not found:
        return ConflictError(claim.run_id, append.entries[0].seq, -1)
    seq, epoch, base, link_hash, kept = found[0]
    if last.seq >= base and link_hash == last.hash:
        return append.keyframe is None or kept
    if epoch != claim.epoch:
        return StaleWriterError(claim.run_id, claim.epoch, epoch)
    return ConflictError(claim.run_id, append.entries[0].seq, seq)


def _move(link: Link, groups: Sequence[Sequence[Append]]) -> dict[int, int | None]:
    """Advance runs, each by a chain of appends, in one statement: those that were moved, with the generation then."""
    appends = [append for group in groups for append in group]
    steps = [(append.claim.key, *entry) for append in appends for entry in append.entries]
    heads = zip(*map(_head, groups), strict=True)
    columns = list(zip(*steps, strict=True))
    values: list[Any] = [kind(column) for kind, column in zip(_HEAD_TYPES, heads, strict=True)]
    rows = [kind(column) for kind, column in zip(_STEP_TYPES, columns, strict=True)]
    marks = [entry.kind == _CHECKPOINT for append in appends for entry in append.entries]
    if not any(marks) and all(append.keyframe is None and not append.blobs for append in appends):
        return dict(ask(link, _PLAIN, (*values, *rows)))
    count = sum(marks)
    places = [number if mark else 0 for mark, number in zip(marks, accumulate(marks), strict=True)]
    beside = [*_blobs(appends), *_refs(appends), *_keyframes(appends)]
    return dict(ask(link, _FULL, (*values, count, count, count, *rows, Longs(places), *beside)))


_HEAD_TYPES = (Longs, Longs, Blobs, Longs, Blobs, Longs, Longs, Longs, Longs, Longs)
_STEP_TYPES = (Longs, Longs, Longs, Longs, Texts, Longs, Longs, Blobs, Blobs, Blobs)


def _head(group: Sequence[Append]) -> tuple[Any, ...]:
    """How a chain of appends moves its run."""
    first, last = group[0].claim, group[-1].entries[-1]
    lease = int(min(max(append.claim.lease for append in group), LONGEST) * 1e6)
    status, ended, ends = -1, None, False
    for append in group:
        if append.status is not None:
            end, status = append.entries[-1], append.status
            ended = end.started + end.duration if STATUSES[status] in FINISHED else None
            ends = ends or ended is not None
    finished = ended is not None
    return (first.key, first.epoch, first.hash, last.seq, last.hash, lease, status, finished, ended or 0, ends)


def _blobs(appends: Iterable[Append]) -> list[Any]:
    found: list[tuple[int, bytes, bytes, int, int]] = []
    for append in appends:
        key, generation = append.claim.key, append.claim.generation
        found += [(key, name, data, 1, 0) for name, data in (append.blobs or {}).items()]
        if append.keyframe is not None:
            found += [(key, name, data, 0, generation) for name, data in append.keyframe.blobs.items()]
    return arrays(found, (Longs, Blobs, Blobs, Longs, Longs))


def _refs(appends: Iterable[Append]) -> list[Any]:
    found = [
        (append.claim.key, entry.seq, blob)
        for append in appends
        if append.blobs
        for entry in append.entries
        for blob in blob_ids(entry)
    ]
    return arrays(found, (Longs, Longs, Blobs))


def _keyframes(appends: Iterable[Append]) -> list[Any]:
    found = [
        (append.claim.key, kept.seq, kept.hash, kept.data, _seal(append.claim.key, kept), append.claim.generation)
        for append in appends
        if (kept := append.keyframe) is not None
    ]
    return arrays(found, (Longs, Longs, Blobs, Blobs, Blobs, Longs))


def arrays(rows: Sequence[tuple[Any, ...]], kinds: Sequence[type]) -> list[Any]:
    """The columns of rows, as the server takes them."""
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [kind(list(column)) for kind, column in zip(kinds, columns, strict=True)]


def _seal(key: int, kept: Keyframe) -> bytes:
    return keyframe_seal(key, kept.seq, kept.hash, kept.data)


def put_keyframe(link: Link, key: int, kept: Keyframe, *, shared: bool) -> None:
    """Store a keyframe and the pieces that are new with it. The generation is held by the transaction."""
    if kept.blobs:
        do(
            link,
            "insert into everstep_blob(id, data) select * from unnest(%b, %b) on conflict (id) do nothing",
            (Blobs(kept.blobs.keys()), Blobs(kept.blobs.values())),
        )
    do(
        link,
        "insert into everstep_keyframe(run, seq, shared, hash, data, seal) values(%s, %s, %s, %b, %b, %b) "
        "on conflict (run, seq) do update "
        "set shared = excluded.shared, hash = excluded.hash, data = excluded.data, seal = excluded.seal",
        (key, kept.seq, shared, kept.hash, kept.data, _seal(key, kept)),
    )


# Runs.


class Single(Generic[T]):
    """Work that writes with one statement. A claim costs a third less without a transaction around it."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[Link], T]) -> None:
        self.work = work

    def __call__(self, link: Link) -> T:
        """What it gives."""
        return self.work(link)


_CLAIM: LiteralString = f"""
update everstep_run as r set epoch = case when r.owner = %s then r.epoch else r.epoch + 1 end,
  owner = %s, lease = {NOW} + %s, request = null
where r.id = %s and r.status <> %s and (r.owner is null or r.owner = %s or r.lease <= {NOW})
returning r.epoch, r.seq, r.hash, r.key, (select value from everstep_fact where name = 'generation')
"""


def claim_run(link: Link, run_id: str, owner: str, lease: float) -> Claim:
    """Give a run to a new owner, unless it has completed or another still holds it.

    The server's clock says when a lease has ended.
    """
    while True:
        given = (
            ask(link, _CLAIM, (owner, owner, min(lease, LONGEST), run_id, _COMPLETED, owner))
            if "\0" not in run_id
            else []
        )
        if given:
            return Claim._make((run_id, owner, *given[0], lease))
        run = reading.find_run(link, run_id).row
        run.require_claimable(owner, ask(link, f"select {NOW}")[0][0])


def renew_run(link: Link, claim: Claim, lease: float) -> None:
    """Hold a run for longer, or give it up."""
    sql: LiteralString = (
        f"update everstep_run set owner = %s, lease = {NOW} + %s where id = %s and key = %s and epoch = %s"
    )
    owner = claim.owner if lease > 0 else None
    if do(link, sql, (owner, min(lease, LONGEST), claim.run_id, claim.key, claim.epoch)) == 0:
        raise StaleWriterError(claim.run_id, claim.epoch, reading.find_run(link, claim.run_id).row.epoch)


def leave_word(link: Link, run_id: str, word: str) -> None:
    """Leave a word for the owner of a run."""
    if do(link, "update everstep_run set request = %s where id = %s", (word, run_id)) == 0:
        reading.find_run(link, run_id)
