"""What came of a map: one result for each item, in the order of the items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from everstep.model import Status
from everstep.run import faults
from everstep.run.items import Mode
from everstep.run.log import NodeRecord, NodeStats, html_table, table, told_ms
from everstep.run.result import PauseInfo, RunResult


@dataclass(frozen=True, slots=True, repr=False)
class MapResult(Sequence[RunResult[Any]]):
    """The results of a map, a sequence. `result["name"]` collects one value over all items.

    An item whose run had completed before is restored: it is in the results, and in no time and no average.
    """

    run_id: str
    workflow: str
    status: Status  # completed; partial if some items failed, failed if all did; paused if some wait for an answer
    results: tuple[RunResult[Any], ...]
    map_over: tuple[str, ...]
    mode: Mode
    total_duration_ms: float
    unstarted: tuple[int, ...] = ()  # the items that were not begun, because the map was stopped or cancelled before

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[RunResult[Any]]:
        return iter(self.results)

    @overload
    def __getitem__(self, key: int) -> RunResult[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[RunResult[Any], ...]: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        """An item's result, some of them, or by name one value of each item: None where an item did not give it."""
        return [result.get(key) for result in self.results] if isinstance(key, str) else self.results[key]

    @property
    def values(self) -> list[Any]:
        """What each item gave: of a graph a dict, of a workflow what it returned, None where it did not complete."""
        return [result.value for result in self.results]

    @property
    def graph_name(self) -> str:
        return self.workflow

    @property
    def workflow_id(self) -> str:
        return self.run_id

    @property
    def map_mode(self) -> str:
        return self.mode

    @property
    def completed(self) -> bool:
        return self.status is Status.COMPLETED

    @property
    def failed(self) -> bool:
        """Whether items failed: some, or all."""
        return self.status in {Status.FAILED, Status.PARTIAL}

    @property
    def paused(self) -> bool:
        return self.status is Status.PAUSED

    @property
    def failures(self) -> tuple[RunResult[Any], ...]:
        """The items that failed."""
        return tuple(result for result in self.results if result.failed)

    @property
    def pauses(self) -> tuple[PauseInfo, ...]:
        """What the items wait for."""
        return tuple(pause for result in self.results for pause in result.pauses)

    @property
    def requested_count(self) -> int:
        """How many items were given."""
        return len(self.results)

    @property
    def restored_count(self) -> int:
        """How many had completed before."""
        return sum(result.restored for result in self.results)

    def slowest(self, n: int = 5) -> tuple[RunResult[Any], ...]:
        """The items that took longest here, the slowest first. Those that were restored took nothing."""
        worked = [self.results[at] for at in self._worked()]
        return tuple(sorted(worked, key=lambda result: -result.log.total_duration_ms)[:n])

    def _worked(self) -> Iterator[int]:
        unstarted = set(self.unstarted)
        return (at for at, result in enumerate(self.results) if not result.restored and at not in unstarted)

    @property
    def node_stats(self) -> dict[str, NodeStats]:
        """Counts and times by the name of the node or step, over all items; what was restored is left out."""
        sums: dict[str, NodeStats] = {}
        for result in self.results:
            for name, one in result.log.node_stats.items():
                sums[name] = sums[name] + one if name in sums else one
        return sums

    def summary(self) -> str:
        """One line: how it stands, how many items, how long, what failed, what was restored, and the slowest."""
        count, failed, waiting = len(self), len(self.failures), sum(result.paused for result in self.results)
        parts = [f"{self.status}, {count} item{'' if count == 1 else 's'} in {told_ms(self.total_duration_ms)} ms"]
        for number, what in (
            (failed, "failed"), (waiting, "waiting"), (self.restored_count, "restored"),
            (len(self.unstarted), "not begun"),
        ):  # fmt: skip
            parts += [f"{number} {what}"] * bool(number)
        slowest = max(self._worked(), key=lambda at: self.results[at].log.total_duration_ms, default=None)
        if slowest is not None:
            parts.append(f"slowest item {slowest} ({told_ms(self.results[slowest].log.total_duration_ms)} ms)")
        return f"{self.workflow} {self.run_id}: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold of it: no values, and no text of errors. The steps are in the results' own logs."""
        return {
            "run_id": self.run_id,
            "workflow": self.workflow,
            "status": str(self.status),
            "map_over": list(self.map_over),
            "mode": self.mode,
            "requested_count": self.requested_count,
            "restored_count": self.restored_count,
            "failures": [at for at, result in enumerate(self.results) if result.failed],
            "unstarted": list(self.unstarted),
            "total_duration_ms": self.total_duration_ms,
            "node_stats": {name: stats.to_dict() for name, stats in self.node_stats.items()},
            "items": [_item(result) for result in self.results],
        }

    def __str__(self) -> str:
        return "\n".join([self.summary(), *table(self._rows(), "item")])

    def _repr_html_(self) -> str:
        """The table, for a notebook."""
        return html_table(self.summary(), self._rows(), "item")

    def _rows(self) -> list[tuple[int, NodeRecord]]:
        return [(0, _row(str(at), result)) for at, result in enumerate(self.results)]

    def __repr__(self) -> str:
        return f"<MapResult {self.summary()}>"


def _row(name: str, result: RunResult[Any]) -> NodeRecord:
    """An item as a line of the table."""
    status = Status.RESTORED if result.restored else Status.FAILED if result.failed else result.status
    error = None if result.error is None else faults.told(result.error)
    return NodeRecord(name, None, result.log.total_duration_ms, status, name, error)


def _item(result: RunResult[Any]) -> dict[str, Any]:
    return {
        "run_id": result.run_id,
        "status": str(result.status),
        "restored": result.restored,
        "error": None if result.error is None else type(result.error).__qualname__,
        "pauses": [pause.seq for pause in result.pauses],
        "duration_ms": result.log.total_duration_ms,
        "steps": len(result.log.steps),
    }
