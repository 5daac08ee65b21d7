"""What came of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from everstep.model import Status
from everstep.run.log import RunLog
from everstep.trail.naming import command_for

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PauseInfo:
    """A question that a run waits for the answer to."""

    run_id: str  # of the run that waits: this one, or a child of it
    seq: int  # what `trail.answer(run_id, value, pause=seq)` takes
    name: str  # of the step that waits: "pause", or an external one whose outcome is not known
    prompt: str
    schema: Any = None
    options: list[Any] | None = None
    deadline: str | None = None
    node_name: str | None = None  # of the step around it that asks; None if the workflow itself does


@dataclass(frozen=True, slots=True)
class RunResult(Generic[R]):
    """How a run stands after `run` returned: completed, or paused; with error_handling="continue" also failed."""

    run_id: str
    status: Status
    log: RunLog
    value: R = None  # type: ignore[assignment] # of a run that has not completed there is none
    error: BaseException | None = None
    pauses: tuple[PauseInfo, ...] = field(default=())
    restored: bool = False  # the run had completed before: nothing was executed

    @property
    def pause(self) -> PauseInfo | None:
        """What the run waits for, the first of it."""
        return self.pauses[0] if self.pauses else None

    @property
    def workflow_id(self) -> str:
        return self.run_id

    @property
    def values(self) -> dict[str, Any]:
        """What the nodes of a graph gave; in part, if it has not completed."""
        return self.value if isinstance(self.value, dict) else {}

    def __getitem__(self, name: str) -> Any:
        """A value of a graph."""
        try:
            return self.values[name]
        except KeyError:
            known = ", ".join(map(repr, self.values)) or "none"
            raise KeyError(f"run {self.run_id!r} ({self.status}) gave no {name!r}; its values are {known}") from None

    def get(self, name: str, default: Any = None) -> Any:
        """A value of a graph, or the default."""
        return self.values.get(name, default)

    @property
    def completed(self) -> bool:
        return self.status is Status.COMPLETED

    @property
    def failed(self) -> bool:
        return self.status in {Status.FAILED, Status.PARTIAL}

    @property
    def paused(self) -> bool:
        return self.status is Status.PAUSED

    @property
    def stopped(self) -> bool:
        return self.status in {Status.STOPPED, Status.CANCELLED}

    def summary(self) -> str:
        """One line: the run, how it stands, what it took."""
        again = " (restored)" if self.restored else ""
        return f"{self.run_id}: {self.status}{again}, {self.log.summary()}"

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: no values, and no text of errors."""
        return {
            "run_id": self.run_id,
            "status": str(self.status),
            "restored": self.restored,
            "error": None if self.error is None else type(self.error).__qualname__,
            "pauses": [pause.seq for pause in self.pauses],
            "log": self.log.to_dict(),
        }


def failed_note(where: str, run_id: str, *, is_inside: bool) -> str:
    """What is noted on the error that ended a run. A run inside another is explained with that."""
    why = None if is_inside else command_for(where, "why", run_id)
    way = f". Find out why: {why}" if why else ""
    return f"everstep: run {run_id!r} failed; run it with this id again to go on there{way}"
