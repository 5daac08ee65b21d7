"""Chance that can be drawn again: derived from a seed that is kept with the run, so that nothing else need be.

What the system is asked for in captured code is a keyed digest of where it is asked: which lane, at which of its
steps, in which module, for the how-manieth time. So lanes do not disturb one another, nor what a library draws the
code that uses it. A call that is being made gets what the system gives: no key of a connection is derived. Who can read
the run can derive what the program drew, its tokens too.

A fork goes on with a seed of its own from where it leaves the other run: what must be unique, stays so.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from hashlib import shake_256
from types import FrameType
from typing import Any

from everstep import actual
from everstep.capturing import commons
from everstep.capturing.progress import Progress
from everstep.run.lanes import Lane, here

SEED_SIZE = 32
_FOR_OTHERS = frozenset({"everstep.capturing.entropy", "random", "secrets", "uuid", "tempfile", "uuid_utils.compat"})
_NODE_SIZE = 6  # bytes of the number of a machine, as it stands in a uuid1
_MULTICAST = 1 << 40  # says that the number is no machine's


class Well:
    """Where the chance of one captured program comes from."""

    def __init__(self, seeds: Sequence[tuple[int, bytes]], progress: Progress) -> None:
        """`seeds` with the row that each begins with."""
        self._seeds = sorted(seeds)
        self._progress = progress

    def draw(self, lane: Lane, size: int) -> bytes:
        """Bytes for a lane."""
        known: tuple[int, dict[str, int]] | None = getattr(lane, "drawn", None)
        if known is None or known[0] != lane.position:
            known = lane.drawn = lane.position, {}
        counts = known[1]
        module = _drawing_module()
        count = counts[module] = counts.get(module, 0) + 1
        place = f"{lane.scope.key()}|{lane.path}|{lane.position}|{module}|{count}"
        return derived(self._seed(lane), place, size)

    def _seed(self, lane: Lane) -> bytes:
        """That of the part of the run that a lane is in: what it asks for next tells, or how far the program is."""
        if len(self._seeds) == 1:
            return self._seeds[0][1]
        track, last = lane.track, self._seeds[-1][0]
        if track is not None and lane.position < len(track.steps) and track.steps[lane.position].seq < last:
            row = track.steps[lane.position].seq
            return max((start, seed) for start, seed in self._seeds if start <= row)[1]
        return max((start, seed) for start, seed in self._seeds if start == 0 or self._progress.is_past(start))[1]


def _drawing_module() -> str:
    """The name of the module that draws, beyond those that draw for others."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - who calls is to be seen nowhere else
    name = ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name not in _FOR_OTHERS:
            break
        frame = frame.f_back
    return name


def derived(seed: bytes, place: str, size: int) -> bytes:
    """Bytes that follow from a seed and a place."""
    return shake_256(b"%b|%b" % (seed, place.encode())).digest(size)


# Where programs get chance from.

_urandom, _getrandom = os.urandom, getattr(os, "getrandom", None)
_seed_of, _seed_global = random.Random.seed, random.seed


def source() -> Callable[[int], bytes] | None:
    """What the code that calls draws from; None if that is the system."""
    lane = here()
    if lane is None or lane.run.captured is None or lane.run.closed:
        return None
    well: Well | None = lane.run.captured.senses.well
    leaf = lane.scope.leaf
    if well is None or (leaf is not None and not leaf.over):
        return None
    return functools.partial(well.draw, lane)


@functools.wraps(_urandom)
def _urandom_drawn(size: int, /) -> bytes:
    draw = source()
    return _urandom(size) if draw is None or size < 0 else draw(size)


def _getrandom_drawn(size: int, flags: int = 0) -> bytes:
    draw = source()
    return _getrandom(size, flags) if draw is None or size < 0 else draw(size)  # type: ignore[misc] # it is there


def _or_drawn(given: Any) -> Any:
    """What to seed with: the C code beneath asks the system itself if it is given nothing."""
    draw = source() if given is None else None
    return given if draw is None else int.from_bytes(draw(SEED_SIZE), "big")


@functools.wraps(_seed_of)
def _seed_of_drawn(self: random.Random, a: Any = None, version: int = 2) -> None:
    _seed_of(self, _or_drawn(a), version)


@functools.wraps(_seed_global)
def _seed_global_drawn(a: Any = None, version: int = 2) -> None:
    _seed_global(_or_drawn(a), version)


def watch() -> None:
    """Wrap the ways to chance. Once: to unwrap would race with others who wrap them."""
    if os.urandom is _urandom:
        os.urandom = _urandom_drawn
        random._urandom = _urandom_drawn  # type: ignore[attr-defined] # noqa: SLF001 - what SystemRandom and secrets draw with
        if _getrandom is not None:
            os.getrandom = _getrandom_drawn
        random.Random.seed = _seed_of_drawn  # type: ignore[method-assign] # this is the wrapping
        random.seed = _seed_global_drawn


def seeded(run: Any, seed: bytes) -> AbstractContextManager[None]:
    """While this lasts, what the process has one of for all follows from the seed too, and then is what it was."""
    Context().run(tempfile.gettempdir)  # it draws when it is first called; here it does so in nobody's lane
    return commons.own(run, functools.partial(_begin, seed))


def _begin(seed: bytes) -> None:
    _seed_global(int.from_bytes(derived(seed, "random", SEED_SIZE), "big"))
    node = int.from_bytes(derived(seed, "node", _NODE_SIZE), "big") | _MULTICAST
    vars(uuid).update(dict.fromkeys(commons.of_uuids()), _node=node)
    vars(tempfile)["_name_sequence"] = None  # made anew when a name is asked for


def new_seed() -> bytes:
    """A seed by chance."""
    return actual.urandom(SEED_SIZE)
