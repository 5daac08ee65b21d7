"""What a run waits for: its own questions, and those of the runs inside it, each with the command that answers it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from everstep.cli import plain
from everstep.cli.output import Cell
from everstep.cli.style import STYLES, prompt_of
from everstep.cli.text import brief
from everstep.codec.record import StepRecord
from everstep.errors import ErasedError
from everstep.model import FINISHED, Kind, Run, Status
from everstep.trail import answers
from everstep.trail.answers import question_text, unknown_prompt
from everstep.trail.outline import Outline
from everstep.trail.trail import Trail

_WIDE = 200  # characters that a prompt, or an option, may take
_FIRST = 10  # that are shown


class Questions:
    """The open questions of a run, in order: its own, then those of the runs inside it."""

    def __init__(self, trail: Trail, run: Run, tree: Outline, *, at_work: bool) -> None:
        self.run = run
        open_ones = [node for _, node in tree.walk() if node.status in {Status.PAUSED, Status.UNKNOWN}]
        self.rows = [] if at_work else [node.begun for node in open_ones]
        if not at_work and (run.status not in FINISHED or run.status is Status.FAILED):
            inside = answers.questions(trail, trail.store.run(run.id))
            known = {row.seq for row in self.rows}  # not among them: an effect that the run failed by, unknown
            self.rows += [row for holder, row in inside if holder.id != run.id or row.seq not in known]
        is_left = bool(self.rows) and run.status is Status.ACTIVE
        self._answered = answers.answered(trail, trail.store.run(run.id)) if is_left else 0
        self._several = Counter(row.run_id for row in self.rows)

    def fields(self) -> Iterator[tuple[str, Cell | str]]:
        """One line for each, in the head of the run, and how many more were answered since it was left to wait."""
        if self._answered:
            yield "answered", f"{self._answered:,} of {self._answered + len(self.rows):,} questions"
        for row in self.rows[:_FIRST]:
            style = STYLES["unknown" if row.kind is Kind.INTENT else "paused"]
            inside = "" if row.run_id == self.run.id else f"  [{row.run_id}]"
            yield "waits for", Cell(question_text(row) + inside, style)
        if len(self.rows) > _FIRST:
            yield "", f"... and {len(self.rows) - _FIRST:,} more"

    def commands(self) -> Iterator[Sequence[object]]:
        """The words of the command that answers each of those that are shown."""
        for row in self.rows[:_FIRST]:
            yield ["answer", row.run_id, "VALUE", *(["--pause", row.seq] if self._several[row.run_id] > 1 else [])]

    def nexts(self) -> Iterator[Sequence[object]]:
        """The same, and how an external step whose outcome is not known is tried again."""
        for words, row in zip(self.commands(), self.rows, strict=False):
            yield words
            if row.kind is Kind.INTENT:
                yield ["--retry" if word == "VALUE" else word for word in words]

    @property
    def is_unknown(self) -> bool:
        """Whether the outcome of an external step is: until somebody says, the run fails, or waits, with it again."""
        return any(row.kind is Kind.INTENT for row in self.rows)

    def data(self) -> list[dict[str, Any]]:
        """All of them for programs."""
        return [_data(row) for row in self.rows]


def _data(row: StepRecord) -> dict[str, Any]:
    found = {"run": row.run_id, "pause": row.seq, "name": row.name}
    if row.kind is Kind.INTENT:
        return found | {"prompt": unknown_prompt(row), "options": None, "schema": None, "deadline": None}
    asked = _asked(row)
    more = {name: plain.plain(asked.get(name)) for name in ("options", "schema", "deadline")}
    return found | {"prompt": plain.plain(prompt_of(row)) if asked else None} | more


def prompt_text(row: StepRecord) -> str:
    """What a pause asks, in one line."""
    try:
        asked = prompt_of(row)
    except ErasedError:
        return "(erased)"
    return asked[:_WIDE] if isinstance(asked, str) else brief(asked, _WIDE)


def _asked(row: StepRecord) -> dict[str, Any]:
    try:
        return row.pause if isinstance(row.pause, dict) else {}
    except ErasedError:
        return {}
