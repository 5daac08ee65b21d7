"""When the row of a decision is written: with the next one if it was quick, else at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep import END, Graph, Runner, node, route
from everstep.graph import calls

seen: list[list[str]] = []


@route(targets=["work", END])
def choose(x: int) -> str:
    return "work" if x else END


@node(output="y")
def work(x: int) -> int:
    with everstep.open(SEEN_IN[0], read_only=True) as trail:  # what another process would find
        seen.append([step.name for step in trail.steps("r")])
    return x


SEEN_IN: list[Path] = []
GRAPH = Graph([choose, work], name="g")


@pytest.mark.parametrize(
    ("quick", "heard", "on_disk"),
    [(1e9, False, ["g"]), (0.0, False, ["g", "choose"]), (1e9, True, ["g", "choose"])],
    ids=["quick", "slow", "with handlers"],
)
def test_a_decision_is_on_disk_before_what_it_chose_unless_it_was_quick(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: float,
    heard: bool,  # noqa: FBT001 - a parameter of the test
    on_disk: list[str],
) -> None:
    monkeypatch.setattr(calls, "_QUICK", quick)
    seen.clear()
    SEEN_IN[:] = [tmp_path / "trail.db"]
    with everstep.open(SEEN_IN[0]) as trail:
        if heard:
            trail.on("run_completed", handler=lambda _: None)
        Runner(trail).run(GRAPH, x=1, id="r")
        assert [step.name for step in trail.steps("r")] == ["g", "choose", "work", "end"]
    assert seen == [on_disk]
