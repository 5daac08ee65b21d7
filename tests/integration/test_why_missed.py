"""What the code that failed had just been given, and could not use: named where there is little to compare it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.trail.why.report import Why

SOLD = [{"n": 1, "price": 300 + number, "path": f"x-{number}"} for number in range(5)]
LACKING: list[dict[str, Any]] = [{"message": "not sold"}, {"error": "not sold"}, {"n": 1, "path": "x"}, {}]


def failed(path: Path, answers: list[Any], where: str, read: Any = lambda each: each["price"]) -> Why:
    """Why a run failed that had these answers of one step."""

    @step
    def price(number: int) -> Any:
        return answers[number]

    @step
    def add(found: list[Any]) -> Any:
        return [read(each) for each in found]

    @workflow
    def total() -> Any:
        found = [price(number) for number in range(len(answers))]
        return add(found) if where == "in a step" else [read(each) for each in found]

    with everstep.open(path / "t.db") as trail:
        with pytest.raises((LookupError, TypeError, ValueError)):
            Runner(trail).run(total, id="r")
        return trail.why("r")


@pytest.mark.parametrize("where", ["in a step", "between steps"])
@pytest.mark.parametrize("answer", LACKING)
def test_of_the_keys_that_an_answer_lacks_the_one_that_the_error_names_is_told(
    tmp_path: Path, answer: dict[str, Any], where: str
) -> None:
    found = failed(tmp_path, [*SOLD, answer], where)
    first = found.suspects[0]
    assert (first.seq, first.confidence) == (6, "high")
    assert first.evidence == f"gave no price, which the 5 others have: {answer}"


@pytest.mark.parametrize("where", ["in a step", "between steps"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_with_few_others_the_answer_without_the_key_is_likely_and_not_the_last_good(
    tmp_path: Path, before: int, where: str
) -> None:
    found = failed(tmp_path, [*SOLD[:before], {"message": "not sold"}], where)
    first = found.suspects[0]
    assert (first.seq, first.confidence) == (before + 1, "likely")
    assert first.evidence.startswith("gave no 'price', which the error names")
    assert (found.last_good.seq if found.last_good is not None else 0) == before


def test_it_need_not_be_the_last_where_the_others_have_the_key(tmp_path: Path) -> None:
    found = failed(tmp_path, [SOLD[0], {"message": "not sold"}, SOLD[1]], "between steps")
    assert (found.suspects[0].seq, found.suspects[0].confidence) == (2, "likely")


def test_a_key_that_no_answer_has_is_nobodys_fault(tmp_path: Path) -> None:
    assert failed(tmp_path, SOLD[:2], "between steps", lambda each: each["cost"]).suspects == ()


@pytest.mark.parametrize(
    ("answer", "read", "evidence"),
    [
        (None, lambda each: each["price"], "gave nothing: None"),
        ({"price": None}, lambda each: each["price"] + 1, "gave nothing as price: {'price': None}"),
        ([], lambda each: each[0], "gave an empty list: []"),
        ({"pages": []}, lambda each: each["pages"][0], "gave an empty list as pages: {'pages': []}"),
        ("come back later", lambda each: __import__("json").loads(each), "gave no JSON: 'come back later'"),
    ],
)
def test_the_only_answer_is_named_where_the_error_is_about_what_it_is(
    tmp_path: Path, answer: Any, read: Any, evidence: str
) -> None:
    found = failed(tmp_path, [answer], "between steps", read)
    assert [each.evidence for each in found.suspects] == [evidence]
    assert found.last_good is None
