"""What a hostile file can say in the place of a question (promise 8)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everstep.errors import AnswerError, QuestionError
from everstep.trail.asking import check, expired, parse, question

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)


def stored(**parts: Any) -> dict[str, Any]:
    return {"prompt": "?", "schema": None, "options": None, "deadline": None, **parts}


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {},
        stored(prompt=3),
        stored(schema=[]),
        stored(schema=True),
        stored(options="ab"),
        stored(schema={"$ref": "#"}),
        stored(schema={"type": 3}),
        stored(schema={"required": 3}),
        stored(schema={"$schema": {}}),
        stored(schema={"$id": 3, "$ref": "#/a"}),
    ],
)
def test_a_stored_question_that_is_none_is_refused_as_such(asked: Any) -> None:
    with pytest.raises(QuestionError):
        check(asked, {"a": 1})
    with pytest.raises(QuestionError):
        parse(asked, "1")


def test_what_nests_without_end_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    for asked in (stored(schema=deep), stored(schema={"const": deep}), stored(options=[deep])):
        with pytest.raises(QuestionError, match="nested too deeply"):
            check(asked, 1)
    for kind, options in ((deep, None), (None, [deep])):
        with pytest.raises(QuestionError, match="nested too deeply"):
            question("?", kind, options)
    with pytest.raises(AnswerError, match="nested too deeply"):
        check(stored(schema={"type": "object"}), deep)


@pytest.mark.parametrize("deadline", ["soon", 5, [], ""])
def test_a_stored_deadline_that_is_no_time_is_refused(deadline: Any) -> None:
    with pytest.raises(QuestionError, match="no time"):
        expired(stored(deadline=deadline), NOW)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"properties": {"a": {"$ref": "https://example.org/schema.json#/a"}}},
        {"$id": "http://127.0.0.1:9/", "$ref": "other.json"},
        {"$ref": "file:///etc/hostname"},
        {"$dynamicRef": "http://127.0.0.1:9/x"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "http://127.0.0.1:9/x"},
    ],
)
def test_nothing_is_fetched_for_a_schema(schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 8."""

    def refuse(*_: object) -> None:
        raise AssertionError("something reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    for ask in (lambda: check(stored(schema=schema), {"a": 1}), lambda: question("?", schema)):
        with pytest.raises(QuestionError, match="points outside itself"):
            ask()


def schemas_with(text: str) -> list[dict[str, Any]]:
    return [
        {"type": "object", "properties": {text: {"type": "integer", "default": text}}, "required": [text]},
        {"type": "object", "patternProperties": {text: {"type": "integer"}}, "additionalProperties": False},
        {"title": text, "description": text, "default": text, "examples": [text], "type": "integer"},
        {"enum": [text, {text: text}]},
        {"const": text},
        {"type": "string", "pattern": text, "format": text},
        {"type": "string", "minLength": text},
        {"$defs": {text: {"type": "integer"}}, "$ref": f"#/$defs/{text}"},
        {"dependentRequired": {text: [text]}},
        {"$id": text, "type": "integer"},
        {"type": text},
    ]


@pytest.mark.parametrize("quote", ["'", '"', '"""', "\\'", '\\"', "{", "\n", "\u2028"])
def test_no_text_of_a_stored_schema_is_executed(quote: str, tmp_path: Path) -> None:
    """Promise 8."""
    trace = tmp_path / "executed"
    closing = {"{": "}"}.get(quote, quote)
    attack = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    for text in (f"{quote}+{attack}+{closing}", f"{quote}{attack}{closing}", f"{quote})\n{attack}\n({closing}"):
        answers: list[Any] = [1, "x", text, [], {}, {text: 1}, {text: text}, {"a": 1}, None]
        for schema in schemas_with(text):
            for answer in answers:
                try:
                    check(stored(schema=schema), answer)
                    parse(stored(schema=schema), json.dumps(answer))
                except (AnswerError, QuestionError):
                    pass
    assert not trace.exists()


def test_asking_loads_the_validator_only_when_there_is_a_schema() -> None:
    code = (
        "import sys; from everstep.trail.asking import check, question; check(question('?', options=['a']), 'a'); "
        "print('jsonschema' in sys.modules); question('?', int); print('jsonschema' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
