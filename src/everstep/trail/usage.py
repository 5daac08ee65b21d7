"""What the models of a run were asked and what that cost, summed over its steps and those of its child runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any

from everstep.codec import record
from everstep.codec.values import view
from everstep.errors import RunNotFoundError
from everstep.store.base import ALL, RunQuery, RunRow
from everstep.trail.differing import cost_of, tokens_of
from everstep.trail.reading import Reader

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_PART = 10  # to list this many runs costs less than to ask for those of one
_INPUT, _OUTPUT = ("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model was used for, or all of them. Attempts that failed count where they said what they used."""

    model: str  # empty where the steps do not name one
    calls: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int  # of the input
    latency_ms: float
    cost: float | None  # of the calls whose cost is known; None if that is none of them
    unpriced: int  # calls whose cost is not known

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run and its child runs used: in all, and by model, the most asked first."""

    run_id: str
    runs: int  # that were looked at: the run itself, and those inside
    total: ModelUsage
    models: tuple[ModelUsage, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        models = [model.to_dict() for model in self.models]
        return {"run_id": self.run_id, "runs": self.runs, "total": self.total.to_dict(), "models": models}


def usage(trail: Trail, run_id: str) -> Usage:
    """The sums of one run. What it shares with the run it was forked from is part of its history, and counts."""
    runs, seen = [trail.store.run(run_id)], {run_id}
    found: dict[str, list[Mapping[str, Any]]] = {}
    while runs:
        below = {child.id: child for child in _inside(trail, runs)}
        for run in runs:
            for used, child in _said(trail, run):
                if used:
                    found.setdefault(used["model"] if isinstance(used.get("model"), str) else "", []).append(used)
                if child is not None and child not in below and child not in seen:
                    below.update((row.id, row) for row in _run(trail, child))
        runs = [row for child, row in below.items() if child not in seen]
        seen.update(below)
    models = sorted((_sum(model, used) for model, used in found.items()), key=lambda each: (-each.calls, each.model))
    return Usage(run_id, len(seen), _sum("", [used for each in found.values() for used in each]), tuple(models))


def _inside(trail: Trail, runs: list[RunRow]) -> list[RunRow]:
    """The runs that were begun in these. Not asked for one by one where they are a good part of the whole trail."""
    limit = _PART * len(runs)
    listed = trail.store.runs(RunQuery(limit=limit)) if len(runs) > 1 else []
    if not 0 < len(listed) < limit:
        return [child for run in runs for child in trail.store.runs(RunQuery(parent=run.id, limit=ALL))]
    ids = {run.id for run in runs}
    older = trail.store.runs(RunQuery(before=listed[-1].key, limit=ALL))  # none, but where a damaged one was left out
    return [child for child in (*listed, *older) if child.parent in ids]


def _said(trail: Trail, run: RunRow) -> Iterator[tuple[Mapping[str, Any] | None, str | None]]:
    """What the rows of a run say that they used, and which runs they are. Their payloads are not looked at."""
    for rows in Reader(trail.store).history(run):
        for row in rows:
            meta = view(row.meta)
            if type(meta) is list and len(meta) > record.USAGE:
                used, child = meta[record.USAGE], meta[record.CHILD] if len(meta) > record.CHILD else None
                yield used if isinstance(used, Mapping) else None, child if isinstance(child, str) else None


def _run(trail: Trail, run_id: str) -> list[RunRow]:
    try:
        return [trail.store.run(run_id)]
    except RunNotFoundError:
        return []  # it was dropped


def _sum(model: str, used: list[Mapping[str, Any]]) -> ModelUsage:
    costs = [cost_of(each) for each in used]
    known = [cost for cost in costs if cost is not None]
    return ModelUsage(
        model=model, calls=len(used), tokens=sum(map(tokens_of, used)), input_tokens=_count(used, *_INPUT),
        output_tokens=_count(used, *_OUTPUT), cached_tokens=_count(used, "cached_tokens"),
        latency_ms=fsum(each["latency_ms"] for each in used if type(each.get("latency_ms")) in {int, float}),
        cost=fsum(known) if known else None, unpriced=len(costs) - len(known),
    )  # fmt: skip


def _count(used: list[Mapping[str, Any]], *names: str) -> int:
    """How many tokens there are under the first of these names that a step counts them by."""
    return sum(next((each[name] for name in names if type(each.get(name)) is int), 0) for each in used)
