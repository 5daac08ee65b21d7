"""Random graphs are crashed and taken up again, and end as if they had not been. A failure says how to see it again."""

from __future__ import annotations

import pytest

from tests.programs.graph_trial import Trial, World, problems_of
from tests.programs.graphs import AWAITED, PLAIN, graph

BLOCK = 10


@pytest.mark.parametrize(
    "start", [0, 10, *(pytest.param(start, marks=pytest.mark.many) for start in range(20, 80, BLOCK))]
)
@pytest.mark.parametrize("family", [PLAIN, AWAITED])
def test_a_graph_that_crashes_and_is_taken_up_again_ends_as_if_it_had_not(family: str, start: int) -> None:
    """By either runner: same values, versions, supersteps, decisions, states; nothing known runs again (promise 2)."""
    assert problems_of(family, range(start, start + BLOCK), points=4) == []


@pytest.mark.torture
@pytest.mark.parametrize("start", range(10_000, 12_000, BLOCK))
@pytest.mark.parametrize("family", [PLAIN, AWAITED])
def test_many_graphs_that_crash_after_every_row_end_as_if_they_had_not(family: str, start: int) -> None:
    """As above, after each row there is (promise 2)."""
    assert problems_of(family, range(start, start + BLOCK)) == []


@pytest.mark.parametrize("family", [PLAIN, AWAITED])
def test_a_seed_makes_the_same_graph_every_time(family: str) -> None:
    one, other = (graph(family, 7, World())[0] for _ in range(2))
    assert (one.fingerprint(), one.inputs, one.edges) == (other.fingerprint(), other.inputs, other.edges)


def test_the_trial_sees_a_node_that_is_executed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that finds nothing must be able to find something."""
    monkeypatch.setattr("everstep.journal.track.Track.take", lambda *_: None)
    assert any("was executed though" in problem for problem in Trial(PLAIN, 0, points=6).problems())


def test_the_graphs_have_one_of_everything() -> None:
    """Else they would test less than they say."""
    kinds: set[str] = set()
    for seed in range(60):
        built, inputs, _ = graph(PLAIN, seed, World())
        kinds |= {each.kind for each in built.nodes}
        kinds |= {"loop"} if built.shape.repeated else set()
        kinds |= {"stream"} if any(each.is_stream for each in built.nodes) else set()
        kinds |= {"many"} if any(each.many for each in built.nodes) else set()
        assert set(inputs) <= set(built.inputs)
    assert kinds == {"node", "route", "gate", "interrupt", "graph", "loop", "stream", "many"}
