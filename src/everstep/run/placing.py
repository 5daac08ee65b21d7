"""Whether lanes are spawned where the record has them.

A step that was inserted or removed just before tasks or threads are spawned is not missed in any lane's own record: the
lanes spawned there only stand elsewhere now. Taken for new ones, their finished steps would be executed again. So would
steps that moved into a task or a thread of their own, as when a loop becomes a `gather`.
"""

from __future__ import annotations

import re
from itertools import islice

from everstep.errors import MOVED, DivergenceError
from everstep.journal import Journal
from everstep.journal.track import Track
from everstep.run.asked import Ask
from everstep.run.lanes import Lane

_POSITION = re.compile(r"@\d+(?=/|$)")


class _Spawned:
    """The lanes of one scope, as the record has them."""

    def __init__(self, paths: list[str]) -> None:
        self.by_shape: dict[str, str] = {}  # without positions
        self.by_place: dict[tuple[str, int], list[str]] = {}  # of the spawning lane, and the position it had
        for path in paths:
            segments = path.split("/")
            for depth, segment in enumerate(segments):
                above, whole = "/".join(segments[:depth]), "/".join(segments[: depth + 1])
                if self.by_shape.setdefault(_POSITION.sub("", whole), whole) is whole:
                    self.by_place.setdefault((above, _position(segment)), []).append(segment)


class Places:
    """Where a resumed run spawned its lanes."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._scopes: dict[int | None, _Spawned] = {}

    def fault(self, lane: Lane, position: int, name: str) -> DivergenceError | None:
        """What is wrong with executing this step of a lane, which is not on record: it may only seem to be new."""
        scope = lane.scope.id
        recorded = self._journal.scopes.get(scope)
        if not recorded or lane.scope.start:
            return None
        spawned = self._scopes.get(scope)
        if spawned is None:
            spawned = self._scopes[scope] = _Spawned([path for path in recorded if path])
        if lane.path and lane.track is None:
            was = spawned.by_shape.get(_POSITION.sub("", lane.path))
            if was is not None and was != lane.path and self._is_on_record(scope, was):
                return self._moved(lane, was)
        if lane.track is not None and _is_loose(lane.track, position):
            return None
        for segment in spawned.by_place.get((lane.path, position), ()):
            tag, _, number = segment.rpartition("@")[0].rpartition("#")
            whole = f"{lane.path}/{segment}" if lane.path else segment
            if lane.spawned.get(tag, 0) <= int(number) and self._is_on_record(scope, whole):
                return DivergenceError("inserted", lane=lane.path, position=position, requested=name)
        return None

    def _is_on_record(self, scope: int | None, path: str) -> bool:
        """Whether it still is: what a failed run did after its failure is taken back, or need not come again."""
        lanes = self._journal.scopes.get(scope, {})
        return any(
            not _is_loose(track, 0) for known, track in lanes.items() if known == path or known.startswith(f"{path}/")
        )

    def _moved(self, lane: Lane, was: str) -> DivergenceError | None:
        before, now = was.split("/"), lane.path.split("/")
        depth = next(depth for depth, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1])
        above, then, here = "/".join(now[:depth]), _position(before[depth]), _position(now[depth])
        track = self._journal.track(lane.scope.id, above)
        if track is not None and _is_loose(track, then):
            return None
        if track is not None and here < len(track.steps) and here < then:
            step = track.steps[here]
            return DivergenceError("removed", lane=above, position=here, seq=step.seq, recorded=step.name)
        return DivergenceError("inserted", lane=above, position=then)


def moved(ask: Ask) -> DivergenceError | None:
    """What is wrong with executing a step of a new lane, if a lane around it has the same on record and still ahead.

    Code that did not change comes to it there without this lane: it did so before, when this one had no outcome yet.
    """
    around = ask.lane.up
    while around is not None and around.scope is ask.lane.scope:
        track = around.track
        if track is not None and not around.unordered:
            for position, step in enumerate(islice(track.steps, around.position, None), around.position):
                same = (step.name, step.digest) == (ask.name, ask.digest) and step.cancelled is None
                if same and not _is_loose(track, position):
                    return DivergenceError(
                        MOVED, lane=around.path, position=position, seq=step.seq, recorded=step.name, requested=ask.name
                    )
        around = around.up
    return None


def _is_loose(track: Track, position: int) -> bool:
    return position < len(track.steps) and (track.steps[position].loose or track.steps[position].late)


def _position(segment: str) -> int:
    return int(segment.rpartition("@")[2])
