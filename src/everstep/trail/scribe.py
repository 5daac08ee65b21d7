"""What is written for a step: gated, encoded, chained, and with a keyframe when enough has changed.

No waiting here: the two recorders hand what this drafts to the store and say how it went.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

from everstep import actual
from everstep.codec import chain, frame, record
from everstep.codec.blobs import BLOB_SIZE, outline
from everstep.codec.chain import Entry
from everstep.codec.delta import DELETE, Differ
from everstep.codec.keyframe import StateTree, thaw
from everstep.codec.record import StepRecord, read_ops
from everstep.codec.values import view
from everstep.errors import DamagedError, ForkedError, PrunedError, StaleWriterError, StateError, UnstorableError
from everstep.model import FINISHED, KIND_NUMBER, STATUS_NUMBER, CheckpointKind, Kind, Secret, Status, StepError
from everstep.policy.redaction import Gate
from everstep.store.base import Append, Claim, Keyframe, Store
from everstep.trail.detail import About, Detail, Path, micros, moment, number_of, operations, text
from everstep.trail.failure import described
from everstep.trail.packing import gated_row, opened, plain_row
from everstep.trail.reading import Reader
from everstep.trail.shadow import KEYFRAME_BYTES, Shadow

T = TypeVar("T")
_made = tuple.__new__
_GONE = DamagedError, PrunedError  # met where something is damaged, and where retention was at work
_STEP = KIND_NUMBER[Kind.STEP]
_ACTIVE, _COMPLETED, _FAILED = (STATUS_NUMBER[word] for word in (Status.ACTIVE, Status.COMPLETED, Status.FAILED))


class _Here:
    """Which process this is. A fork says so once: to ask the system takes a while, and every row wants to know."""

    process = os.getpid()

    @classmethod
    def born(cls) -> None:
        cls.process = os.getpid()


os.register_at_fork(after_in_child=_Here.born)


class Scribe:
    """Drafts the rows of one run, and keeps what the next one needs: the chain's end and the state's shape."""

    def __init__(
        self, store: Store, gate: Gate, claim: Claim, *, source: str | None = None, reopens: bool = False
    ) -> None:
        """`claim` is where it goes on; `source` the run that can be read there, None when there is nothing yet."""
        self.store = store
        self.gate = gate
        self._stored = Reader(store).fetch
        self._in_flight: dict[int, Entry] = {}  # rows handed to the store and not yet acknowledged, by seq
        self._on_their_way: dict[bytes, bytes] = {}  # and the pieces of their keyframes
        self.claim = claim
        self.source = source
        self._shadow: Shadow | None = Shadow(StateTree(self.fetch)) if source is None else None
        self._differ: Differ | None = None
        self._names: dict[str, str] = {}  # of steps, as they are stored
        self._lost = False
        self._outdated = False
        self.process = _Here.process  # a fork of it has the same right, and may not use it
        self.reopens = reopens  # the run had ended: its next step makes it active again
        self._began = claim.seq if reopens else None  # where it stands as long as none has

    def step(self, name: str, **detail: Unpack[Detail]) -> Append:
        """The row of a step."""
        return self._step(name, (), None, **detail)

    def row(self, name: str, run_status: Status | None = None, **detail: Any) -> Append:
        """The row of a workflow's step, which says more than a recorder does; with the run's status, if it changes."""
        return self._step(name, (), run_status, **detail)

    def outcome(
        self,
        name: str,
        place: tuple[int | None, int | None, str | None, int | None],  # id, parent, lane and index
        attempt: int,
        flags: int,
        digest: bytes | None,
        child: str | None,
        inputs: bytes | None,  # as the gate let them through already
        output: Any,
        ops: list[Any],
        duration_ms: float,
        extra: Mapping[str, Any] | None,  # what the row of a graph's node says beside
        usage: Mapping[str, Any] | None,
        /,
    ) -> Append:
        """The row of a step that completed: what `row` would give, by a shorter way. Nearly every row is one."""
        self._ready()
        if ops and self.gate.named(ops):
            ops, output = self._guarded(ops, output)
        duration, seq = int(duration_ms * 1000), self.claim.seq + 1
        known, parent, lane, index = place
        meta: list[Any] = [
            seq if known is None else known, parent, lane, index, attempt if attempt != 1 else None, flags or None,
            digest,
        ]  # fmt: skip
        if extra is not None or usage is not None:
            said = (extra or {}).get
            meta += [
                said("superstep"), said("decision"), usage, child, said("input_versions"), None, said("node_type"),
                None, said("metadata"),
            ]  # fmt: skip
            if said("cached"):
                meta[record.FLAGS] = flags | record.CACHED
        elif child is not None:
            meta += [None, None, None, child]
        stored = self._names.get(name)
        if stored is None:  # a program has few names, and looking one over takes longer than looking it up
            stored = self._names[name] = text(self.gate, "name", name)
        columns = (seq, _STEP, _COMPLETED, stored, actual.time_ns() // 1000 - duration, duration)
        own = lane is None and len(meta) == record.SUPERSTEP  # nothing that a person wrote
        row: Any = columns, meta, [None, output, ops or None], inputs, None
        try:  # as `_with_retention` does, with no call around it: this runs for every step
            return self._draft(*row, own_meta=own)
        except _GONE:
            if not self._has_looked_again():
                raise
        return self._draft(*row, own_meta=own)

    def _step(
        self,
        name: str,
        ops: Sequence[Any],  # found by comparing whole states
        run_status: Status | None,
        /,
        *,
        gated_inputs: bytes | None = None,  # the inputs, as the gate let them through already
        flags: int = 0,
        inputs: Any = None,
        output: Any = None,
        output_to: str | None = None,
        append_to: str | None = None,
        set: Mapping[Path, Any] | None = None,  # noqa: A002 - the verb of the glossary
        append: Mapping[Path, list[Any]] | None = None,
        delete: Iterable[Path] = (),
        splice: Mapping[Path, tuple[int, int, list[Any]]] | None = None,
        status: Status | str = Status.COMPLETED,
        error: BaseException | StepError | None = None,
        kind: Kind = Kind.STEP,
        started: datetime | None = None,
        duration_ms: float = 0.0,
        id: int | None = None,  # noqa: A002 - the field's name
        parent: int | None = None,
        lane: str | None = None,
        index: int | None = None,
        attempt: int = 1,
        external: bool = False,
        cached: bool = False,
        partial: bool = False,
        input_digest: bytes | None = None,
        superstep: int | None = None,
        decision: Any = None,
        usage: Mapping[str, Any] | None = None,
        child_run_id: str | None = None,
        input_versions: Mapping[str, int] | None = None,
        fingerprint: str | None = None,
        node_type: str | None = None,
        attempt_series_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        pause: Any = None,
    ) -> Append:
        self._ready()
        changes = operations(output, output_to, append_to, set, append, delete, splice)
        if changes:
            self._differ = None  # it knows the state of the last save, which is now another
        changes += ops
        if changes and self.gate.named(changes):
            changes, output = self._guarded(changes, output)
        number = _COMPLETED if status is Status.COMPLETED else STATUS_NUMBER[Status(status)]
        kept_error = None
        if error is not None:
            kept_error = described(error)
            number = _FAILED if number == _COMPLETED else number
        flags |= (
            (record.EXTERNAL if external else 0) | (record.CACHED if cached else 0) | (record.PARTIAL if partial else 0)
        )
        seq = self.claim.seq + 1
        meta = [
            seq if id is None else number_of("id", id), parent, lane, index, attempt if attempt != 1 else None,
            flags or None, input_digest, superstep, decision, usage, child_run_id, input_versions, fingerprint,
            node_type, attempt_series_id, metadata,
        ]  # fmt: skip
        duration = micros(duration_ms)
        when = moment(started) if started is not None else actual.time_ns() // 1000 - duration
        stored = text(self.gate, "name", name)
        columns = (seq, _STEP if kind is Kind.STEP else KIND_NUMBER[Kind(kind)], number, stored, when, duration)
        payload = [inputs, output, changes or None]
        if kept_error is not None or pause is not None:
            payload += [kept_error, pause]
        to = None if run_status is None else STATUS_NUMBER[run_status]
        return self._with_retention(functools.partial(self._draft, columns, meta, payload, gated_inputs, to))

    def _ready(self) -> None:
        """Look where the store stands, if that is not known."""
        self.check_process()
        if self._lost or self._outdated:
            self._catch_up()

    def check_process(self) -> None:
        """Raise ForkedError in a fork of the process that writes the run."""
        if self.process != _Here.process:
            raise ForkedError(self.claim.run_id)

    def _guarded(self, changes: list[Any], output: Any) -> tuple[list[Any], Any]:
        """The operations and the output, with what goes to the name of a secret replaced."""
        changes = opened(changes)
        if any(len(op) == 2 and op[0] != DELETE for op in changes):  # such an op carries the output
            changes = [record.with_output(op, output) for op in changes]
            output = Secret(output)
        return self.gate.operations(changes), output

    def _draft(
        self,
        columns: tuple[int, int, int, str, int, int],
        meta: list[Any],
        payload: list[Any],
        gated_inputs: bytes | None,
        run_status: int | None,
        *,
        own_meta: bool = False,
    ) -> Append:
        """Seal a row onto the chain. Raises, with nothing changed, when a value or an operation does not fit."""
        gate, claim, ops, seq = self.gate, self.claim, payload[record.OPS], columns[0]
        run_id, owner, epoch, _, before, key, generation, lease = claim
        shadow, self._shadow = self._shadow, None  # not kept if anything below fails: it is then read again
        if shadow is None:
            shadow = self._read_shadow()
        try:
            deep = ops is not None and shadow.admit(ops, payload[record.OUTPUT])
        except StateError:
            shadow.lists, self._shadow = None, shadow  # nothing was folded yet: it is as good as before
            raise
        row = plain_row(gate, meta, payload, gated_inputs, own_meta=own_meta)
        light, body, taken = row or gated_row(gate, meta, payload, gated_inputs)
        blobs: dict[bytes, bytes] | None = None
        if len(body) >= BLOB_SIZE:
            body, blobs = outline(body)
            if blobs:
                taken = None
                light = gate.gate([*meta, *[None] * (record.BLOBS - len(meta)), b"".join(blobs)])
        entry = chain.seal(before, *columns, light, frame.pack(body))
        if ops is not None:
            shadow.recent.append(taken or body)
        if deep:
            shadow.fold()
        shadow.bytes += len(entry.data) + len(light)
        keyframe = self._keyframe(shadow, entry) if shadow.bytes >= shadow.due else None
        self._in_flight[seq] = entry
        # Built anew, and by its base: `_replace` costs four times as much, and this runs for every step.
        self.claim = _made(Claim, (run_id, owner, epoch, seq, entry.hash, key, generation, lease))
        self._shadow = shadow  # last: an interrupt before it only costs that the shadow is read again
        if self.reopens:
            self.reopens, run_status = False, _ACTIVE if run_status is None else run_status
        return Append(claim, (entry,), blobs, keyframe, run_status)

    def save(self, state: Mapping[str, Any], name: str, **about: Unpack[About]) -> Append:
        """A step that makes `state` the whole state: what changed is found here."""
        if self._lost or self._outdated:
            self._catch_up()
        if self._differ is None:
            self._differ = Differ(self._with_retention(self._read_state) if self.claim.seq >= 0 else None)
        differ = self._differ  # which goes, if the state must be read anew
        append = self._step(name, self.gate.operations(differ.delta(dict(state)), state), None, kind=Kind.SAVE, **about)
        differ.advance()
        return append

    def checkpoint(self, name: str, kind: CheckpointKind | str, metadata: Mapping[str, Any] | None) -> Append:
        """A named point. It copies nothing."""
        return self.step(
            name,
            kind=Kind.CHECKPOINT,
            node_type=CheckpointKind(kind).value,
            metadata=dict(metadata) if metadata else None,
        )

    def end(self, output: Any, status: Status | str | None, error: BaseException | None) -> Append:
        """The row that ends the run."""
        ended = Status(status) if status is not None else Status.COMPLETED if error is None else Status.FAILED
        if ended not in FINISHED:
            raise ValueError(f"{ended} does not end a run; use one of {', '.join(sorted(FINISHED))}")
        return self._step("end", (), ended, kind=Kind.END, output=output, status=ended, error=error)

    def settled(self, append: Append, *, kept: bool) -> None:
        """The row is durable; `kept` tells whether its keyframe is too."""
        for entry in append.entries:
            self._in_flight.pop(entry.seq, None)
        if append.keyframe is not None:
            for piece in append.keyframe.blobs:
                self._on_their_way.pop(piece, None)
            self._outdated = self._outdated or not kept  # retention removed pieces meanwhile: look again which

    def record(self, append: Append) -> StepRecord:
        """What was written, as people see it."""
        return StepRecord(self.claim.run_id, append.entries[-1], self.fetch)

    def prepare(self) -> None:
        """Read what the next draft needs, if it is not known: for callers that must not wait for the disk then."""
        if self._lost or self._outdated:
            self._catch_up()
        if self._shadow is None:
            self._shadow = self._read_shadow()

    def fetch(self, blob_id: bytes) -> bytes:
        """A piece, checked against its id."""
        found = self._on_their_way.get(blob_id)
        return self._stored(blob_id) if found is None else frame.unpack(found)

    def lost(self) -> None:
        """A write did not take: look where the store stands before the next draft."""
        self._lost = True

    def rewind(self, claim: Claim) -> None:
        """Take back the rows after `claim`: they were drafted, and whoever was to hand them over was cut off."""
        self.claim, self._shadow, self._differ = claim, None, None
        for seq in [seq for seq in self._in_flight if seq > claim.seq]:
            del self._in_flight[seq]
        self.reopens = self.reopens or claim.seq == self._began

    def _catch_up(self) -> None:
        claim, run = self.claim, self.store.run(self.claim.run_id)
        if run.epoch != claim.epoch:
            raise StaleWriterError(claim.run_id, claim.epoch, run.epoch)
        if self._lost:
            self.claim = claim._replace(seq=run.seq, hash=run.hash, generation=run.generation)
            self.reopens = self.reopens or run.seq == self._began
            self._in_flight.clear()
        else:  # rows that are on their way still fit
            self.claim = claim._replace(generation=run.generation)
        self._shadow = self._differ = None
        self._on_their_way.clear()
        self._lost = self._outdated = False

    def _with_retention(self, work: Callable[[], T]) -> T:
        """What comes of work that reads what is stored, and that changes nothing before it fails."""
        try:
            return work()
        except _GONE:
            if not self._has_looked_again():
                raise
        return work()

    def _has_looked_again(self) -> bool:
        """Whether retention has taken away something since this looked, so that what it knows was read anew."""
        if self.source != self.claim.run_id or self.store.run(self.source).generation == self.claim.generation:
            return False
        self._outdated = True
        self._catch_up()
        return True

    def outdate(self) -> None:
        """What this knows of the state may be no longer there: look again before the next draft."""
        self._outdated = True

    def _keyframe(self, shadow: Shadow, entry: Entry) -> Keyframe | None:
        try:
            data, pieces = shadow.freeze()
        except UnstorableError:  # nested too deeply as a whole: the rows tell the state without it
            shadow.due *= 2
            return None
        self._on_their_way.update(pieces)
        keyframe = Keyframe(entry.seq, entry.hash, frame.pack(data), pieces)
        # Geometric over what is written, so that a large state without long lists is not written again and again.
        shadow.due = max(KEYFRAME_BYTES, len(keyframe.data) + sum(map(len, pieces.values())))
        shadow.bytes = 0
        return keyframe

    def _read_shadow(self) -> Shadow:
        """The state's shape at the claim: from the newest keyframe, the rows since, and those still on their way."""
        if self.source is None:
            return Shadow(StateTree(self.fetch))
        last, waiting = self.claim.seq, list[Entry]()
        # Rows become durable in their order: before one that is not on its way, none is, whatever an interrupt left.
        while last in self._in_flight:
            waiting.append(self._in_flight[last])
            last -= 1
        tree, rows = Reader(self.store).tree(self.store.run(self.source), last, self.fetch)
        shadow = Shadow(tree)
        for entry in (*rows, *reversed(waiting)):
            tree.apply(read_ops(entry))
            shadow.bytes += len(entry.data) + len(entry.meta)
        shadow.lists = None
        return shadow

    def _read_state(self) -> dict[str, Any]:
        """The whole state, for comparing the next one with. What the shadow makes for it is not stored: it goes."""
        shadow, self._shadow = self._shadow or self._read_shadow(), None
        data, made = shadow.freeze()
        return thaw(data, lambda piece: frame.unpack(made[piece]) if piece in made else self.fetch(piece), decode=view)
