"""What makes a step stand out: an oddity, with how much it says, and what it would explain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from everstep.codec.shown import brief
from everstep.trail.why.calls import Call
from everstep.trail.why.values import Profile

WIDTH = 60  # characters of a value in a sentence
FEW = 4  # of one name, fewer than which tell nothing about one another


@dataclass(slots=True)
class Oddity:
    """Something about one call, in a sentence that goes on after its name."""

    call: Call
    topic: str  # what an error that came of it would be about
    strength: float  # from 0 to 1: how surely this is no accident
    text: str
    keys: set[str] = field(default_factory=set)  # that its output lacks
    kinds: set[str] = field(default_factory=set)  # that its output has, and should not
    words: set[str] = field(default_factory=set)  # that stand for what it is about
    keys_in: bool = True  # whether its own words count as what it is about
    explains: bool = False  # whether the error is about this very thing


@dataclass(slots=True)
class Sample:
    """One value among those that are alike; of another run where no call is given."""

    call: Call | None
    profile: Profile


@dataclass(slots=True)
class Group:
    """What all steps of one name gave, or took."""

    name: str
    samples: list[Sample]
    verb: str = "gave"
    asked: set[str] = field(default_factory=set)  # keys that the error names: of what is missing, they come first
    wrong: set[str] = field(default_factory=set)  # kinds that the error is about
    wanted: set[str] = field(default_factory=set)  # kinds that it says should be in their place

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def foreign(self) -> list[Profile]:
        """The samples of other runs, which completed."""
        return [sample.profile for sample in self.samples if sample.call is None]

    @property
    def usual(self) -> list[Profile]:
        """Those that tell what is usual: of other runs alone where they are enough, for this one's may all be wrong."""
        foreign = self.foreign
        return foreign if len(foreign) >= FEW else [sample.profile for sample in self.samples]

    @property
    def few_enough(self) -> int:
        """How many of the usual may differ before being different is usual."""
        few = max(1, len(self.samples) // 8)
        return few if len(self.foreign) < FEW else few - 1  # the one that is asked about is not among them

    def rule(self, count: int) -> bool:
        """Whether what so many of the usual do is what nearly all do."""
        known = len(self.usual)
        return known >= FEW and count >= known - self.few_enough

    def clears(self, odd: set[str], usual: set[str]) -> bool:
        """Whether the error is about what is usual, or about another place: then what differs is not what is wrong."""
        if self.wrong & odd:
            return bool(self.wanted) and not self.wanted & usual
        return bool(self.wrong & usual)

    def own(self) -> list[tuple[Call, Profile]]:
        """The samples of this story."""
        return [(sample.call, sample.profile) for sample in self.samples if sample.call is not None]


def sure(others: int) -> float:
    """How much it says that so many others agree."""
    return 1 - 1 / (others + 0.5) if others > 0 else 0.0


def shown(value: Any) -> str:
    """A value in a sentence."""
    return brief(value, WIDTH)


def place(path: str) -> str:
    """A path in a sentence."""
    return path.removeprefix(".")


def named(path: str) -> str:
    """As what something was given, in a sentence."""
    return f" as {place(path)}" if path else ""


def others(count: int) -> str:
    """So many others, in words."""
    return "the other one" if count == 1 else f"the {count:,} others"


def last_of(path: str) -> str:
    """The name at the end of a path."""
    name = path.rpartition(".")[2] if "." in path else path
    return name.partition("[")[0]
