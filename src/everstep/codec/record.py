"""A step as people see it, over the row it is stored in. This file alone knows what a row carries.

`meta` is a list (trailing Nones cut): what tells steps apart, readable without the payload. The payload is a list
too: what went in and what came out. Both have passed the gate before they get here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from everstep.codec import chain, frame
from everstep.codec.chain import Entry
from everstep.codec.delta import APPEND, SET
from everstep.codec.values import Fetch, decode, encode, view
from everstep.errors import DamagedError, ErasedError, EverstepError
from everstep.model import KINDS, STATUSES, Kind, Status, StepError, from_micros

# Where things stand in meta.
ID, PARENT, LANE, INDEX, ATTEMPT, FLAGS, DIGEST, SUPERSTEP, DECISION, USAGE, CHILD, VERSIONS, FINGERPRINT = range(13)
NODE_TYPE, SERIES, METADATA, BLOBS = range(13, 17)
# What stays of it when the payload is erased: the shape of the run, nothing a person wrote.
_STRUCTURE = (ID, PARENT, LANE, INDEX, ATTEMPT, FLAGS, SUPERSTEP, CHILD)
# Bits of FLAGS.
EXTERNAL, CACHED, PARTIAL = 1, 2, 4
AWAITED, OPEN = 8, 16  # its outcome was awaited; tasks that it spawned were still at work when it ended
STREAM = 32  # its outcome is a list of chunks
# Where things stand in the payload.
INPUTS, OUTPUT, OPS, ERROR, PAUSE = range(5)


class StepRecord:
    """One step of a run: frozen, light, decoded where it is asked for.

    The names of earlier systems read the same thing: `workflow_id` is `run_id`, `node_name` is `name`,
    `created_at` is `started_at`, `child_workflow_id` is `child_run_id`.
    """

    # Every public name is a property without a setter: frozen, at no cost to whoever lists a million of them.
    __slots__ = ("_decode", "_entry", "_fetch", "_meta", "_payload", "_run_id")

    def __init__(self, run_id: str, entry: Entry, fetch: Fetch, decode: Callable[..., Any] = decode) -> None:
        self._run_id = run_id
        self._entry = entry
        self._fetch = fetch
        self._decode = decode
        self._meta: list[Any] | None = None
        self._payload: list[Any] | None = None

    # What the row says without decoding.

    @property
    def run_id(self) -> str:
        return self._run_id

    @property
    def seq(self) -> int:
        return self._entry.seq

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def kind(self) -> Kind:
        return KINDS[self._entry.kind]

    @property
    def status(self) -> Status:
        return STATUSES[self._entry.status]

    @property
    def started_at(self) -> datetime:
        return from_micros(self._entry.started)

    @property
    def completed_at(self) -> datetime:
        return self.started_at + timedelta(microseconds=self._entry.duration)

    @property
    def duration_ms(self) -> float:
        return self._entry.duration / 1000

    @property
    def hash(self) -> bytes:
        return self._entry.hash

    @property
    def erased(self) -> bool:
        """Whether the payload was erased."""
        return chain.is_erased(self._entry)

    # What tells steps apart.

    @property
    def id(self) -> int:
        return int(self._light(ID))

    @property
    def parent(self) -> int | None:
        """The id of the step it ran inside; None at the top."""
        return self._light(PARENT)  # type: ignore[no-any-return] # written as int or None

    @property
    def lane(self) -> str:
        return self._light(LANE) or ""

    @property
    def index(self) -> int:
        """Which of its name in its lane, from 0."""
        return self._light(INDEX) or 0

    @property
    def attempt(self) -> int:
        return self._light(ATTEMPT) or 1

    @property
    def external(self) -> bool:
        return bool((self._light(FLAGS) or 0) & EXTERNAL)

    @property
    def cached(self) -> bool:
        return bool((self._light(FLAGS) or 0) & CACHED)

    @property
    def partial(self) -> bool:
        return bool((self._light(FLAGS) or 0) & PARTIAL)

    @property
    def input_digest(self) -> bytes | None:
        return self._light(DIGEST)  # type: ignore[no-any-return] # written as bytes or None

    @property
    def superstep(self) -> int | None:
        return self._light(SUPERSTEP)  # type: ignore[no-any-return] # written as int or None

    @property
    def decision(self) -> Any:
        """What a route or gate chose."""
        return self._light(DECISION)

    @property
    def usage(self) -> dict[str, Any] | None:
        return self._light(USAGE)  # type: ignore[no-any-return] # written as dict or None

    @property
    def child_run_id(self) -> str | None:
        return self._light(CHILD)  # type: ignore[no-any-return] # written as str or None

    @property
    def input_versions(self) -> dict[str, int] | None:
        return self._light(VERSIONS)  # type: ignore[no-any-return] # written as dict or None

    @property
    def fingerprint(self) -> str | None:
        return self._light(FINGERPRINT)  # type: ignore[no-any-return] # written as str or None

    @property
    def node_type(self) -> str | None:
        return self._light(NODE_TYPE)  # type: ignore[no-any-return] # written as str or None

    @property
    def attempt_series_id(self) -> str | None:
        return self._light(SERIES)  # type: ignore[no-any-return] # written as str or None

    @property
    def metadata(self) -> dict[str, Any]:
        return self._light(METADATA) or {}

    # What went in and what came out.

    @property
    def inputs(self) -> Any:
        return self._heavy(INPUTS)

    @property
    def output(self) -> Any:
        return self._heavy(OUTPUT)

    @property
    def ops(self) -> list[list[Any]]:
        """How the step changed the state: set, delete, append, splice, by path."""
        ops = self._heavy(OPS) or []
        output = self._heavy(OUTPUT)
        return [with_output(op, output) for op in ops]

    @property
    def values(self) -> dict[str, Any]:
        """The top-level names this step set or appended to, with what it put there."""
        return {op[1]: op[2] for op in self.ops if op[0] in {SET, APPEND} and isinstance(op[1], str)}

    @property
    def error(self) -> StepError | None:
        kept = self._heavy(ERROR)
        return None if kept is None else StepError(*kept[:3])  # what follows is for raising it again

    @property
    def pause(self) -> Any:
        return self._heavy(PAUSE)

    # The names of earlier systems.

    workflow_id = property(lambda self: self.run_id)
    node_name = name
    created_at = started_at
    child_workflow_id = child_run_id

    def _light(self, place: int) -> Any:
        meta = self._meta
        if meta is None:
            meta = self._decode(self._entry.meta)
            if type(meta) is not list:
                raise DamagedError("the step's meta is not a list", run_id=self.run_id, seq=self.seq)
            self._meta = meta
        return meta[place] if place < len(meta) else None

    def _heavy(self, place: int) -> Any:
        payload = self._payload
        if payload is None:
            if self.erased:
                raise ErasedError(self.run_id, self.seq)
            payload = read_payload(self._entry, self._fetch, self._decode)
            self._payload = payload
        return payload[place] if place < len(payload) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process, or a copy, gets it with the large leaves it refers to: the store stays here."""
        pieces = {piece: self._fetch(piece) for piece in blob_ids(self._entry)}
        return StepRecord, (self._run_id, self._entry, _Pieces(pieces), self._decode)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StepRecord) and (self.run_id, self._entry) == (other.run_id, other._entry)

    def __hash__(self) -> int:
        return hash((self.run_id, self._entry.hash))

    def __repr__(self) -> str:
        return f"<StepRecord {self.run_id}@{self.seq} {self.name!r} {self.status} {self.duration_ms:g} ms>"

    def to_dict(self) -> dict[str, Any]:
        """Everything it holds, under the names used here."""
        fields = [
            name for name, kind in vars(StepRecord).items() if isinstance(kind, property) and name not in _ALIASES
        ]
        return {name: self._field(name) for name in fields}

    def _field(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except ErasedError:
            return None


def places(step: StepRecord, first: int, last: int) -> list[Any]:
    """What stands in a step's meta from one place to another, at once: for those who look at many."""
    if step._meta is None:  # noqa: SLF001 - the same file, here and below
        step._light(first)  # noqa: SLF001 - as above
    found: list[Any] = step._meta[first : last + 1]  # type: ignore[index] # noqa: SLF001 - it has been read
    missing = last + 1 - first - len(found)
    return found + [None] * missing if missing else found


def body(step: StepRecord) -> bytes:
    """A step's payload as it is stored, without its key: what is equal there is equal."""
    return step._entry.data[chain.KEY_SIZE :]  # noqa: SLF001 - the same file


_ALIASES = frozenset({"workflow_id", "node_name", "created_at", "child_workflow_id"})


class _Pieces:
    """Large leaves that came along with a record."""

    def __init__(self, pieces: dict[bytes, bytes]) -> None:
        self._pieces = pieces

    def __call__(self, blob_id: bytes) -> bytes:
        return self._pieces[blob_id]


def with_output(op: list[Any], output: Any) -> list[Any]:
    """An op without a value of its own carries the step's output: nothing is stored twice."""
    if len(op) == 2 and op[0] == SET:
        return [SET, op[1], output]
    if len(op) == 2 and op[0] == APPEND:
        return [APPEND, op[1], [output]]
    return op


def read_meta(entry: Entry) -> list[Any]:
    """What a row says of itself, with None for all that it leaves out."""
    meta: list[Any] = view(entry.meta)
    return meta + [None] * (BLOBS + 1 - len(meta))


def read_payload(entry: Entry, fetch: Fetch | None, decode: Callable[..., Any] = view) -> list[Any]:
    """What a row carries. Without `fetch`, large leaves stay references."""
    try:
        payload = decode(frame.unpack(entry.data[chain.KEY_SIZE :]), fetch)
    except DamagedError as error:
        raise type(error)(error.what, seq=entry.seq) if type(error) is DamagedError else error from None
    if type(payload) is not list:
        raise DamagedError("the step's payload is not a list", seq=entry.seq)
    return payload


def read_ops(entry: Entry) -> list[list[Any]]:
    """How a row changed the state, classes and large leaves left as they are stored; an erased row tells nothing."""
    if chain.is_erased(entry):
        return []
    return ops_of(read_payload(entry, None))


def ops_of(payload: list[Any]) -> list[list[Any]]:
    """How a payload changes the state, every operation with its value."""
    if len(payload) <= OPS or not payload[OPS]:
        return []
    ops: list[list[Any]] = payload[OPS]
    for op in ops:
        if len(op) == 2:
            return [with_output(op, payload[OUTPUT]) for op in ops]
    return ops


def trimmed(fields: list[Any]) -> list[Any]:
    """The list without its trailing Nones."""
    while fields and fields[-1] is None:
        fields.pop()
    return fields


def erase(entry: Entry) -> Entry:
    """The row without its payload and without anything a person wrote in its meta."""
    try:
        kept = view(entry.meta)
    except EverstepError:
        kept = []
    meta = [value if place in _STRUCTURE else None for place, value in enumerate(kept)]
    return chain.erased(entry, encode(trimmed(meta)))


def blob_ids(entry: Entry) -> list[bytes]:
    """The ids of the large leaves a row refers to."""
    meta = view(entry.meta)
    joined = meta[BLOBS] if len(meta) > BLOBS and meta[BLOBS] is not None else b""
    return [joined[start : start + 16] for start in range(0, len(joined), 16)]
