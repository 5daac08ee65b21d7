"""Where a step belongs: in which step's body, and there in which task, thread or branch.

A lane is found by the context variable, corrected by what the task factory (or a pool's worker) knows: contexts are
copied and passed around freely, while a task is one task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from everstep.trail.late import asyncio, running_loop

if TYPE_CHECKING:
    from everstep.journal.track import Track
    from everstep.run.execution import Execution

NODES = "unordered:@0"  # the lane of a graph's nodes: known by name and what they take, in whatever order they end
CURRENT: ContextVar[Lane | None] = ContextVar("everstep_lane", default=None)
OUTSIDE: Any = object()  # in the place of a lane: whatever task or thread this is, it is in no run
OF_TASK: WeakKeyDictionary[asyncio.Task[Any], Lane] = WeakKeyDictionary()


class _OfThread(threading.local):
    lane: Lane | None = None


OF_THREAD = _OfThread()
_lock = threading.RLock()  # the garbage collector comes in anywhere, and what it closes on a loop has a lane, too


class Scope:
    """One attempt at a step, or the run itself: what lanes are counted in."""

    __slots__ = (
        "ask", "at_work", "attempt", "child", "external", "id", "index", "lanes", "leaf", "name", "ops", "over",
        "place", "refused", "start", "usage", "waits",
    )  # fmt: skip

    def __init__(self, place: Lane | None, name: str, index: int, attempt: int) -> None:
        self.place = place  # the lane that the step stands in; None for the run
        self.ask: Any = None  # the request that it is an attempt at
        self.name = name
        self.index = index
        self.attempt = attempt
        self.id: int | None = None  # known once its beginning is written; None for the run
        self.start = False  # its beginning is still to be written
        self.ops: dict[Any, Any] = {}  # what it set in the state
        self.lanes: dict[str, Lane] = {}  # that asked for a step, by path
        self.at_work = 0  # spawned lanes that have not ended
        self.child: str | None = None  # the run that the step is
        self.external = False  # it acts on the world outside
        self.over = False  # it took too long, and was given up
        self.refused = False  # a step in it was: what its code makes of that is no outcome
        self.waits = False  # for time to pass, and does nothing else
        self.leaf: Any = None  # a call to the outside, whose own steps and tasks are part of it
        self.usage: dict[str, Any] | None = None  # what it says that it used

    def is_over(self) -> bool:
        """Whether it, or a step around it, was given up."""
        return self.over or (self.place is not None and self.place.scope.is_over())

    def refuse(self) -> None:
        """Note that a step in here was not taken: neither this one nor those around it can complete."""
        self.refused = True
        if self.place is not None and not self.over:
            self.place.scope.refuse()

    def has_set(self) -> bool:
        """Whether it, or a step around it, set something in the state."""
        return bool(self.ops) or (self.place is not None and self.place.scope.has_set())

    def override(self, names: Iterable[str | None]) -> None:
        """Forget what it and the steps around it set under these names: a step inside has set them since."""
        if self.ops:
            for name in names:
                self.ops.pop(name, None)
        if self.place is not None:
            self.place.scope.override(names)

    def key(self) -> str:
        """The place of the step in the program, whatever the attempt: the same after every crash and retry."""
        if self.place is None:
            return ""
        path = "" if self.place.path == NODES else self.place.path
        name = self.name.replace("%", "%25").replace("/", "%2F")  # no name can look like the path to another step
        if self.place.unordered and self.ask.digest is not None:
            name += f":{self.ask.digest.hex()}"  # which of the same name it is depends on chance there
        return "/".join(filter(None, (self.place.scope.key(), path, f"{name}#{self.index}")))


class Lane:
    """A sequence of steps: no two of them are at work at the same time."""

    __slots__ = (
        "__weakref__", "busy", "drawn", "hand", "joined", "names", "path", "plain", "position", "run", "scope", "seen",
        "spawned", "stopped", "track", "unordered", "up",
    )  # fmt: skip
    hand: Any  # of the clock that a captured program sees; set when it is first asked for
    drawn: tuple[int, dict[str, int]]  # at which position it drew by chance, and how often for whom; so too

    def __init__(self, run: Execution, scope: Scope, path: str, up: Lane | None) -> None:
        self.run = run
        self.scope = scope
        self.path = path
        self.up = up  # the lane it was spawned from, or whose step's body it is
        self.position = 0
        self.names: dict[str, int] = {}
        self.spawned: dict[str, int] = {}
        self.busy: str | None = None  # the step at work
        self.seen: int = -1 if up is None else up.seen  # the newest row that its code may know of
        self.joined = -1  # the newest row of threads that have ended: when they did is chance
        self.track: Track | None = None if scope.start else run.journal.track(scope.id, path)
        self.unordered = False
        self.plain = False  # its code cannot await
        self.stopped = False

    def take(self, name: str) -> tuple[int, int]:
        """The next position, and which of its name it is."""
        position = self.position
        self.position = position + 1
        index = self.names.get(name, 0)
        self.names[name] = index + 1
        return position, index

    def take_back(self, name: str, position: int) -> None:
        """Undo `take`, unless others have followed: what cannot be recorded is no step."""
        if self.position == position + 1:
            self.position = position
            self.names[name] -= 1

    def spawn(self, kind: str, name: str, number: int | None = None) -> Lane:
        """A lane beside this one's code. Counted by name, so that what a library spawns shifts nothing."""
        tag = f"{kind}:{name.replace('/', '.')}"
        with _lock:
            count = self.spawned.get(tag, 0)
            self.spawned[tag] = count + 1
        segment = f"{tag}#{count if number is None else number}@{self.position}"
        return Lane(self.run, self.scope, f"{self.path}/{segment}" if self.path else segment, self)

    def group(self, key: int, size: int) -> int:
        """The number of a group of lanes that is known by `key` until all of its `size` are spawned."""
        number, left = f"group {key}", f"left of {key}"
        if number not in self.spawned:
            self.spawned["groups"] = self.spawned.get("groups", -1) + 1
            self.spawned[number], self.spawned[left] = self.spawned["groups"], size
        self.spawned[left] -= 1
        if self.spawned[left] == 0:
            del self.spawned[left]
            return self.spawned.pop(number)
        return self.spawned[number]

    def descends(self, other: Lane) -> bool:
        """Whether this is the other lane, or one of the steps at work below it.

        Tasks that share a context leave their steps in it when they are over: each resets it to what it found.
        """
        lane: Lane | None = self
        while lane is not None:
            if lane is other:
                return True
            scope = lane.scope
            if scope is not other.scope and scope.place is not None and scope not in lane.run.at_work:
                return False
            lane = lane.up
        return False


class Closing(list["tuple[Lane, Callable[[], None]]"]):
    """The streams that the code has let go of, each with how it is closed. Mostly empty, and asked at every step.

    They are not closed at once: it may have been the garbage collector's doing, which runs in the middle of anything.
    """

    def add(self, lane: Lane, close: Callable[[], None]) -> None:
        """Have a stream of this lane closed with its next step, or at the end of the step around."""
        self.append((lane, close))

    def close(self, where: Lane | Scope | None = None) -> None:
        """Close those of a lane, of a step or of the whole run."""
        for each in self.copy():
            lane, close = each
            if where in {None, lane, lane.scope}:
                try:
                    self.remove(each)
                except ValueError:  # another thread was quicker
                    continue
                close()


def outside() -> Context:
    """A copy of this context in which whatever is started belongs to no run."""
    context = copy_context()
    context.run(CURRENT.set, OUTSIDE)
    return context


def here() -> Lane | None:
    """The lane of the code that calls, None outside of a run."""
    lane = CURRENT.get()
    if lane is OUTSIDE:
        return None
    if running_loop() is None:
        known = OF_THREAD.lane
    else:
        task = asyncio.current_task()
        known = OF_TASK.get(task) if task is not None else None
    if known is None or known is lane:
        return lane
    if lane is None or not lane.descends(known):
        return known
    return lane
