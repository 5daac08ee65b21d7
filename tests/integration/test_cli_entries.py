"""The list of a run's entries: narrowed to what is looked for, and readable in a narrow window."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from everstep.model import Kind
from tests.integration.cli_support import as_a_person, data, run

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A long run in which few steps failed, and one with lanes that begin alike."""
    path = tmp_path / "t.db"
    monkeypatch.setenv("EVERSTEP_TRAIL", str(path))
    monkeypatch.setenv("COLUMNS", "80")
    with everstep.open(path) as trail:
        with trail.record("long") as recorder:
            for number in range(2_500):
                error = ValueError(f"number {number}") if number % 800 == 799 else None
                recorder.step("rare" if number % 500 == 0 else "ask", output=number, error=error)
        with trail.record("lanes") as recorder:
            for number in range(4):
                lane = f"task:use_tool#{number}@1"
                recorder.step("use_tool", output={"tool": f"number {number}"}, lane=lane, duration_ms=1234)
        with trail.record("graph") as recorder:
            for number in range(3):
                recorder.step("look_it_up", output="words " * 9, superstep=number, lane="unordered:@0", duration_ms=1.2)
    return path


def seen(*words: object) -> list[str]:
    return ANSI.sub("", as_a_person(*words)).splitlines()


def listed(*words: object) -> list[int]:
    return [step["seq"] for step in data("steps", *words)["steps"]]


def test_steps_of_a_name_or_a_status_are_found_in_a_long_run(place: Path) -> None:
    assert listed("long", "--name", "rare") == [1, 501, 1001, 1501, 2001]
    assert listed("long", "--status", "failed") == [800, 1600, 2400]
    assert listed("long", "--status", "failed", "--from", 801) == [1600, 2400]
    assert listed("long", "--from", 2499) == [2499, 2500, 2501]


def test_a_page_of_what_is_looked_for_is_full_and_the_next_one_begins_after_it(place: Path) -> None:
    pages, cursor = list[list[int]](), None
    while True:
        found = data("steps", "long", "--name", "rare", "--limit", 2, *([] if cursor is None else ["--cursor", cursor]))
        pages.append([step["seq"] for step in found["steps"]])
        cursor = found["cursor"]
        if cursor is None:
            break
    assert pages == [[1, 501], [1001, 1501], [2001]]
    assert data("steps", "long", "--name", "rare", "--limit", 5)["cursor"] is None, "there is none after them"
    said = run("steps", "long", "--status", "failed", "--limit", 2).stderr
    assert said == "more: everstep steps long --status failed --limit 2 --cursor 2400\n"


def test_where_none_is_found_the_way_to_all_is_told(place: Path) -> None:
    assert run("steps", "long", "--name", "rar").stderr == "no such step there. All of them: everstep steps long\n"
    assert "'oops' is no step's number" in run("steps", "long", "--from", "oops").stderr


def test_one_lane_takes_no_column_and_a_result_has_room(place: Path) -> None:
    head, first, *_ = seen("steps", "graph", "--from", 1)
    assert head.split() == ["seq", "kind", "status", "superstep", "step", "took", "result"]
    assert len(first.split("'", 1)[1]) >= 20
    assert "lane" in run("steps", "graph").stdout.splitlines()[0].split(), "a program gets all columns"


def test_lanes_are_told_apart_by_their_ends(place: Path) -> None:
    head, *lines = seen("steps", "lanes", "--name", "use_tool")
    assert head.split()[-3:] == ["lane", "took", "result"]
    assert [re.findall(r"…\S*#(\d)@1", line) for line in lines] == [["0"], ["1"], ["2"], ["3"]]
    assert all("number" in line for line in lines)
    assert "task:use_tool#3@1" in run("steps", "lanes").stdout


def test_a_search_in_one_run_finds_what_it_shares_and_nothing_of_others(place: Path) -> None:
    with everstep.open(place) as trail:
        with trail.record("one") as recorder:
            recorder.step("buy", output="oak")
            recorder.step("buy", output="oak again")
        with trail.fork("one", 1, id="two") as fork:
            fork.step("sell", output="an oak")
        with trail.record("three") as recorder:
            recorder.step("buy", output="oak")
    found = data("search", "oak", "--run", "two")["search"]
    assert sorted((step["run"], step["seq"]) for step in found) == [("one", 1), ("two", 2)]
    assert len(data("search", "oak", "--run", "one")["search"]) == 2
    first = data("search", "oak", "--run", "one", "--limit", 1)
    assert len(data("search", "oak", "--run", "one", "--cursor", first["cursor"])["search"]) == 1
    assert run("search", "oak", "--run", "one", "--limit", 1).stderr.startswith("more: everstep search oak --run one ")
    assert run("search", "oak", "--run", "none").exit_code == 3


def test_who_has_no_checkpoints_is_told_what_makes_one(place: Path) -> None:
    told = 'no checkpoints. `everstep.current().checkpoint("name")` in a workflow makes one.\n'
    assert run("checkpoints").stderr == told
    with everstep.open(place) as trail, trail.record("c") as recorder:
        recorder.step("mark", kind=Kind.CHECKPOINT)
        recorder.checkpoint("here")
    assert told not in run("checkpoints", "c").stderr
