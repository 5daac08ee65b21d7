"""Rows, pieces and keyframes for tests of stores: real ones, because a store may look into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from everstep.codec import chain, frame
from everstep.codec.blobs import blob_id
from everstep.codec.chain import Entry
from everstep.codec.keyframe import FORMAT
from everstep.codec.record import BLOBS
from everstep.codec.values import BlobRef, encode
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.store.base import Append, Claim, Keyframe, NewRun, RunQuery, RunRow, Store

T = TypeVar("T")

NOON = 1_700_000_000_000_000  # microseconds since 1970
LONG = 1_000.0  # seconds: a lease that no test outlives


def piece(text: str) -> tuple[bytes, bytes]:
    """A large piece: its id, and its content as a store keeps it."""
    framed = frame.pack(encode(text))
    return blob_id(framed), framed


def pieces(*texts: str) -> dict[bytes, bytes]:
    """Large pieces by their ids."""
    return dict(map(piece, texts))


def row(
    before: bytes,
    seq: int,
    *,
    name: str = "step",
    kind: Kind = Kind.STEP,
    status: Status = Status.COMPLETED,
    started: int | None = None,
    blobs: Iterable[bytes] = (),
) -> Entry:
    """A row that follows the one whose hash is `before`, and refers to these pieces."""
    meta: list[Any] = [seq, *[None] * (BLOBS - 1), b"".join(blobs) or None]
    when = NOON + seq if started is None else started
    body = frame.pack(encode([None, f"{name} {seq}"]))
    return chain.seal(before, seq, KIND_NUMBER[kind], STATUS_NUMBER[status], name, when, 7, encode(meta), body)


def keyframe(entry: Entry, *texts: str) -> Keyframe:
    """The state after a row, as a cache that refers to a piece for each text."""
    new = pieces(*texts)
    state = {"seq": entry.seq, "large": [BlobRef(name, len(data)) for name, data in new.items()]}
    return Keyframe(entry.seq, entry.hash, frame.pack(encode([FORMAT, state, []])), new)


class Writer:
    """Someone who writes to a run, and knows of its head what the own writes say."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self.store = store
        self.claim = claim

    def rows(self, count: int = 1, **detail: Any) -> list[Entry]:
        """Rows that follow what this writer wrote last. Nothing is written yet."""
        made: list[Entry] = []
        before = self.claim.hash
        for seq in range(self.claim.seq + 1, self.claim.seq + 1 + count):
            made.append(row(before, seq, **detail))
            before = made[-1].hash
        return made

    def draft(self, rows: Sequence[Entry], **beside: Any) -> Append:
        """An append of these rows; this writer goes on behind them, whatever comes of it."""
        append = Append(self.claim, rows, **beside)
        self.claim = self.claim._replace(seq=rows[-1].seq, hash=rows[-1].hash)
        return append

    def write(self, count: int = 1, **detail: Any) -> list[Entry]:
        """Rows, written."""
        made = self.rows(count, **detail)
        assert self.store.append(self.draft(made))
        return made

    def mark(self, *texts: str) -> Keyframe:
        """A row written with a keyframe of the state after it."""
        [made] = self.rows()
        kept = keyframe(made, *texts)
        assert self.store.append(self.draft([made], keyframe=kept))
        return kept


def begin(store: Store, run_id: str = "run", rows: int = 0, **detail: Any) -> Writer:
    """A new run with some rows."""
    writer = Writer(store, store.create(new_run(run_id, **detail)))
    if rows:
        writer.write(rows)
    return writer


def new_run(run_id: str = "run", **detail: Any) -> NewRun:
    """A run to create; its owner is `maker` unless said otherwise."""
    return NewRun(**{"id": run_id, "owner": "maker", "created": NOON, "lease": LONG, **detail})


def take_over(writer: Writer, owner: str = "other") -> Writer:
    """Someone else who owns the run, after the writer gave it up."""
    writer.store.renew(writer.claim, 0)
    return Writer(writer.store, writer.store.claim(writer.claim.run_id, owner, LONG))


def history(store: Store, run_id: str = "run") -> list[Entry]:
    """All rows of a run, each seen to follow the one before and the last to be the head."""
    run = store.run(run_id)
    before = chain.genesis(run.root)
    if run.base:
        base = store.keyframe(run_id, run.base - 1)
        assert base is not None
        assert base.seq == run.base - 1
        before = base.hash
    rows = store.entries(run_id, run.base, run.seq)
    assert [entry.seq for entry in rows] == list(range(run.base, run.seq + 1))
    for entry in rows:
        assert chain.verified(before, entry)
        before = entry.hash
    assert before == run.hash
    return rows


def ids(runs: Iterable[RunRow]) -> list[str]:
    """The ids of runs, in order."""
    return [run.id for run in runs]


def listed(store: Store, **query: Any) -> list[str]:
    """The ids of the runs that fit, in order."""
    return ids(store.runs(RunQuery(**query)))


def still(run: RunRow) -> RunRow:
    """A run without what time alone changes: its lease and the store's generation."""
    return run._replace(lease=0.0, generation=0)


def together(calls: Sequence[Callable[[], T]]) -> list[T | Exception]:
    """What each call gave or raised, when all were made at once from threads of their own."""
    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.exception() or future.result() for future in [threads.submit(call) for call in calls]]  # type: ignore[misc] # an Exception: no test exits
