"""Changes as people read them."""

from __future__ import annotations

import pytest

from everstep.trail.compare import MISSING, Change
from everstep.trail.wording import inline, shown

TEXT = "The quick brown fox jumps over the lazy dog, and then it goes home to sleep until the end of autumn."


def test_of_a_long_text_only_the_words_that_differ_are_shown_with_some_around_them() -> None:
    assert inline(TEXT, TEXT.replace("brown", "red")) == "'The quick [-brown-]{+red+} fox jumps over the lazy...'"
    assert inline(TEXT, TEXT.replace("autumn", "")) == "'...sleep until the end of [-autumn-].'"


def test_a_stretch_between_two_differences_is_cut_in_its_middle() -> None:
    found = inline(TEXT, TEXT.replace("brown", "red").replace("autumn", "spring"))
    assert found == (
        "'The quick [-brown-]{+red+} fox jumps over the lazy... sleep until the end of [-autumn-]{+spring+}.'"
    )


def test_texts_that_have_few_words_in_common_are_shown_as_two() -> None:
    found = inline(
        "Keeping the plasma still, and walls that last.", "Nothing much: the last plasma stood still for a year."
    )
    assert found == (
        "'[-Keeping the plasma still, and walls that last-]{+Nothing much: the last plasma stood still for a year+}.'"
    )


def test_a_word_is_never_torn_apart() -> None:
    found = inline("it was a tremendous success for all of us", "it was a tremulous success for all of us")
    assert found == "'it was a [-tremendous-]{+tremulous+} success for all of us'"


def test_what_cannot_be_seen_is_spelled_out() -> None:
    found = inline(
        "a line and\nanother line, both of them long enough", "a line and\n\x1b[31manother line, both long enough"
    )
    assert "\x1b" not in found
    assert "\n" not in found
    assert "\\x1b" in found


@pytest.mark.parametrize(("size", "text"), [(2_000_000, "word "), (5_000_000, "ab"), (20_000, "a b c d e f g ")])
def test_huge_texts_make_short_lines(size: int, text: str) -> None:
    whole = (text * size)[: 2 * size]
    assert len(inline(whole, whole[:500] + " other " + whole[700:])) < 5_000
    assert len(inline(whole, whole[::-1])) < 50_000


def test_a_change_says_where_it_is_and_what_stands_on_both_sides() -> None:
    assert shown(Change(("pages", 2), "a", 3)) == "state.pages[2]: 'a' -> 3"
    assert shown(Change(("pages", 2), MISSING, 3), "output") == "output.pages[2]: + 3"
    assert shown(Change((), [1], MISSING), "inputs") == "inputs: - [1]"
    assert shown(Change((), list(range(99)), 1), "output", 20) == "output: [0, 1, 2, 3, 4, 5... -> 1"
