"""Pruning: the state at the cut becomes the base that the rest stands on. Dropping: a run goes with those inside it."""

from __future__ import annotations

from contextlib import suppress

from everstep.codec import frame
from everstep.codec.record import read_ops
from everstep.errors import RunNotFoundError
from everstep.store.base import ALL, Counts, Keyframe, Retains, RunQuery, RunRow, Store
from everstep.trail.reading import Reader


def prune(retaining: Retains, store: Store, run_id: str, keep: int) -> Counts:
    """Keep the newest `keep` steps of a run; the state below them becomes one keyframe."""
    if keep < 1:
        raise ValueError(f"keep is {keep}; the newest step always stays")
    while True:
        run = store.run(run_id)
        cut = run.seq - keep
        if cut < run.base:
            return Counts(0, 0, 0, 0)
        counts = retaining.prune(run_id, base_at(store, run, cut), run.generation)
        if counts is not None:
            return counts


def drop(retaining: Retains, store: Store, run_id: str) -> Counts:
    """Let go of a run and of the runs inside it: another run with its id would take them for its own.

    Those inside go first, so that a drop that was cut off can be done again; then those that were begun meanwhile.
    """
    store.run(run_id)
    return _added(
        _drop_inside(retaining, store, run_id), retaining.drop(run_id), _drop_inside(retaining, store, run_id)
    )


def _drop_inside(retaining: Retains, store: Store, run_id: str) -> Counts:
    total = Counts(0, 0, 0, 0)
    for inside in store.runs(RunQuery(parent=run_id, limit=ALL)):
        if inside.forked_from is None:  # a fork stays when what it came from goes
            with suppress(RunNotFoundError):  # another process was quicker
                total = _added(total, drop(retaining, store, inside.id))
    return total


def _added(*counts: Counts) -> Counts:
    return Counts(*map(sum, zip(*counts, strict=True)))


def base_at(store: Store, run: RunRow, seq: int) -> Keyframe:
    """A keyframe of the state after step `seq`. What it stands on was seen to be whole: soon there is nothing else."""
    reader = Reader(store)
    tree, rows = reader.tree(run, seq, reader.fetch)
    for entry in rows:
        tree.apply(read_ops(entry))
    data, pieces = tree.freeze()
    link = rows[-1].hash if rows else store.entries(run.id, seq, seq)[0].hash
    return Keyframe(seq, link, frame.pack(data), pieces)
