"""The same calls, in any order, on a store and on the memory store as its model: what they give must agree."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from everstep.codec import record
from everstep.codec.chain import Entry, genesis
from everstep.errors import EverstepError, OwnedError, RunNotFoundError
from everstep.model import KIND_NUMBER, Kind, Status
from everstep.store.base import Append, Claim, Counts, Keyframe, RunQuery, RunRow
from everstep.store.files import FilesStore
from everstep.store.memory import MemoryStore
from everstep.store.postgres import PostgresStore
from everstep.store.sqlite import SqliteStore
from everstep.testing.rows import history, keyframe, new_run, pieces, row

CHECKPOINT = KIND_NUMBER[Kind.CHECKPOINT]
NAMES = st.integers(0, 7)
MANY = 6  # runs, beyond which no more are made
OWNERS = st.sampled_from(["maker", "other"])
LEASES = st.sampled_from([0.0, 1e6])  # ended at once, or never
PICKS = st.integers(0, 100)  # of whatever there is, by remainder
# In memory where there is such a place: it is the answers that are compared here, not what survives a power cut.
FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
AnyStore = MemoryStore | SqliteStore | PostgresStore | FilesStore
_CACHED = (bool, Keyframe, NoneType)  # what is said of keyframes
Both = tuple[Claim, Claim]  # a claim as each store gave it: keys and generations are a store's own affair


class Stores(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp(dir=FOLDER)
        self.model = MemoryStore()
        self.real = self.open()
        self.claims: list[Both] = []
        self.appends: list[tuple[Append, Append]] = []
        self.let_go = False  # of keyframes, whose pieces each store is rid of when it can be: neither has to have them
        self.gone = RunRow(0, "r9", "", "", 0, None, 0.0, 1, 3, b"", 0, 0, None, None, None, None, None, None, {}, 0, 0)

    def open(self) -> SqliteStore | PostgresStore | FilesStore:
        return SqliteStore(str(Path(self.folder) / "trail.db"))

    def teardown(self) -> None:
        try:
            self.look()
            assert self.real.inspect() == []
        finally:
            self.real.close()
            shutil.rmtree(self.folder)

    def both(self, call: Callable[[AnyStore, int], Any]) -> tuple[Any, Any] | None:
        """What both stores gave, which must be the same; None when both raised, which must be the same error."""
        model, real = _outcome(call, self.model, 0), _outcome(call, self.real, 1)
        if not (self.let_go and isinstance(real, _CACHED) and isinstance(model, _CACHED)):
            assert _plain(real) == _plain(model)
        return None if isinstance(model, EverstepError) else (model, real)

    def look_at_keyframe(self, run: RunRow, at: int) -> None:
        """The newest one up to there. What it was put there with is what it is, whichever it is."""
        found = self.both(lambda store, _: store.keyframe(run.id, at))
        for kept in found or ():
            if kept is not None and kept.seq >= run.base:
                assert kept.hash == self.model.entries(run.id, kept.seq, kept.seq)[0].hash
        if found is not None and run.base <= at + 1 and run.base:  # what a pruned run begins with is always there
            assert all(kept is not None and run.base - 1 <= kept.seq <= at for kept in found)

    def keep(self, claims: tuple[Any, Any] | None) -> None:
        if claims is not None:
            self.claims.append(claims)

    def some_run(self, pick: int) -> RunRow:
        """A run that is there, or, now and then, one that is not any more."""
        runs = self.model.runs(RunQuery())
        return runs[pick % len(runs)] if runs and pick % 10 else self.gone

    @initialize(rows=st.integers(1, 6))
    def begin(self, rows: int) -> None:
        self.create(0, "maker", 1e6, rows, "")

    @precondition(lambda self: len(self.model._runs) < MANY)
    @rule(name=NAMES, owner=OWNERS, lease=LEASES, rows=st.integers(0, 3), flow=st.sampled_from(["", "x"]))
    def create(self, name: int, owner: str, lease: float, rows: int, flow: str) -> None:
        made = _rows(genesis(f"r{name}"), 0, rows)
        new = new_run(f"r{name}", owner=owner, lease=lease, entries=made, workflow=flow, tags={"flow": flow})
        self.keep(self.both(lambda store, _: store.create(new)))

    @precondition(lambda self: len(self.model._runs) < MANY)
    @rule(name=NAMES, pick=PICKS, at=PICKS, owner=OWNERS, lease=LEASES)
    def fork(self, name: int, pick: int, at: int, owner: str, lease: float) -> None:
        source = self.some_run(pick)
        new = new_run(f"r{name}", owner=owner, lease=lease, fork=(source.id, _seq(source, at)), parent=source.id)
        self.keep(self.both(lambda store, _: store.create(new)))

    @rule(pick=PICKS, owner=OWNERS, lease=LEASES)
    def claim(self, pick: int, owner: str, lease: float) -> None:
        run_id = self.some_run(pick).id
        self.keep(self.both(lambda store, _: store.claim(run_id, owner, lease)))

    @precondition(lambda self: self.claims)
    @rule(pick=PICKS, lease=LEASES)
    def renew(self, pick: int, lease: float) -> None:
        claims = self.claims[-1 - pick % len(self.claims)]
        self.both(lambda store, which: store.renew(claims[which], lease))

    @precondition(lambda self: self.claims)
    @rule(
        pick=PICKS,
        rows=st.integers(1, 3),
        kind=st.sampled_from([Kind.STEP, Kind.CHECKPOINT]),
        status=st.sampled_from([Status.COMPLETED, Status.FAILED]),
        kept=st.integers(0, 1),
        large=st.sampled_from(["", "", "one", "two"]),
        ends=st.sampled_from([None, None, 0, 1]),
        stale=st.integers(0, 5),
    )
    def append(self, pick: int, rows: int, kept: int, large: str, ends: int | None, stale: int, **detail: Any) -> None:
        claims = self.claims[-1 - pick % len(self.claims)]
        if stale:  # what it knew of the run; mostly it looks where that stands
            claims = (_fresh(self.model, claims[0]), _fresh(self.real, claims[1]))
        before, made = claims[0].hash, list[Entry]()
        for seq in range(claims[0].seq + 1, claims[0].seq + 1 + rows):
            blobs = pieces(large + str(seq % 2)) if large else {}
            made.append(row(made[-1].hash if made else before, seq, blobs=blobs, **detail))
        blobs = pieces(large + "0", large + "1") if large else {}
        frame = keyframe(made[-1], *([large] if large else [])) if kept else None
        appends = tuple(Append(claim, made, dict(blobs), frame, ends) for claim in claims)
        self.both(lambda store, which: store.append(appends[which]))
        self.appends.append((appends[0], appends[1]))

    @precondition(lambda self: self.appends)
    @rule(pick=PICKS)
    def append_again(self, pick: int) -> None:
        appends = self.appends[-1 - pick % len(self.appends)]
        self.both(lambda store, which: store.append(appends[which]))

    @precondition(lambda self: len(self.model._runs) > 1)
    @rule(pick=PICKS)
    def drop(self, pick: int) -> None:
        run_id, self.let_go = self.some_run(pick).id, True
        self.both(lambda store, _: store.drop(run_id))

    @rule(pick=PICKS, at=PICKS, stale=st.integers(0, 3), large=st.sampled_from(["", "one", "three"]))
    def prune(self, pick: int, at: int, stale: int, large: str) -> None:
        run = self.some_run(pick)
        found = self.both(lambda store, _: store.run(run.id))
        if found is not None:
            seq = _seq(run, at)
            kept = self.model.keyframe(run.id, seq)
            if kept is None or kept.seq != seq:  # as a trail does: one that is there is not made anew
                kept = keyframe(self.entry(run.id, seq), *([large] if large else []))
            self.both(lambda store, which: store.prune(run.id, kept, found[which].generation - (stale == 1)))

    @rule(pick=PICKS, ats=st.lists(PICKS, max_size=2))
    def erase(self, pick: int, ats: list[int]) -> None:
        run = self.some_run(pick)
        gone, self.let_go = [record.erase(self.entry(run.id, _seq(run, at))) for at in ats], True
        self.both(lambda store, _: store.erase(run.id, gone))

    def entry(self, run_id: str, seq: int) -> Entry:
        """The row that stands there, or one that never did."""
        try:
            return self.model.entries(run_id, seq, seq)[0]
        except EverstepError:
            return row(genesis("nowhere"), seq)

    @rule()
    def reclaim(self) -> None:
        self.both(lambda store, _: store.reclaim())
        assert not any(self.real.reclaim())

    @rule()
    def reopen(self) -> None:
        self.real.close()
        self.real = self.open()

    @rule(status=st.sampled_from([None, 0, 1]), flow=st.sampled_from([None, "", "x"]), limit=st.integers(0, 3))
    def list(self, status: int | None, flow: str | None, limit: int) -> None:
        tags = {} if flow is None else {"flow": flow}
        for query in (
            RunQuery(status=status, workflow=flow, limit=limit),
            RunQuery(status=status, tags=tags, limit=limit),
            RunQuery(parent=None, limit=limit),
            RunQuery(parent="r0", forked_from="r0", limit=limit),
        ):
            self.both(lambda store, _, query=query: store.runs(query))  # type: ignore[misc] # bound early

    @rule()
    def look(self) -> None:
        """Everything that can be read."""
        self.both(lambda store, _: store.runs(RunQuery()))
        self.both(lambda store, _: store.marked(None, CHECKPOINT, 100))
        for run in self.model.runs(RunQuery()):
            self.both(lambda store, _, run=run: history(store, run.id))  # type: ignore[misc] # bound early
            self.both(lambda store, _, run=run: store.marked(run.id, CHECKPOINT, 3))  # type: ignore[misc] # bound early
            for entry in self.model.entries(run.id, run.base, run.seq):
                for blob_id in record.blob_ids(entry):
                    self.both(lambda store, _, blob_id=blob_id: store.blob(blob_id))  # type: ignore[misc] # bound early
            for at in range(-2, run.seq + 2):
                self.look_at_keyframe(run, at)
                self.both(lambda store, _, run=run, at=at: store.entries(run.id, at, at + 2))  # type: ignore[misc] # bound early


def _outcome(call: Callable[[AnyStore, int], Any], store: AnyStore, which: int) -> Any:
    try:
        return call(store, which)
    except EverstepError as error:
        return error


def _plain(given: Any) -> Any:  # noqa: PLR0911 - a table, one row each
    """What must be the same in both stores: all but keys, leases, generations, and how much was let go of at once."""
    match given:
        case Claim():
            return given._replace(key=0, generation=0)
        case RunRow():
            return given._replace(key=0, lease=0.0, generation=0)
        case Counts():
            return Counts
        case list():
            return [_plain(one) for one in given]
        case OwnedError():
            return given.run_id, given.owner  # for how long is seen a moment earlier or later
        case RunNotFoundError():
            return given.run_id, given.nearest  # where is another place in each
        case EverstepError():
            return type(given), str(given)
        case _:
            return given


def _rows(before: bytes, first: int, count: int, **detail: Any) -> list[Entry]:
    made: list[Entry] = []
    for seq in range(first, first + count):
        made.append(row(made[-1].hash if made else before, seq, **detail))
    return made


def _seq(run: RunRow, pick: int) -> int:
    """A step of the run, or one just beside what there is."""
    return run.base - 1 + pick % (run.seq - run.base + 3)


def _fresh(store: AnyStore, claim: Claim) -> Claim:
    try:
        run = store.run(claim.run_id)
    except RunNotFoundError:
        return claim
    return claim._replace(seq=run.seq, hash=run.hash, generation=run.generation) if run.key == claim.key else claim


def test_the_sqlite_store_does_what_the_memory_store_does() -> None:
    """Promises 4, 5 and 14."""
    run_state_machine_as_test(
        Stores, settings=settings(max_examples=120, stateful_step_count=50, suppress_health_check=list(HealthCheck))
    )


@pytest.mark.torture
def test_the_sqlite_store_does_what_the_memory_store_does_for_long() -> None:
    """Promises 4, 5 and 14."""
    run_state_machine_as_test(
        Stores,
        settings=settings(
            max_examples=2_000, stateful_step_count=80, derandomize=False, suppress_health_check=list(HealthCheck)
        ),
    )
