from __future__ import annotations

from typing import Any

import everstep
from everstep.cli.tree import Fold, Line, lines
from everstep.model import Kind
from everstep.store.memory import MemoryStore
from everstep.trail.outline import outline
from everstep.trail.recorder import Recorder


class Run:
    """A run of any length, and the lines it is shown with."""

    def __init__(self) -> None:
        self.trail = everstep.Trail(MemoryStore())
        self.run: Recorder = self.trail.record("r")

    def leaf(self, name: str = "ask", **detail: Any) -> None:
        self.run.step(name, **detail)

    def composite(self, leaves: int, parent: int | None = None, **detail: Any) -> None:
        start = self.run.step("plan", kind=Kind.COMPOSITE_START, parent=parent).id
        for index in range(leaves):
            self.run.step("ask", parent=start, index=index)
        self.run.step("plan", id=start, parent=parent, **detail)

    def shown(self, *, everything: bool = False) -> list[Line | Fold]:
        return list(lines(outline(self.trail.steps("r")), everything=everything))

    def drawn(self) -> list[str]:
        return [
            f"{'  ' * line.depth}... {len(line.nodes)}+{line.inside}"
            if isinstance(line, Fold)
            else f"{'  ' * line.depth}{line.node.name}" + (f" ({line.inside})" if line.inside else "")
            for line in self.shown()
        ]


def test_a_short_run_is_shown_whole() -> None:
    run = Run()
    for _ in range(5):
        run.composite(10)
    assert len(run.shown()) == 55
    assert not any(isinstance(line, Fold) for line in run.shown())


def test_of_a_long_list_the_ends_are_shown() -> None:
    run = Run()
    for _ in range(10_000):
        run.leaf()
    assert run.drawn() == ["ask", "ask", "ask", "... 9994+0", "ask", "ask", "ask"]
    assert len(run.shown(everything=True)) == 10_000


def test_a_long_tree_is_shown_in_few_lines() -> None:
    run = Run()
    for _ in range(1_000):
        run.composite(9)
    assert run.drawn()[:5] == ["plan", "  ask", "  ... 7+0", "  ask", "plan"]
    assert "... 994+8946" in run.drawn()
    assert len(run.drawn()) == 25


def test_what_failed_is_open_or_waits_is_never_folded_away() -> None:
    run = Run()
    for number in range(5_000):
        run.leaf(f"s{number}")
        if number == 2_500:
            run.leaf("broken", error=ValueError("no"))
            run.leaf("charge", kind=Kind.INTENT)
            run.leaf("wait", kind=Kind.PAUSE, status="paused", pause={"prompt": "?"})
            run.leaf("stopped", kind=Kind.CANCELLED, status="cancelled")
    names = run.drawn()
    middle = names.index("broken")
    assert names[middle - 2 : middle + 6] == [
        "... 2497+0",
        "s2500",
        "broken",
        "charge",
        "wait",
        "stopped",
        "s2501",
        "... 2495+0",
    ]
    assert len(names) < 20


def test_the_way_to_a_failure_deep_inside_is_opened() -> None:
    run = Run()
    for number in range(100):
        outer = run.run.step("outer", kind=Kind.COMPOSITE_START).id
        inner = run.run.step("inner", kind=Kind.COMPOSITE_START, parent=outer).id
        for index in range(20):
            error = ValueError("no") if (number, index) == (50, 10) else None
            run.leaf("bad" if error else "ask", parent=inner, index=index, error=error)
        run.run.step("inner", id=inner, parent=outer)
        run.run.step("outer", id=outer)
    names = run.drawn()
    assert names.count("    bad") == 1
    at = names.index("    bad")
    assert names[at - 5 : at + 4] == [
        "outer",
        "  inner",
        "    ask",
        "    ... 8+0",
        "    ask",
        "    bad",
        "    ask",
        "    ... 7+0",
        "    ask",
    ]
    assert "  inner (20)" in names, "what went well stays closed"
    assert len(names) < 40


def test_a_fold_knows_its_names_and_how_long_it_took() -> None:
    run = Run()
    for number in range(100):
        run.leaf("think" if number % 2 else "act", duration_ms=5)
    [fold] = [line for line in run.shown() if isinstance(line, Fold)]
    assert fold.names == [("think", 47), ("act", 47)]
    assert fold.duration_ms == 94 * 5, "the sum, not the span: a fork may go on days later"


def test_steps_nested_deeper_than_the_stack_are_shown() -> None:
    run = Run()
    ids: list[int | None] = [None]
    for _ in range(3_000):
        ids.append(run.run.step("down", kind=Kind.COMPOSITE_START, parent=ids[-1]).id)
    assert len(run.shown()) == 3_000, "all of them are open"
