"""What came of a replay: identical, or where not, with both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from everstep.codec.shown import count, duration
from everstep.model import Status, Word
from everstep.trail.compare import Change
from everstep.trail.late import Late
from everstep.trail.versions import Version


class Source(Word):
    """Where the outcome of a step came from in a replay."""

    RECORDED = "recorded"
    RE_EXECUTED = "re-executed"


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A step that a replay went through."""

    run_id: str  # the run, or a child of it
    seq: int
    name: str
    source: Source

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {"run_id": self.run_id, "seq": self.seq, "name": self.name, "source": str(self.source)}


@dataclass(frozen=True, slots=True)
class Divergence:
    """A place where the code and the record part."""

    run_id: str  # the run, or a child of it
    cause: str
    step: str
    seq: int | None  # of the recorded step
    message: str
    changes: tuple[Change, ...] = ()  # what differs, recorded and now

    def to_dict(self, change: Callable[[Change], Any] | None = None) -> dict[str, Any]:
        """What JSON can hold of it; a change as its text, unless another form is given."""
        return {
            "run_id": self.run_id, "cause": self.cause, "step": self.step, "seq": self.seq, "message": self.message,
            "changes": list(map(change or _shown, self.changes)),
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"  {_shown(change)}" for change in self.changes[:_SHOWN]]
        if len(self.changes) > _SHOWN:
            lines.append(f"  ... {len(self.changes) - _SHOWN} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How a replay went. Nothing was live, and nothing was written."""

    run_id: str
    workflow: str
    mode: str
    status: Status  # of the run, as it is on record
    divergences: tuple[Divergence, ...]
    steps: tuple[ReplayedStep, ...]
    whole: bool  # false if the record ends before the run does
    hints: tuple[str, ...]  # what else differs: code, Python, packages
    duration_ms: float
    original_ms: float | None
    versions: tuple[Version, ...] = ()  # of Python and packages, where they are others than on record
    same_program: bool = False  # whether all of the code is known to be what it was

    @property
    def identical(self) -> bool:
        """Whether the code did what is on record."""
        return not self.divergences

    @property
    def first(self) -> Divergence | None:
        """The first place where they part."""
        return self.divergences[0] if self.divergences else None

    @property
    def likely_cause(self) -> str | None:
        """Why they part: how they do, or other versions where all of the code is what it was. None if identical."""
        if self.first is None:
            return None
        if not self.versions or not self.same_program:
            return self.first.cause
        return "changed package version" if self.versions[-1].name != "Python" else "changed Python version"

    @property
    def served(self) -> int:
        """How many steps came from the record."""
        return sum(step.source is Source.RECORDED for step in self.steps)

    @property
    def re_executed(self) -> int:
        """How many steps ran again."""
        return sum(step.source is Source.RE_EXECUTED for step in self.steps)

    def summary(self) -> str:
        """One line."""
        verdict = "identical" if self.identical else f"diverged at {_place(self.first)}"
        if self.mode == "recorded":
            verdict = "recorded outcomes only, compared with no code"
        part = "" if self.whole else ", as far as the record goes"
        steps = f"{count(self.served, 'step')} answered from the record, {self.re_executed} run again"
        if not self.identical:  # what it took is no time to compare: it may have ended early
            return f"{self.run_id}: {verdict}{part}; {steps}"
        original = "" if self.original_ms is None else f", the original took {duration(self.original_ms)}"
        return f"{self.run_id}: {verdict}{part}: {steps}; {duration(self.duration_ms)}{original}"

    def to_dict(self, change: Callable[[Change], Any] | None = None) -> dict[str, Any]:
        """What JSON can hold of it; a change as its text, unless another form is given."""
        return {
            "run_id": self.run_id, "workflow": self.workflow, "mode": self.mode, "status": str(self.status),
            "identical": self.identical, "whole": self.whole, "served": self.served, "re_executed": self.re_executed,
            "divergences": [each.to_dict(change) for each in self.divergences], "likely_cause": self.likely_cause,
            "versions": [each.to_dict() for each in self.versions], "hints": list(self.hints),
            "duration_ms": round(self.duration_ms, 3), "original_ms": self.original_ms,
            "steps": [step.to_dict() for step in self.steps],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join([self.summary(), *self._parting(), *self.beside()])

    def _parting(self) -> list[str]:
        """The divergences; of several, what is the same in many steps is said once, with where it is."""
        places: dict[str, list[str]] = {}
        for each in self.divergences:
            places.setdefault(str(each), []).append(
                repr(each.step) if each.seq is None else f"{each.run_id}@{each.seq}"
            )
        if len(self.divergences) < 2:
            return list(places)
        return [f"{_listed(at)}: {text}" for text, at in places.items()]

    def beside(self) -> list[str]:
        """What is said after the divergences: the cause, where it is none of the code's, and what else differs."""
        lines = [f"note: {hint}" for hint in self.hints]
        if self.first is not None and self.likely_cause != self.first.cause:
            lines.insert(0, f"likely cause: {self.likely_cause}; the code is what it was")
        return lines


_WORDING = Late("everstep.trail.wording")  # needed where something differs alone
_SHOWN = 8


def _shown(change: Change) -> str:
    is_long = _WORDING.is_long(change.old) and _WORDING.is_long(change.new)
    line = f"~ {_WORDING.shown(change)}" if is_long else str(change)
    return line.replace(" state.", " ", 1)


def _listed(places: list[str]) -> str:
    shown, more = places[:_SHOWN], len(places) - _SHOWN
    return ", ".join([*shown, *([f"{more} more"] if more > 0 else ())])


def _place(first: Divergence | None) -> str:
    if first is None or first.seq is None:
        return "the end" if first is None else repr(first.step)
    return f"{first.run_id}@{first.seq} ({first.step!r}): {first.cause}"
