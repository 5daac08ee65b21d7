"""What people hold in their hands: runs, steps, checkpoints, and the values that stand for secrets.

All are frozen. The step itself, `StepRecord`, is a view of a stored row and lives where rows are read: codec/record.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

T = TypeVar("T")
Durability = Literal["sync", "async", "exit"]  # when a step is on disk: before its caller goes on, soon, at the end
END = "__end__"  # the target of a route or gate that ends the run
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Secret(Generic[T]):
    """A value that must never be stored. What is recorded in its place is a stable placeholder."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def reveal(self) -> T:
        """The value itself, for the code that needs it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))


class Redacted(str):
    """What stands where a secret was: `[redacted:RULE:DIGEST]`. Equal secrets have equal placeholders."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Redacted({str(self)!r})"


class Word(str, Enum):  # noqa: UP042 - StrEnum compares by case
    """A word of the glossary. Compares with text whatever its case: `status == "FAILED"`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.__str__(self) == other.lower()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str.__str__(self))

    def __str__(self) -> str:
        return str.__str__(self)

    @classmethod
    def _missing_(cls, value: object) -> Word:
        for word in cls:
            if word == value:
                return word
        raise ValueError(f"{value!r:.60} is no {cls.__name__}: use one of {', '.join(word.value for word in cls)}")


class Kind(Word):
    """What an entry of the log records. The order is the stored number: append only."""

    START = "start"  # of a run: its inputs
    END = "end"  # of a run: its result
    STEP = "step"
    COMPOSITE_START = "composite_start"
    LANE_END = "lane_end"
    INTENT = "intent"
    ATTEMPT = "attempt"  # that failed and will be tried again
    CANCELLED = "cancelled"
    PAUSE = "pause"
    ANSWER = "answer"
    CHECKPOINT = "checkpoint"
    SAVE = "save"  # of a whole state
    FORK = "fork"


class Status(Word):
    """How a run or a step stands. The order is the stored number: append only."""

    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    PAUSED = "paused"
    STOPPED = "stopped"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    RESTORED = "restored"
    UNKNOWN = "unknown"  # an external effect with intent and no outcome


KINDS = tuple(Kind)
STATUSES = tuple(Status)
KIND_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
STATUS_NUMBER = {status: number for number, status in enumerate(STATUSES)}
# What ends a run. All but a completed one can be taken up again.
FINISHED = frozenset({Status.COMPLETED, Status.FAILED, Status.STOPPED, Status.PARTIAL, Status.CANCELLED})


class CheckpointKind(Word):
    """Why a checkpoint was made."""

    BOUNDARY = "boundary"
    ACTION = "action"
    ROUTINE = "routine"
    PRE_OPERATION = "pre_operation"
    RECOVERY = "recovery"
    MANUAL = "manual"


def from_micros(micros: int) -> datetime:
    """A stored time as an aware UTC datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """An aware datetime as it is stored; a naive one counts as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StepError:
    """What is kept of an exception: never the object, whose text has passed the gate."""

    type: str
    message: str
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Run:
    """One durable execution, as it stood when it was read."""

    id: str
    workflow: str
    status: Status
    head: int  # the seq of its newest step
    oldest: int  # the oldest seq that retention left
    tags: dict[str, str]
    created_at: datetime
    ended_at: datetime | None
    owner: str | None
    epoch: int
    error_count: int
    parent_run_id: str | None
    forked_from: str | None
    fork_seq: int | None
    retry_of: str | None
    retry_index: int | None

    @property
    def graph_name(self) -> str:
        return self.workflow

    @property
    def workflow_id(self) -> str:
        return self.id

    @property
    def step_count(self) -> int:
        """How many entries its history has, shared ones included."""
        return self.head + 1

    @property
    def node_count(self) -> int:
        return self.step_count

    @property
    def completed_at(self) -> datetime | None:
        return self.ended_at

    @property
    def duration_ms(self) -> float | None:
        """From start to end; None while it has not ended."""
        return None if self.ended_at is None else (self.ended_at - self.created_at) / timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A named point on a run. It copies nothing: `trail.state(cp.run_id, at=cp.seq)` gives its values."""

    run_id: str
    seq: int
    name: str
    kind: CheckpointKind
    created_at: datetime
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its address, `run@seq`."""
        return f"{self.run_id}@{self.seq}"

    @property
    def timestamp(self) -> datetime:
        return self.created_at
