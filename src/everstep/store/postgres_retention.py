"""Letting go of history in PostgreSQL: what is hidden at once is swept away in small transactions, and can be resumed.

As in SQLite (`retention.py`): marking decides what can be read, sweeping removes what nothing reads any more. Others
may write meanwhile. Who forks a run holds its row, so that it is not hidden before the fork is seen; who adds pieces
holds the generation, so that none of them is taken for one that nothing refers to; and one process sweeps at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from everstep.codec import frame
from everstep.codec.chain import Entry
from everstep.codec.keyframe import refs
from everstep.errors import PrunedError, StepNotFoundError
from everstep.store import postgres_reading as reading
from everstep.store.base import Counts, Keyframe, RunRow
from everstep.store.postgres_link import Blobs, Link, ask, do
from everstep.store.postgres_reading import StoredRun
from everstep.store.postgres_writing import put_keyframe
from everstep.store.sharing import descendants, read_by_somebody

_ROWS_AT_ONCE = 2_000
_HELD = " for update of r"


def _hold_generation(link: Link) -> int:
    """The generation, which nobody else adds pieces under until this transaction is done."""
    value: int = ask(link, "select value from everstep_fact where name = 'generation' for update")[0][0]
    return value


def _next_generation(link: Link) -> None:
    do(link, "update everstep_fact set value = value + 1 where name = 'generation'")


def hide(link: Link, key: int) -> None:
    """Drop a run: its id is free again, and nobody may write to it. Again, it changes nothing."""
    do(
        link,
        "update everstep_run set id = null, owner = null, epoch = epoch + 1 where key = %s and id is not null",
        (key,),
    )
    do(link, "delete from everstep_tag where run = %s", (key,))


def raise_base(link: Link, run_id: str, base: Keyframe, since: int) -> bool:
    """Make `base` the oldest state of a run, unless pieces were removed since it was made."""
    run = reading.find_run(link, run_id, lock=_HELD).row
    if _hold_generation(link) != since:
        return False
    if base.seq >= run.seq:
        raise StepNotFoundError(run_id, base.seq + 1, run.seq)
    if base.seq < run.base:
        raise PrunedError(run_id, base.seq, run.base)
    # One that stood there before is in the forks' history too, and stays so.
    stood = ask(link, "select shared from everstep_keyframe where run = %s and seq = %s", (run.key, base.seq))
    put_keyframe(link, run.key, base, shared=bool(stood and stood[0][0]))
    do(link, "update everstep_run set base = %s where key = %s", (base.seq + 1, run.key))
    _next_generation(link)
    return True


def erase(link: Link, run_id: str, entries: Sequence[Entry]) -> None:
    """Put erased rows in place, and drop every keyframe that was made after them, in the run and in its forks."""
    run = reading.find_run(link, run_id, lock=_HELD)
    if not entries:
        return
    for entry in entries:
        run.row.require(entry.seq)
    places = [reading.locate(link, run, entry.seq)[0] for entry in entries]
    _hold_generation(link)
    for key, entry in zip(places, entries, strict=True):
        place = (key, entry.seq)
        do(
            link,
            "update everstep_step set meta = %b, data = %b where run = %s and seq = %s",
            (entry.meta, entry.data, *place),
        )
        do(link, "delete from everstep_ref where run = %s and seq = %s", place)
    first = min(entry.seq for entry in entries)
    for part in reading.history(link, run):
        if part.last >= first:
            _forget_keyframes(link, part.key, first)
    _next_generation(link)


def _forget_keyframes(link: Link, key: int, first: int) -> None:
    for run, last in descendants(key, partial(_forks, link)):
        if last is not None and last < first:
            continue
        do(
            link,
            "delete from everstep_keyframe as k using everstep_run as r "
            "where r.key = k.run and k.run = %s and k.seq >= %s and k.seq >= r.base",
            (run, first),
        )
        # What is left there is the base of a pruned run, which cannot do without it; no fork may look at it any more.
        do(link, "update everstep_keyframe set shared = false where run = %s and seq >= %s", (run, first))


def _forks(link: Link, key: int) -> list[tuple[Any, ...]]:
    return ask(link, "select key, fork_seq from everstep_run where fork_key = %s", (key,))


def _base(link: Link, key: int) -> int | None:
    alive, base = ask(link, "select id is not null, base from everstep_run where key = %s", (key,))[0]
    return base if alive else None


def _read_by_somebody(link: Link, run: RunRow) -> range:
    return read_by_somebody(run, partial(_forks, link), partial(_base, link))


def _sweep_alone(link: Link) -> None:
    ask(link, "select value from everstep_fact where name = 'sweep' for update")


def sweep_rows(link: Link) -> Counts:
    """Remove up to a couple of thousand rows that nobody reads."""
    _sweep_alone(link)
    candidates = ask(
        link, "select key from everstep_run where (id is null or base > swept) and swept <= seq order by key"
    )
    for (key,) in candidates:
        run = reading.run_by_key(link, key)
        read, end = _read_by_somebody(link, run.row), run.row.seq + 1
        oldest = read.start if read.stop > run.swept else end  # what is read may all be below its own rows
        target = min(oldest, run.swept + _ROWS_AT_ONCE)
        if target > run.swept:
            removed = _remove_rows(link, key, run.swept, target - 1)
            do(link, "update everstep_run set swept = %s where key = %s", (target, key))
            return Counts(0, removed, 0, 0)
        if read.stop < end:
            return Counts(0, _cut(link, run, max(read.stop, end - _ROWS_AT_ONCE) - 1), 0, 0)
    return Counts(0, 0, 0, 0)


def _cut(link: Link, run: StoredRun, last: int) -> int:
    """Shorten a dropped run, of which its forks share no more."""
    _, link_hash = reading.locate(link, run, last)
    removed = _remove_rows(link, run.row.key, last + 1, run.row.seq)
    do(link, "update everstep_run set seq = %s, hash = %b where key = %s", (last, link_hash, run.row.key))
    return removed


def _remove_rows(link: Link, key: int, first: int, last: int) -> int:
    do(link, "delete from everstep_ref where run = %s and seq between %s and %s", (key, first, last))
    return do(link, "delete from everstep_step where run = %s and seq between %s and %s", (key, first, last))


def sweep_keyframes(link: Link) -> Counts:
    """Remove keyframes that stand where nobody reads."""
    _sweep_alone(link)
    removed = 0
    for (key,) in ask(
        link,
        "select distinct r.key from everstep_run r join everstep_keyframe k on k.run = r.key "
        "where r.id is null or k.seq < r.base - 1",
    ):
        read = _read_by_somebody(link, reading.run_by_key(link, key).row)
        removed += do(
            link,
            "delete from everstep_keyframe as k using everstep_run as r where r.key = k.run and k.run = %s "
            "and (k.seq not between %s and %s or not k.shared and r.id is null)",  # no fork looks at such a one
            (key, read.start - 1, read.stop - 1),
        )
    return Counts(0, 0, removed, 0)


def sweep_runs(link: Link) -> Counts:
    """Remove dropped runs that no fork shares, with their keyframes."""
    _sweep_alone(link)
    gone = ask(
        link,
        "select r.key from everstep_run r where r.id is null and r.swept > r.seq "
        "and not exists(select 1 from everstep_run child where child.fork_key = r.key)",
    )
    frames = 0
    for (key,) in gone:
        frames += do(link, "delete from everstep_keyframe where run = %s", (key,))
        do(link, "delete from everstep_run where key = %s", (key,))
    return Counts(len(gone), 0, frames, 0)


def sweep_blobs(link: Link) -> Counts:
    """Remove pieces that no keyframe and no row refers to. Marked and removed in one transaction."""
    if not ask(link, "select 1 from everstep_blob limit 1"):  # as in most trails of small runs: no need to read them
        return Counts(0, 0, 0, 0)
    _hold_generation(link)
    live = {row[0] for row in ask(link, "select distinct blob from everstep_ref")}
    for (data,) in ask(link, "select data from everstep_keyframe"):
        live.update(refs(frame.unpack(data), lambda piece: frame.unpack(reading.blob(link, piece))))
    dead = [row[0] for row in ask(link, "select id from everstep_blob") if row[0] not in live]
    if dead:
        do(link, "delete from everstep_blob where id = any(%b)", (Blobs(dead),))
        _next_generation(link)
    return Counts(0, 0, 0, len(dead))


SWEEPS = (sweep_rows, sweep_keyframes, sweep_runs, sweep_blobs)
