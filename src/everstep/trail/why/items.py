"""Which parts of a run failed, where it has several: the items of a map, and what failed beside a question."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from everstep.model import FINISHED, Kind, Run, Status, StepError
from everstep.trail.answers import questions
from everstep.trail.inside import Failed, failed_so_far, item, items_of
from everstep.trail.why.report import FailedItem
from everstep.trail.why.tracing import Trace

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_ASKED = 10  # questions that are worth a command
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
    return None if error is None else brief_text(" ".join(str(error).split()))


def brief_text(text: str) -> str:
    """A sentence that is not too long for a line or two."""
    return text if len(text) <= 160 else text[:157] + "..."


def answers(trail: Trail, run: Run) -> Iterator[str]:
    """How each open question is answered, those of the runs inside too."""
    asked = [row for _, row in questions(trail, trail.store.run(run.id))]
    several = Counter(row.run_id for row in asked)
    for row in asked[:_ASKED]:
        which = ["--pause", row.seq] if several[row.run_id] > 1 else []
        yield command("answer", row.run_id, "VALUE", *which)
        if row.kind is Kind.INTENT:
            yield command("answer", row.run_id, "--retry", *which)
    if not asked and run.workflow:
        yield command("resume", run.id)


def is_unknown(trail: Trail, run: Run) -> bool:
    """Whether a run failed because nobody knows the outcome of an external step: resumed, it does so again."""
    asked = questions(trail, trail.store.run(run.id)) if run.status is Status.FAILED else []
    return any(row.kind is Kind.INTENT for _, row in asked)


def command(*words: object) -> str:
    """A command line."""
    return shlex.join(["everstep", *map(str, words)])
