"""What the record says about the step that the code asks for next. No I/O, no clock: entries in, decisions out.

A run's steps stand in lanes, and a lane inside the step it belongs to (its scope). A lane is sequential, so the record
of one is a list, and the n-th request is compared with the n-th record: the name and the digest of the arguments must
agree, else the code has changed and the run diverged. What is not in the list yet is executed.

Positions are not stored. They follow from the order of the rows: the first row of a step comes before any row of the
next step in its lane. Where that would not hold, after a failed run was taken up again, the row says its position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from everstep.codec import record
from everstep.codec.chain import Entry
from everstep.codec.values import view
from everstep.errors import DivergenceError
from everstep.journal.track import (
    AGAIN,
    AT,
    CANCELS,
    CHAIN,
    CUT,
    RETRY,
    STEPS,
    TURNS,
    UNKNOWN,
    Recorded,
    Track,
    divergence,
    flags_of,
    metadata_of,
    unasked,
)
from everstep.model import KIND_NUMBER, STATUS_NUMBER, Kind, Status

_START, _END, _STEP, _COMPOSITE, _LANE_END, _INTENT, _ATTEMPT, _CANCELLED, _PAUSE, _ANSWER, _FORK, _CHECKPOINT = (
    KIND_NUMBER[kind]
    for kind in (
        Kind.START, Kind.END, Kind.STEP, Kind.COMPOSITE_START, Kind.LANE_END, Kind.INTENT, Kind.ATTEMPT,
        Kind.CANCELLED, Kind.PAUSE, Kind.ANSWER, Kind.FORK,
        Kind.CHECKPOINT,
    )
)  # fmt: skip
_FAILED = STATUS_NUMBER[Status.FAILED]
_REOPENING = {_FAILED, STATUS_NUMBER[Status.PARTIAL]}


class Journal:
    """The record of one run, ready to be asked."""

    def __init__(self, entries: Iterable[Entry] = (), *, as_it_was: bool = False, keeps_cancelled: bool = True) -> None:
        """With `as_it_was` the run is not taken up again: a failure at its end stays, and steps can be entered.

        Unless it `keeps_cancelled`, it need not have been the code that cancelled a step: perhaps the run was stopped.
        """
        self._as_it_was = as_it_was
        self.scopes: dict[int | None, dict[str, Track]] = {}
        self.pauses: dict[int, Recorded] = {}
        self.ended_at: int | None = None  # the run had ended here, and was taken up again
        self.failures: list[Entry] = []  # that were asked for anew then
        self.taken_back: set[int] = set()  # rows of steps that failed or were cancelled, and are asked for anew
        self.forks: list[Entry] = []  # where it was forked, with what was changed there
        self.shared = -1  # up to here it belongs to another run too, whose code need not be this one
        self.marks: list[float] = []  # where timers ended, as seqs go
        self.kept = -1  # up to here it is history, whatever its code would ask for with other inputs
        self._end: Entry | None = None  # of the run; what follows it takes the run up again
        self._by_id: dict[int, Recorded] = {}
        self._failed: dict[int, tuple[int | None, Track, Recorded]] = {}  # by the seq of the outcome
        for entry in entries:
            self._add(entry)
        if as_it_was:
            return
        self._go_on()
        for scope in list(self.scopes):
            self._drop_cancelled(scope, keeps=keeps_cancelled)
        self._loosen()

    def track(self, scope: int | None, path: str) -> Track | None:
        """The record of a lane, if there is one."""
        return self.scopes.get(scope, {}).get(path)

    # Reading the rows, in order.

    def _add(self, entry: Entry) -> None:
        kind = entry.kind
        self._go_on()
        if kind == _END:  # perhaps right behind another: of a run that failed, was taken up, and failed before any step
            self._end = entry
            return
        meta = view(entry.meta)
        size = len(meta)
        tried = meta[record.ATTEMPT] if size > record.ATTEMPT else None
        if kind == _STEP and meta[record.ID] == entry.seq and size <= record.METADATA and tried in {None, 1}:
            # A leaf, done at once: nearly every row is one.
            lane = meta[record.LANE] if size > record.LANE else None
            scope = meta[record.PARENT] if size > record.PARENT else None
            track = self._track(scope, lane or "")
            if not track.steps or track.steps[-1].outcome is not None:
                index = (meta[record.INDEX] if size > record.INDEX else None) or 0
                step = Recorded(entry.seq, entry.name, index, meta[record.DIGEST] if size > record.DIGEST else None)
                step.outcome = entry
                track.steps.append(step)
                if entry.status == _FAILED:
                    self._failed[entry.seq] = scope, track, step
                return
        if kind == _CHECKPOINT and (size <= record.DIGEST or meta[record.DIGEST] is None):
            return  # made by a runner, not by the code
        meta += [None] * (record.BLOBS + 1 - size)
        if kind == _ANSWER:
            self._answer(entry, meta)
        elif kind == _LANE_END:
            self._end_lane(meta[record.PARENT], self._track(meta[record.PARENT], meta[record.LANE] or ""), meta)
        elif kind == _FORK:
            self.forks.append(entry)
        elif kind != _START:
            self._add_step(entry, kind, meta)

    def _end_lane(self, scope: int | None, track: Track, meta: list[Any]) -> None:
        if CUT in meta[record.METADATA]:
            self.cut(scope, track, meta[record.METADATA][CUT])
        else:
            track.ended = meta[record.METADATA][STEPS]

    def _answer(self, entry: Entry, meta: list[Any]) -> None:
        step = self._by_id[meta[record.ID]]
        if (meta[record.METADATA] or {}).get(RETRY):
            step.id, step.intent = None, False
        else:
            step.outcome = entry

    def _add_step(self, entry: Entry, kind: int, meta: list[Any]) -> None:
        scope, index = meta[record.PARENT], meta[record.INDEX] or 0
        track = self._track(scope, meta[record.LANE] or "")
        about = meta[record.METADATA] or {}
        if AT in about:
            self.cut(scope, track, about[AT])
        step = self._by_id.get(meta[record.ID]) if kind in {_STEP, _CANCELLED, _ATTEMPT} else None
        step = step or track.find(entry.name, index, meta[record.DIGEST])
        if step is None or (step.outcome is not None and kind != _CANCELLED):
            step = Recorded(entry.seq, entry.name, index, meta[record.DIGEST])
            track.steps.append(step)
        step.cancelled = entry.seq if kind == _CANCELLED else None
        if kind in {_COMPOSITE, _INTENT, _PAUSE}:
            step.id = meta[record.ID]
            self._by_id[step.id] = step
            step.intent = kind == _INTENT
            if kind == _PAUSE:
                self.pauses[step.id] = step
        elif kind == _ATTEMPT:
            step.attempt, step.id, step.intent = meta[record.ATTEMPT] or 1, None, False
        else:
            step.turns = about.get(TURNS) or []
            if kind != _CANCELLED:
                step.outcome, step.again, step.cancels = entry, AGAIN in about, CANCELS in about
                if entry.status == _FAILED:
                    self._failed[entry.seq] = scope, track, step

    def _track(self, scope: int | None, path: str) -> Track:
        lanes = self.scopes.get(scope)
        if lanes is None:
            lanes = self.scopes[scope] = {}
        track = lanes.get(path)
        if track is None:
            track = lanes[path] = Track(path)
        return track

    # A run that failed and is taken up again: the steps that its failure came from are asked for anew.

    def _go_on(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            self._take_up(end)

    def _take_up(self, end: Entry) -> None:
        self.ended_at = end.seq
        if end.status not in _REOPENING:
            return
        chain, first = metadata_of(end).get(CHAIN) or [], None
        while chain:
            seq = chain.pop()
            scope, track, step = self._failed.pop(seq, (None, None, None))
            if track is None or step is None or step not in track.steps:
                continue
            first = seq if first is None else min(first, seq)
            chain += self._reopen(scope, track, step)
            around = list(self._around(scope, track.path))
            for lane in self.scopes[scope].values():
                later = next((n for n, known in enumerate(lane.steps) if known.seq > seq), None)
                for known in [] if later is None else lane.steps[later:]:
                    known.late = True
                if later is not None or lane in around:
                    lane.ended = None
        self._forget_cancelled(first)
        self._forget_refusals()

    def _forget_refusals(self) -> None:
        """Take back what ended lanes of a run that failed, and may be answered otherwise when it is asked again."""
        for scope, lanes in list(self.scopes.items()):
            for track in list(lanes.values()):
                position, rows = track.refused_from()
                self.taken_back |= rows
                if position < len(track.steps):
                    self.cut(scope, track, position)

    def _reopen(self, scope: int | None, track: Track, step: Recorded) -> list[int]:
        """Have a failed step asked for anew. The failed steps inside that its failure came from."""
        failure, position = step.outcome, track.steps.index(step)
        assert failure is not None  # noqa: S101 - it is known as failed by it
        self.failures.append(failure)
        self.taken_back.add(failure.seq)
        unknown, inside = metadata_of(failure).get(UNKNOWN), step.id in self.scopes
        if unknown or (step.id is not None and step.id not in self.pauses and (inside or not step.intent)):
            # Its code runs again, over what it had recorded. A question that nobody answered is asked anew.
            step.reopen(unknown=bool(unknown))
            self._drop_cancelled(step.id)  # it was its end
        for known in [] if track.unordered else track.steps[:position]:
            if known.outcome is not None and known.outcome.seq > failure.seq:
                known.outcome = None  # a stream, which was closed because of the failure
        later = [n for n, known in enumerate(track.steps) if known.seq > failure.seq]
        if not track.unordered and step.outcome is None and (later or [len(track.steps)])[0] > position + 1:
            # A stream too: what was done with its chunks before it failed is kept.
            if later:
                self.cut(scope, track, later[0])
        else:
            self.cut(scope, track, position, whole=step.outcome is not None)
        return list(metadata_of(failure).get(CHAIN) or ()) if step.outcome is None else []

    def _around(self, scope: int | None, path: str) -> Iterator[Track]:
        """The lanes that a lane was spawned from, in its scope."""
        lanes = self.scopes[scope]
        while path:
            path = path.rpartition("/")[0]
            if path in lanes:
                yield lanes[path]

    def cut(self, scope: int | None, track: Track, position: int, *, whole: bool = True) -> None:
        """Take back the step at a position of a lane and all after it, also in the lanes spawned after it began.

        With `whole` false the step itself stays, to be gone through again.
        """
        track.by_name, track.upto = {}, 0
        if track.unordered:
            del track.steps[position : position + whole]  # what stands behind it there did not come after it
            return
        del track.steps[position if whole else position + 1 :]
        track.ended = None
        lanes, below = self.scopes[scope], track.path + "/" if track.path else ""
        for path in [path for path in lanes if path != track.path and path.startswith(below)]:
            if _spawned_at(path[len(below) :]) > position:
                del lanes[path]

    def _forget_cancelled(self, after: int | None) -> None:
        """Take back what was cancelled after a failure: it was its doing.

        None if no step failed: when the code did is not known then, and whatever ended its lane is taken back.
        """
        for scope, lanes in list(self.scopes.items()):
            for track in list(lanes.values()):
                begin = max(0, len(track.steps) - 1) if after is None else 0
                for position, step in enumerate(track.steps[begin:], begin):
                    if step.cancelled is not None and step.cancelled > (after or 0):
                        self._ask_again(scope, track, position)
                        break

    def _drop_cancelled(self, scope: int | None, *, keeps: bool = False) -> None:
        """Take back cancelled steps that nothing came after, and those inside them: they are asked for again.

        The code went on after a cancelled step if its lane, or one around it, has a later row, or spawned another lane
        after it. With `keeps` only those are meant that nobody cancelled, and those of a graph: its code is ours.
        """
        for track in list(self.scopes.get(scope, {}).values()):
            last = track.steps[-1] if track.steps else None
            if last is None:
                continue
            seq = None if keeps and not track.unordered else last.cancelled
            if last.cancels and last.outcome is not None:
                seq = last.outcome.seq
            if seq is None or any(self._spawned(scope, track, len(track.steps))):
                continue
            if not self._went_on(scope, track.path, seq):
                last.outcome = None if last.cancels else last.outcome
                self._ask_again(scope, track, len(track.steps) - 1)
                if last.id is not None:
                    self._drop_cancelled(last.id)

    def _loosen(self) -> None:
        """Let go of what followed the chunks of a stream that was cut off: it begins again, and may be another one."""
        for scope, lanes in self.scopes.items():
            for track in lanes.values():
                for position, step in enumerate(track.steps[:-1]):
                    begun = step.id is not None and not step.intent and step.id not in self.pauses
                    if begun and step.outcome is None and step.cancelled is None:
                        self._loosen_after(scope, track, position)

    def _loosen_after(self, scope: int | None, track: Track, position: int) -> None:
        tail = track.steps[position + 1 :]
        for lane in self._spawned(scope, track, position + 1):
            lane.ended = None
            tail += lane.steps
        for step in tail:
            step.loose = True

    def _spawned(self, scope: int | None, track: Track, position: int) -> Iterator[Track]:
        """The lanes that a lane spawned when it had come this far, and those below them."""
        below = track.path + "/" if track.path else ""
        for lane in self.scopes[scope].values():
            if lane is not track and lane.path.startswith(below) and _spawned_at(lane.path[len(below) :]) >= position:
                yield lane

    def _ask_again(self, scope: int | None, track: Track, position: int) -> None:
        step = track.steps[position]
        if step.cancelled is not None:
            self.taken_back.add(step.cancelled)
        step.cancelled = None
        self.cut(scope, track, position, whole=step.outcome is None and step.id is None)

    def _went_on(self, scope: int | None, path: str, seq: int) -> bool:
        if any(_newest(lane) > seq for lane in self._around(scope, path)):
            return True
        owner = self._by_id.get(scope) if scope is not None else None
        return owner is not None and owner.outcome is not None and owner.cancelled is None

    # Asking.

    def ask(self, track: Track | None, position: int, name: str, digest: bytes | None) -> Recorded | None:
        """The record of a step, or None if it is to be executed. Raises DivergenceError."""
        if track is None:
            return None
        if position < len(track.steps):
            known = track.steps[position]
            if known.name == name and (known.digest == digest or known.seq < self.kept):
                return known
            if (known.loose and not known.intent) or known.late:  # an effect that was had is not superseded in silence
                track.rewritten = position
                return None
            raise divergence(track, position, name, digest)
        if track.ended is not None:
            raise DivergenceError("inserted", lane=track.path, position=position, requested=name)
        return None

    def left(self, scope: int | None, seen: dict[str, int]) -> DivergenceError | None:
        """What a scope recorded and its code did not ask for, now that it has ended. `seen` counts by lane."""
        for path, track in self.scopes.get(scope, {}).items():
            error = unasked(track, seen.get(path, 0), self.shared)
            if error is not None:
                return error
        return None

    def order(self, *, awaited: bool = True) -> list[float]:
        """The seqs of awaited outcomes, or of all, in the order they came; between them where the parts of some did."""
        found: list[float] = [*self.marks] if awaited else []
        for step in self._visible():
            if step.late or step.loose:
                continue
            if step.cancelled is not None:  # its parts came all the same; and what is not awaited is not cancelled
                found += step.turns
            elif step.outcome is not None and (not awaited or flags_of(step.outcome) & record.AWAITED):
                found += [*step.turns, step.outcome.seq]
        return sorted(place for place in found if place)  # the places of some parts are all one

    def inside(self, scope: int) -> Iterator[tuple[int, Recorded]]:
        """Every step with an outcome inside a step, at any depth, and the step it stands in."""
        for track in self.scopes.get(scope, {}).values():
            for step in track.steps:
                if step.outcome is not None:
                    yield scope, step
                if step.id is not None:
                    yield from self.inside(step.id)

    def waiting(self) -> list[Recorded]:
        """The pauses, and the announced effects, that have no outcome."""
        return [
            step
            for step in self._visible()
            if step.outcome is None and step.cancelled is None and (step.id in self.pauses or step.intent)
        ]

    def _visible(self) -> Iterator[Recorded]:
        """Every step that can be asked for: not those inside a step that is served whole."""
        scopes: list[int | None] = [None]
        while scopes:
            for track in self.scopes.get(scopes.pop(), {}).values():
                for step in track.steps:
                    yield step
                    if step.id is None or step.cancelled is not None:
                        continue
                    if self._as_it_was or step.outcome is None or flags_of(step.outcome) & record.OPEN:
                        scopes.append(step.id)


def _spawned_at(below: str) -> int:
    """The position of the spawning lane, from the first segment of a path: `task:fetch#0@3`."""
    return int(below.partition("/")[0].rpartition("@")[2])


def _newest(track: Track) -> int:
    return max((step.outcome.seq if step.outcome is not None else step.seq for step in track.steps[-1:]), default=-1)
