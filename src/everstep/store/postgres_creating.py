"""New runs on PostgreSQL: many in one statement, with their first rows; or one in several, if more belongs to it.

What is there already is no new run, unless the same owner made it: then the answer was lost, and it was sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString, NamedTuple

import ormsgpack

from everstep.codec.chain import genesis
from everstep.errors import DamagedError, EverstepError, RunExistsError
from everstep.model import STATUS_NUMBER, Status
from everstep.store import postgres_reading as reading
from everstep.store.base import Append, Claim, Keyframe, NewRun
from everstep.store.postgres_link import Blobs, Link, Longs, Texts, ask, do
from everstep.store.postgres_writing import LONGEST, NOW, add, arrays, put_keyframe

_ACTIVE = STATUS_NUMBER[Status.ACTIVE]
# An empty text stands for none: no run has such an id.
_PLAIN: LiteralString = f"""
with next as (update everstep_fact set value = value + %s where name = 'run' returning value),
made as (
  insert into everstep_run(
    key, id, root, workflow, status, owner, lease, epoch, seq, hash, base, swept, created, parent, tags)
  select (select value from next) - %s + n.place, n.id, n.id, n.workflow, %s, n.owner, {NOW} + n.lease / 1e6, 1, n.seq,
    n.hash, 0, 0, n.created, nullif(n.parent, ''), n.tags
  from unnest(%b, %b, %b, %b, %b, %b, %b, %b, %b)
    with ordinality as n(id, workflow, owner, lease, seq, hash, created, parent, tags, place)
  on conflict (id) do nothing
  returning key, id),
tagged as (
  insert into everstep_tag(run, name, value)
  select m.key, t.name, t.value from unnest(%b, %b, %b) as t(id, name, value) join made m on m.id = t.id),
added as (
  insert into everstep_step(run, seq, kind, status, name, started, duration, hash, meta, data)
  select m.key, s.seq, s.kind, s.status, s.name, s.started, s.duration, s.hash, s.meta, s.data
  from unnest(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b)
    as s(id, seq, kind, status, name, started, duration, hash, meta, data) join made m on m.id = s.id)
select id, key, (select value from everstep_fact where name = 'generation') from made
"""
_RUN_TYPES = (Texts, Texts, Texts, Longs, Longs, Blobs, Longs, Texts, Blobs)
_STEP_TYPES = (Texts, Longs, Longs, Longs, Texts, Longs, Longs, Blobs, Blobs, Blobs)


def is_plain(new: NewRun) -> bool:
    """Whether a run begins with some rows of its own and nothing else, as almost all do."""
    return bool(new.entries) and new.parent != "" and not (
        new.blobs or new.keyframe or new.fork or new.base or new.came_from or new.root
        or new.status is not None or new.retry_of is not None or new.retry_index is not None
    )  # fmt: skip


def create_plain(link: Link, runs: Sequence[NewRun]) -> dict[str, Claim]:
    """Add plain runs with ids of their own, in one statement. Those that were there already are left out."""
    heads = [
        (new.id, new.workflow, new.owner, int(min(new.lease, LONGEST) * 1e6), new.entries[-1].seq, new.entries[-1].hash,
         new.created, new.parent or "", ormsgpack.packb(new.tags))
        for new in runs
    ]  # fmt: skip
    rows = [(new.id, *entry) for new in runs for entry in new.entries]
    tags = [(new.id, *tag) for new in runs for tag in new.tags.items()]
    values = [*arrays(heads, _RUN_TYPES), *arrays(tags, (Texts,) * 3), *arrays(rows, _STEP_TYPES)]
    made = ask(link, _PLAIN, (len(runs), len(runs), _ACTIVE, *values))
    keys = {run_id: (key, generation) for run_id, key, generation in made}
    return {
        new.id: Claim(new.id, new.owner, 1, new.entries[-1].seq, new.entries[-1].hash, *keys[new.id], new.lease)
        for new in runs
        if new.id in keys
    }


class _Start(NamedTuple):
    """Where a new run begins: nowhere, or at a row of the run it was forked from."""

    seq: int
    hash: bytes
    fork_key: int | None
    base: int
    root: str
    kept: Keyframe | None


_CREATE: LiteralString = f"""
with next as (update everstep_fact set value = value + 1 where name = 'run' returning value)
insert into everstep_run(key, id, root, workflow, status, owner, lease, epoch, seq, hash, base, swept, created, parent,
  fork_key, forked_from, fork_seq, retry_of, retry_index, tags)
select value, %s, %s, %s, %s, %s, {NOW} + %s, 1, %s, %b, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b from next
on conflict (id) do nothing
returning key, (select value from everstep_fact where name = 'generation')
"""


def create_run(link: Link, new: NewRun) -> Claim:
    """Add a run with its first rows, owned; a fork begins at a row of its source. The same again finds it there."""
    while True:
        known = ask(
            link,
            "select owner, epoch, seq, hash, key, (select value from everstep_fact where name = 'generation') "
            "from everstep_run where id = %s",
            (new.id,),
        )
        if known:
            owner, epoch, seq, link_hash, key, generation = known[0]
            if owner == new.owner and epoch == 1:  # sent again
                return Claim(new.id, owner, epoch, seq, link_hash, key, generation, new.lease)
            raise RunExistsError(new.id)
        root = new.root or new.id
        start = _fork_point(link, new) if new.fork is not None else _own_start(link, new, root)
        made = ask(
            link,
            _CREATE,
            (new.id, start.root, new.workflow, _ACTIVE, new.owner, min(new.lease, LONGEST),
             start.seq, start.hash, start.base, start.seq + 1, new.created, new.parent, start.fork_key,
             *(new.fork or new.came_from or (None, None)), new.retry_of, new.retry_index, ormsgpack.packb(new.tags)),
        )  # fmt: skip
        if made:  # else another process was first
            break
    key, generation = made[0]
    if new.tags:
        tags = Longs([key] * len(new.tags)), Texts(new.tags.keys()), Texts(new.tags.values())
        do(link, "insert into everstep_tag(run, name, value) select * from unnest(%b, %b, %b)", tags)
    if start.kept is not None:
        put_keyframe(link, key, start.kept, shared=False)
    claim = Claim(new.id, new.owner, 1, start.seq, start.hash, key, generation, new.lease)
    if not new.entries:
        return claim
    [outcome] = add(link, [Append(claim, new.entries, new.blobs, new.keyframe, new.status)])
    if isinstance(outcome, EverstepError):
        raise outcome
    return claim._replace(seq=new.entries[-1].seq, hash=new.entries[-1].hash)


def _own_start(link: Link, new: NewRun, root: str) -> _Start:
    if new.base is None:
        return _Start(-1, genesis(root), None, 0, root, None)
    ask(link, "select value from everstep_fact where name = 'generation' for share")  # nobody sweeps its pieces away
    return _Start(new.base.seq, new.base.hash, None, new.base.seq + 1, root, new.base)


def _fork_point(link: Link, new: NewRun) -> _Start:
    source_id, seq = new.fork or ("", -1)
    source = reading.find_run(link, source_id, lock=" for share of r")  # nobody drops or prunes it until this is done
    source.row.require(seq)
    _, link_hash = reading.locate(link, source, seq)
    kept = reading.keyframe(link, source_id, source.row.base - 1) if source.row.base > 0 else None
    if source.row.base > 0 and kept is None:
        raise DamagedError("the keyframe that a pruned run begins with is missing", run_id=source_id)
    return _Start(seq, link_hash, source.row.key, source.row.base, source.row.root, kept)
