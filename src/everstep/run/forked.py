"""What a run that is a fork finds changed, and what it may use of the run it was forked from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.record import ops_of
from everstep.errors import RunNotFoundError
from everstep.journal.track import metadata_of
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status
from everstep.run.lanes import NODES
from everstep.store.base import RunRow, Store
from everstep.trail.forking import REUSE
from everstep.trail.reading import Reader

if TYPE_CHECKING:
    from everstep.run.execution import Execution
    from everstep.run.workflows import Workflow

_STEP, _COMPLETED = KIND_NUMBER[Kind.STEP], STATUS_NUMBER[Status.COMPLETED]


class Forked:
    """What is different in a run because it, or one that it came from, is a fork."""

    def __init__(self) -> None:
        self.inputs: list[tuple[int, dict[str, Any]]] = []  # what was changed of them, and where
        self.others: frozenset[str] = frozenset()  # nodes that are not what they were: what is shared of them is no use
        self.values: list[tuple[int, dict[str, Any]]] = []  # what was set in the state
        self.reusable: dict[tuple[str, bytes | None], list[Entry]] = {}  # what the other run did later

    def given(self, run_id: str, workflow: Workflow[..., Any]) -> dict[str, Any]:
        """What was changed of the inputs of a function. Raises UnknownInputError if it takes no such one.

        A graph takes what was changed as the newest version of a value, and a map has no inputs of its own.
        """
        if workflow.gives_state or workflow.is_map:
            return {}
        changed = {name: value for _, each in self.inputs for name, value in each.items()}
        if changed:
            workflow.parameters.check_forked(run_id, changed)
        return changed

    def take(self, name: str, digest: bytes | None) -> Entry | None:
        """What the other run had for a step, each once."""
        found = self.reusable.get((name, digest))
        try:
            return found.pop(0) if found else None
        except IndexError:  # another thread was quicker
            return None


def read_forks(run: Execution, row: RunRow) -> None:
    """Take in what the forks of this run's history changed: inputs, and for a graph its values."""
    trail = run.trail
    run.journal.shared = -1 if row.fork_seq is None else row.fork_seq
    assert trail is not None  # noqa: S101 - a run that was known is stored
    for entry in run.journal.forks:
        payload = run.payload(entry)
        inputs = dict(payload[record.INPUTS] or {}) if payload else {}
        names = [op[1] if isinstance(op[1], str) else op[1][0] for op in ops_of(payload)]
        if names:
            state = Reader(trail.store, decode=run.reach.decode).state(run.run_id, entry.seq)
            run.forked.values.append((entry.seq, {name: state[name] for name in names}))
        if inputs:
            run.journal.kept = entry.seq
            run.forked.inputs.append((entry.seq, inputs))
        about = metadata_of(entry)
        # A replay has no use for it. A run from another trail came without the one that it was forked from.
        if about.get(REUSE) and run.flow is None and row.fork_seq is not None and entry.seq > row.fork_seq:
            _read_reusable(run, trail.store, row.forked_from or "", row.fork_seq)


def called_again(run: Execution, changed: frozenset[str]) -> frozenset[str]:
    """Of nodes that were changed, those that the fork called anew: what it shares of them it did not go on with.

    A node that was changed after the fork had gone on was not: what is shared of it holds, as in any run.
    """
    shared, track = run.journal.shared, run.journal.track(None, NODES)
    calls = [] if track is None else [call for call in track.steps if call.name in changed]
    before = {(call.name, call.digest) for call in calls if call.outcome is not None and call.outcome.seq <= shared}
    return frozenset(call.name for call in calls if call.seq > shared and (call.name, call.digest) in before)


def _read_reusable(run: Execution, store: Store, run_id: str, shared: int) -> None:
    """The leaves that the run it was forked from had after the fork, by name and arguments."""
    try:
        source = store.run(run_id)
    except RunNotFoundError:
        return  # it was dropped: there is nothing to use
    rows = [
        (entry, record.read_meta(entry))
        for entry in Reader(store).entries(source, max(shared + 1, source.base), source.seq)
    ]
    around = {meta[record.PARENT] for _, meta in rows}
    for entry, meta in rows:
        # One that was announced has the id of that row, and is a leaf all the same.
        is_leaf = entry.kind == _STEP and meta[record.ID] not in around and meta[record.VERSIONS] is None
        digest = meta[record.DIGEST]
        if is_leaf and meta[record.ID] > shared and entry.status == _COMPLETED and digest:
            run.forked.reusable.setdefault((entry.name, digest), []).append(entry)
