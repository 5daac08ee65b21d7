from __future__ import annotations

import unicodedata
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.text import ago, brief, count, cut, duration, leaves, money, safe, size, stamp, whole
from everstep.codec.encoding import Generic
from everstep.model import Redacted

HOSTILE = "\x1b]0;owned\x07\x1b[2J\r\n\t\x00\x7f\x9b31m\u202eevil\u2066\u200b\u2028\ufeff\U000e0041\ud800"


def is_quiet(text: str) -> bool:
    """Whether a terminal prints it and does nothing else."""
    return all(unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"} for char in text) and "\u202e" not in text


def test_nothing_that_a_terminal_acts_on_gets_out_raw() -> None:
    """Promise 8: what is stored is data."""
    assert is_quiet(safe(HOSTILE))
    assert safe("a\x1b[31mb\nc") == r"a\x1b[31mb\nc"
    assert safe("\u202eabc") == r"\u202eabc"


def test_text_of_all_languages_is_left_alone() -> None:
    for text in ("Grüße", "日本語", "עברית", "👩\u200d🚀", "naïve — “quoted”"):
        assert safe(text) == text


@given(st.text())
def test_any_text_is_quiet(text: str) -> None:
    assert is_quiet(safe(text))
    assert is_quiet(brief(text, 50))
    assert safe(safe(text)) == safe(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
        max_leaves=20,
    )
)
def test_any_value_fits_the_width_and_is_quiet(value: Any) -> None:
    assert len(brief(value, 40)) <= 40
    assert is_quiet(whole(value))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("three parts", "'three parts'"),
        ({"a": [1, 2.5, None, True]}, "{'a': [1, 2.5, None, True]}"),
        ((1, "x"), "(1, 'x')"),
        ({1: {2}}, "{1: {2}}"),
        (b"\x00\xff", r"b'\x00\xff'"),
        (Decimal("1.50"), "1.50"),
        (datetime(2026, 11, 15, tzinfo=UTC), "2026-11-15 00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Redacted("[redacted:key:abc]"), "[redacted:key:abc]"),
        (Generic("dataclass", "app.models:Plan", 1, {"title": "x", "parts": [1]}), "Plan(title='x', parts=[1])"),
        (Generic("enum", "app:Colour", 1, {"name": "RED", "value": 1}), "Colour.RED"),
        ([], "[]"),
    ],
)
def test_values_read_as_people_write_them(value: Any, shown: str) -> None:
    assert whole(value) == shown
    assert brief(value, 100) == shown


def test_a_value_is_cut_without_reading_all_of_it() -> None:
    class Endless(list[int]):
        def __iter__(self) -> Any:
            while True:
                yield 7

    assert brief(Endless(), 20) == "[7, 7, 7, 7, 7, 7..."
    assert brief("x" * 10_000_000, 20) == "'" + "x" * 16 + "..."
    assert cut("abcdef", 5) == "ab..."


def test_every_leaf_has_a_line_with_the_path_to_it() -> None:
    value = {"plan": {"title": "x"}, "pages": [{"n": 1}, {}], "odd key": 1, "at": Generic("object", "m:A", 1, {"b": 2})}
    assert list(leaves(value, "")) == [
        (".plan.title", "'x'"),
        (".pages[0].n", "1"),
        (".pages[1]", "{}"),
        ("['odd key']", "1"),
        (".at.b", "2"),
    ]


def test_leaves_nested_deeper_than_the_stack_are_found() -> None:
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    [(path, text)] = leaves(value, "x")
    assert (path.count("[0]"), text) == (5_000, "1")


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, "-"), (0, "0 ms"), (0.34, "0.3 ms"), (12.4, "12 ms"), (999.6, "1.0 s"), (1234, "1.2 s"),
        (59_960, "1 min 0 s"), (184_000, "3 min 4 s"), (7_500_000, "2 h 5 min"), (273_600_000, "3 d 4 h"),
    ],
)  # fmt: skip
def test_durations_are_in_units_that_fit(milliseconds: float | None, shown: str) -> None:
    assert duration(milliseconds) == shown


def test_times_sizes_and_counts_read_well() -> None:
    now = datetime.now(UTC)
    assert ago(now + timedelta(seconds=5)) == "0 s ago", "clocks differ a little"
    assert ago(now - timedelta(seconds=30)) == "30 s ago"
    assert ago(now - timedelta(minutes=3)) == "3 min ago"
    assert ago(now - timedelta(days=400)) == "400 d ago"
    assert ago(now + timedelta(hours=1)) == "in the future"
    assert stamp(datetime(2026, 11, 15, 14, 36, 2, 999, tzinfo=UTC)) == "2026-11-15T14:36:02Z"
    assert [size(number) for number in (0, 812, 4_200, 1_300_000_000)] == ["0 B", "812 B", "4.2 kB", "1.3 GB"]
    assert [count(number, "step") for number in (0, 1, 9_940)] == ["0 steps", "1 step", "9,940 steps"]
    assert [count(number, what) for number, what in ((1, "entry"), (2, "entry"), (2, "day"))] == [
        "1 entry", "2 entries", "2 days",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "shown"), [(0.0, "0"), (8.75e-5, "0.0000875"), (1 / 3, "0.333333"), (2.5, "2.5"), (1234567.0, "1,234,570")]
)
def test_what_something_cost_is_told_without_powers_of_ten(cost: float, shown: str) -> None:
    assert money(cost) == shown
