"""How much of what is on record a program has got through: where its past ends, and what it does is new."""

from __future__ import annotations

from everstep.journal import Journal


class Progress:
    """Of one captured program through the record of its run."""

    def __init__(self, journal: Journal) -> None:
        steps = [step for track in journal.scopes.get(None, {}).values() for step in track.steps]
        self.begins_anew = not steps
        self._unasked = {step.seq for step in steps}
        self._unserved = {step.outcome.seq for step in steps if step.outcome is not None and step.cancelled is None}
        self._asked_beyond = False
        self._asked = -1

    def asked(self, seq: int | None) -> None:
        """The program asked for a step: its first row, None if there is none."""
        if seq is None:
            self._asked_beyond = True
        else:
            self._asked = max(self._asked, seq)
            self._unasked.discard(seq)

    def served(self, seq: int) -> None:
        """The program has the outcome that stands in this row."""
        self._unserved.discard(seq)

    def is_through(self) -> bool:
        """Whether nothing on record is left."""
        return not self._unasked and not self._unserved

    def is_past(self, row: int) -> bool:
        """Whether the program has all that came before a row, or asked for something after it."""
        return self._asked_beyond or self._asked >= row or min(self._unserved, default=row) >= row
