"""What `make bench-capture` makes of what it saw: a table that says more than happened would be worse than none."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.capture import together
from benchmarks.capture.cost import Timed, figures
from benchmarks.capture.fidelity import cell, outcome, verdict
from benchmarks.capture.page import BEGIN, END, PAGE, costs, markdown, rewritten
from benchmarks.capture.tools import BARE, EVERSTEP_ASYNC, EVERSTEP_SYNC, FLOOR, Ran
from tests.capture.running import ROOT

RECORDED = Ran(0, "a\ndone\n", "", 1.0)


@pytest.mark.parametrize(
    ("recorded", "again", "said"),
    [
        (RECORDED, RECORDED, "equal"),
        (RECORDED, Ran(3, "a\ndone\n", "", 1.0), "equal, but status 3"),
        (RECORDED, Ran(0, "b\ndone\n", "", 1.0), "other output, status 0"),
        (RECORDED, Ran(1, "", "", 1.0), "stops"),
        (RECORDED, Ran(-1, "", "", 60.0), "hangs"),
        (Ran(1, "", "", 1.0), Ran(1, "", "", 1.0), "fails while recorded"),
        (Ran(0, "a\n", "", 1.0), Ran(0, "a\n", "", 1.0), "fails while recorded"),
    ],
)
def test_only_the_same_output_of_a_program_that_came_to_its_end_is_equal(recorded: Ran, again: Ran, said: str) -> None:
    assert outcome(recorded, again) == said


def test_a_cell_counts_what_was_equal_and_names_what_was_not() -> None:
    assert cell("row", "tool", ["equal", "equal"], 0).text == "2/2"
    assert cell("row", "tool", ["equal", "stops", "stops", "hangs"], 0).text == "1/4 (stops)"
    assert cell("row", "tool", ["equal"], 3).text == "1/1 (went to the network)"


def test_an_old_answer_to_a_new_question_is_told_from_one_that_was_owned_up_to() -> None:
    assert verdict(RECORDED, RECORDED) == "gives the old answer and says nothing"
    assert verdict(RECORDED, Ran(0, RECORDED.stdout, "1 drifted", 1.0)) == "gives the old answer and says so"
    assert verdict(RECORDED, Ran(1, "a\n", "", 1.0)) == "stops"


def test_the_part_between_the_marks_is_written_and_no_other() -> None:
    page = (ROOT / PAGE).read_text("utf-8")
    made = rewritten(page, "| new |")
    assert made.split(BEGIN)[0] == page.split(BEGIN)[0]
    assert made.split(END)[1] == page.split(END)[1]
    assert made.split(BEGIN)[1].split(END)[0].strip() == "| new |"
    assert rewritten(made, "| new |") == made
    for broken in ("no marks", f"{END}\n{BEGIN}", f"{page}{BEGIN}"):
        with pytest.raises(ValueError, match="the page needs"):
            rewritten(broken, "")


def test_costs_are_the_least_and_the_median_of_all_rounds() -> None:
    found = [
        Timed("bare", "bare", number, calls=[number, 10.0, 20.0], streams=[], whole=5.0, start=3.0) for number in (1, 2)
    ]
    table = markdown(costs(found, {"reeltime": "reeltime is not installed"}))
    assert "| bare | 1.00 | 10.00 |   |   | 5 | 3 |   |" in table
    assert "| reeltime: reeltime is not installed |" in table


def test_calls_are_held_against_bare_ones_of_the_same_number_that_take_turns_with_them() -> None:
    on_top = {BARE: 0.0, FLOOR: 0.5, EVERSTEP_ASYNC: 0.1, EVERSTEP_SYNC: 1.5}
    found = [
        Timed(tool.name, what, 1, calls=[alone + more for alone in (1.0, 4.0, 9.0)])
        for tool, more in on_top.items()
        for what in ("prompt", "paced")
    ]
    for tool, what in ((BARE, "bare"), (BARE, "memory"), (EVERSTEP_SYNC, "record"), (EVERSTEP_SYNC, "replay")):
        found.append(Timed(tool.name, what, 1, calls=[0.5]))
    values = {figure.what: figure.value for figure in figures(found, [1, 1, 2])}
    assert [value for what, value in values.items() if "counted" in what] == [1.0]
    assert [value for what, value in values.items() if "its commit" in what] == pytest.approx([1.0, 1.0])
    assert [value for what, value in values.items() if "4 ms, durability async" in what] == pytest.approx([2.5])


def test_nobody_takes_its_turn_after_the_same_one_each_time() -> None:
    orders = [together._order(4, turn) for turn in range(8)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    before = {number: set[int]() for number in range(4)}
    for order in orders:
        for one, other in pairwise(order):
            before[other].add(one)
    assert all(len(each) > 1 for each in before.values())
