"""From a failure back: through the steps that its exception came through, then through what they were given.

In a graph the record says who gave each value. Elsewhere a value is followed by its distinctive pieces: a number, an
id, a longer word that stands in what one step gave and in what a later one took.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.codec.record import StepRecord
from everstep.errors import EverstepError, RunNotFoundError
from everstep.model import Status, StepError
from everstep.trail.inside import is_map, items_of
from everstep.trail.outline import Node, chain_of, error_of
from everstep.trail.owner import is_at_work
from everstep.trail.why.calls import Call, Story, read
from everstep.trail.why.given import given, handed_on
from everstep.trail.why.heard import alike, settled
from everstep.trail.why.values import profile

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_DEPTH = 20  # child runs inside child runs
_NO_FAILURE = frozenset({Status.COMPLETED, Status.CANCELLED, Status.STOPPED, Status.PAUSED})
_OPEN = frozenset({Status.ACTIVE, Status.UNKNOWN, Status.PAUSED})
_BEFORE, _IN_CODE = 0.35, 0.6  # how surely a value reached code that keeps no record of what it takes
_SIGN = re.compile(r"[\d@/_:#.]")  # in a word that is no plain one
_PLAIN = {1: 0.4, 2: 0.65, 3: 0.8}
_STEP = 0.97  # what one step on the way leaves of it


class Reach(NamedTuple):
    """How surely what a call gave got to the failure, and through which call."""

    strength: float
    via: Call | None  # None for the code around the steps
    word: str | None  # that was found again; None where the record names the giver


class Trace:
    """A run, the way its failure took, and what could have got there."""

    def __init__(self, trail: Trail, run_id: str) -> None:
        self.story = read(trail, run_id)
        self.calls = list(self.story.calls)
        self._by_node = dict(self.story.by_node)
        self._stories = {self.story.run.id: self.story}
        self.path: list[Call] = []  # the steps that the failure came through, outermost first
        self.ends: list[StepRecord] = []  # of the runs that it came through, outermost first
        self.began: set[str] = set()  # words of the run's inputs
        run = self.story.run
        self.at_work = run.status is Status.ACTIVE and is_at_work(run.owner, trail.store.run(run.id).lease)
        self._follow(trail, self.story)
        for place, call in enumerate(self.calls):
            call.place = place
        self._whole_inputs(trail)
        self._index()
        self.reach: dict[Call, Reach] = {}
        self._walk_back()
        # What the run was given; of a map, the item that failed.
        self.given_first = given(self.last_story if self.is_map else self.story)
        if self.given_first is not None:
            self.reach[self.given_first] = self._from_inputs(self.given_first)

    def _from_inputs(self, inputs: Call) -> Reach:
        """How surely what the run was given got to the failure: through who took it, or by the code."""
        found = Reach(_BEFORE if self.path else _IN_CODE, None, None)
        for call, reach in list(self.reach.items()):
            words = sorted(inputs.gives.words & call.takes.words, key=lambda word: (-len(word), word))
            is_fed = any(giver is None and not name.startswith("_") for name, giver in call.feeds.items())
            is_whole = not is_fed and any(handed_on(inputs, call))
            if call.run_id != inputs.run_id or not (is_fed if call.feeds else words or is_whole):
                continue
            known = 1.0 if is_fed or is_whole else _known_by(words, inputs, call)
            if reach.strength * _STEP * known > found.strength:
                found = Reach(reach.strength * _STEP * known, call, words[0] if words else None)
        return found

    @property
    def last_story(self) -> Story:
        """The innermost run that the failure came through."""
        return list(self._stories.values())[-1]

    # The way of the exception.

    def _follow(self, trail: Trail, story: Story) -> None:
        for _ in range(_DEPTH):
            path = _came_through(story)
            if story.tree.end is not None:
                self.ends.append(story.tree.end)
            self.path += [call for node in path if (call := story.call(node)) is not None]
            child = path[-1].record.child_run_id if path else self._failed_item(trail, story)
            if child is None:
                return
            try:
                story = read(trail, child)
            except RunNotFoundError:
                return  # it was dropped
            place = self.path[-1].place if self.path and self.path[-1] in self.calls else len(self.calls)
            self.calls[place:place] = story.calls
            self._by_node |= story.by_node
            self._stories[story.run.id] = story

    def _failed_item(self, trail: Trail, story: Story) -> str | None:
        """Of a map, the first item that failed: it is where the error of the map came from."""
        if not is_map(story.tree.start) or story.tree.end is None:
            return None
        return next((run.id for run in items_of(trail, story.run.id) if run.status is Status.FAILED), None)

    @property
    def is_map(self) -> bool:
        """Whether the run that was asked about is one over many items."""
        return is_map(self.story.tree.start)

    def _whole_inputs(self, trail: Trail) -> None:
        """A node of a graph is on record with the names of what it took; what failed is worth reading the values."""
        for call in self.path:
            if not call.feeds:
                continue
            try:
                state = trail.state(call.run_id, max(call.begun - 1, 0), view=True)
            except EverstepError:
                continue  # pruned, erased or damaged: then what the steps gave has to do
            begun = call.inputs if isinstance(call.inputs, dict) else {}
            call.take({name: state.get(name, begun.get(name)) for name in call.feeds if not name.startswith("_")})

    @property
    def error(self) -> StepError | None:
        """What the run failed with, told by the innermost that knows; nothing where it was asked to end."""
        return next(iter(self.errors), None)

    @property
    def errors(self) -> list[StepError]:
        """The error as each that it came through has it, the innermost first."""
        if self.story.run.status in _NO_FAILURE or self.at_work:
            return []
        rows = [call.error for call in reversed(self.path)] + [error_of(end) for end in reversed(self.ends)]
        return [error for error in rows if error is not None]

    @cached_property
    def of_a_kind(self) -> list[list[Call]]:
        """The calls that completed, those together that ask for the same."""
        return alike(settled([call for call in self.calls if call.completed]))

    # The way of the data.

    def _index(self) -> None:
        self.given: dict[str, list[Call]] = defaultdict(list)
        self.brought: dict[str, int] = defaultdict(int)
        start = _words(self.story.inputs)
        for call in self.calls:
            if call.completed:
                for word in call.gives.words:
                    self.given[word].append(call)
                for word in call.new:
                    self.brought[word] += 1
        self._taken: dict[str, Call] = {}  # by word, the last that took it
        for call in self.calls:
            self._taken.update(dict.fromkeys(call.takes.words, call))
        self.began = start
        self._rare = max(3, len(self.calls) // 20)

    def is_telling(self, word: str) -> bool:
        """Whether a word is rare enough to be followed."""
        return word not in self.began and 0 < self.brought.get(word, 0) <= self._rare

    def taken_after(self, word: str, call: Call) -> bool:
        """Whether a later call took a word."""
        taker = self._taken.get(word)
        return taker is not None and taker.place > call.place

    def of(self, node: Node) -> Call | None:
        """The call of a node of any of the runs."""
        return self._by_node.get(id(node))

    def story_of(self, run_id: str) -> Story:
        """The run of a call."""
        return self._stories[run_id]

    def _walk_back(self) -> None:
        heap: list[tuple[float, int, int]] = []
        by_place = self.calls
        count = 0

        def reached(call: Call, strength: float, via: Call | None, word: str | None) -> None:
            nonlocal count
            known = self.reach.get(call)
            if known is None or known.strength < strength:
                self.reach[call] = Reach(strength, via, word)
                count += 1
                heappush(heap, (-strength, count, call.place))

        for call, strength in self._beginnings():
            reached(call, strength, None, None)
        while heap:
            weight, _, place = heappop(heap)
            call, strength = by_place[place], -weight
            if self.reach[call].strength > strength:
                continue
            for giver, words in self._givers(call).items():
                word = words[0] if words else None
                reached(giver, strength * _STEP * _known_by(words, giver, call), call, word)
            if call not in self.path:
                for child in call.node.children:
                    inner = self.of(child)
                    if inner is not None:
                        reached(inner, strength * _STEP, call, None)

    def _beginnings(self) -> list[tuple[Call, float]]:
        """The calls that failed, and those whose outcomes the code had that failed or called what failed."""
        found = [(call, 1.0) for call in self.path[-1:]] + [(call, 0.95) for call in self.path[:-1]]
        last = self.path[-1] if self.path else None
        scopes = {(call.run_id, call.parent): _BEFORE for call in self.path if not call.feeds}
        if last is None:
            scopes[self.story.run.id, None] = _IN_CODE
        elif last.node.children:
            scopes[last.run_id, last] = _IN_CODE
        end = last.seq if last is not None else self.story.run.head + 1
        for call in self.calls:
            strength = scopes.get((call.run_id, call.parent))
            before = call.run_id != (last or call).run_id or call.seq < end
            if strength is not None and call not in self.path and before and not call.feeds:
                found.append((call, strength))
        return found

    def _givers(self, call: Call) -> dict[Call, list[str]]:
        """Who gave what a call took, with the words that were found again; none where the record names the giver."""
        if call.feeds:
            return {giver: [] for giver in call.feeds.values() if giver is not None}
        found: dict[Call, list[str]] = {}
        # The longest first: it is the one that is shown.
        for word in sorted(filter(self.is_telling, call.takes.words), key=lambda word: (-len(word), word)):
            earlier = [giver for giver in self.given[word] if self._is_before(giver, call)]
            for giver in dict.fromkeys((earlier[0], earlier[-1])) if earlier else ():
                found.setdefault(giver, []).append(word)
        return found

    def _is_before(self, giver: Call, call: Call) -> bool:
        return giver.seq < call.begun if giver.run_id == call.run_id else giver.place < call.place

    def way(self, call: Call) -> list[tuple[Call, Reach]]:
        """The calls between one and the failure, beginning with it."""
        found: list[tuple[Call, Reach]] = []
        current: Call | None = call
        while current is not None and current in self.reach and len(found) < 50:
            found.append((current, self.reach[current]))
            current = self.reach[current].via
        return found


def _known_by(words: list[str], giver: Call, taker: Call) -> float:
    """How much shared words say. One plain word may be anybody's."""
    if not words or any(_SIGN.search(word) for word in words) or giver.gives.whole & taker.takes.whole:
        return 1.0
    return _PLAIN.get(len(words), 0.9)


def _words(inputs: Any) -> set[str]:
    return profile(inputs).words


def _came_through(story: Story) -> list[Node]:
    """The failed steps that ended a run, outermost first; where it has not ended, the steps that are open."""
    end = story.tree.end
    level: Sequence[Node] = story.tree.steps
    if end is None:
        return _deepest([node for node in level if not node.superseded], _OPEN)
    seqs, reason, path = chain_of(end), error_of(end), list[Node]()
    while True:
        failed = [node for node in level if node.status is Status.FAILED and not node.superseded]
        named = [node for node in failed if node.seq in seqs] or [
            node for node in failed[-1:] if reason is not None and _same(node.error, reason)
        ]
        if not named:
            return path
        path.append(named[0])
        level, seqs, reason = named[0].children, chain_of(named[0].record), named[0].error


def _deepest(level: Sequence[Node], statuses: frozenset[Status]) -> list[Node]:
    path: list[Node] = []
    while True:
        found = [node for node in level if node.status in statuses and not node.superseded]
        if not found:
            return path
        path.append(found[-1])
        level = found[-1].children


def _same(one: StepError | None, other: StepError) -> bool:
    return one is not None and (one.type, one.message) == (other.type, other.message)
