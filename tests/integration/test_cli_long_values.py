"""Long lists in a state: both ends of them, an index from the end, and a difference in a few lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import as_a_person, data, run

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose first step leaves 20 messages and whose second leaves 500; the third takes some away."""
    path = tmp_path / "t.db"
    monkeypatch.setenv("EVERSTEP_TRAIL", str(path))
    monkeypatch.setenv("COLUMNS", "100")
    with everstep.open(path) as trail, trail.record("r") as recorder:
        for number in (20, 500, 8):
            messages = [{"role": "user", "text": f"message {at}"} for at in range(number)]
            recorder.step("talk", set={"messages": messages, "few": [1], "none": []})
    return path


def seen(*words: object) -> list[str]:
    return ANSI.sub("", as_a_person(*words)).splitlines()


def test_of_a_long_list_both_ends_are_shown(place: Path) -> None:
    lines = [line.split() for line in seen("state", "r@2", "messages")]
    assert [words[0] for words in lines[:7]] == ["[0]", "[1]", "[2]", "...", "[497]", "[498]", "[499]"]
    assert lines[3][1:] == ["494", "more"]
    assert lines[7][:2] == ["next:", "everstep"]


def test_a_short_list_is_shown_whole(place: Path) -> None:
    assert [line.split()[0] for line in seen("state", "r", "messages")] == [f"[{at}]" for at in range(8)]


@pytest.mark.parametrize(
    ("path", "found"), [("messages[-1].text", "message 499"), ("messages[-500].text", "message 0"), ("few[-1]", 1)]
)
def test_an_index_counts_from_the_end(place: Path, path: str, found: object) -> None:
    assert data("state", "r@2", path)["state"]["values"] == found


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("messages[500]", "'messages[500]': messages has 500 items, 0 to 499."),
        ("messages[-501]", "'messages[-501]': messages has 500 items, 0 to 499."),
        ("messages.last", "'messages.last': messages has 500 items, 0 to 499."),
        ("few[1]", "'few[1]': few has 1 item, 0 to 0."),
        ("none[0]", "'none[0]': none is empty."),
        ("messages[0].who", "no 'who' in ['role', 'text']."),
        ("mesages", "no 'mesages' in ['messages', 'few', 'none']."),
    ],
)
def test_where_there_is_nothing_what_there_is_is_told(place: Path, path: str, told: str) -> None:
    result = run("state", "r@2", path)
    assert (result.exit_code, result.stderr.strip().endswith(told)) == (3, True), result.stderr


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        ("r@1", "r@2", "+  messages[20] ... messages[499]  480 items"),
        ("r@2", "r@1", "-  messages[20] ... messages[499]  480 items"),
    ],
)
def test_many_items_that_were_added_or_taken_away_are_one_line(place: Path, a: str, b: str, line: str) -> None:
    assert seen("diff", a, b) == [line, f"next: everstep diff {a} {b} --all"]


def test_all_of_them_are_shown_on_request_and_in_a_pipe(place: Path) -> None:
    assert len(seen("diff", "r@1", "r@2", "--all")) == 480
    assert len(run("diff", "r@1", "r@2").stdout.splitlines()) == 480
    assert len(data("diff", "r@1", "r@2", code=4)["diff"]["changes"]) == 480


def test_few_items_and_other_changes_are_told_one_by_one(place: Path) -> None:
    with everstep.open(place) as trail, trail.record("s") as recorder:
        recorder.step("one", set={"a": [1], "b": list(range(20)), "m": {}})
        recorder.step("two", set={"a": [1, 2, 3], "b": [0] * 20, "m": {f"k{at}": at for at in range(20)}})
    assert len(seen("diff", "s@1", "s@2")) == 2 + 19 + 20
