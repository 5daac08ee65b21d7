"""Two runs side by side: which step of one is which of the other, and what differs. Nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from everstep.codec.record import StepRecord
from everstep.codec.shown import count
from everstep.codec.values import encode
from everstep.errors import ErasedError, RunNotFoundError
from everstep.model import Kind, Run, Status, Word
from everstep.trail.branching import Branches, Mark, Twin, side_by_side
from everstep.trail.compare import Change, changes
from everstep.trail.differing import Difference, cost_of, differences, said, tokens_of
from everstep.trail.inside import is_map, items_of
from everstep.trail.versions import CODE, changed_versions, listed
from everstep.trail.wording import IN_A_OR_B, shown

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

_SHOWN = 40  # lines of each part that a person is shown
_SLOWER, _LEAST = 2.0, 10.0  # times as long, and milliseconds more, from which a duration is worth a word


class Verdict(Word):
    """How a step of one run stands to the other run."""

    SAME = "same"
    CHANGED = "changed"
    INSERTED = "inserted"  # only `b` has it
    REMOVED = "removed"  # only `a` has it
    MOVED = "moved"  # both have it, at another place


_SIGNS = {Verdict.SAME: " ", Verdict.CHANGED: "~", Verdict.INSERTED: "+", Verdict.REMOVED: "-", Verdict.MOVED: ">"}


class StepPair(NamedTuple):
    """A step of one run and its counterpart in the other; None on the side that has none."""

    verdict: Verdict
    name: str
    kind: Kind  # what it is: a step, a pause, a checkpoint, the start or the end of the run, ...
    depth: int
    a: StepRecord | None
    b: StepRecord | None
    differences: tuple[Difference, ...] = ()
    duration_ms: tuple[float, float] | None = None  # where one took much longer. Time alone is no difference

    @property
    def what(self) -> tuple[str, ...]:
        """Which parts differ."""
        return tuple(each.part for each in self.differences)

    @property
    def sign(self) -> str:
        """The verdict in one character."""
        return _SIGNS[self.verdict]

    def to_dict(self, change: Callable[[Change], Any] = str) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {
            "verdict": str(self.verdict), "depth": self.depth, "name": self.name, "kind": str(self.kind),
            "a": None if self.a is None else self.a.seq, "b": None if self.b is None else self.b.seq,
            "differences": {each.part: [change(one) for one in each.changes] for each in self.differences},
            "duration_ms": None if self.duration_ms is None else list(self.duration_ms),
        }  # fmt: skip

    def __str__(self) -> str:
        seqs = "/".join("-" if row is None else str(row.seq) for row in (self.a, self.b))
        lines = [f"{self.sign} {'  ' * self.depth}{self.name} ({seqs}) {self.verdict}"]
        lines += [f"    {line}" for each in self.differences for line in each.lines()[:_SHOWN]]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two, in figures."""

    run_id: str
    at: int  # the seq up to which it was compared
    status: Status
    steps: int
    errors: int
    tokens: int
    cost: float | None  # None if no step says
    duration_ms: float | None  # None while it has not ended

    @property
    def address(self) -> str:
        """`run@seq`."""
        return f"{self.run_id}@{self.at}"

    def to_dict(self) -> dict[str, Any]:
        """Its figures."""
        return {
            "run_id": self.run_id, "at": self.at, "status": str(self.status), "steps": self.steps,
            "errors": self.errors, "tokens": self.tokens, "cost": self.cost, "duration_ms": self.duration_ms,
        }  # fmt: skip


class ChildPair(NamedTuple):
    """The ids of the child runs of one step, or of one item of two maps; None where only the other map has the item."""

    a: str | None
    b: str | None

    def __str__(self) -> str:
        if self.a is None or self.b is None:
            return f"{'+' if self.a is None else '-'} child run {self.a or self.b}"
        return f"~ child runs {self.a} and {self.b}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How run `b` differs from run `a`."""

    a: Side
    b: Side
    steps: tuple[StepPair, ...]  # every step of both, parents before children
    first: StepPair | None  # the first divergence
    changes: tuple[Change, ...]  # of the state at the ends
    children: tuple[ChildPair, ...] = ()  # the child runs that differ
    notes: tuple[str, ...] = ()  # what else is worth knowing, and is no difference

    @property
    def identical(self) -> bool:
        """Whether all steps are the same, those of child runs too, and the state they led to."""
        return self.first is None and not self.changes and not self.children

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many steps there are of each verdict."""
        found = dict.fromkeys(Verdict, 0)
        for pair in self.steps:
            found[pair.verdict] += 1
        return found

    def summary(self) -> str:
        """One line."""
        if self.identical:
            return f"{self.a.run_id} and {self.b.run_id}: identical, {count(self.a.steps, 'step')}"
        told = ", ".join(f"{number:,} {verdict}" for verdict, number in self.counts.items() if number)
        elsewhere = "in the state" if self.changes else "in a child run"
        where = elsewhere if self.first is None else f"at {_where(self.first)}"
        return f"{self.a.run_id} and {self.b.run_id}: different, first {where}; steps: {told}"

    def to_dict(self, change: Callable[[Change], Any] = str) -> dict[str, Any]:
        """What JSON can hold of it; a change as its text, unless another form is given."""
        return {
            "identical": self.identical, "a": self.a.to_dict(), "b": self.b.to_dict(),
            "first": None if self.first is None else self.first.to_dict(change),
            "counts": {str(verdict): number for verdict, number in self.counts.items()},
            "steps": [pair.to_dict(change) for pair in self.steps],
            "changes": [change(one) for one in self.changes],
            "children": [{"a": one.a, "b": one.b} for one in self.children], "notes": list(self.notes),
        }  # fmt: skip

    def __str__(self) -> str:
        differ = [pair for pair in self.steps if pair.verdict is not Verdict.SAME]
        lines = [self.summary(), *map(str, differ[:_SHOWN])]
        if len(differ) > _SHOWN:
            lines.append(f"... {len(differ) - _SHOWN:,} more steps differ")
        lines += [shown(change, alone=IN_A_OR_B) for change in self.changes[:_SHOWN]]
        if len(self.changes) > _SHOWN:
            lines.append(f"... {len(self.changes) - _SHOWN:,} more changes of the state")
        lines += map(str, self.children[:_SHOWN])
        if len(self.children) > _SHOWN:
            lines.append(f"... {len(self.children) - _SHOWN:,} more child runs differ")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _where(pair: StepPair) -> str:
    seqs = " and ".join(dict.fromkeys(str(row.seq) for row in (pair.a, pair.b) if row is not None))
    what = f" ({', '.join(pair.what)})" if pair.what else ""
    return f"step {seqs} {pair.name!r:.60}, {pair.verdict}{what}"


Point = tuple[str, int | None]


def compare(trail: Trail, a: Point, b: Point) -> Comparison:
    """How `b` differs from `a`. Each is a run and a seq; None for its head."""
    left, right, twins = _beside(trail, a, b)
    pairs = tuple(_pairs(twins))
    states, notes = _states(trail, left, right)
    children = _children(trail, _inside(trail, pairs, left, right), notes)
    return Comparison(
        _side(left), _side(right), pairs, _first(pairs, twins), states, children, (*notes, *_notes(left, right))
    )  # fmt: skip


# Step by step.


def _beside(trail: Trail, a: Point, b: Point) -> tuple[Branches, Branches, list[Twin]]:
    left, right = (Branches(trail.store, trail.run(run_id), at) for run_id, at in (a, b))
    left.share(right)
    return left, right, list(side_by_side(left, right))


def _pairs(twins: list[Twin]) -> Iterator[StepPair]:
    shift = _Shift()
    for twin in twins:
        a, b, node = twin.a, twin.b, twin.one.node
        if a is None or b is None:
            verdict = Verdict.REMOVED if b is None else Verdict.INSERTED
            shift.broken()
            yield StepPair(verdict, node.name, node.kind, twin.depth, _row(a), _row(b))
            continue
        found = () if a.own == b.own else differences(a.node, b.node, alike=said(a.node) == said(b.node))
        moved = shift.of(a, b)
        if moved is not None and not twin.moved:
            found = (*found, moved)
        verdict = Verdict.MOVED if twin.moved else Verdict.CHANGED if found else Verdict.SAME
        yield StepPair(
            verdict, node.name, node.kind, twin.depth, a.node.record, b.node.record, found, _durations(a, b)
        )  # fmt: skip


def _row(mark: Mark | None) -> StepRecord | None:
    return None if mark is None else mark.node.record


class _Shift:
    """By how many supersteps one run is ahead of the other. An inserted or removed step shifts all that follow it."""

    def __init__(self) -> None:
        self._ahead = 0
        self._is_open = False

    def broken(self) -> None:
        """A step that only one of them has: the next pair tells anew."""
        self._is_open = True

    def of(self, a: Mark, b: Mark) -> Difference | None:
        """The difference of a pair that stands in another superstep than those before it explain."""
        one, other = a.superstep, b.superstep
        if one is None or other is None:
            return None
        if other - one == self._ahead:
            return None
        was_open, self._is_open, self._ahead = self._is_open, False, other - one
        return None if was_open else Difference("superstep", (Change((), one, other),))


def _durations(a: Mark, b: Mark) -> tuple[float, float] | None:
    one, other = a.node.duration_ms, b.node.duration_ms
    if one is None or other is None or -_LEAST <= one - other <= _LEAST:
        return None
    same = a.node.record.hash == b.node.record.hash
    return None if same or max(one, other) <= _SLOWER * min(one, other) else (one, other)


def _first(pairs: tuple[StepPair, ...], twins: list[Twin]) -> StepPair | None:
    """The divergence that came first: a step's outcome comes after what ran inside it, what it was asked before.

    That one of them is a fork is known; it is named only where nothing else differs.
    """
    known = sorted((twin.b.node.seq, twin.a.node.seq) for twin in twins if twin.a is not None and twin.b is not None)
    found: tuple[tuple[int, int, int], StepPair] | None = None
    at, ahead = 0, -1  # what only `b` has came after what `a` has too and `b` had done before
    differ = [
        (_moment(pair, twin), pair) for pair, twin in zip(pairs, twins, strict=True) if pair.verdict is not Verdict.SAME
    ]
    differ = [each for each in differ if each[1].kind is not Kind.FORK] or differ
    for (of_b, seq), pair in sorted(differ, key=lambda each: each[0]):
        while of_b and at < len(known) and known[at][0] < seq:
            ahead, at = max(ahead, known[at][1]), at + 1
        when = (ahead + 1, 1, seq) if of_b else (seq, 0 if pair.b is None else 2, seq)
        if found is None or when < found[0]:
            found = when, pair
    return None if found is None else found[1]


def _moment(pair: StepPair, twin: Twin) -> tuple[bool, int]:
    """When a pair began to differ, in the rows of `a`; of what only `b` has, in its own."""
    node = (twin.a or twin.one).node
    begun = pair.verdict is not Verdict.CHANGED or "inputs" in pair.what or "name" in pair.what
    return twin.a is None, node.begun.seq if begun else node.seq


# The runs inside.


def _inside(trail: Trail, pairs: tuple[StepPair, ...], a: Branches, b: Branches) -> Iterator[ChildPair]:
    """The child runs of the same step, and those of the same item of a map."""
    for pair in pairs:
        if pair.a is not None and pair.b is not None and pair.a.child_run_id and pair.b.child_run_id:
            yield ChildPair(pair.a.child_run_id, pair.b.child_run_id)
    if is_map(a.tree.start) and is_map(b.tree.start):
        of_a, of_b = _items(trail, a), _items(trail, b)
        yield from (ChildPair(of_a.get(key), of_b.get(key)) for key in of_a | of_b)


def _items(trail: Trail, side: Branches) -> dict[str, str]:
    """The runs of a map's items, by what is the same in another map. They begin after its first row, up to its head."""
    found = items_of(trail, side.run.id) if side.at == side.run.head else []
    return {item.id.removeprefix(side.run.id): item.id for item in found}


def _children(trail: Trail, found: Iterable[ChildPair], notes: list[str]) -> tuple[ChildPair, ...]:
    """Those that differ, or have runs inside that do. What cannot be compared is noted."""
    alike, dropped = set[ChildPair](), dict[str, None]()
    differ = tuple(two for two in found if _differ(trail, two, alike, dropped))
    notes += [f"child run {run_id!r} was dropped, and is not compared" for run_id in dropped]
    return differ


def _differ(trail: Trail, two: ChildPair, alike: set[ChildPair], dropped: dict[str, None]) -> bool:
    """Whether two runs differ, or any inside them. A recorder may say of a run that it is inside itself."""
    waiting, seen = [two], set[ChildPair]()
    while waiting:
        one = waiting.pop()
        if one.a == one.b or one in alike or one in seen:  # equal: which a fork shares
            continue
        if one.a is None or one.b is None:
            return True
        seen.add(one)
        try:
            left, right, twins = _beside(trail, (one.a, None), (one.b, None))
            pairs = tuple(_pairs(twins))
            if any(pair.verdict is not Verdict.SAME for pair in pairs) or _states(trail, left, right)[0]:
                return True
            waiting += _inside(trail, pairs, left, right)
        except RunNotFoundError as gone:
            dropped[gone.run_id] = None
    alike |= seen
    return False


# The ends, and the figures.


def _states(trail: Trail, a: Branches, b: Branches) -> tuple[tuple[Change, ...], list[str]]:
    if a.is_at(b):
        return (), []
    try:
        old, new = (trail.state(side.run.id, side.at, view=True) for side in (a, b))
    except ErasedError as error:
        return (), [f"the states cannot be compared: {error}"]
    # Name by name: what is equal as it would be stored need not be gone through.
    for name in [name for name in old if name in new and encode(old[name]) == encode(new[name])]:
        del old[name], new[name]
    return tuple(changes(old, new)), []


def _notes(a: Branches, b: Branches) -> Iterator[str]:
    for side in (a, b):
        if side.run.oldest:
            yield f"{side.run.id} was pruned: what it did before step {side.run.oldest} is not known"
    began = [{} if side.tree.start is None else side.tree.start.metadata for side in (a, b)]
    if began[0].get(CODE) != began[1].get(CODE):
        yield "the code was not the same"
    versions = changed_versions(*began)
    if versions:
        yield f"other versions: {listed(versions)}"


def _side(side: Branches) -> Side:
    run: Run = side.run
    nodes = [node for _, node in side.tree.walk()]
    steps = [node for node in nodes if node.kind in {Kind.STEP, Kind.PAUSE}]  # as a replay goes through them
    used = [usage for node in nodes if (usage := node.record.usage)]
    costs = [cost for cost in map(cost_of, used) if cost is not None]
    at_head = side.at == run.head
    spent = run.duration_ms if at_head else (side.newest - run.created_at) / timedelta(milliseconds=1)
    return Side(
        run.id, side.at, run.status if at_head else Status.ACTIVE, len(steps),
        sum([node.status is Status.FAILED for node in steps]), sum(map(tokens_of, used)),
        sum(costs) if costs else None, spent,
    )  # fmt: skip
