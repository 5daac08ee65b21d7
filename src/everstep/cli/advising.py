"""Which commands are worth typing next, when a run was shown. Each of them works as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from everstep.cli.app import still_to_name
from everstep.cli.items import Items
from everstep.cli.questions import Questions
from everstep.cli.session import Session
from everstep.model import FINISHED, Run, Status
from everstep.trail.inside import Failed
from everstep.trail.naming import without_password
from everstep.trail.outline import Outline
from everstep.trail.versions import CODE

_FIRST = 3  # failures beside questions
_WORST = (Status.FAILED, Status.PARTIAL)


def advise(
    here: Session,
    run: Run,
    tree: Outline,
    asked: Questions,
    failed: list[Failed],
    items: Items | None,
    *,
    at_work: bool,
) -> None:
    """Say what to type next."""
    if items is None:
        nexts = list(_nexts(run, tree, asked, failed, at_work=at_work))
    else:
        nexts = list(_of_a_map(run, items, asked, at_work=at_work))
    lines = [f"next: {here.command(*words)}" for words in nexts]
    if items is not None and run.status is not Status.COMPLETED and not at_work:
        lines.append(go_on_with(run.id))
    if lines:
        here.output.talk("\n" * here.output.person + "\n".join(lines))


def to_finish(here: Session, run_id: str) -> str:
    """How the rest of a run is copied. From where is not kept."""
    words = shlex.join(["everstep", "copy", "FROM", without_password(here.url), run_id])
    return f"to finish it: {words}, with the trail that it comes from."


def go_on_with(run_id: str) -> str:
    """How one goes on with all items of a map: the trail keeps those that were begun, and only the program has all."""
    return f"to go on with all of its items: in the program, map them with the id {run_id!r} again."


def _nexts(
    run: Run, tree: Outline, asked: Questions, failed: list[Failed], *, at_work: bool
) -> Iterator[Sequence[object]]:
    yield from (["show", f"{each.run_id}@{each.seq}"] for each in failed[:_FIRST])
    if run.status is Status.PAUSED and asked.rows:
        yield from asked.nexts()
        return
    if run.status is Status.FAILED:
        yield ["why", run.id]
        broken = [node for _, node in tree.walk() if node.status is Status.FAILED and not node.superseded]
        yield from (["show", f"{run.id}@{node.seq}"] for node in broken[-1:])
    if asked.is_unknown and (run.status not in FINISHED or run.status is Status.FAILED):  # which cannot go on without
        yield from asked.nexts()
        return
    if at_work:
        yield ["cancel", run.id]
    elif run.status is not Status.COMPLETED and _is_of_a_workflow(tree):
        yield from asked.nexts() if run.status is Status.ACTIVE else ()  # it goes on without, and then waits for them
        yield ["resume", run.id, *still_to_name(None if tree.start is None else tree.start.metadata)]
    elif run.status is not Status.FAILED:
        yield ["state", run.id]


def _of_a_map(run: Run, items: Items, asked: Questions, *, at_work: bool) -> Iterator[Sequence[object]]:
    """A map is gone on with by the program; its items are runs as others are."""
    if at_work:
        yield ["cancel", run.id]
        return
    first = next(items.with_status(*_WORST), None)
    if first is not None:
        yield ["why", first.id]
        yield ["resume", first.id, *still_to_name()]
    yield from asked.nexts()
    if first is None and not asked.rows:
        yield ["runs", "--parent", run.id]


def _is_of_a_workflow(tree: Outline) -> bool:
    """Whether a runner began it, which notes the code; what was recorded by hand goes on by hand."""
    return tree.start is not None and CODE in tree.start.metadata
