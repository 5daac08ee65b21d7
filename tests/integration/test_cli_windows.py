"""What a window that is too narrow shows: ids to copy and differences whole, previews cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import as_a_person, on_a_terminal

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
IDS = [f"run-{number:016x}" for number in range(3)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trail with ids as they are made, and what differs beyond the edge of a window."""
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        for number, run_id in enumerate(IDS):
            with trail.record(run_id, workflow="a-workflow-of-ours") as recorder:
                recorder.step("plan", inputs={"q": "w" * 30}, output={"text": f"{'x' * 35}{number}"}, output_to="plan")
                recorder.step("write", output_to="report", output=f"{'word ' * 30}and then {number} in the end")
    return path


def seen(*words: object) -> list[str]:
    return ANSI.sub("", as_a_person(*words)).splitlines()


def test_an_id_is_never_cut_and_columns_without_contents_go_first(place: Path) -> None:
    head, *lines = seen("runs", "--trail", place)
    assert head.split() == ["run", "workflow", "status", "started", "took", "entries"]
    assert [line.split()[0] for line in lines] == IDS[::-1]
    assert all(line.split()[1] == "a-workflow-of-ours" for line in lines), "which had room then"
    assert max(map(len, lines)) <= 80


def test_a_window_with_room_has_all_columns(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    titles = ["run", "workflow", "status", "started", "took", "entries", "errors", "tags"]
    assert seen("runs", "--trail", place)[0].split() == titles


@pytest.mark.parametrize("columns", [40, 16])
def test_other_columns_are_cut_for_an_id_in_any_window(
    place: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in (["runs"], ["search", "plan"], ["show", IDS[0], "--tree"], ["doctor"]):
        shown = "\n".join(seen(*words, "--trail", place))
        assert IDS[0] in shown
        assert not re.search(r"run-0\w*…", shown)


def test_both_sides_of_a_difference_are_seen(place: Path) -> None:
    for words in (["compare"], ["diff"]):
        lines = [line for line in seen(*words, IDS[0], IDS[1], "--trail", place) if not line.startswith("next: ")]
        assert max(map(len, lines)) <= 80
        shown = "".join("".join(lines).split())
        assert f"'{'x' * 35}0'->'{'x' * 35}1'" in shown
        assert "andthen[-0-]{+1+}intheend'" in shown


def test_what_a_search_found_is_seen(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with everstep.open(place) as trail, trail.record("long") as recorder:
        recorder.step("ask", inputs={"body": {"messages": [{"content": "word " * 30 + "harbour" + " word" * 30}]}})
    for columns in (80, 50):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = seen("search", "harbour", "--trail", place)
        assert max(map(len, lines)) <= columns
        assert "harbour" in "\n".join(lines)


def test_a_preview_is_cut_and_what_was_asked_for_is_not(place: Path) -> None:
    assert any(line.endswith("…") for line in seen("show", IDS[2], "--trail", place))
    assert "2 in the end'" in " ".join(seen("state", IDS[2], "--all", "--trail", place))


def test_a_message_of_an_error_is_shown_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with everstep.open(tmp_path / "t.db") as trail:
        recorder = trail.record("r")
        recorder.step("fetch", error=ValueError("word " * 20 + "the end"))
        recorder.finish()
    assert any(line.endswith("the end") for line in seen("show", "r@1", "--trail", tmp_path / "t.db"))


def test_the_headings_of_the_demo_are_read_to_their_ends(tmp_path: Path) -> None:
    told = ANSI.sub("", on_a_terminal("demo", cwd=tmp_path, columns=60).stdout)
    words = " ".join(told.split())
    assert "the code runs, every answer comes from the record." in words
    assert "A fork shares the rest, and goes on." in words
