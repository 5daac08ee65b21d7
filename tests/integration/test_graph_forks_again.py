"""A fork of a graph's run, with values that were changed, is itself interrupted and taken up again."""

from __future__ import annotations

import pytest

from everstep import Graph, Runner, Trail, interrupt, node


@node(output="price")
def quote(item: str) -> int:
    return len(item)


@interrupt(output="verdict")
def ask(price: int) -> str:
    return f"{price}?"


@node(output="bill")
def bill(price: int, verdict: str) -> str:
    return f"{price} {verdict}"


buying = Graph([quote, ask, bill], name="buying")


@pytest.fixture
def bought(trail: Trail) -> str:
    Runner(trail).run(buying, item="tea", id="r-1")
    return Runner(trail).run(buying, id="r-1", answer="yes").run_id


def test_what_a_fork_changed_is_still_changed_when_the_fork_is_taken_up_again(trail: Trail, bought: str) -> None:
    trail.fork(bought, at=1, id="r-2", set={"price": 10}).release()

    asked = Runner(trail).run(buying, id="r-2")
    assert asked.pause is not None
    assert (asked.pause.prompt, asked.values) == ("10?", {"price": 10})

    done = Runner(trail).run(buying, id="r-2", answer="no")
    assert done.values == trail.state("r-2") == {"price": 10, "verdict": "no", "bill": "10 no"}


def test_each_fork_changes_what_it_was_made_to_change(trail: Trail, bought: str) -> None:
    trail.fork(bought, at=1, id="r-2", set={"price": 10}).release()
    Runner(trail).run(buying, id="r-2")
    Runner(trail).run(buying, id="r-2", answer="no")
    answered = next(step.seq for step in trail.steps("r-2") if step.name == "ask" and step.status == "completed")
    trail.fork("r-2", at=answered, id="r-3", set={"verdict": "perhaps"}).release()

    for _ in range(2):
        assert Runner(trail).run(buying, id="r-3").values == trail.state("r-3")
    assert trail.state("r-3") == {"price": 10, "verdict": "perhaps", "bill": "10 perhaps"}


def test_a_fork_at_the_start_is_taken_up_again(trail: Trail, bought: str) -> None:
    trail.fork(bought, at=0, id="r-2").release()
    assert Runner(trail).run(buying, id="r-2").values == {"price": 3}
    assert Runner(trail).run(buying, id="r-2", answer="no").values["bill"] == "3 no"
