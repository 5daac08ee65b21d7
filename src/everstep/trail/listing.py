"""Runs by how they stand, which is not always stored."""

from __future__ import annotations

from dataclasses import replace

from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import RunQuery, RunRow, Store
from everstep.trail.owner import is_at_work

INTERRUPTED = "interrupted"  # active, and at work nowhere: no status that is stored
_ACTIVE = STATUS_NUMBER[Status.ACTIVE]
_PAGE = 200  # runs that are looked at together


def standing(store: Store, query: RunQuery, status: Status | str | None) -> list[RunRow]:
    """The runs that are asked for, of those that stand so. Raises ValueError for what is no word for that."""
    if status != INTERRUPTED:
        return store.runs(replace(query, status=None if status is None else STATUS_NUMBER[Status(status)]))
    found, active = list[RunRow](), replace(query, status=_ACTIVE, limit=_PAGE)
    while len(found) < query.limit and (page := store.runs(active)):
        found += [row for row in page if not is_at_work(row.owner, row.lease)]
        active = replace(active, before=page[-1].key)
    return found[: query.limit]
