from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from typing import Any, Literal, Optional

import pydantic
import pytest

from everstep.errors import AnswerError, QuestionError
from everstep.trail.asking import check, expired, question

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


class Colour(Enum):
    RED = "red"
    TWO = 2


class Odd(Enum):
    CODE = object()


class Item(pydantic.BaseModel):
    count: int = pydantic.Field(ge=1)
    kind: Literal["a", "b"] = "a"


class Order(pydantic.BaseModel):
    name: str
    items: list[Item]
    pair: tuple[int, str] = (1, "x")
    due: date | None = None


@dataclass
class Place:
    x: int
    label: Optional[str] = None  # noqa: UP045 - both spellings are in use
    tags: dict[str, float] = field(default_factory=dict)
    seen: int = field(default=0, init=False)


@dataclass
class Trip:
    stops: list[Place]
    order: Order | None = None
    extra: Any = None


@dataclass
class Endless:
    next: Endless | None = None


@dataclass
class Nameless:
    what: Missing  # type: ignore[name-defined]  # noqa: F821 - the point of the test


class Other:
    class Item(pydantic.BaseModel):
        """Named as another one is."""

        word: str

    class Order(pydantic.BaseModel):
        """Holds it."""

        items: list[Other.Item]


# What is asked


def test_a_question_is_plain_data() -> None:
    asked = question("Go on?", bool, [True, False], datetime(2030, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert asked == {
        "prompt": "Go on?",
        "schema": {"type": "boolean"},
        "options": [True, False],
        "deadline": "2030-05-01T12:00:00+00:00",
    }
    assert json.loads(json.dumps(asked)) == asked
    assert question("Why?") == {"prompt": "Why?", "schema": None, "options": None, "deadline": None}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (list, {"type": "array"}),
        (dict, {"type": "object"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"type": ["integer", "null"]}),
        (Optional[str], {"type": ["string", "null"]}),  # noqa: UP045 - both spellings are in use
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Literal[Colour.RED], {"enum": ["red"]}),
        (Colour, {"enum": ["red", 2]}),
        (Colour | None, {"anyOf": [{"enum": ["red", 2]}, {"type": "null"}]}),
        (
            Place,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "label": {"type": ["string", "null"]},
                    "tags": {"type": "object", "additionalProperties": {"type": "number"}},
                },
                "additionalProperties": False,
                "required": ["x"],
            },
        ),
        ({"type": "string", "minLength": 2}, {"type": "string", "minLength": 2}),
    ],
)
def test_a_schema_is_derived_from_a_type(kind: Any, schema: dict[str, Any]) -> None:
    assert question("?", kind)["schema"] == schema


def test_the_schema_that_was_given_is_copied() -> None:
    given = {"enum": [["a"]]}
    asked = question("?", given)
    given["enum"][0].append("b")
    assert asked["schema"] == {"enum": [["a"]]}


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (datetime, "no schema can be derived"),
        (list[datetime], "schema[] is"),
        (tuple[int, ...], "no schema can be derived"),
        (dict[int, str], "no schema can be derived"),
        ("text", "no schema can be derived"),
        (True, "no schema can be derived"),
        (Place(1), "no schema can be derived"),
        (Odd, "schema[0] is a object"),
        (Literal[b"x"], "schema[0] is a bytes"),
        (Endless, "which holds itself"),
        (Nameless, "unknown types"),
        (Order | Other.Order, "two different classes named 'Item'"),
        ({1: 2}, "the key 1"),
        ({"enum": [float("nan")]}, "schema.enum[0] is no finite number"),
        ({"enum": [{"x y": (1,)}]}, "schema.enum[0]['x y'] is a tuple"),
        ({"type": "what"}, "no JSON schema"),
        ({"minimum": "x"}, "no JSON schema"),
        ({"pattern": "("}, "no JSON schema"),
        ({"patternProperties": {"(": {}}}, "no JSON schema"),
        ({"$schema": "https://example.org/mine"}, "dialect"),
        ({"$schema": ["x"]}, "dialect"),
        ({"$ref": "#"}, "goes in circles"),
        ({"anyOf": [{"allOf": [{"$ref": "#/$defs/a"}]}], "$defs": {"a": {"$ref": "#"}}}, "goes in circles"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "nothing is there"),
        ({"properties": {"a": {"$ref": "#none"}}}, "nothing is there"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_when_it_is_asked(kind: Any, why: str) -> None:
    with pytest.raises(QuestionError) as refused:
        question("Where to?", kind)
    assert why in str(refused.value)
    assert str(refused.value).startswith("'Where to?' cannot be asked: ")


def test_a_model_without_a_json_schema_is_refused() -> None:
    class Opaque(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        what: socket.socket

    with pytest.raises(QuestionError, match="a model without a JSON schema"):
        question("?", Opaque)


@pytest.mark.parametrize("prompt", ["", "  ", None, 3])
def test_a_question_without_words_is_refused(prompt: Any) -> None:
    with pytest.raises(QuestionError, match="no text"):
        question(prompt)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ([], "there are no options"),
        ("abc", "its options are no list"),
        ({"a": 1}, "its options are no list"),
        (["a", {1}], "options[1] is a set"),
        ([1, "x"], "option 2 does not fit the schema"),
        ([True], "option 1 does not fit the schema"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, why: str) -> None:
    with pytest.raises(QuestionError) as refused:
        question("?", int, options)
    assert why in str(refused.value)


# Answers


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (bool, False),
        (int, 3),
        (float, 3),
        (str, ""),
        (list, [1, "x"]),
        (dict, {"a": None}),
        (int | None, None),
        (Colour, 2),
        (Order, {"name": "n", "items": [{"count": 1}], "pair": [2, "y"], "due": "2030-01-31"}),
        (Trip, {"stops": [{"x": 1, "label": None}], "order": {"name": "n", "items": []}, "extra": [1]}),
        (Trip | None, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}, [1, "x"]),
        ({"$defs": {"a-b": {"type": "integer"}, "a_b": {"type": "string"}}, "properties": {
            "x": {"$ref": "#/$defs/a-b"}, "y": {"$ref": "#/$defs/a_b"}}}, {"x": 1, "y": "t"}),
        ({"properties": {"$ref": {"type": "integer"}}}, {"$ref": 1}),
    ],
)  # fmt: skip
def test_an_answer_that_is_allowed_passes(kind: Any, answer: Any) -> None:
    check(question("?", kind), answer)


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        (bool, 1, "answer is a whole number, not true or false"),
        (int, True, "answer is true, not a whole number"),
        (int, 1.5, "answer is a number, not a whole number"),
        (float, "1", "answer is text, not a number"),
        (float, float("inf"), "answer is no finite number"),
        (list, (), "answer is a tuple"),
        (dict, {1: 2}, "answer is a dict with the key 1, which is no text"),
        (int | None, "x", "answer is text, not a whole number or null"),
        (Colour, "blue", 'answer is text, not one of "red", 2'),
        (Colour, True, 'answer is true, not one of "red", 2'),
        (Place, {"label": 3}, "answer lacks 'x'; answer.label is a whole number, not text or null"),
        (Place, {"x": 1, "y y": 2}, "answer has 'y y', which nobody asked for"),
        (Trip, {"stops": [{"x": 1}, {"x": "2"}]}, "answer.stops[1].x is text, not a whole number"),
        (Trip, {"stops": [], "order": {"name": "n", "items": [{"count": 0}]}}, "breaks the rule minimum: 1"),
        (Order, {"name": "n", "items": [], "pair": ["2", "y"]}, "answer.pair[0] is text, not a whole number"),
        (Order, {"name": "n", "items": [], "due": "soon"}, 'answer.due breaks the rule format: "date"'),
        ({"properties": {"a": False}}, {"a": 1}, "answer holds something that may not be there"),
        ({"const": "x"}, "y", 'answer is text, not "x"'),
    ],
)
def test_an_answer_that_is_not_allowed_is_refused_saying_what_is_wrong_where(
    kind: Any, answer: Any, problem: str
) -> None:
    with pytest.raises(AnswerError) as refused:
        check(question("How many?", kind), answer)
    assert problem in refused.value.problem
    assert str(refused.value).startswith(f"the answer to 'How many?' was not taken: {refused.value.problem}. Give ")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (bool, "true or false"),
        (int | None, "a whole number or null"),
        (list[Colour], 'a list, each one of "red", 2'),
        (Literal["x"], '"x"'),
        (Place, "an object with x (a whole number), label (text or null; may be left out), "),
        (Trip, "order (an object with name (text), items (a list, each an object with count (a whole number from 1 on"),
    ],
)
def test_a_refusal_says_what_is_allowed(kind: Any, words: str) -> None:
    with pytest.raises(AnswerError) as refused:
        check(question("?", kind), {"not": "it"})
    assert words in refused.value.allowed
    assert str(refused.value).endswith(f"Give {refused.value.allowed}.")


def test_a_refusal_does_not_repeat_what_was_answered() -> None:
    """Promise 10: it may be a secret in the wrong place."""
    for kind in (int, Colour, list[int], {"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^a"}):
        for answer in ("hunter2", ["hunter2"], {"password": "hunter2"}):
            with pytest.raises(AnswerError) as refused:
                check(question("?", kind), answer)
            assert "hunter2" not in str(refused.value)


def test_a_long_list_of_problems_and_of_what_is_allowed_is_cut() -> None:
    wide = {"type": "object", "properties": {f"field{i}": {"enum": ["w" * 90, "v"]} for i in range(50)}}
    with pytest.raises(AnswerError) as refused:
        check(question("?", wide), {f"field{i}": i for i in range(50)})
    assert refused.value.problem.count(";") == 2
    assert len(str(refused.value)) < 2000


@pytest.mark.parametrize("answer", [1, 1.0, "b", [1, {"x": None}], None, False])
def test_an_option_is_a_whole_answer(answer: Any) -> None:
    check(question("?", options=[1, "b", [1, {"x": None}], None, False]), answer)


@pytest.mark.parametrize("answer", [True, 0, "B", [True, {"x": None}], [1], [1, {"x": 0}], [1, {}], {1}, "secret"])
def test_what_is_no_option_is_refused(answer: Any) -> None:
    with pytest.raises(AnswerError) as refused:
        check(question("Which?", options=[1, "b", [1, {"x": None}], None, False]), answer)
    assert refused.value.allowed == 'one of 1, "b", [1, {"x": null}], null, false'
    assert "secret" not in str(refused.value)


def test_without_schema_and_options_every_answer_passes() -> None:
    check(question("?"), {1: {2}, "when": NOW})


# Deadlines


@pytest.mark.parametrize("deadline", [timedelta(hours=1), 3600, 3600.0])
def test_a_deadline_from_now_is_kept_as_a_moment_in_utc(deadline: Any) -> None:
    before = datetime.now(UTC)
    kept = datetime.fromisoformat(question("?", deadline=deadline)["deadline"])
    assert before + timedelta(hours=1) <= kept <= datetime.now(UTC) + timedelta(hours=1)
    assert kept.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "deadline", [datetime(2030, 1, 1), True, "soon", float("nan"), float("inf"), 1e300, timedelta.max]
)
def test_a_deadline_that_is_no_moment_is_refused(deadline: Any) -> None:
    with pytest.raises(QuestionError):
        question("?", deadline=deadline)


def test_a_question_is_expired_from_its_deadline_on() -> None:
    asked = question("?", deadline=NOW)
    assert not expired(asked, NOW - timedelta(microseconds=1))
    assert expired(asked, NOW)
    assert expired(asked, datetime(2030, 5, 1, 12))
    assert not expired(question("?"), NOW)
    assert expired(question("?", deadline=-5), datetime.now(UTC)), "code that is run again asks late"
