"""The command line on runs of graphs: supersteps, decisions, child runs, and sizes before contents."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import END, Cache, Decision, Graph, Runner, gate, node, route
from tests.integration.cli_support import as_a_person, data, run
from tests.integration.stories import FAILING, STORY, broken, written


@node(output="pages")
def collect(draft: str) -> list[dict[str, Any]]:
    return [{"title": f"page {number}", "text": draft * 100} for number in range(30)]


@node(output="title", cache=Cache())
def name_it(pages: list[Any]) -> str:
    return "The tides"


@gate(when_true="name_it", when_false=END)
def is_long(pages: list[Any]) -> bool:
    return len(pages) > 10


@route(targets=["collect", END])
def finished(title: str) -> Decision:
    return Decision(END, "it has a title")


@route(targets=["collect"], many=True)
def idle(title: str) -> list[str]:
    return []


BOOK = Graph([STORY.as_node(), collect, is_long, name_it, finished, idle], name="book")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trail with a story that failed and was gone on with, and two books, of which the second finds a cache."""
    place = tmp_path_factory.mktemp("graphs") / "trail.db"
    with everstep.open(place) as trail:
        FAILING.clear()
        broken(trail)
        written(trail)
        for run_id in ("b-1", "b-2"):
            Runner(trail).run(BOOK, {"text": "all good tides"}, id=run_id)
    return place


def steps_of(path: Path, run_id: str) -> dict[str, dict[str, Any]]:
    """What `show --json` has of each step, by name; the newest of a name."""
    return {step["name"]: step for step in data("show", run_id, "--trail", path)["show"]["steps"]}


# show


def test_show_has_the_superstep_the_decision_and_its_reason(path: Path) -> None:
    shown = run("show", "b-1", "--trail", path).stdout
    lines = {line.split()[3]: line for line in shown.splitlines() if line.strip().startswith(tuple("123456789"))}
    assert "seq             superstep  step" in shown
    assert lines["is_long"].endswith("-> name_it (true)")
    assert lines["finished"].endswith("-> END (it has a title)")
    assert lines["idle"].endswith("-> none (returned)")
    assert lines["is_long"].split()[2] == "2"
    assert "6 steps, 5 supersteps" in shown
    assert "__end__" not in shown


def test_show_has_child_runs_and_what_came_from_a_cache(path: Path) -> None:
    shown = run("show", "b-2", "--trail", path).stdout
    with everstep.open(path, read_only=True) as trail:
        [child] = trail.list_workflows(parent="b-2")
    assert f"(-> {child.id})" in shown
    assert "(cached) 'The tides'" in shown
    assert run("show", child.id, "--trail", path).exit_code == 0


def test_show_of_a_plain_run_has_no_column_for_supersteps(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as recorder:
        recorder.step("s")
    assert "superstep" not in run("show", "r", "--trail", tmp_path / "trail.db").stdout


def test_show_as_json_has_all_of_it_with_sizes_and_no_contents(path: Path) -> None:
    steps = steps_of(path, "b-2")
    assert (steps["finished"]["decision"], steps["finished"]["reason"]) == (END, "it has a title")
    assert (steps["is_long"]["decision"], steps["is_long"]["node_type"]) == ("name_it", "gate")
    assert steps["name_it"]["cached"] is True
    assert steps["name_it"]["input_versions"] == {"pages": 1, "_is_long": 1}
    assert steps["name_it"]["sizes"] == {"title": len('"The tides"')}
    assert steps["collect"]["sizes"]["pages"] > 12_000
    assert steps["story"]["child_run_id"].startswith("b-2/")
    assert steps["collect"]["superstep"] == 1
    assert "page 7" not in run("show", "b-2", "--trail", path, "--json").stdout


def test_one_step_is_shown_with_what_it_took_and_chose(path: Path) -> None:
    seq = steps_of(path, "b-1")["finished"]["seq"]
    shown = run("show", f"b-1@{seq}", "--trail", path).stdout
    facts = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line)
    assert facts["superstep"].strip() == "4"
    assert facts["chose"].strip() == "-> END (it has a title)"
    assert facts["took versions"].strip() == "{'title': 1}"


# steps


def test_steps_of_one_superstep(path: Path) -> None:
    listed = data("steps", "s", "--superstep", 0, "--trail", path)
    assert {step["name"] for step in listed["steps"]} == {"read", "measure"}
    assert {step["superstep"] for step in listed["steps"]} == {0}
    assert all(step["kind"] == "step" for step in listed["steps"])
    assert listed["steps"][0]["input_versions"] == {"text": 1}
    assert {"reason", "decision", "cached", "child_run_id", "sizes"} <= listed["steps"][0].keys()
    first = data("steps", "s", "--superstep", 0, "--limit", 1, "--trail", path)
    rest = data("steps", "s", "--superstep", 0, "--limit", 1, "--cursor", first["cursor"], "--trail", path)
    assert first["steps"] + rest["steps"] == listed["steps"]
    assert rest["cursor"] is None
    more = run("steps", "s", "--superstep", 0, "--limit", 1, "--trail", path).stderr
    assert f"--superstep 0 --limit 1 --cursor {first['cursor']} " in more


def test_steps_have_a_column_for_supersteps_and_show_decisions(path: Path) -> None:
    listed = run("steps", "s", "--superstep", 2, "--trail", path).stdout
    assert "superstep" in listed.splitlines()[0]
    assert listed.rstrip().endswith("-> write (returned)")


# state


def test_the_state_after_a_superstep(path: Path) -> None:
    found = data("state", "s", "--superstep", 1, "--trail", path)["state"]
    with everstep.open(path, read_only=True) as trail:
        assert found["values"] == trail.get_state("s", 1)
        assert found["values"] == trail.state("s", at=found["at"])
    assert found["superstep"] == 1
    assert data("state", "s", "draft", "--superstep", 1, "--trail", path)["state"]["values"] == "A"
    assert "draft = 'A'\n" in run("state", "s", "--superstep", 1, "--trail", path).stdout


@pytest.mark.parametrize("words", [("state", "s"), ("steps", "s")])
def test_a_superstep_that_is_not_there_is_not_found(path: Path, words: tuple[str, ...]) -> None:
    missing = run(*words, "--superstep", 99, "--trail", path)
    assert missing.exit_code == 3
    assert "no superstep 99; its newest is" in missing.stderr


def test_a_superstep_that_was_pruned_is_told_so(tmp_path: Path) -> None:
    with everstep.SqliteCheckpointer(tmp_path / "trail.db", retention="latest") as trail:
        written(trail)
    pruned = run("state", "s", "--superstep", 2, "--trail", tmp_path / "trail.db")
    assert pruned.exit_code == 3
    assert "superstep 2 of run 's' was pruned" in pruned.stderr


def test_two_points_at_once_are_a_wrong_command_line(path: Path) -> None:
    assert run("state", "s", "--at", 3, "--superstep", 1, "--trail", path).exit_code == 2


def test_sizes_come_without_contents(path: Path) -> None:
    found = data("state", "b-1", "--sizes", "--trail", path)["state"]
    assert found["sizes"]["title"] == len('"The tides"')
    assert "values" not in found
    shown = run("state", "b-1", "--sizes", "--trail", path).stdout
    [pages] = [line for line in shown.splitlines() if line.startswith("pages")]
    assert pages.split() == ["pages", pages.split()[1], "kB", "list", "of", "30", "items"]
    assert "page 7" not in shown
    inside = data("state", "b-1", "pages[3]", "--sizes", "--trail", path)["state"]["sizes"]
    assert inside == {"title": len('"page 3"'), "text": 402}
    assert data("state", "b-1", "pages[3].title", "--sizes", "--trail", path)["state"]["sizes"] == len('"page 3"')
    assert "pages[3].title" in run("state", "b-1", "pages[3]", "--sizes", "--trail", path).stdout
    assert data("state", "b-1", "pages", "--sizes", "--trail", path)["state"]["sizes"] == found["sizes"]["pages"]


def test_a_person_sees_the_size_of_a_value_before_it_and_how_to_see_all_of_a_long_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", as_a_person("state", "b-1", "--trail", path))
    [title] = [line for line in shown.splitlines() if line.startswith("title")]
    assert title.split() == ["title", "11", "B", "'The", "tides'"]
    assert "... 24 more" in shown
    assert f"next: everstep state b-1 --all --trail {path}" in shown.replace("\n", " ")
    short = as_a_person("state", "s", "draft", "--trail", path)
    assert "next:" not in short


# checkpoints


def test_the_ends_of_supersteps_are_listed_as_checkpoints(path: Path) -> None:
    points = data("checkpoints", "s", "--kind", "boundary", "--limit", 3, "--trail", path)
    assert [point["metadata"]["superstep"] for point in points["checkpoints"]] == [9, 8, 7]
    for point in points["checkpoints"]:
        at_point = data("state", point["id"], "--trail", path)["state"]["values"]
        after = data("state", "s", "--superstep", point["metadata"]["superstep"], "--trail", path)["state"]["values"]
        assert at_point == after
    assert data("checkpoints", "--trail", path)["checkpoints"] == []
