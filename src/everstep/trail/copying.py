"""Runs copied from one trail to another: which ones, in which order, and what came of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.record import read_meta
from everstep.codec.shown import count
from everstep.errors import (
    DamagedError,
    DamageWarning,
    EverstepError,
    OwnedError,
    RebuiltWarning,
    RunError,
    RunNotFoundError,
    ValueRefused,
)
from everstep.model import STATUS_NUMBER, STATUSES, Status
from everstep.store.base import ALL, RunQuery, RunRow, Store
from everstep.trail.naming import MEMORY
from everstep.trail.transferring import Outcome, Transfer

_PAGE = 1_000  # runs, or rows, that are read at once
_NEW = 50  # runs that are looked at to find new ones
_OF_ONE_RUN = (RunError, DamagedError, ValueRefused)  # what stands in the way of one run, and not of the others
_IN_PARTS = "run {!r} was not copied: {!r}, which is a part of it, could not be. Mend that, and copy it again."
_DROPPED = "run {!r} was dropped here while it was copied, and is not all there. Drop that too, or fork what there is."
_AGAIN = b"", -1  # as no run stands: what was refused, and is looked at again
_COMPLETED = STATUS_NUMBER[Status.COMPLETED]

Tell = Callable[[int, int], object]
"""Is told how many rows are done, and of how many, about."""


class Refusal(NamedTuple):
    """A run that is not there as it is here, and why. One whose own row is damaged has no id."""

    run_id: str | None
    error: EverstepError | DamageWarning

    @property
    def whose(self) -> str:
        """What to say before the error, if that does not name the run itself: of a value that cannot be held there."""
        return f"run {self.run_id!r}: " if isinstance(self.error, ValueRefused) else ""


@dataclass(slots=True)
class Copied:
    """What came of a copy: `runs` are new there or have grown, `same` were there, `ahead` have gone on there."""

    runs: int = 0
    entries: int = 0
    blobs: int = 0
    bytes: int = 0
    same: int = 0
    ahead: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all is there that was to be copied."""
        return not self.refused

    def __str__(self) -> str:
        head = f"{count(self.runs, 'run')} copied: {count(self.entries, 'entry')}, {self.bytes:,} bytes"
        lines = [head, f"{count(self.same, 'run')} there already"] if self.same else [head]
        lines += [f"{run_id} has gone on there, and was left alone" for run_id in self.ahead]
        return "\n".join([*lines, *(f"not copied: {refusal.whose}{refusal.error}" for refusal in self.refused)])


def copy(source: Store, to: Store, names: Sequence[str] = (), tell: Tell | None = None) -> Copied:
    """Copy all runs, or some. Raises RunNotFoundError for a name, before anything is written."""
    return Copying(source, to, names, tell).once()


class Copying:
    """A copy at work. `once` copies what there is; if it follows, `again` what has come since, until `end`."""

    def __init__(
        self,
        source: Store,
        to: Store,
        names: Sequence[str] = (),
        tell: Tell | None = None,
        *,
        follows: bool = False,
    ) -> None:
        if source is to or (source.where == to.where != MEMORY):
            raise ValueError(f"a trail is not copied to itself: both are {source.where}. Name another to copy to.")
        self._source, self._names, self._tell = source, names, tell
        self._way = Transfer(source, to, self._written, follows=follows)
        self.done = Copied()
        self.stopped = False  # set, it ends when the run at work is there
        self._rows = self._total = 0
        self._seen: dict[str, tuple[bytes, int]] = {}  # where runs stood that may still move
        self._grown: set[str] = set()  # those of them that are counted as copied
        self._newest = 0  # the key of the newest run
        self._posted: list[tuple[RunRow, Callable[[], Outcome]]] = []  # runs that are made in one commit
        self._around: list[RunRow] = []  # runs that are begun there, and wait for those inside them
        self._scanned: dict[str, int] = {}  # how far rows were looked through for the names of other runs

    def once(self) -> Copied:
        """Copy all that there is."""
        with self._way.at_work():
            for run in self._family() if self._names else self._oldest_first():
                if self.stopped:
                    break
                self._take(run)
            self._finish_around()
        return self.done

    def again(self) -> Copied:
        """Copy what is new since: rows of runs that had not completed, and other runs.

        What was refused stays so, but for what somebody was at work on there, and what waits for a part of it.
        """
        self.done.refused = [each for each in self.done.refused if self._seen.get(each.run_id or "") != _AGAIN]
        refused = {refusal.run_id for refusal in self.done.refused}
        with self._way.at_work():
            for run in self._family() if self._names else self._moved():
                if self.stopped:
                    break
                if run.id not in refused and self._seen.get(run.id) != (run.hash, run.status):
                    self._take(run)
                elif self._way.following is not None:
                    self._way.following.look(run)
            self._finish_around()
        return self.done

    def end(self) -> None:
        """Follow no more: whoever wants to may go on there with what is at work here."""
        if self._way.following is not None:
            self._way.following.end()

    def _take(self, run: RunRow) -> None:
        self._newest = max(self._newest, run.key)
        if any(each.id == run.forked_from for each, _ in self._posted):
            self._settle()  # it may share the rows of that one
        if self._page(parent=run.id, limit=1):
            self._settle()  # in the order in which they were made
            self._around.append(run)
            with suppress(*_OF_ONE_RUN):  # told when it is finished
                self._way.begin(run)
            return
        copied, more = self._way.post(run)
        self._posted.append((run, copied))
        if not more or sum(_own(each) for each, _ in self._posted) >= _PAGE:
            self._settle()

    def _settle(self) -> None:
        """Wait for the runs that were posted, and see what came of each."""
        posted, self._posted = self._posted, []
        for run, copied in posted:
            self._finish(run, copied)

    def _finish_around(self) -> None:
        """Finish runs when those inside them are there: whoever goes on with one is to find what they have done."""
        self._settle()
        around, self._around = self._around, []
        refused = {refusal.run_id for refusal in self.done.refused}
        for run in reversed(around) if not self.stopped else ():
            inside = (child.id for page in self._pages(parent=run.id) for child in page)
            missing = next((child for child in inside if child in refused), None)
            copied = partial(self._way.take, run) if missing is None else partial(_refuse, run.id, missing)
            self._finish(run, copied, again=missing is not None)
            refused |= {run.id} if self.done.refused and self.done.refused[-1].run_id == run.id else set()

    def _finish(self, run: RunRow, copied: Callable[[], Outcome], *, again: bool = False) -> None:
        rows = self._rows + _own(run)
        try:
            outcome = copied()
        except RunNotFoundError:  # it was dropped here meanwhile
            if self._way.has_half(run.id):
                self.done.refused.append(Refusal(run.id, RunError(_DROPPED.format(run.id))))
        except _OF_ONE_RUN as error:
            self.done.refused.append(Refusal(run.id, error))
            again = again or isinstance(error, OwnedError)
        else:
            self._count(run, outcome)
        if again:
            self._seen[run.id] = _AGAIN
        elif run.status == _COMPLETED and not self._names:
            self._seen.pop(run.id, None)
            self._grown.discard(run.id)
        else:
            self._seen[run.id] = run.hash, run.status
        self._rows = rows
        self._progress()

    def _count(self, run: RunRow, outcome: Outcome) -> None:
        if outcome is Outcome.COPIED and run.id not in self._grown:
            self.done.runs += 1
            self._grown.add(run.id)
        self.done.same += outcome is Outcome.SAME
        if outcome is Outcome.AHEAD and run.id not in self.done.ahead:
            self.done.ahead.append(run.id)

    def _written(self, entries: Sequence[Entry], pieces: Sequence[dict[bytes, bytes]]) -> None:
        self.done.entries += len(entries)
        self.done.blobs += sum(map(len, pieces))
        self.done.bytes += sum(len(entry.meta) + len(entry.data) for entry in entries)
        self.done.bytes += sum(len(data) for some in pieces for data in some.values())
        self._rows += len(entries)
        self._progress()

    def _progress(self) -> None:
        if self._tell is not None:
            self._tell(self._rows, self._total)

    # Which runs.

    def _page(self, **query: Any) -> list[RunRow]:
        """Some runs, newest first. One that is lost is heard of here alone; one that was rebuilt, when it is read."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DamageWarning)
            page = self._source.runs(RunQuery(**{"limit": _PAGE, **query}))
        told = {str(refusal.error) for refusal in self.done.refused if refusal.run_id is None}
        damage = (each for each in caught if issubclass(each.category, DamageWarning))
        lost = (each for each in damage if not issubclass(each.category, RebuiltWarning))
        for text in dict.fromkeys(str(warning.message) for warning in lost):
            self.done.refused += [Refusal(None, DamageWarning(text))] if text not in told else []
        return page

    def _pages(self, **query: Any) -> Iterator[list[RunRow]]:
        before = None
        while page := self._page(before=before, **query):
            yield page
            before = page[-1].key

    def _oldest_first(self) -> Iterator[RunRow]:
        """All runs, in the order in which they were made. Only where pages begin is held, however many there are."""
        tops: list[int] = []
        for page in self._pages():
            tops.append(page[0].key + 1)
            self._total += sum(map(_own, page))
        for top in reversed(tops):
            yield from reversed(self._page(before=top))

    def _moved(self) -> list[RunRow]:
        """Runs that may have rows which were not seen: the new ones, and those that had not completed."""
        found: dict[str, RunRow] = {}
        for page in self._pages(limit=_NEW):
            found.update((run.id, run) for run in page if run.key > self._newest)
            if page[-1].key <= self._newest:
                break
        for status in range(len(STATUSES)):
            for page in self._pages(status=status) if status != _COMPLETED else ():
                found.update((run.id, run) for run in page)
        for run_id in self._seen.keys() - found.keys():  # they have completed meanwhile, or were dropped
            with suppress(RunNotFoundError):
                found[run_id] = self._source.run(run_id)
        return sorted(found.values(), key=_key)

    def _family(self) -> list[RunRow]:
        """The runs that were named, those inside them, and those that they were forked from."""
        known: dict[str, RunRow] = {}
        waiting = list(self._names)
        while waiting:
            run_id = waiting.pop()
            if run_id in known:
                continue
            try:
                known[run_id] = run = self._source.run(run_id)
            except RunNotFoundError:
                if run_id in self._names:
                    raise
                continue  # it was dropped
            waiting += [run.forked_from] if run.forked_from is not None else []
            below = self._page(parent=run_id, limit=ALL)
            waiting += [child.id for child in below if child.forked_from is None]
            waiting += self._named_in(run)
        self._total = sum(map(_own, known.values()))
        return sorted(known.values(), key=_key)

    def _named_in(self, run: RunRow) -> list[str]:
        """The runs that its rows name, of those that were not looked through before."""
        first, found = self._scanned.get(run.id, run.base), list[str]()
        self._scanned[run.id] = run.seq + 1
        with suppress(DamagedError):  # which is told when the run is copied
            for start in range(first, run.seq + 1, _PAGE):
                rows = self._source.entries(run.id, start, min(start + _PAGE - 1, run.seq))
                found += [child for entry in rows if (child := read_meta(entry)[record.CHILD]) is not None]
        return found


def _refuse(run_id: str, missing: str) -> Outcome:
    raise RunError(_IN_PARTS.format(run_id, missing))


def _key(run: RunRow) -> int:
    return run.key


def _own(run: RunRow) -> int:
    """How many rows of its history are its own, about."""
    return max(0, run.seq + 1 - max(run.base, 0 if run.fork_seq is None else run.fork_seq + 1))
