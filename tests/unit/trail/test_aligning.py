"""Two sequences side by side: pairs rise, an insertion does not derail the rest, and the work is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from everstep.trail import aligning
from everstep.trail.aligning import Pair, align


@dataclass(frozen=True)
class Item:
    name: str
    text: str = ""
    asked: str | None = None
    place: str | None = None

    @property
    def content(self) -> tuple[str, str]:
        return self.name, self.text

    @property
    def words(self) -> frozenset[bytes]:
        return frozenset(self.text.encode().split())


def items(texts: str) -> list[Item]:
    """`a1 b` is an item called a with the text 1, and one called b."""
    return [Item(word[0], word[1:]) for word in texts.split()]


sequences = some.lists(
    some.builds(Item, some.sampled_from("ab"), some.sampled_from(["", "1", "2", "1 2"])), max_size=12
)


def check(a: list[Item], b: list[Item]) -> list[Pair]:
    pairs = align(a, b)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs))
    assert all(a[at].name == b[to].name for at, to in pairs)
    return pairs


@given(sequences, sequences)
def test_pairs_rise_on_both_sides_and_share_their_names(a: list[Item], b: list[Item]) -> None:
    check(a, b)


@given(sequences, sequences)
def test_they_do_so_in_long_gaps_as_well(a: list[Item], b: list[Item]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligning, "_GAP", 1)
        patch.setattr(aligning, "_EDITS", 2)
        check(a, b)


@given(sequences, some.integers(0, 12), some.builds(Item, some.sampled_from("abc"), some.just("new")))
def test_one_insertion_leaves_all_others_in_their_pairs(a: list[Item], at: int, new: Item) -> None:
    b = [*a[:at], new, *a[at:]]
    pairs = check(a, b)
    assert [one for one, _ in pairs] == list(range(len(a)))
    assert all(a[one] == b[other] for one, other in pairs)


@given(sequences)
def test_a_sequence_is_paired_with_itself(a: list[Item]) -> None:
    assert align(a, a) == [(at, at) for at in range(len(a))]


def test_what_stands_once_on_both_sides_holds_the_rest_in_place() -> None:
    assert align(items("a1 a2 a3 a4"), items("a5 a2 a6 a4 a7")) == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_of_steps_with_one_name_the_most_alike_are_taken_for_one_another() -> None:
    old = [Item("ask", "the weather in Paris is fine")]
    new = [Item("ask", "how many miles"), Item("ask", "the weather in Paris is bad")]
    assert align(old, new) == [(0, 1)]


def test_those_that_were_asked_the_same_are_taken_for_one_another_before_those_that_look_alike() -> None:
    old = [Item("ask", "one two three", asked="q1")]
    new = [Item("ask", "one two four", asked="q2"), Item("ask", "nine", asked="q1")]
    assert align(old, new) == [(0, 1)]


def test_where_two_part_one_place_is_one_item() -> None:
    old = [Item("more", "end", place="3")]
    new = [Item("more", "on", place="3"), Item("more", "end", place="4")]
    assert align(old, new) == [(0, 0)]


def test_a_long_loop_with_changes_all_over_is_paired_round_by_round() -> None:
    old = [Item("ab"[at % 2], f"old {at}") for at in range(2_000)]
    new = [Item("ab"[at % 2], f"new {at}") for at in range(2_000)]
    new[1_000:1_000] = [Item("c", "once")]
    pairs = check(old, new)
    assert len(pairs) == 2_000
    assert pairs[-1] == (1_999, 2_000)


def test_an_anchor_holds_among_many_changes() -> None:
    old = [Item("a", f"old {at}") for at in range(200)]
    new = [Item("a", f"new {at}") for at in range(190)]
    old[100:100] = new[150:150] = [Item("a", "the same on both sides")]
    assert (100, 150) in check(old, new)


def test_the_work_is_bounded_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    found = aligning._next

    def counted(reached: dict[int, int], line: int, edits: int) -> Pair:
        nonlocal looked
        looked += 1
        return found(reached, line, edits)

    monkeypatch.setattr(aligning, "_next", counted)
    old = [Item(f"a{at % 7}", f"old {at}") for at in range(3_000)]
    new = [Item(f"b{at % 5}" if at % 9 else "a3", f"new {at}") for at in range(3_000)]
    check(old, new)
    assert looked < 40 * 6_000
