"""The outside of random programs: it answers by the true place, and knows what must come of each step.

Every leaf answers with a number made from its place in the program, which the step's arguments do not tell. So an
answer that was recorded for another place shows at once, and so does a step that is executed though its outcome was
known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import blake2b

import everstep
from tests.programs.generator import Node

Spot = tuple[int, ...]  # where in the program, and in which turn of its loops
Key = tuple[Spot, tuple[int, ...]]  # with the attempts of the steps around it
Given = int | None
Answer = tuple[int, int, tuple[str, int, Given]]


def number(*parts: object) -> int:
    """A number that follows from the parts, and from nothing else."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=5).digest(), "big")


class Boom(Exception):  # noqa: N818 - it is raised on purpose
    """What leaves fail with. Its text says where."""


class World:
    """The outside: it answers leaves by their true place, and remembers what it was asked. It survives crashes."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.healed: set[Spot] = set()
        self.executed: set[Key] = set()
        self._newest: dict[Key, int] = {}  # attempt of each
        self.known: set[int] = set()  # numbers of the leaves whose outcome is on record
        self.calls = 0
        self.leaves = 0  # of them
        self._told: dict[Key, int] = {}  # whose outcome the code was told, and when
        self._clock = 0
        self._life: set[tuple[Key, int]] = set()  # executed since the last crash
        self._failures: dict[Key, int] = {}  # when each leaf failed last
        self._lock = threading.Lock()
        self._is_dead: Callable[[], bool] = bool

    def new_life(self, is_dead: Callable[[], bool]) -> None:
        self._life = set()
        self._is_dead = is_dead

    def ask(self, node: Node, key: Key) -> None:
        """The code asks for a step."""

    def execute(self, node: Node, key: Key, given: Given) -> Answer:
        """Execute a leaf: its answer, the number that its row will be known by, and what it was asked."""
        self._note(node, key)
        self.leaves += 1
        if node.fails and key[0] not in self.healed and (node.fails == "always" or attempt() == 1):
            with self._lock:
                self._failures[key] = self._clock
            raise Boom(f"{node.name} {number(key[0])}")
        return number("answer", key[0]), number("row", key), (node.name, node.constant, given)

    def enter(self, node: Node, key: Key) -> None:
        """The body of a step that has steps inside begins."""
        self._note(node, key)

    def _note(self, node: Node, key: Key) -> None:
        now = attempt()
        with self._lock:
            self.calls += 1
            if key in self._told or number("row", key) in self.known:
                self.faults.append(f"{node.kind} {node.name} at {key} was executed though its outcome is known")
            if (key, now) in self._life:
                self.faults.append(f"attempt {now} of {node.name} at {key} was executed twice in one life")
            if self._newest.get(key, 0) > now:
                self.faults.append(f"attempt {now} of {node.name} at {key} was repeated after a later one had begun")
            self._life.add((key, now))
            self._newest[key] = now
            self.executed.add(key)

    def told(self, node: Node, key: Key, given: Given, answer: Answer | None, error: Boom | None) -> None:
        """The code was given the outcome of a step: it must be the one that belongs there, and it is known from now on.

        But for what fails in a process that is dead and does not know it yet: that goes nowhere.
        """
        if error is not None and self._is_dead():
            return
        with self._lock:
            self._clock += 1
            self._told.setdefault(key, self._clock)
            if key not in self.executed:
                self.faults.append(f"{node.kind} {node.name} at {key} has an outcome and was never executed")
            if node.kind != "leaf":
                return
            if error is not None and str(error) != f"{node.name} {number(key[0])}":
                self.faults.append(f"{node.name} at {key} failed with what belongs elsewhere: {error}")
            if answer is not None and answer[0] != number("answer", key[0]):
                self.faults.append(f"{node.name} at {key} was given the answer of another place")
            if answer is not None and answer[2] != (node.name, node.constant, given):
                self.faults.append(f"{node.name} at {key} was given what {answer[2]} gave")

    def heal(self, text: str) -> None:
        """Let the leaf that failed with this text succeed. What the code did since it failed may happen again."""
        named = {key: when for key, when in self._failures.items() if text == f"{text[0]} {number(key[0])}"}
        if not named:
            self.faults.append(f"it failed with {text!r}, which was set right before")
            return
        since, spot = max(named.values()), next(iter(named))[0]  # of a step's attempts the last one made the run fail
        self.healed.add(spot)
        self._failures = {key: when for key, when in self._failures.items() if key not in named}
        for key in [key for key, told in self._told.items() if told >= since or key[0] == spot]:
            self._told.pop(key, None)
            self._newest.pop(key, None)
            self.known.discard(number("row", key))


def attempt() -> int:
    """Which attempt at the step the calling code is."""
    return everstep.current().attempt
