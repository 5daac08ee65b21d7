"""What nodes give is what the next ones take, and what is read back: live, after a crash, and from the record."""

from __future__ import annotations

import enum
import gc
import uuid
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

import everstep
from everstep import END, Decision, Graph, Runner, Trail, gate, node, route
from tests.integration.graphing import nodes_of, told
from tests.integration.running import Calls, crashed

calls = Calls()


# Values.


class Colour(enum.Enum):
    RED = 1


@dataclass
class Page:
    title: str
    tags: set[str]


ODD = {
    "date": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, ("a",)), "set": {1, 2}, "bytes": b"\0",
    "money": Decimal("1.10"),
    "colour": Colour.RED, "id": uuid.UUID(int=7), "keys": {1: "one", (2,): "two"}, "page": Page("p", {"x"}),
    "end": END, "big": 10**30,
}  # fmt: skip


@node(output="odd")
def make_odd(which: str) -> Any:
    return ODD[which]


@node(output=("same", "kind"))
def look(odd: Any) -> tuple[Any, str]:
    calls("look")
    return odd, type(odd).__name__


@pytest.mark.parametrize("which", ODD)
def test_what_a_node_gives_is_what_the_next_one_takes_live_and_after_a_crash(trail: Trail, which: str) -> None:
    """Promise 7: a datetime, a tuple and END among them; the row is there, and counted."""
    graph = Graph([make_odd, look])
    live = Runner(trail).run(graph, {"which": which}, id="live")
    calls.crash = {"look"}
    crashed(trail, graph, {"which": which}, id="r")
    resumed = Runner(trail).run(graph, id="r")
    restored = Runner(trail).run(graph, id="r")
    for result in (live, resumed, restored):
        assert (result["odd"], result["same"], result["kind"]) == (ODD[which], ODD[which], type(ODD[which]).__name__)
        assert type(result["odd"]) is type(ODD[which])
    assert trail.state("r") == dict(live.values)
    assert [row.name for row in nodes_of(trail, "r")] == ["make_odd", "look"]
    assert trail.verify().ok


def test_the_decision_to_end_is_end_on_record_and_in_the_log(trail: Trail) -> None:
    graph = Graph([route(targets=[END], name="stop")(lambda x: Decision(END, "enough"))])
    result = Runner(trail).run(graph, {"x": 1}, id="r")
    [row] = nodes_of(trail, "r")
    assert row.decision == END
    assert row.metadata == {"reason": "enough"}
    assert row.node_type == "route"
    assert result.log.steps[0].decision == END
    assert Runner(trail).run(graph, id="r").log.steps[0].decision == END


# Changes in place.


@node(output=("turn", "found"))
def search(query: str, turn: int = 0, found: list[str] | None = None) -> tuple[int, list[str]]:
    calls(f"search {turn}")
    return turn + 1, [*(found or []), f"{query} {turn}"]


def test_a_node_that_changes_what_it_takes_fails_and_names_it(trail: Trail) -> None:
    def spoil(found: list[str]) -> int:
        found.append("mine")
        return 1

    graph = Graph([search, node(output="n")(spoil)], name="g")
    with pytest.raises(everstep.errors.MutatedArgumentError, match="'found'"):
        Runner(trail).run(graph, {"query": "q"}, id="r")


def test_lists_that_grow_shrink_and_are_edited_in_the_middle_are_the_same_after_every_crash(trail: Trail) -> None:
    """What is stored is what changed; what is read is all of it."""

    def edit(turn: int = 0, book: dict[str, Any] | None = None, pile: list[int] | None = None) -> Any:
        calls(("edit", turn))
        before, stack = book or {"a": [1, 2, 3], "b": {"c": 0}}, pile or list(range(6))
        return turn + 1, before | {"a": [1, turn, *before["a"][1:]], "b": {"c": turn}}, stack[1:-1] or [turn]

    again = gate(when_true="edit", when_false=END, name="again")(lambda turn: turn < 6)
    graph = Graph([node(output=("turn", "book", "pile"))(edit), again], name="g")
    whole = Runner(trail).run(graph, id="whole")
    for turn in range(6):
        calls.crash = {("edit", turn)}
        crashed(trail, graph, id=f"r{turn}")
        assert Runner(trail).run(graph, id=f"r{turn}").values == whole.values == trail.state(f"r{turn}")
        assert told(trail, f"r{turn}") == told(trail, "whole")


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
def test_a_value_that_was_given_again_is_let_go_of(trail: Trail, *, is_stored: bool) -> None:
    """Promise 11: a graph that goes round a thousand times has one page in memory, not a thousand."""
    given: list[weakref.ref[Page]] = []

    @node(output="page")
    def write(page: Page) -> Page:
        written = Page(page.title + "x", set())
        given.append(weakref.ref(written))
        return written

    held: list[int] = []

    @route(targets=["write", END])
    def more(page: Page) -> str:
        gc.collect()
        held.append(sum(each() is not None for each in given))
        return "write" if len(page.title) < 30 else END

    gc.freeze()  # what was there before takes a second to look through, and is none of it
    try:
        Runner(trail if is_stored else None).run(Graph([write, more], name="pages"), {"page": Page("", set())})
    finally:
        gc.unfreeze()
    assert max(held) == 1
