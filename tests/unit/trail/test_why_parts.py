"""The parts that finding a cause is made of: values in versions, texts that break off, what an error says."""

from __future__ import annotations

import pytest

import everstep
from everstep.codec.delta import APPEND, DELETE, SET, SPLICE
from everstep.model import StepError
from everstep.store.memory import MemoryStore
from everstep.trail.why.clues import clues_of
from everstep.trail.why.folding import Values
from everstep.trail.why.texts import error_in, fault_of
from everstep.trail.why.values import lacking, profile, words_of


def test_a_version_of_a_value_stays_what_it_was_when_the_next_is_made() -> None:
    values = Values({"start": 1})
    first = values.take([[SET, "reading", {"sensor": "a", "parts": [1, 2]}]])
    second = values.take([[SET, ["reading", "sensor"], "b"], [APPEND, ["reading", "parts"], [3]]])
    third = values.take([[DELETE, ["reading", "sensor"]], [SPLICE, ["reading", "parts"], 0, 1, []]])
    assert first == {"reading": {"sensor": "a", "parts": [1, 2]}}
    assert second == {"reading": {"sensor": "b", "parts": [1, 2, 3]}}
    assert third == {"reading": {"parts": [2, 3]}}
    assert values.given(["start", "reading", "other"]) == {"start": 1, "reading": {"parts": [2, 3]}}


def test_of_a_long_list_only_what_is_new_is_told() -> None:
    values = Values({})
    long = list(range(300))
    values.take([[SET, "log", long]])
    assert values.take([[APPEND, "log", ["a", "b"]]]) == {"log": ["a", "b"]}
    assert len(long) == 300
    assert values.given(["log"])["log"][-3:] == [299, "a", "b"]


def test_a_change_to_what_was_pruned_is_told_as_it_stands() -> None:
    assert Values({}).take([[SET, ["gone", "part"], 7]]) == {"gone": 7}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": [1, 2]}', ""),
        ("```json\n[1]\n```", ""),
        ('{"a": [1, 2', "it breaks off"),
        ('{"a": "unfini', "it breaks off"),
        ('{"a": x}', "expecting value"),
        ("[see the table]", None),
        ("no JSON at all", None),
        ("", None),
    ],
)
def test_what_is_wrong_with_a_text_that_begins_like_json(text: str, fault: str | None) -> None:
    assert fault_of(text) == fault


@pytest.mark.parametrize(
    "value",
    [
        {"error": "no such page"},
        {"status": 503},
        {"status": "failed", "page": 3},
        {"ok": False},
        "Error: it is not there",
        "<html><body>Bad Gateway</body></html>",
    ],
)
def test_a_result_that_reads_like_an_error(value: object) -> None:
    assert error_in(profile(value)) is not None


@pytest.mark.parametrize("value", [{"error": None}, {"status": 200}, {"ok": True}, "All is well.", 404, None, []])
def test_a_result_that_does_not(value: object) -> None:
    assert error_in(profile(value)) is None


def test_a_value_is_known_by_its_ids_numbers_and_longer_words() -> None:
    found = profile({"id": "A-17", "of": "me", "price": 1500.0, "n": 3, "text": "sent to ada@example.org."})
    assert {"A-17", "1500", "ada@example.org"} <= found.words
    assert not {"3", "me", "of", "to"} & found.words
    assert "1500" in words_of("it costs 1500.")


def test_what_is_not_there_is_lacking_only_where_its_holder_is() -> None:
    found = profile({"a": {"b": 1}, "rows": [{"x": 1}], "none": None})
    assert lacking(found, ".a.c")
    assert lacking(found, ".rows[*].y")
    assert not lacking(found, ".a.b")
    assert not lacking(found, ".other.c")
    assert not lacking(found, ".none.c")


def test_an_error_tells_the_key_the_type_and_what_it_is_about() -> None:
    assert clues_of(StepError("KeyError", "'price'")).keys == {"price"}
    mixed = clues_of(StepError("TypeError", "unsupported operand type(s) for +: 'int' and 'str'"))
    assert mixed.kinds == {"number", "text"}
    assert mixed.wrong == mixed.unfit == {"text"}
    either = clues_of(StepError("TypeError", "'<' not supported between instances of 'int' and 'str'"))
    assert (either.wrong, either.unfit) == (set(), {"number", "text"})
    assert clues_of(StepError("ValueError", "could not convert string to float: 'n/a'")).unfit == set()
    nothing = clues_of(StepError("TypeError", "unsupported operand type(s) for +: 'int' and 'NoneType'"))
    assert nothing.wanted == mixed.wanted == {"number"}
    assert nothing.kinds == nothing.wrong == nothing.unfit == {"none"}
    assert clues_of(StepError("TypeError", "'NoneType' object is not subscriptable")).kinds == {"none"}
    assert "text" in clues_of(StepError("JSONDecodeError", "Unterminated string starting at: line 1")).topics
    assert "stale" in clues_of(StepError("StaleRecordError", "no")).topics
    assert "8812" in clues_of(StepError("RuntimeError", "order 8812 is gone")).words
    assert clues_of(StepError("NameError", "name 'x' is not defined")).is_about_code
    assert clues_of(None).keys == set()


def test_what_is_odd_in_many_ways_and_explains_nothing_is_no_proof() -> None:
    trail = everstep.Trail(MemoryStore())
    with pytest.raises(RuntimeError), trail.record("r") as run:
        for number in range(30):
            page = {
                "page": f"p-{number}",
                "size": 300 + number,
                "text": "All is well.",
                "rows": [number],
                "v": [1, "a"],
            }
            odd: dict[str, object] = {"page": f"p-{number}", "size": "9", "text": 7, "rows": {}, "error": "no", "v": []}
            run.step("read", inputs={"n": number}, output=odd if number == 11 else page)
        run.step("print", inputs=[f"p-{number}" for number in range(30)], error=RuntimeError("on fire"))
        raise RuntimeError("on fire")
    first = trail.why("r").suspects[0]
    assert (first.seq, first.confidence) == (12, "likely")
