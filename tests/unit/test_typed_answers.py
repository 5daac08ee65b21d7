from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import pytest

from everstep.errors import AnswerError
from everstep.trail.asking import parse, question


class Colour(Enum):
    RED = "red"
    TWO = 2


@dataclass
class Place:
    x: int


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (bool, "y", True),
        (bool, " YES ", True),
        (bool, "true", True),
        (bool, "No", False),
        (bool, "n", False),
        (int, "12", 12),
        (float, " 1.5 ", 1.5),
        (float, "2", 2),
        (str, "12", "12"),
        (str, "yes", "yes"),
        (str, " two words ", " two words "),
        (str, '"quoted\\nlines"', "quoted\nlines"),
        (str, '"To be", he said', '"To be", he said'),
        (int | None, "null", None),
        (str | None, "null", None),
        (list, "[1, 2]", [1, 2]),
        (Place, '{"x": 1}', {"x": 1}),
        (Colour, "red", "red"),
        (Colour, " 2", 2),
        (Literal["1"], "1", "1"),
        (str | bool, "yes", "yes"),
        (None, "hello", "hello"),
        (None, "yes", "yes"),
        (None, "[1]", [1]),
        (None, "NaN", "NaN"),
        (None, "", ""),
    ],
)
def test_what_a_person_types_becomes_the_value_that_fits(kind: Any, text: str, value: Any) -> None:
    parsed = parse(question("?", kind), text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("options", "text", "value"),
    [
        (["ship", "wait"], "ship", "ship"),
        (["ship", "wait"], "SHIP ", "ship"),
        (["ship", "wait"], "2", "wait"),
        (["ship", "SHIP"], "SHIP", "SHIP"),
        ([10, 20, 30], "20", 20),
        ([0.5, 1.0], "1", 1.0),
        (["2", "1"], "1", "1"),
        ([True, False], "no", False),
        ([True, False], "1", True),
        ([["a"], None], '["a"]', ["a"]),
        ([["a"], None], "null", None),
    ],
)
def test_an_option_can_be_typed_by_value_or_by_number(options: list[Any], text: str, value: Any) -> None:
    parsed = parse(question("?", options=options), text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("asked", "text", "problem"),
    [
        (question("?", bool), "maybe", "answer is text, not true or false"),
        (question("?", bool), "1", "answer is a whole number, not true or false"),
        (question("?", int), "many", "answer is text, not a whole number"),
        (question("?", int), "1.5", "answer is a number, not a whole number"),
        (question("?", int), "2.0", "answer is a number, not a whole number"),
        (question("?", int), "9" * 5000, "answer is text, not a whole number"),
        (question("?", list), "[" * 100_000, "answer is text, not a list"),
        (question("?", float), "1e999", "answer is no finite number"),
        (question("?", Place), '{"x": "1"}', "answer.x is text, not a whole number"),
        (question("?", options=[10, 20]), "1", "it is none of the options"),
        (question("?", options=["a", "b"]), "3", "it is none of the options"),
        (question("?", options=["a", "b"]), "0", "it is none of the options"),
        (question("?", options=["a", "A"]), "\N{SUPERSCRIPT ONE}", "it is none of the options"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_typed(asked: dict[str, Any], text: str, problem: str) -> None:
    with pytest.raises(AnswerError) as refused:
        parse(asked, text)
    assert refused.value.problem == problem
