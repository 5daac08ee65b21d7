"""Pruning: the state at the cut becomes the base that the rest stands on."""

from __future__ import annotations

from everstep.codec import frame
from everstep.codec.record import read_ops
from everstep.store.base import Counts, Keyframe, Retains, RunRow, Store
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


def base_at(store: Store, run: RunRow, seq: int) -> Keyframe:
    """A keyframe of the state after step `seq`. What it stands on was seen to be whole: soon there is nothing else."""
    reader = Reader(store)
    tree, rows = reader.tree(run, seq, reader.fetch)
    for entry in rows:
        tree.apply(read_ops(entry))
    data, pieces = tree.freeze()
    link = rows[-1].hash if rows else store.entries(run.id, seq, seq)[0].hash
    return Keyframe(seq, link, frame.pack(data), pieces)
