"""Pruning: the state at the cut becomes the base that the rest stands on."""

from __future__ import annotations

from everstep.codec import frame
from everstep.codec.keyframe import StateTree
from everstep.codec.record import read_ops
from everstep.store.base import Counts, Keyframe, Retains, Store
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
        counts = retaining.prune(run_id, base_at(store, run_id, cut), run.generation)
        if counts is not None:
            return counts


def base_at(store: Store, run_id: str, seq: int) -> Keyframe:
    """A keyframe of the state after step `seq`, made from the nearest one and the rows since."""
    run, reader = store.run(run_id), Reader(store)
    kept = next(reader.keyframes(run, seq), None)
    if kept is not None and kept.seq == seq:
        return kept
    tree = StateTree(reader.fetch) if kept is None else StateTree.load(frame.unpack(kept.data), reader.fetch)
    rows = reader.entries(run, 0 if kept is None else kept.seq + 1, seq)
    for entry in rows:
        tree.apply(read_ops(entry))
    data, pieces = tree.freeze()
    return Keyframe(seq, rows[-1].hash, frame.pack(data), pieces)
