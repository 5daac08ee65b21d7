"""The items of a map: how many stand how, and one line each, what failed first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from everstep.cli import plain
from everstep.cli.output import Cell, Column
from everstep.cli.session import Session, is_interrupted, standing
from everstep.cli.style import status_cell
from everstep.cli.text import brief, cut, duration
from everstep.codec.record import StepRecord
from everstep.errors import EverstepError
from everstep.model import Run, Status
from everstep.trail import answers
from everstep.trail.answers import question_text
from everstep.trail.inside import Item, item, items_of
from everstep.trail.trail import Trail

_FIRST = 20  # items that are listed, unless all are asked for
_WIDE = 100  # characters of a result


class Items:
    """The items of one map, those first that did not go well. Each is read when it is shown."""

    def __init__(self, trail: Trail, run: Run, start: StepRecord) -> None:
        self._trail, self._run, self._start = trail, run, start
        self.runs = items_of(trail, run.id)

    def summary(self) -> str:
        """How many there are, and how they stand: `40: 6 failed, 2 paused, 32 completed`."""
        standing = Counter(self.status(run) for run in self.runs)
        parts = [f"{number:,} {status}" for status, number in standing.items()]
        left = self._total() - len(self.runs)
        return f"{self._total():,}: " + ", ".join([*parts, *([f"{left:,} not begun"] if left else [])])

    def _total(self) -> int:
        """How many it was over; of one that has not come to its end, how many were begun."""
        try:
            told = self._trail.state(self._run.id, view=True).get("items")
        except EverstepError:  # pruned or damaged: told elsewhere
            told = None
        return max(told if type(told) is int else 0, len(self.runs))

    def status(self, run: Run) -> str:
        """How an item stands, in a word."""
        return standing(self._trail, run)

    def with_status(self, *statuses: Status) -> Iterator[Run]:
        """Those that stand so, the first first."""
        return (run for run in self.runs if run.status in statuses)

    def show(self, here: Session, *, everything: bool) -> None:
        """Print them; the first ones, unless all are asked for."""
        listed = self.runs if everything else self.runs[:_FIRST]
        rows = [self._row(run) for run in listed]
        if len(listed) < len(self.runs):
            rows.append([Cell(f"... and {len(self.runs) - len(listed):,} more (--all lists them)", "dim"), *[""] * 4])
        titles = ("item", "status", "took", "result", "run")
        here.output.table([Column(title, right=title == "took") for title in titles], rows)

    def _row(self, run: Run) -> list[Cell | str]:
        found = item(self._trail, self._start, run)
        return [
            Cell(found.label, "bold"), status_cell(self.status(run)), Cell(duration(run.duration_ms), "dim"),
            self._result(found), Cell(run.id, "dim", whole=True),
        ]  # fmt: skip

    def _result(self, found: Item) -> Cell:
        if found.error is not None:
            return Cell(cut(str(found.error), _WIDE), "red")
        if found.run.status is Status.PAUSED:
            asked = answers.questions(self._trail, self._trail.store.run(found.run.id))
            return Cell(cut(question_text(asked[0][1]), _WIDE) if asked else "answered", "yellow")
        return Cell(brief(found.output, _WIDE) if found.output is not None else "-")

    def data(self) -> list[dict[str, Any]]:
        """All of them for programs: what each is known by and failed with, and how large what it gave is."""
        return [self._data(item(self._trail, self._start, run)) for run in self.runs]

    def _data(self, found: Item) -> dict[str, Any]:
        return {
            "run": found.run.id, "status": str(found.run.status), "interrupted": is_interrupted(self._trail, found.run),
            "duration_ms": found.run.duration_ms, "inputs": plain.plain(found.inputs),
            "error": plain.error(found.error),
            "size": None if found.output is None else plain.size_of(found.output),
        }  # fmt: skip
