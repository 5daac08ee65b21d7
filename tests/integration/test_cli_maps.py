"""The command line on maps: which items there are and how they stand, and hints that work when they are typed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Graph, Runner, node, pause, step, workflow
from tests.integration.cli_support import data, run

APP = "tests.integration.test_cli_maps"
DOWN = {"now": True}


@step
def look(x: int) -> int:
    if x % 7 == 3 and DOWN["now"]:
        raise ValueError(f"no page {x}")
    return 2 * x


@workflow
def item(x: int) -> Any:
    found = look(x)
    return pause(f"Publish {x}?", options=["yes", "no"]) if x in {5, 6} else found


@node(output="double")
def twice(x: int) -> int:
    return look(x)


@node(output="text")
def write(double: int) -> str:
    return str(double)


DOUBLES = Graph([twice, write], name="doubles")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("maps") / "trail.db"
    how: dict[str, Any] = {"map_over": "x", "error_handling": "continue"}
    with everstep.open(place) as trail:
        runner = Runner(trail)
        runner.map(item, {"x": list(range(40))}, id="many", **how)
        runner.map(item, {"x": [1, 3, 10]}, id="few", **how)
        runner.map(item, {"x": [1, 2]}, id="good", **how)
        runner.map(DOUBLES, {"x": [1, 2, 3]}, id="graphs", **how)
        with pytest.raises(ValueError, match="no page 3"):
            runner.map(item, {"x": [3, 1]}, map_over="x", id="broke")
    return place


def items(path: Path, run_id: str, *words: str) -> list[list[str]]:
    """The lines of the table of items."""
    shown = run("show", run_id, *words, "--trail", path)
    assert shown.exit_code == 0, shown.output
    table = shown.stdout.split("\n\n", 1)[1].splitlines()
    assert table[0].split() == ["item", "status", "took", "result", "run"]
    return [line.split("  ") for line in table[1:]]


def hints(path: Path, *words: str) -> list[str]:
    """The commands that are worth typing next."""
    said = run(*words, "--trail", path).stderr.splitlines()
    return [line.removeprefix("next: everstep ") for line in said if line.startswith("next: everstep ")]


# show


def test_show_of_a_map_counts_its_items_and_lists_them_failures_first(path: Path) -> None:
    shown = run("show", "many", "--trail", path).stdout
    assert "items 40: 6 failed, 2 paused, 32 completed" in " ".join(shown.split())
    found = [line[0] for line in items(path, "many", "--all")]
    assert found[:9] == ["x=3", "x=10", "x=17", "x=24", "x=31", "x=38", "x=5", "x=6", "x=0"]
    assert len(found) == 40


def test_the_first_items_are_listed_and_how_many_more_there_are(path: Path) -> None:
    found = items(path, "many")
    assert len(found) == 21
    assert found[-1][0].startswith("... and 20 more")
    assert [line[0] for line in items(path, "few")] == ["x=3", "x=10", "x=1"]


def test_an_item_has_its_time_its_result_and_the_run_to_look_at(path: Path) -> None:
    shown = run("show", "few", "--trail", path).stdout
    [failed] = [line for line in shown.splitlines() if line.startswith("x=3")]
    assert "ValueError: no page 3" in failed
    assert run("show", failed.split()[-1], "--trail", path).exit_code == 0
    [good] = [line for line in shown.splitlines() if line.startswith("x=1 ")]
    assert good.split()[-2] == "2"
    [waits] = [line for line in run("show", "many", "--trail", path).stdout.splitlines() if line.startswith("x=5")]
    assert "Publish 5? ('yes', 'no')" in waits


def test_items_that_were_not_begun_are_told_of(path: Path) -> None:
    shown = run("show", "broke", "--trail", path).stdout
    assert "items 2: 1 failed, 1 not begun" in " ".join(shown.split())


def test_json_has_the_items_of_a_map(path: Path) -> None:
    found = data("show", "few", "--trail", path)["show"]
    assert [(each["status"], each["inputs"]) for each in found["items"]] == [
        ("failed", {"x": 3}), ("failed", {"x": 10}), ("completed", {"x": 1}),
    ]  # fmt: skip
    assert found["items"][0]["error"]["message"] == "no page 3"
    assert found["items"][0]["run"].startswith("few/")
    assert data("show", found["items"][0]["run"], "--trail", path)["show"]["items"] is None


# hints


@pytest.mark.parametrize("run_id", ["many", "few", "good", "broke", "graphs"])
@pytest.mark.parametrize("command", ["show", "why"])
def test_every_hint_works_when_it_is_typed(path: Path, tmp_path: Path, command: str, run_id: str) -> None:
    place = tmp_path / "trail.db"
    place.write_bytes(path.read_bytes())
    found = hints(place, command, run_id)
    assert found or (command, run_id) == ("why", "good")
    for line in found:
        words = [{"VALUE": "yes", "MODULE": APP}.get(word, word) for word in shlex.split(line)]
        done = run(*words)
        allowed = {0, 1} if words[0] == "resume" else {0, 4}  # a run that is taken up may fail again
        assert done.exit_code in allowed, (line, done.output)
        assert "is a map over many items" not in done.output


def test_a_map_says_how_to_go_on_with_it(path: Path) -> None:
    said = run("show", "few", "--trail", path).stderr
    assert "map them with the id 'few' again" in said
    assert "resume few " not in said
    refused = run("resume", "few", "--app", APP, "--trail", path)
    assert refused.exit_code == 5
    assert "is a map over many items" in refused.stderr
    assert "everstep resume few/" in refused.stderr


# why


def test_why_of_a_map_points_to_the_items_that_failed(path: Path) -> None:
    shown = run("why", "few", "--trail", path)
    assert "2 of its items failed" in shown.stdout
    assert "x=3" in shown.stdout
    assert "ValueError: no page 10" in shown.stdout
    [child] = [one["run"] for one in data("show", "few", "--trail", path)["show"]["items"][:1]]
    assert f"next: everstep why {child} --trail {path}" in shown.stderr
    found = data("why", "few", "--trail", path)["why"]
    assert [each["error"] for each in found["items"]] == ["ValueError: no page 3", "ValueError: no page 10"]
    assert "nothing that was recorded before it looks odd" not in shown.stdout


def test_why_of_a_map_that_waits_names_the_questions(path: Path) -> None:
    commands = hints(path, "why", "many")
    assert sum(command.startswith("answer many/") for command in commands) == 2


def test_why_of_a_map_that_went_well_says_so(path: Path) -> None:
    assert run("why", "good", "--trail", path).stdout.startswith("good completed")


# graph --run


def test_a_map_of_a_graph_is_drawn_with_what_all_its_items_did(path: Path) -> None:
    drawn = data("graph", f"{APP}:DOUBLES", "--run", "graphs", "--trail", path)["graph"]
    nodes = {each["name"]: each["run"] for each in drawn["nodes"]}
    assert (nodes["twice"]["runs"], nodes["write"]["runs"]) == (3, 2)
    assert nodes["twice"]["status"] == "failed"
    shown = run("graph", f"{APP}:DOUBLES", "--run", "graphs", "--trail", path)
    assert shown.exit_code == 0
    assert "all 3 items of graphs" in shown.stderr


# runs


def test_runs_are_those_at_the_top_with_how_many_are_inside(path: Path) -> None:
    found = data("runs", "--trail", path)["runs"]
    assert {one["id"]: one["children"] for one in found} == {"many": 40, "few": 3, "good": 2, "graphs": 3, "broke": 1}
    table = run("runs", "--trail", path).stdout.splitlines()
    assert "children" in table[0].split()
    [few] = [line.split() for line in table if line.startswith("few ")]
    assert few[table[0].split().index("children") + 1] == "3"  # how long it took is two words


def test_the_runs_inside_one_can_be_listed_and_all(path: Path) -> None:
    inside = data("runs", "--parent", "few", "--trail", path)["runs"]
    assert [one["status"] for one in inside] == ["failed", "failed", "completed"]
    failed = data("runs", "--parent", "few", "--status", "failed", "--limit", 1, "--trail", path)
    assert len(failed["runs"]) == 1
    more = run("runs", "--parent", "few", "--status", "failed", "--limit", 1, "--trail", path).stderr
    assert "runs --status failed --parent few --limit 1 --cursor" in more
    assert len(data("runs", "--all", "--limit", 1_000, "--trail", path)["runs"]) == 5 + 40 + 3 + 2 + 3 + 1
    assert run("runs", "--parent", "nobody", "--trail", path).exit_code == 3
    assert run("runs", "--parent", "few", "--all", "--trail", path).exit_code == 2


def test_a_list_that_is_empty_at_the_top_says_how_to_see_the_runs_inside(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("top", workflow="outer").finish()
        trail.record("child", workflow="inner", parent="top").finish()
    said = run("runs", "--workflow", "inner", "--trail", tmp_path / "t.db").stderr
    assert said.startswith("no run there.")
    assert "runs --workflow inner --all" in said
    plain = run("runs", "--trail", tmp_path / "t.db").stdout
    assert [line.split()[0] for line in plain.splitlines()] == ["run", "top"]


def test_a_trail_without_runs_inside_others_has_no_column_for_them(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("top").finish()
    assert "children" not in run("runs", "--trail", tmp_path / "t.db").stdout


def test_after_an_answer_to_an_item_the_item_can_be_resumed(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "trail.db"
    place.write_bytes(path.read_bytes())
    [command, *_] = [line for line in hints(place, "show", "many") if line.startswith("answer ")]
    said = run(*shlex.split(command.replace("VALUE", "yes"))).stderr
    assert f"next: everstep resume {shlex.split(command)[1]} " in said


# fork


def test_the_fork_of_a_map_goes_on_as_its_hint_says(path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(path, tmp_path))
    said = run("fork", "good", "--at", "0", "--id", "better", "--trail", path).stderr
    assert "in the program, map them with the id 'better' again" in said
    assert "everstep resume" not in said
    with everstep.open(path) as trail:
        assert Runner(trail).map(item, {"x": [1, 2]}, map_over="x", id="better").completed
