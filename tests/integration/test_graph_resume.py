"""Runs of graphs that crash and are taken up again: the traps that others fell into, by name."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, Runner, Status, Trail, gate, node, step
from tests.integration.graphing import both, nodes_of, told
from tests.integration.running import Calls, Crash, crashed

calls = Calls()


either = pytest.mark.parametrize("on_a_loop", [False, True], ids=["waiting", "awaiting"])


# Loops.


@node(output=("turn", "found"))
def search(query: str, turn: int = 0, found: list[str] | None = None) -> tuple[int, list[str]]:
    calls(f"search {turn}")
    return turn + 1, [*(found or []), f"{query} {turn}"]


@gate(when_true="search", when_false="write")
def more(turn: int) -> bool:
    calls(f"more {turn}")
    return turn < 4


@node(output="text")
def write(found: list[str]) -> str:
    calls("write")
    return ", ".join(found)


LOOP = Graph([search, more, write], name="loop")


@either
@pytest.mark.parametrize("at", ["search 2", "more 3", "write"])
def test_a_crash_in_the_third_turn_of_a_loop_goes_on_there(trail: Trail, at: str, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Promise 2, and rule 3 of the seeds: index, superstep and versions go on counting."""
    both(trail, LOOP, {"query": "q"}, id="whole", on_a_loop=on_a_loop)
    executed = calls.taken()
    calls.crash = {at}
    with pytest.raises(Crash):
        both(trail, LOOP, {"query": "q"}, id="r", on_a_loop=on_a_loop)
    assert calls.taken() == executed[: executed.index(at) + 1]
    result = both(trail, LOOP, id="r", on_a_loop=not on_a_loop)
    assert calls.taken() == executed[executed.index(at) :]
    assert result["text"] == "q 0, q 1, q 2, q 3"
    assert told(trail, "r") == told(trail, "whole")
    assert [trail.state("r", at=row.seq) for row in nodes_of(trail, "r")] == [
        trail.state("whole", at=row.seq) for row in nodes_of(trail, "whole")
    ]
    assert [(row.index, row.superstep) for row in nodes_of(trail, "r") if row.name == "search"] == [
        (0, 0), (1, 2), (2, 4), (3, 6),
    ]  # fmt: skip


def test_the_log_after_a_crash_covers_the_whole_run_and_marks_what_was_restored(trail: Trail) -> None:
    """Trap 23 of the seeds."""
    calls.crash = {"more 3"}
    crashed(trail, LOOP, {"query": "q"}, id="r")
    log = Runner(trail).run(LOOP, id="r").log
    names = [(each.node_name, each.superstep) for each in log.steps]
    assert names == [(row.name, row.superstep) for row in nodes_of(trail, "r")]
    assert [each.status for each in log.steps] == [Status.RESTORED] * 5 + [Status.COMPLETED] * 4
    assert log.node_stats["search"].count == 1


def test_a_completed_run_is_given_from_the_record(trail: Trail) -> None:
    """Trap 22: nothing executes, no row is added, and it says so."""
    first = Runner(trail).run(LOOP, {"query": "q"}, id="r")
    calls.clear()
    head = trail.run("r").head
    again = Runner(trail).run(LOOP, {"query": "q"}, id="r")
    assert (again.values, again.restored, again.status) == (first.values, True, Status.COMPLETED)
    assert calls == []
    assert trail.run("r").head == head
    assert len(trail.runs()) == 1


# Branches.


@gate(when_true="left", when_false="right")
def side(x: int) -> bool:
    return x > 0


@node(output="way")
def left(x: int) -> str:
    return str(calls("left"))


@node(output="way")
def right(x: int) -> str:
    return str(calls("right"))


@node(output="end")
def arrive(way: str) -> str:
    calls("arrive")
    return f"by the {way}"


BRANCHES = Graph([side, left, right, arrive], name="branches")


@pytest.mark.parametrize(("x", "way"), [(1, "left"), (-1, "right")])
def test_two_branches_that_give_one_name_are_told_apart_after_a_crash(trail: Trail, x: int, way: str) -> None:
    """Trap 27: values alone do not tell who gave them."""
    calls.crash = {"arrive"}
    crashed(trail, BRANCHES, {"x": x}, id="r")
    result = Runner(trail).run(BRANCHES, id="r")
    assert result.values == {"way": way, "end": f"by the {way}"}
    assert calls == [way, "arrive", "arrive"]


# Siblings.


@node(output="a")
def first_sibling(x: int) -> str:
    return str(calls("a"))


@node(output="b")
async def second_sibling(x: int) -> str:
    return str(calls("b"))


@node(output="c")
def third_sibling(x: int) -> str:
    return str(calls("c"))


@node(output="all")
def joined(a: str, b: str, c: str) -> str:
    calls("joined")
    return a + b + c


@either
@pytest.mark.parametrize("last", ["a", "b", "c"])
def test_of_siblings_that_were_half_done_only_the_rest_is(trail: Trail, last: str, on_a_loop: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Promise 2, trap 27."""
    plain = second_sibling.renamed("second") if on_a_loop else node(output="b", name="second")(lambda x: calls("b"))
    graph = Graph([first_sibling, plain, third_sibling, joined], name="siblings")
    calls.crash = {last}
    with pytest.raises(Crash):
        both(trail, graph, {"x": 1}, id="r", on_a_loop=on_a_loop)
    done = {str(row.output) for row in nodes_of(trail, "r")}
    assert last not in done < {*calls.taken()} <= {"a", "b", "c"}
    assert both(trail, graph, id="r", on_a_loop=on_a_loop)["all"] == "abc"
    *again, end = calls.taken()
    assert (sorted(again), end) == (sorted({"a", "b", "c"} - done), "joined")
    assert {row.superstep for row in nodes_of(trail, "r") if row.name != "joined"} == {0}


@step
def tool(name: str) -> str:
    return str(calls(f"tool {name}"))


@node(output="tools")
def use_tools(x: int) -> list[str]:
    calls("use")
    return [tool("one"), tool("two"), tool("three")]


@step
async def tool_later(name: str) -> str:
    await asyncio.sleep(0)
    return str(calls(f"tool {name}"))


@node(output="tools")
async def use_tools_together(x: int) -> list[str]:
    calls("use")
    return list(await asyncio.gather(*map(tool_later, ["one", "two", "three"])))


@pytest.mark.parametrize("using", [use_tools, use_tools_together])
def test_a_crash_within_a_node_repeats_no_step_that_it_took(trail: Trail, using: Any) -> None:
    """Promise 2: a node is a step, and so is what it calls."""
    graph = Graph([using])
    calls.crash = {"tool three"}
    crashed(trail, graph, {"x": 1}, id="r")
    calls.clear()
    result = asyncio.run(AsyncRunner(trail).run(graph, id="r"))
    assert result["tools"] == ["tool one", "tool two", "tool three"]
    assert calls == ["use", "tool three"]
    assert trail.state("r") == {
        "tools": ["tool one", "tool two", "tool three"]
    }  # and what steps inside gave is not in it


# Nested graphs.


INNER = Graph([search, more, write], name="inner")


@node(output="done")
def finish(text: str) -> str:
    calls("finish")
    return text.upper()


OUTER = Graph([INNER.as_node("research"), finish], name="outer")


def test_a_completed_child_is_not_run_again(trail: Trail) -> None:
    """Promise 2, trap 27."""
    calls.crash = {"finish"}
    crashed(trail, OUTER, {"query": "q"}, id="r")
    calls.clear()
    result = Runner(trail).run(OUTER, id="r")
    assert calls == ["finish"]
    assert result["done"] == "Q 0, Q 1, Q 2, Q 3"
    [child] = trail.runs(parent="r")
    assert child.id == "r/research#0"
    assert nodes_of(trail, "r")[0].child_run_id == child.id
    log = result.log.steps[0].log
    assert log is not None
    assert [each.node_name for each in log.steps][:2] == ["search", "more"]


def test_a_child_that_was_cut_off_goes_on_where_it_was(trail: Trail) -> None:
    calls.crash = {"search 2"}
    crashed(trail, OUTER, {"query": "q"}, id="r")
    calls.clear()
    assert Runner(trail).run(OUTER, id="r")["done"] == "Q 0, Q 1, Q 2, Q 3"
    assert calls[:2] == ["search 2", "more 3"]
    assert len(trail.runs(parent="r")) == 1


def test_what_a_child_did_not_give_is_not_there_after_a_crash_either(trail: Trail) -> None:
    """A branch that was not gone gives nothing."""
    inner = Graph([side, left, node(output="other", name="right")(lambda x: calls("right"))], name="inner")
    last = node(output="last", name="last")(lambda way=None, other=None: calls(f"last {way} {other}"))
    graph = Graph([inner.as_node(), last], name="outer")
    whole = Runner(trail).run(graph, {"x": 1}, id="whole")
    calls.crash = {"last left None"}
    crashed(trail, graph, {"x": 1}, id="r")
    resumed = Runner(trail).run(graph, id="r")
    assert resumed.values == whole.values == {"last": "last left None", "way": "left"}
    assert told(trail, "r") == told(trail, "whole")


def test_a_child_for_each_item_is_not_run_again(trail: Trail) -> None:
    one = Graph([node(output="double", name="twice")(lambda item: calls(item) * 2)], name="one")
    graph = Graph(
        [one.as_node("each", inputs={"item": "items"}, outputs={"double": "doubles"}, map_over="item"),
         node(output="total", name="total")(lambda doubles: sum(calls(["total", *doubles])[1:]))],
        name="all",
    )  # fmt: skip
    calls.crash = {3}
    crashed(trail, graph, {"items": [1, 2, 3, 4]}, id="r")
    assert calls.taken() == [1, 2, 3]
    assert Runner(trail).run(graph, id="r").values == {"doubles": [2, 4, 6, 8], "total": 20}
    assert calls == [3, 4, ["total", 2, 4, 6, 8]]
    assert len(trail.runs(parent="r")) == 4


def test_a_served_node_over_items_is_not_asked_for_them(trail: Trail) -> None:
    """What it went over is not read again."""
    one = Graph([node(output="double", name="twice")(lambda item: item * 2)], name="one")
    mapped = one.as_node("each", inputs={"item": "items"}, outputs={"double": "doubles"}, map_over="item")
    graph = Graph([mapped, node(output="n", name="last")(lambda doubles: calls("last"))], name="all")
    calls.crash = {"last"}
    crashed(trail, graph, {"items": [1, 2]}, id="r")
    assert Runner(trail).run(graph, id="r")["doubles"] == [2, 4]


# Values that nodes change in place, and give again.


@node(output="pages")
def read(title: str, pages: list[dict[str, int]] | None = None) -> list[dict[str, int]]:
    pages = [] if pages is None else pages
    pages.append({"number": len(pages)})
    calls(f"read {len(pages)}")
    return pages


@node(output="marks")
def mark(pages: list[dict[str, int]], marks: dict[str, int] | None = None) -> dict[str, int]:
    marks = {} if marks is None else marks
    marks[str(len(pages))] = pages[-1]["number"]
    calls(f"mark {len(pages)}")
    return marks


@gate(when_true="read", when_false=everstep.END)
def has_more(marks: dict[str, int]) -> bool:
    return len(marks) < 5


book = Graph([read, mark, has_more], name="book")
WHOLE = {"pages": [{"number": number} for number in range(5)], "marks": {str(n + 1): n for n in range(5)}}


@pytest.mark.parametrize("where", ["read 3", "mark 3"])
@either
def test_what_a_node_changes_in_place_after_a_crash_is_on_record(trail: Trail, where: str, *, on_a_loop: bool) -> None:
    """Promise 3: the first change after it, too, whoever asks for the result."""
    calls.crash.add(where)
    with pytest.raises(Crash):
        both(trail, book, {"title": "t"}, id="r", on_a_loop=on_a_loop)
    assert both(trail, book, {"title": "t"}, id="r", on_a_loop=on_a_loop).values == WHOLE
    assert both(trail, book, {"title": "t"}, id="r", on_a_loop=on_a_loop).values == WHOLE  # from the record
    assert trail.state("r") == WHOLE


def test_what_a_node_changes_in_place_after_a_fork_is_on_record(trail: Trail) -> None:
    Runner(trail).run(book, {"title": "t"}, id="r")
    at = next(one.seq for one in trail.steps("r") if one.name == "has_more")
    trail.fork("r", at=at, id="f", set={"pages": [{"number": 7}]}).release()
    live = Runner(trail).run(book, id="f").values
    assert live["pages"][:2] == [{"number": 7}, {"number": 1}]
    assert trail.state("f") == live
