"""A graph that tests look at afterwards: two nodes side by side, a loop, and a failure when it is asked for."""

from __future__ import annotations

from typing import Any

import pytest

import everstep
from everstep import END, Graph, Runner, StepRecord, Trail, node, route


@everstep.step
def look_up(word: str) -> str:
    return word.upper()


@node(output="words")
def read(text: str) -> list[str]:
    return [look_up(word) for word in text.split()]


@node(output="length")
def measure(text: str) -> int:
    return len(text)


@node(output="draft")
def write(words: list[str], length: int, draft: str = "") -> str:
    if FAILING and len(draft) >= FAILING[0]:
        FAILING.clear()
        raise ValueError("no more ink")
    return draft + words[len(draft) % len(words)][0]


@route(targets=["write", END])
def enough(draft: str) -> str:
    return END if len(draft) >= 4 else "write"


FAILING: list[int] = []  # how long the draft is when `write` fails, once
STORY = Graph([read, measure, write, enough], name="story")


def written(trail: Trail, run_id: str = "s") -> everstep.RunResult[Any]:
    return Runner(trail).run(STORY, {"text": "all good tides"}, id=run_id)


def broken(trail: Trail, at: int = 2) -> None:
    FAILING[:] = [at]
    with pytest.raises(ValueError, match="no more ink"):
        written(trail)


def told(steps: list[StepRecord]) -> list[tuple[int | None, str, str]]:
    return [(step.superstep, step.name, str(step.status)) for step in steps]
