"""What a run did and how long it took: kept in memory, made once when the run ends, whether or not a trail is open.

A restored step was done by an earlier process. It stands in the list and is counted apart; it is in no time and no
average, because nothing was spent on it here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import starmap
from typing import TYPE_CHECKING, Any

from everstep.model import END, Status, StepError

_SHOWN = 50  # rows of a table before its middle is left out
_EDGE = 20  # rows that are kept at each end of a shortened one
_NAME, _NOTE = 48, 80  # characters
_TITLES = ("step", "superstep", "status", "ms", "")
# What has no outcome of its own here: a restored step has one from before, the others have none yet.
_NO_OUTCOME = frozenset({Status.RESTORED, Status.PAUSED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One step of a run: when it counts, how long it took, how it ended."""

    node_name: str
    superstep: int | None
    duration_ms: float  # to a microsecond
    status: Status
    span_id: str
    error: StepError | str | None = None
    cached: bool = False
    decision: Any = None
    log: RunLog | None = None  # of the run inside it
    parent_span_id: str | None = None  # the step it ran inside; None at the top

    def __post_init__(self) -> None:
        object.__setattr__(self, "duration_ms", round(self.duration_ms, 3))
        if type(self.status) is not Status:
            object.__setattr__(self, "status", Status(self.status))

    def to_dict(self) -> dict[str, Any]:
        """Its fields as JSON can hold them."""
        return {
            "node_name": self.node_name,
            "superstep": self.superstep,
            "duration_ms": self.duration_ms,
            "status": str(self.status),
            "span_id": self.span_id,
            "parent_span_id": self.parent_span_id,
            "error": None if self.error is None else str(self.error),
            "cached": self.cached,
            "decision": _primitive(self.decision),
            "log": None if self.log is None else self.log.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class NodeStats:
    """What the steps of one name came to. Only those with an outcome in this run count."""

    count: int
    total_ms: float
    errors: int
    cached: int

    @property
    def succeeded(self) -> int:
        """How many were really carried out, and well."""
        return self.count - self.errors - self.cached

    @property
    def avg_ms(self) -> float:
        """The time spent for each one that succeeded; 0 when none did."""
        return self.total_ms / self.succeeded if self.succeeded else 0.0

    def __add__(self, other: NodeStats) -> NodeStats:
        """What both came to."""
        return NodeStats(
            self.count + other.count, round(self.total_ms + other.total_ms, 3), self.errors + other.errors,
            self.cached + other.cached,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Its figures, the derived ones too."""
        return {
            "count": self.count, "total_ms": self.total_ms, "errors": self.errors, "cached": self.cached,
            "succeeded": self.succeeded, "avg_ms": round(self.avg_ms, 3),
        }  # fmt: skip


class _Unmade:
    """What the records of a log are made of, until somebody asks for them."""

    __slots__ = ("_rows",)
    _rows: list[tuple[Any, ...]] | None


@dataclass(frozen=True, slots=True)
class RunLog(_Unmade):
    """The steps of a run in the order in which they ended, and what they add up to. Printed, it is a table."""

    workflow: str
    run_id: str | None
    total_duration_ms: float
    steps: tuple[NodeRecord, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "total_duration_ms", round(self.total_duration_ms, 3))

    @classmethod
    def of(cls, workflow: str, run_id: str | None, total_ms: float, rows: Iterable[tuple[Any, ...]]) -> RunLog:
        """A log from plain tuples, each with the fields of a NodeRecord in their order."""
        log = cls(workflow, run_id, total_ms)
        object.__setattr__(log, "_rows", list(rows))
        object.__delattr__(log, "steps")
        return log

    if not TYPE_CHECKING:  # a checker would take it for an attribute of any name

        def __getattr__(self, name: str) -> Any:
            """Make the records of the steps when somebody first asks for them: of most runs nobody does."""
            if name != "steps":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            rows = self._rows
            if rows is not None:  # else another thread was quicker
                object.__setattr__(self, "steps", tuple(starmap(NodeRecord, rows)))
                object.__setattr__(self, "_rows", None)
            return object.__getattribute__(self, "steps")

    @property
    def graph_name(self) -> str:
        return self.workflow

    @property
    def errors(self) -> tuple[NodeRecord, ...]:
        """The steps that failed."""
        return tuple(step for step in self.steps if step.status is Status.FAILED)

    @property
    def restored_count(self) -> int:
        """How many steps were done by an earlier process."""
        return sum(step.status is Status.RESTORED for step in self.steps)

    @property
    def timing(self) -> dict[str, float]:
        """Milliseconds by name, restored steps left out. A step's time includes that of the steps inside it."""
        spent: dict[str, float] = {}
        for step in self.steps:
            if step.status is not Status.RESTORED:
                spent[step.node_name] = spent.get(step.node_name, 0.0) + step.duration_ms
        return {name: round(ms, 3) for name, ms in spent.items()}

    @property
    def node_stats(self) -> dict[str, NodeStats]:
        """Counts and times by name, of the steps that completed or failed in this run."""
        sums: dict[str, list[Any]] = {}
        for step in self.steps:
            if step.status in _NO_OUTCOME:
                continue
            total = sums.setdefault(step.node_name, [0, 0.0, 0, 0])
            total[0] += 1
            total[1] += step.duration_ms
            total[2] += step.status is Status.FAILED
            total[3] += step.cached and step.status is not Status.FAILED
        return {name: NodeStats(count, round(ms, 3), *rest) for name, (count, ms, *rest) in sums.items()}

    def summary(self) -> str:
        """One line: how many steps, how long, what failed, what was restored, and the slowest."""
        count = len(self.steps)
        parts = [f"{count} step{'' if count == 1 else 's'} in {told_ms(self.total_duration_ms)} ms"]
        failed, restored, slowest = len(self.errors), self.restored_count, self._slowest()
        parts += [f"{failed} failed"] * bool(failed) + [f"{restored} restored"] * bool(restored)
        if slowest is not None:
            parts.append(f"slowest {_shown(slowest.node_name, _NAME)} ({told_ms(slowest.duration_ms)} ms)")
        return ", ".join(parts)

    def _slowest(self) -> NodeRecord | None:
        # A step that holds others always takes longer than they do, and says nothing about where the time went.
        holders = {step.parent_span_id for step in self.steps}
        own = (step for step in self.steps if step.status is not Status.RESTORED and step.span_id not in holders)
        return max(own, key=lambda step: step.duration_ms, default=None)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON can hold it."""
        return {
            "workflow": self.workflow,
            "run_id": self.run_id,
            "total_duration_ms": self.total_duration_ms,
            "restored_count": self.restored_count,
            "node_stats": {name: stats.to_dict() for name, stats in self.node_stats.items()},
            "steps": [step.to_dict() for step in self.steps],
        }

    def __str__(self) -> str:
        name = _shown(self.workflow, _NAME)
        title = f"{name} {_shown(self.run_id, _NAME)}: " if self.run_id else f"{name}: "
        return "\n".join([title + self.summary(), *table(list(_rows(self, 0)))])

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return html_table(f"{_shown(self.workflow, _NAME)}: {self.summary()}", list(_rows(self, 0)))

    def __repr__(self) -> str:
        return f"<RunLog {self.workflow!r} {self.run_id!r}: {self.summary()}>"


# The table.


def _rows(log: RunLog, depth: int) -> Iterator[tuple[int, NodeRecord]]:
    """Every step with its depth, a step before those inside it: they ended before it did."""
    places: dict[str, int] = {}
    for place, step in enumerate(log.steps):
        places.setdefault(step.span_id, place)
    inside: dict[int | None, list[int]] = {}
    for place, step in enumerate(log.steps):
        holder = None if step.parent_span_id is None else places.get(step.parent_span_id)
        inside.setdefault(holder, []).append(place)
    seen = bytearray(len(log.steps))
    for top in (*inside.get(None, ()), *range(len(log.steps))):  # all again: damaged parents could form a ring
        waiting = [(depth, top)]
        while waiting:  # no recursion: steps nest as deep as their author likes
            level, place = waiting.pop()
            if seen[place]:
                continue
            seen[place] = True
            yield level, log.steps[place]
            inner = log.steps[place].log
            if inner is not None:
                yield from _rows(inner, level + 1)
            waiting += [(level + 1, child) for child in reversed(inside.get(place, ()))]


def table(rows: list[tuple[int, NodeRecord]], what: str = "step") -> list[str]:
    """The lines of a table of steps, or of `what` they stand for, each with its depth."""
    kept, titles = _kept(rows), (what, *_TITLES[1:])
    if not kept:
        return []
    shown = [(place, _cells(*rows[place])) for place in kept]
    widths = [max(len(title), *(len(cells[at]) for _, cells in shown)) for at, title in enumerate(titles)]
    if all(not cells[1] for _, cells in shown):
        widths[1] = 0  # no run of this kind counts supersteps
    lines, before = [_line(titles, widths)], -1
    for place, cells in shown:
        lines += _gap(place - before - 1, what)
        lines.append(_line(cells, widths))
        before = place
    return [*lines, *_gap(len(rows) - before - 1, what)]


def html_table(caption: str, rows: list[tuple[int, NodeRecord]], what: str = "step") -> str:
    """The same as HTML."""
    kept = _kept(rows)
    shown = "".join(_html_row(_cells(*rows[place])) for place in kept)
    left_out = len(rows) - len(kept)
    more = f"<tr><td colspan=5>{left_out} more</td></tr>" if left_out else ""
    head = "".join(f"<th>{title}</th>" for title in (what, *_TITLES[1:]))
    return f"<table><caption>{_escaped(caption)}</caption><tr>{head}</tr>{shown}{more}</table>"


def _kept(rows: list[tuple[int, NodeRecord]]) -> list[int]:
    """The places that are shown: all, or both ends and every failure between them."""
    if len(rows) <= _SHOWN:
        return list(range(len(rows)))
    last = len(rows) - _EDGE
    return [
        place for place, (_, step) in enumerate(rows) if place < _EDGE or place >= last or step.status is Status.FAILED
    ]


def _gap(count: int, what: str) -> list[str]:
    return [f"  ... {count} more {what}{'' if count == 1 else 's'}"] if count else []


def _cells(depth: int, step: NodeRecord) -> tuple[str, str, str, str, str]:
    if step.error is not None:
        note = str(step.error)
    elif step.decision is not None:
        chosen = step.decision if isinstance(step.decision, list) else [step.decision]
        note = "-> " + (", ".join("END" if each == END else str(each) for each in chosen) or "none")
        note += " (cached)" if step.cached else ""
    else:
        note = "cached" if step.cached else ""
    superstep = "" if step.superstep is None else str(step.superstep)
    name = "  " * min(depth, _NAME // 4) + _shown(step.node_name, _NAME)
    return name, superstep, str(step.status), f"{step.duration_ms:.3f}", _shown(note, _NOTE)


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    name, superstep, status, ms, note = cells
    number = f"  {superstep:>{widths[1]}}" if widths[1] else ""
    return f"{name:<{widths[0]}}{number}  {status:<{widths[2]}}  {ms:>{widths[3]}}  {note}".rstrip()


def _escaped(text: str) -> str:
    return str(import_module("html").escape(text))  # a millisecond that only notebooks pay


def _html_row(cells: tuple[str, ...]) -> str:
    name, *rest = cells
    indent = (len(name) - len(name.lstrip())) * "&nbsp;"
    return (
        f"<tr><td>{indent}{_escaped(name.lstrip())}</td>{''.join(f'<td>{_escaped(cell)}</td>' for cell in rest)}</tr>"
    )


def _shown(text: str, limit: int) -> str:
    """A text on one line of the table: no control characters, which could also steer a terminal, and not too long."""
    first, *more = text.splitlines() or [""]
    clean = "".join(sign if sign.isprintable() else "?" for sign in first[: limit + 1])
    return clean if len(clean) <= limit and not any(more) else clean[: limit - 3] + "..."


def told_ms(value: float) -> str:
    """Milliseconds, as they are told."""
    return f"{value:,.3f}" if value < 10 else f"{value:,.1f}"


def _primitive(value: Any) -> Any:
    """What JSON can hold of a decision."""
    if isinstance(value, list | tuple | set | frozenset):
        return [_primitive(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _primitive(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)  # a word of an enum, too
    return value if value is None or isinstance(value, bool | int | float) else str(value)
