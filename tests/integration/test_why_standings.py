"""Why, asked of runs that stand in every way a run can: taken up again, failed in part, forked, of any values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everstep
from everstep import Graph, node, step, workflow
from everstep.store.memory import MemoryStore
from tests.integration.cli_support import trail_to_see
from tests.integration.support import rich_trail

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text(max_size=30), st.binary(max_size=5),
    st.decimals(allow_nan=True).filter(lambda number: not number.is_snan()), st.datetimes(), st.uuids(),
    st.sampled_from(['{"a": 1', "[1,2", "[see]", "Error: x", "...", "<html>", "one two three four five six seven"]),
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=5),
        st.dictionaries(st.one_of(st.text(max_size=5), st.integers(0, 5)), parts, max_size=4),
        st.tuples(parts, parts),
    ),
    max_leaves=10,
)
CAPTURED = st.tuples(
    st.sampled_from(["http", "model", "process", "tool"]),
    st.fixed_dictionaries({"url": st.sampled_from(["http://a/b/c", "http://[", "/", ""])}, optional={"body": VALUES}),
    st.fixed_dictionaries(
        {},
        optional={
            "status": st.sampled_from([200, 404, True, "ok"]),
            "body": st.one_of(VALUES, VALUES.map(repr), st.sampled_from(['{"a": null}', 'data: {"a": [1, "b"]}\n'])),
            "exit": st.sampled_from([0, 1, None]),
            "stdout": VALUES,
            "result": st.fixed_dictionaries({"content": VALUES}),
        },
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    calls=st.lists(CAPTURED, max_size=6),
    error=st.sampled_from([KeyError("a"), IndexError("out of range"), json.JSONDecodeError("Expecting value", "", 0)]),
)
def test_whatever_a_captured_call_is_said_to_have_given_there_is_an_answer(calls: list[Any], error: Exception) -> None:
    trail = everstep.Trail(MemoryStore())
    run = trail.record("r")
    for node_type, asked, answer in calls:
        run.step("call", node_type=node_type, inputs=asked, output=answer)
    run.finish(error=error)
    found = trail.why("r")
    assert found.failure is not None
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), VALUES, VALUES, st.booleans()), max_size=12),
    error=st.sampled_from(
        [None, KeyError("a"), ValueError("no 77"), TypeError("'NoneType' is not 'int'"), NameError()]
    ),
)
def test_whatever_was_recorded_there_is_an_answer(steps: list[Any], error: Exception | None) -> None:
    trail = everstep.Trail(MemoryStore())
    run = trail.record("r")
    for name, taken, given_, good in steps:
        run.step(name, inputs=taken, **({"output": given_} if good else {"error": ValueError(str(given_)[:50])}))
    run.finish(error=error)
    found = trail.why("r")
    assert (found.failure is None) == (error is None)
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert max(map(len, str(found).splitlines())) <= 100


def test_there_is_an_answer_for_every_run_of_trails_with_one_of_everything(tmp_path: Path) -> None:
    rich_trail(tmp_path / "rich.db")
    for path in (tmp_path / "rich.db", trail_to_see(tmp_path / "seen.db")):
        with everstep.open(path, read_only=True) as trail:
            for run in trail.runs():
                assert str(trail.why(run.id)).startswith(run.id)


def test_what_failed_before_a_run_was_taken_up_again_is_history(tmp_path: Path) -> None:
    broken = [True]

    @step
    def fetch(number: int) -> dict[str, Any]:
        if number == 2 and broken[0]:
            raise ConnectionError("the line was closed")
        return {"number": f"n-{number}00", "size": 12}

    @step
    def add(found: list[Any]) -> int:
        return int(found[0]["sizes"])

    @workflow
    def work() -> int:
        return add([fetch(number) for number in range(5)])

    with everstep.open(tmp_path / "t.db") as trail:
        runner = everstep.Runner(trail)
        with pytest.raises(ConnectionError):
            runner.run(work, id="r")
        first = trail.why("r")
        broken[0] = False
        with pytest.raises(KeyError, match="sizes"):
            runner.run(work, id="r")
        second = trail.why("r")
    assert first.failure is not None
    assert (first.failure.step, first.failure.error) == ("fetch", "ConnectionError: the line was closed")
    assert second.failure is not None
    assert second.failure.step == "add"
    assert second.suspects == ()


def test_a_graph_that_failed_in_part_is_explained(tmp_path: Path) -> None:
    @node(output="one")
    def left(start: int) -> int:
        return start + 100

    @node(output="two")
    def right(start: int) -> int:
        raise ValueError(f"{start} is too low")

    with everstep.open(tmp_path / "t.db") as trail:
        runner = everstep.Runner(trail)
        result = runner.run(Graph([left, right], name="g"), {"start": 7}, id="r", error_handling="continue")
        found = trail.why("r")
    assert result.status == "partial"
    assert found.failure is not None
    assert (found.failure.step, found.failure.error) == ("right", "ValueError: 7 is too low")
    assert "completed in part" in found.summary()


def test_a_run_that_was_cancelled_has_not_failed(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        run = trail.record("r")
        run.step("read", output="a page")
        run.release()
        trail.cancel("r")
        found = trail.why("r")
    assert found.failure is not None
    assert (found.failure.error, found.suspects) == (None, ())
    assert found.summary() == "r is cancelled"


def test_a_graph_inside_a_graph_is_followed_to_the_value_from_outside(tmp_path: Path) -> None:
    @node(output="offer")
    def ask(city: str) -> dict[str, str]:
        return {"city": city, "code": "Q-4411"}

    @node(output="booked")
    def book(offer: dict[str, str]) -> str:
        raise LookupError(f"nothing is known of {offer['code']}")

    inner = Graph([book], name="inner")
    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(LookupError):
            everstep.Runner(trail).run(Graph([ask, inner.as_node()], name="outer"), {"city": "Porto"}, id="r")
        found = trail.why("r")
    assert [link.name for link in found.chain] == ["end", "inner", "book", "ask"]
    assert found.suspects[0].evidence == "brought in 'Q-4411', which the error names"
    assert "took offer from it" in found.suspects[0].link


def test_a_fork_is_explained_with_what_it_shares(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        with trail.record("parent") as run:
            for number in range(6):
                run.step("read", output={"page": f"p-{number}", "size": "9 kB" if number == 3 else 900 + number})
        with pytest.raises(TypeError), trail.fork("parent", 6, id="fork") as run:
            raise TypeError("unsupported operand type(s) for +: 'int' and 'str'")
        found = trail.why("fork")
    assert (found.suspects[0].id, found.suspects[0].name) == ("fork@4", "read")
