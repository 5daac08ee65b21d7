"""The first step after which a test fails, found by halving over the states of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from everstep.codec.record import StepRecord
from everstep.model import Word
from everstep.trail.compare import Change, changes
from everstep.trail.reading import Reader
from everstep.trail.wording import shown

if TYPE_CHECKING:
    from everstep.trail.trail import Trail

Test = Callable[[int, dict[str, Any]], bool | None]  # of a seq and the values after it
_SHOWN = 40  # changes that a person is shown


class Found(Word):
    """What a bisection came to."""

    STEP = "step"  # the test is good before a step, and bad after it
    UNSURE = "unsure"  # bad after a step; before it the test could not tell
    AT_START = "bad at the start"
    NEVER = "never bad"
    NOTHING = "cannot tell"  # the test could not tell at the end


@dataclass(frozen=True, slots=True)
class Bisection:
    """Where a test of the state begins to fail."""

    run_id: str
    found: Found
    step: StepRecord | None  # the first after which it fails
    good: int | None  # the last seq after which it is known to be good
    bad: int | None  # the first after which it is known to fail
    changes: tuple[Change, ...]  # of the state, from `good` to `bad`; from the step before, if none is known to be good
    tested: int  # how many states were tested

    def summary(self) -> str:
        """One line."""
        if self.step is None:
            words = {Found.AT_START: "is bad at the start already", Found.NEVER: "is never bad"}
            return f"{self.run_id}: the test {words.get(self.found, 'cannot tell at the end')}; {self.tested} tested"
        return f"{self.run_id}@{self.bad} {self.step.name!r:.60}: the test fails after it{self._before()}"

    def _before(self) -> str:
        if self.found is Found.STEP:
            return f"; {self.tested} states tested"
        known = "at no step before" if self.good is None else f"good after step {self.good}, and not between"
        return f", and cannot tell before it ({known}); {self.tested} states tested"

    def to_dict(self, change: Callable[[Change], Any] = str) -> dict[str, Any]:
        """What JSON can hold of it."""
        return {
            "run_id": self.run_id, "found": str(self.found), "seq": self.bad if self.step is not None else None,
            "name": None if self.step is None else self.step.name, "good": self.good, "bad": self.bad,
            "changes": [change(one) for one in self.changes], "tested": self.tested,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [self.summary(), *(shown(change) for change in self.changes[:_SHOWN])]
        if len(self.changes) > _SHOWN:
            lines.append(f"... {len(self.changes) - _SHOWN:,} more changes")
        return "\n".join(lines)


def bisect(trail: Trail, point: tuple[str, int | None], test: Test) -> Bisection:
    """Find the first step of a run, up to a point of it, after which the test fails."""
    run = trail.run(point[0])
    last = Reader(trail.store).place(trail.store.run(run.id), point[1])
    search = _Search(trail, run.id, test)
    found, good, bad = search.through(max(run.oldest - 1, 0), last)
    if found not in {Found.STEP, Found.UNSURE} or bad is None:
        return Bisection(run.id, found, None, good, bad, (), len(search.results))
    before = trail.state(run.id, bad - 1 if good is None else good, view=True)
    differ = tuple(changes(before, trail.state(run.id, bad, view=True)))
    return Bisection(run.id, found, trail.step(run.id, bad, view=True), good, bad, differ, len(search.results))


class _Search:
    """A binary search. It takes for granted that what has become bad stays bad."""

    def __init__(self, trail: Trail, run_id: str, test: Test) -> None:
        self._trail = trail
        self._run_id = run_id
        self._test = test
        self.results: dict[int, bool | None] = {}

    def _at(self, seq: int) -> bool | None:
        if seq not in self.results:
            result = self._test(seq, self._trail.state(self._run_id, seq, view=True))
            self.results[seq] = None if result is None else bool(result)
        return self.results[seq]

    def through(self, first: int, last: int) -> tuple[Found, int | None, int | None]:
        """What was found, the last good state and the first bad one."""
        at_end = self._at(last)
        if at_end is not False:
            return (Found.NEVER, last, None) if at_end else (Found.NOTHING, None, None)
        if self._at(first) is False:
            return Found.AT_START, None, first
        low, bad = first, last  # the test is bad at `bad`, and not at `low`
        while True:
            while bad - low > 1:
                middle = (low + bad) // 2
                if self._at(middle) is False:
                    bad = middle
                else:
                    low = middle
            good = self._good_below(bad)
            if good == bad - 1:
                return Found.STEP, good, bad
            # Just below it the test cannot tell. Between what is good and that, something bad may stand.
            lower = None if good is None else self._bad_between(good, bad)
            good = self._good_below(lower or bad)
            if lower is None or good is None:
                return Found.UNSURE, good, bad
            low, bad = good, lower

    def _good_below(self, seq: int) -> int | None:
        """The last state below one that is known to be good."""
        return max((known for known, result in self.results.items() if result and known < seq), default=None)

    def _bad_between(self, good: int, bad: int) -> int | None:
        """A bad state below those that the test cannot tell of, looked for down to the last good one."""
        unknown = min(seq for seq, result in self.results.items() if result is None and good < seq < bad)
        while unknown - good > 1:
            middle = (good + unknown) // 2
            result = self._at(middle)
            if result is False:
                return middle
            good, unknown = (middle, unknown) if result else (good, middle)
        return None
