"""Of a few calls of one step, the one that gave what the error is about is blamed: never the healthy one beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.trail.why.report import Why

WHOLE, PART = "as it is", "as a part"


def failed(
    path: Path, answers: dict[str, Any], where: str, healthy: int = 0, how: str = PART, total: Any = None
) -> Why:
    """Why a run failed that had some of these prices, after so many runs with numbers alone."""
    current: dict[str, Any] = {}
    items = list(dict.fromkeys(["oak", "maple", *answers]))

    @step
    def price(item: str) -> Any:
        found = current.get(item, 10 + len(item))
        return found if how == WHOLE else {"item": item, "price": found}

    def summed(found: list[Any]) -> Any:
        return sum(each if how == WHOLE else each["price"] for each in found)

    total = total or summed

    @step
    def add(found: list[Any]) -> Any:
        return total(found)

    @workflow
    def shop(items: list[str]) -> Any:
        found = [price(item) for item in items]
        return add(found) if where == "in a step" else total(found)

    with everstep.open(path / "t.db") as trail:
        runner = Runner(trail)
        for number in range(healthy):
            runner.run(shop, items, id=f"healthy-{number}")
        current |= answers
        with pytest.raises((TypeError, ValueError)):
            runner.run(shop, items, id="r")
        return trail.why("r")


@pytest.mark.parametrize("where", ["in a step", "between steps"])
@pytest.mark.parametrize(
    ("value", "how", "healthy"),
    [
        (None, WHOLE, 0),
        (None, WHOLE, 6),
        *((value, PART, healthy) for value in (None, "13 EUR") for healthy in (0, 1, 6)),
    ],
)
@pytest.mark.parametrize(("item", "seq"), [("oak", 1), ("maple", 2)])
def test_of_two_calls_the_bad_one_is_blamed_and_no_other(
    tmp_path: Path, value: Any, item: str, seq: int, healthy: int, how: str, where: str
) -> None:
    found = failed(tmp_path, {item: value}, where, healthy, how)
    assert [each.seq for each in found.suspects] == [seq]
    assert found.suspects[0].confidence in {"likely", "high"}
    assert (found.last_good.seq if found.last_good is not None else 0) == seq - 1


@pytest.mark.parametrize("where", ["in a step", "between steps"])
@pytest.mark.parametrize("how", [WHOLE, PART])
@pytest.mark.parametrize("value", [None, "13 EUR"])
def test_where_both_are_bad_the_runs_that_completed_tell_so(tmp_path: Path, value: Any, how: str, where: str) -> None:
    found = failed(tmp_path, {"oak": value, "maple": value}, where, 6, how)
    assert sorted(each.seq for each in found.suspects) == [1, 2]
    assert found.suspects[0].confidence in {"likely", "high"}
    assert "the 6 others" in found.suspects[0].evidence


def test_where_both_are_bad_and_nothing_is_there_to_compare_with_nobody_is_sure(tmp_path: Path) -> None:
    found = failed(tmp_path, {"oak": None, "maple": None}, "in a step")
    assert {each.confidence for each in found.suspects} == {"weak"}


def test_of_two_kinds_that_the_error_names_alike_neither_is_blamed(tmp_path: Path) -> None:
    """`can only concatenate str (not "int") to str`: either may be the one that should not be there."""
    answers = {"oak": "13 EUR", "maple": 15}
    found = failed(tmp_path, answers, "between steps", total=lambda found: found[0]["price"] + found[1]["price"])
    assert found.suspects == ()


@pytest.mark.parametrize("answers", [{"oak": "n/a"}, {"maple": "n/a"}])
def test_the_type_that_a_value_was_to_become_is_nobodys_fault(tmp_path: Path, answers: dict[str, Any]) -> None:
    """`could not convert string to float: 'n/a'`: the answer that is a number is the good one."""
    found = failed(tmp_path, answers, "in a step", total=lambda found: sum(float(each["price"]) for each in found))
    assert not [each for each in found.suspects if "gave a number" in each.evidence]


@pytest.mark.parametrize("healthy", [1, 6])
def test_what_completed_runs_gave_as_well_is_not_blamed(tmp_path: Path, healthy: int) -> None:
    """There is nothing as note in every answer, and the step that only tells somebody gives nothing at all."""
    bad: list[None] = []

    @step
    def price(item: str) -> dict[str, Any]:
        return {"item": item, "price": 10 + len(item), "note": None}

    @step
    def tell(item: str) -> None:
        pass

    @workflow
    def shop() -> int:
        found = [price("oak"), price("maple")]
        tell("ada")
        return sum([*(each["price"] for each in found), *bad])

    with everstep.open(tmp_path / "t.db") as trail:
        for number in range(healthy):
            Runner(trail).run(shop, id=f"healthy-{number}")
        bad.append(None)
        with pytest.raises(TypeError):
            Runner(trail).run(shop, id="r")
        assert trail.why("r").suspects == ()


WOODS = ["oak", "maple", "pine", "birch", "cedar", "walnut"]


@pytest.mark.parametrize("bad", [1, 2, 5, 6])
@pytest.mark.parametrize("value", [None, "13 EUR"])
def test_of_many_calls_those_are_blamed_that_no_completed_run_is_like(tmp_path: Path, value: Any, bad: int) -> None:
    answers: dict[str, Any] = {wood: value if place < bad else 15 for place, wood in enumerate(WOODS)}
    found = failed(tmp_path, answers, "in a step", 1)
    assert {each.seq for each in found.suspects} <= set(range(1, bad + 1))
    assert found.suspects[0].confidence in {"likely", "high"}


@pytest.mark.parametrize("value", [None, "13 EUR"])
def test_the_only_good_one_of_many_is_not_blamed_for_what_the_error_is_about(tmp_path: Path, value: Any) -> None:
    answers = {**dict.fromkeys(WOODS, value), "pine": 15}
    assert failed(tmp_path, answers, "in a step").suspects == ()


@pytest.mark.parametrize("count", [2, 6])
def test_nothing_where_no_number_belongs_is_not_what_a_number_was_added_to(tmp_path: Path, count: int) -> None:
    """`unsupported operand type(s) for +: 'int' and 'NoneType'` is about a price, and the first answer has no note."""
    with everstep.open(tmp_path / "t.db") as trail, pytest.raises(TypeError), trail.record("r") as recorded:
        prices = [15] * (count - 1) + [None]
        for place, price in enumerate(prices):
            recorded.step("price", inputs=place, output={"price": price, "note": "sold soon" if place else None})
        sum(prices)  # type: ignore[arg-type] # that it cannot is what is tested
    with everstep.open(tmp_path / "t.db", read_only=True) as trail:
        assert [each.seq for each in trail.why("r").suspects] == [count]


def test_a_step_that_gives_nothing_again_and_again_is_at_most_weak(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, pytest.raises(TypeError), trail.record("r") as recorded:
        for place in range(2):
            recorded.step("tell", inputs=place, output=None)
        raise TypeError("unsupported operand type(s) for +: 'int' and 'NoneType'")
    with everstep.open(tmp_path / "t.db", read_only=True) as trail:
        assert {each.confidence for each in trail.why("r").suspects} <= {"weak"}
