"""Runs that are copied while somebody is at work on them: there they belong to the copy, so that nobody else goes on.

Whoever resumed one of them there would do what is being done here once more. They are held by a lease like that of any
owner: it ends soon after the copy, so that a trail which was followed takes over where this one was lost.
"""

from __future__ import annotations

import time
from contextlib import suppress

from everstep.errors import RunNotFoundError, StaleWriterError
from everstep.model import STATUS_NUMBER, Status
from everstep.store.base import LEASE_SECONDS, Claim, RunRow, Store
from everstep.trail.owner import is_at_work, new_owner

_ACTIVE = STATUS_NUMBER[Status.ACTIVE]
_OVERTAKEN = (RunNotFoundError, StaleWriterError)  # dropped there, or taken by somebody when the lease had ended


class Following:
    """The runs that one copy holds in the other store."""

    def __init__(self, to: Store) -> None:
        self._to = to
        self.owner = new_owner()
        self._held: dict[str, tuple[Claim, float]] = {}  # with the time of the last renewal

    def give_up(self, run: RunRow, claim: Claim) -> None:
        """Let others go on with a run that is all there; not if somebody is at work on it here."""
        at_work = _at_work(run)
        claim = claim._replace(owner=self.owner)
        self._to.renew(claim, LEASE_SECONDS if at_work else 0)
        if at_work:
            self._held[run.id] = claim, time.monotonic()
        else:
            self._held.pop(run.id, None)

    def look(self, run: RunRow) -> None:
        """Go on holding a run, of which nothing is new, or let go of it."""
        claim, renewed = self._held.get(run.id, (None, 0.0))
        if claim is not None and not (_at_work(run) and time.monotonic() - renewed < LEASE_SECONDS / 3):
            self._held.pop(run.id)
            with suppress(*_OVERTAKEN):
                self.give_up(run, claim)

    def end(self) -> None:
        """Let go of all of them."""
        for claim, _ in self._held.values():
            with suppress(*_OVERTAKEN):
                self._to.renew(claim, 0)
        self._held.clear()


def _at_work(run: RunRow) -> bool:
    return run.status == _ACTIVE and is_at_work(run.owner, run.lease)
