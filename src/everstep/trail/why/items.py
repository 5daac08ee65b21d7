"""The parts of a run that failed, where it has several: items of a map, or beside a question; and open questions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.codec.record import StepRecord
from everstep.codec.shown import cut
from everstep.model import FINISHED, Kind, Run, Status, StepError
from everstep.trail.answers import question_text, questions
from everstep.trail.inside import Failed, failed_so_far, item, items_of
from everstep.trail.why.report import FailedItem, Question
from everstep.trail.why.tracing import Trace

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_ASKED = 10  # questions that are worth a line and a command
WIDE = 160  # characters of a sentence that is not too long for a line or two
_WRONG = frozenset({Status.FAILED, Status.PARTIAL})


def failed_parts(trail: Trail, trace: Trace) -> Iterator[Run | Failed]:
    """The items of a map that failed; of a graph that has not ended, what has failed so far."""
    story = trace.story
    if trace.is_map:
        yield from (run for run in items_of(trail, story.run.id) if run.status in _WRONG)
    elif story.run.status not in FINISHED:
        yield from failed_so_far(trail, story.run, story.tree)


def told(trail: Trail, trace: Trace, failed: Run | Failed) -> FailedItem:
    """One of them, in a line."""
    if isinstance(failed, Failed):
        return FailedItem(failed.run_id, failed.name, _said(failed.error), failed.seq)
    start = trace.story.tree.start
    assert start is not None  # noqa: S101 - it says that this is a map
    found = item(trail, start, failed)
    return FailedItem(failed.id, found.label, _said(found.error), failed.head)


def _said(error: StepError | None) -> str | None:
    return None if error is None else cut(" ".join(str(error).split()), WIDE)


# What it waits for.


def open_questions(trail: Trail, run: Run, *, at_work: bool) -> list[StepRecord]:
    """What a run waits for, and the runs inside it. One that failed waits for the outcome of an external step."""
    if at_work or (run.status in FINISHED and run.status is not Status.FAILED):
        return []
    asked = [row for _, row in questions(trail, trail.store.run(run.id))]
    return asked if run.status is not Status.FAILED or is_unknown(asked) else []


def is_unknown(asked: list[StepRecord]) -> bool:
    """Whether nobody knows the outcome of an external step: taken up again, the run waits, or fails, with it again."""
    return any(row.kind is Kind.INTENT for row in asked)


def questions_of(asked: list[StepRecord]) -> Iterator[Question]:
    """The first of them, in words."""
    for row in asked[:_ASKED]:
        yield Question(row.run_id, row.seq, row.name, question_text(row))


def answers(run: Run, asked: list[StepRecord]) -> Iterator[str]:
    """How each open question is answered, those of the runs inside too."""
    several = Counter(row.run_id for row in asked)
    for row in asked[:_ASKED]:
        which = ["--pause", row.seq] if several[row.run_id] > 1 else []
        yield command("answer", row.run_id, "VALUE", *which)
        if row.kind is Kind.INTENT:
            yield command("answer", row.run_id, "--retry", *which)
    if not asked and run.workflow:
        yield command("resume", run.id)


def command(*words: object) -> str:
    """A command line."""
    return shlex.join(["everstep", *map(str, words)])
