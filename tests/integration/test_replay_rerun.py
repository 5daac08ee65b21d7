"""Leaves that are nothing but code can be called in a replay all the same."""

from __future__ import annotations

import everstep
from everstep import Graph, Runner, node, step, workflow

CODE = {"add": "broken"}
CALLED: list[str] = []


@node(output="prices")
def fetch(order: str) -> list[int | None]:
    CALLED.append("fetch")
    return [1, None, 2]


@node(output="total")
def add(prices: list[int | None]) -> int:
    CALLED.append("add")
    if CODE["add"] == "broken":
        raise TypeError("None has no price")
    return sum(price or 0 for price in prices)


def test_a_mended_node_is_seen_if_it_is_named() -> None:
    """And it alone is called: what is named is code, all else comes from the record (promise 6)."""
    bill = Graph([fetch, add], name="bill")
    CODE["add"] = "broken"
    with everstep.open(":memory:") as trail:
        Runner(trail).run(bill, order="o", id="r", error_handling="continue")
        CALLED.clear()
        assert trail.replay("r", bill).identical
        assert CALLED == []
        assert trail.replay("r", bill, rerun=["add"]).identical
        assert CALLED == ["add"]
        CODE["add"] = "mended"
        assert trail.replay("r", bill).identical
        report = trail.replay("r", bill, rerun=["add"])
        assert report.first is not None
        assert (report.first.cause, report.first.step) == ("changed result", "add")


@step
def double(number: int) -> int:
    CALLED.append("double")
    return number * FACTOR[0]


FACTOR = [2]


@workflow
def doubles(numbers: list[int]) -> list[int]:
    return [double(number) for number in numbers]


def test_a_named_step_is_called_wherever_it_is_asked_for() -> None:
    FACTOR[0] = 2
    with everstep.open(":memory:") as trail:
        Runner(trail).run(doubles, [1, 2], id="r")
        CALLED.clear()
        assert trail.replay("r", doubles, rerun=["double"]).re_executed == 2
        assert CALLED == ["double", "double"]
        FACTOR[0] = 3
        report = trail.replay("r", doubles, rerun=["double"], mode="lenient")
        assert [each.cause for each in report.divergences] == ["changed result"] * 3  # both, and so what they add up to
