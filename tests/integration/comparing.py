"""What the tests of comparisons share: runs by hand, code that can be told to do otherwise, what differs in a line."""

from __future__ import annotations

from typing import Any

from everstep import Trail, step, workflow
from everstep.trail.comparing import Comparison, Verdict

TEXT = "The tides are made by the moon and the sun, and by the turning of the earth, day by day."


def record(trail: Trail, run_id: str, steps: str, **about: Any) -> None:
    """A run by hand: `a1 b2` is step a, which gave 1, then step b, which gave 2."""
    run = trail.record(run_id, **about)
    for word in steps.split():
        run.step(word[0], output=word[1:], append_to="log")
    run.finish("done")


def verdicts(found: Comparison) -> list[str]:
    """What differs, one line each: sign, name, seqs, parts."""
    return [
        f"{pair.sign}{pair.name} {_seq(pair.a)} {_seq(pair.b)} {','.join(pair.what)}".strip()
        for pair in found.steps
        if pair.verdict is not Verdict.SAME
    ]


def _seq(row: Any) -> str:
    return "-" if row is None else str(row.seq)


class Knobs(dict[str, Any]):
    """What the code of the tests is told to do otherwise."""


knobs = Knobs()


@step
def write(part: str) -> str:
    if knobs.get("fail") == part:
        raise ValueError(f"no {part}")
    return f"{TEXT} This is about {part}, and it is {knobs.get('end', 'good')}."


@step
def chapter(title: str) -> str:
    return write(f"{title} one") + write(f"{title} two")


@workflow
def book(titles: list[str]) -> int:
    if "before" in knobs:
        write(knobs["before"])
    return sum(len(chapter(title + knobs.get("more", ""))) for title in titles)
