"""The commands that read, on a real trail."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep.model import Kind
from tests.integration.cli_support import data, run, trail_to_see
from tests.integration.support import output, rich_trail


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trail to see, in the working directory's default place."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVERSTEP_TRAIL", raising=False)
    return trail_to_see(tmp_path / ".everstep" / "trail.db")


def lines(*words: object, code: int = 0) -> list[str]:
    result = run(*words)
    assert result.exit_code == code, result.output
    return result.stdout.splitlines()


class TestRuns:
    def test_they_are_listed_newest_first_in_plain_columns(self, seen: Path) -> None:
        found = lines("runs")
        assert found[0].split() == ["run", "workflow", "status", "started", "took", "entries", "errors", "tags"]
        assert [line.split()[:3] for line in found[1:]] == [
            ["left", "chat", "interrupted"],
            ["broken", "research", "failed"],
            ["other", "research", "completed"],
            ["done", "research", "completed"],
        ]

    def test_json_has_every_run_with_its_facts(self, seen: Path) -> None:
        found = data("runs")
        assert found.keys() == {"runs", "cursor"}
        assert [one["id"] for one in found["runs"]] == ["left", "broken", "other", "done"]
        done = found["runs"][-1]
        assert (done["status"], done["workflow"], done["tags"]) == ("completed", "research", {"user": "ada"})
        assert (found["runs"][0]["interrupted"], done["interrupted"]) == (True, False)
        assert found["runs"][2]["forked_from"] == "done"

    @pytest.mark.parametrize(
        ("words", "ids"),
        [
            (["--status", "failed"], ["broken"]),
            (["--workflow", "chat"], ["left"]),
            (["--tag", "user=ada"], ["other", "done"]),
            (["--since", "2100-01-01"], []),
            (["--since", "2000-01-01T00:00"], ["left", "broken", "other", "done"]),
            (["--since", "2000-01-01T00:00:00"], ["left", "broken", "other", "done"]),
            (["--limit", "2"], ["left", "broken"]),
        ],
    )
    def test_they_can_be_chosen(self, seen: Path, words: list[str], ids: list[str]) -> None:
        assert [one["id"] for one in data("runs", *words)["runs"]] == ids

    def test_a_page_leads_to_the_next_one(self, seen: Path) -> None:
        first = data("runs", "--limit", 3)
        assert [one["id"] for one in data("runs", "--cursor", first["cursor"])["runs"]] == ["done"]
        assert data("runs", "--cursor", first["cursor"])["cursor"] is None
        said = run("runs", "--limit", 3).stderr
        assert said == f"more: everstep runs --limit 3 --cursor {first['cursor']}\n"

    def test_no_run_is_no_error(self, tmp_path: Path) -> None:
        everstep.open(tmp_path / "empty.db").close()
        result = run("runs", "--trail", tmp_path / "empty.db")
        assert (result.exit_code, result.stderr) == (0, "no run there.\n")

    def test_a_run_whose_lease_is_over_is_interrupted(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            trail.record("held")
            trail.record("lost", lease=0.001)
            time.sleep(0.01)
            found = {one["id"]: one["interrupted"] for one in data("runs", "--trail", trail.store.where)["runs"]}
        assert found == {"held": False, "lost": True}

    @pytest.mark.parametrize("words", [["--tag", "user"], ["--limit", "0"], ["--cursor", "x"], ["--status", "odd"]])
    def test_a_wrong_choice_is_a_usage_error(self, seen: Path, words: list[str]) -> None:
        result = run("runs", *words)
        assert result.exit_code == 2
        assert "Usage: everstep runs" in result.stderr
        assert result.stdout == ""


class TestShow:
    def test_a_run_has_a_head_and_a_tree(self, seen: Path) -> None:
        found = lines("show", "done")
        head = dict(line.split(maxsplit=1) for line in found[: found.index("")])
        assert head["run"] == "done"
        assert head["status"] == "completed"
        assert head["steps"] == "3 steps, 1 failed attempt, 8 entries"
        assert head["forks"] == "other"
        assert head["inputs"] == "{'topic': 'fusion'}"
        assert head["output"] == "'a report'"
        assert data("show", "done")["show"]["output"] == "a report"
        assert data("show", "broken")["show"]["output"] is None
        tree = found[found.index("") + 2 :]
        assert [line.split(maxsplit=5) for line in tree] == [
            ["4", "completed", "plan", "2.4", "s", "['a', 'b']"],
            ["3", "completed", "ask", "1.2", "s", "(2 attempts) 'three parts'"],
            ["5", "checkpoint", "planned", "-", "boundary", "{'parts': 3}"],
            ["6", "completed", "read", "-", "{'title':", "'page one'}"],
        ]
        assert tree[1].index("ask") == tree[0].index("plan") + 2, "what is inside is indented"

    @pytest.mark.parametrize(
        ("run_id", "nexts"),
        [
            ("done", ["everstep state done"]),
            ("broken", ["everstep why broken", "everstep show broken@2", "everstep resume broken --app MODULE"]),
            (
                "left",
                [
                    "everstep answer left VALUE --pause 1",
                    "everstep answer left --retry --pause 1",
                    "everstep answer left VALUE --pause 2",
                ],
            ),
        ],
    )
    def test_it_ends_with_the_command_worth_typing(self, seen: Path, run_id: str, nexts: list[str]) -> None:
        assert run("show", run_id).stderr.splitlines() == [f"next: {line}" for line in nexts]

    def test_what_was_recorded_by_hand_is_not_to_be_resumed(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            trail.record("open").release()
            with suppress(ValueError), trail.record("bad"):
                raise ValueError("no")
        where = ["--trail", trail.store.where]
        assert run("show", "open", *where).stderr.startswith("next: everstep state open")
        assert run("show", "bad", *where).stderr == f"next: everstep why bad --trail {trail.store.where}\n"

    def test_each_of_several_questions_has_its_command(self, tmp_path: Path) -> None:
        @everstep.workflow
        async def both() -> None:
            await asyncio.gather(everstep.pause("First?"), everstep.pause("Second?"))

        with everstep.open(tmp_path / "trail.db") as trail:
            asyncio.run(everstep.AsyncRunner(trail).run(both, id="r"))
        said = run("show", "r", "--trail", trail.store.where).stderr.splitlines()
        assert [line.split("VALUE")[1].split(" --trail")[0] for line in said] == [" --pause 1", " --pause 2"]

    def test_the_next_command_works_where_the_trail_was_named(self, seen: Path) -> None:
        said = run("show", "done", "--trail", seen).stderr
        assert said == f"next: everstep state done --trail {seen}\n"
        assert run(*said.split()[2:]).exit_code == 0

    def test_the_app_of_the_project_need_not_be_named(self, seen: Path) -> None:
        Path("pyproject.toml").write_text('[tool.everstep]\napp = "agent"\n', "utf-8")
        assert run("show", "broken").stderr.endswith("next: everstep resume broken\n")
        Path("pyproject.toml").write_text("[tool.everstep", "utf-8")
        assert run("show", "broken").stderr.endswith("next: everstep resume broken --app MODULE\n")

    def test_what_a_run_waits_for_is_in_its_head(self, seen: Path) -> None:
        found = lines("show", "left")
        assert "waits for  Send it? ('yes', 'no')" in found
        assert any(line.startswith("waits for  The run has no outcome of the external step 'charge'") for line in found)
        assert [line.split()[1] for line in found[-2:]] == ["unknown", "paused"]

    def test_where_a_run_came_from_is_in_its_head(self, seen: Path) -> None:
        assert "forked from  done@6" in lines("show", "other")

    def test_json_has_the_tree_as_a_list_with_depths(self, seen: Path) -> None:
        found = data("show", "done")["show"]
        assert found.keys() == {
            "run", "lineage", "inputs", "output", "usage", "error", "failed", "questions", "items", "steps",
        }  # fmt: skip
        assert [(step["depth"], step["name"], step["status"], step["attempts"]) for step in found["steps"]] == [
            (0, "plan", "completed", 1),
            (1, "ask", "completed", 2),
            (0, "planned", "completed", 1),
            (0, "read", "completed", 1),
        ]
        assert found["lineage"] == ["done", "other"]
        assert data("show", "broken")["show"]["error"]["message"] == "no such page"

    def test_one_step_is_shown_with_all_it_holds(self, seen: Path) -> None:
        found = lines("show", "done@6")
        assert "output.title = 'page one'" in found
        assert any("append" in line and "pages" in line for line in found)
        assert data("show", "done@6")["show"]["step"]["output"] == {"title": "page one"}
        assert "ValueError: no such page" in lines("show", "broken@2")

    def test_the_traceback_of_a_step_is_shown(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            recorder = trail.record("r")
            try:
                raise KeyError("k")
            except KeyError as error:
                recorder.step("bad", error=error)
        assert any(
            "Traceback (most recent call last)" in line for line in lines("show", "r@1", "--trail", trail.store.where)
        )

    def test_the_traceback_is_that_of_the_program_and_all_of_it_is_there_for_who_asks(self, tmp_path: Path) -> None:
        @everstep.step
        def read(page: int) -> int:
            raise ValueError(f"no page {page}")

        @everstep.workflow
        def book(page: int) -> int:
            return read(page)

        with everstep.open(tmp_path / "trail.db") as trail, pytest.raises(ValueError, match="no page 7"):
            everstep.Runner(trail).run(book, 7, id="r")
        words = ("show", "r@2", "--trail", tmp_path / "trail.db")
        frames = [line.split()[-1] for line in lines(*words) if line.startswith("    File ")]
        assert frames == ["book", "read"]
        whole = [line.split()[-1] for line in lines(*words, "--all") if line.startswith("    File ")]
        assert "call_step" in whole
        assert whole.index("book") < whole.index("read")
        assert ", in call_step\n" in data(*words)["show"]["step"]["error"]["traceback"]

    def test_ten_thousand_steps_are_shown_in_few_lines_and_none_that_failed_is_left_out(self, tmp_path: Path) -> None:
        @everstep.step
        def read(page: int) -> int:
            if page == 7_777:
                raise ValueError("no such page")
            return page

        @everstep.workflow
        def book() -> None:
            for page in range(10_000):
                with suppress(ValueError):
                    read(page)

        with everstep.open(tmp_path / "trail.db") as trail:
            everstep.Runner(trail, durability="exit").run(book, id="long")
        found = lines("show", "long", "--trail", trail.store.where)
        assert len(found) < 40
        assert sum(" failed " in line and "ValueError: no such page" in line for line in found) == 1
        assert any(line.strip().endswith("more, all completed") for line in found)
        everything = lines("show", "long", "--all", "--trail", trail.store.where)
        assert sum(" read " in line for line in everything) == 10_000

    def test_a_step_inside_a_run_that_is_at_work_is_active(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail:
            at_work = trail.record("r")
            at_work.step("pay", kind=Kind.INTENT, external=True)
            result = run("show", "r", "--trail", trail.store.where)
            assert "status   active, owned by" in result.stdout
            assert result.stdout.splitlines()[-1].split()[:3] == ["1", "active", "pay"]
            assert "waits for" not in result.stdout
            assert "everstep cancel r" in result.stderr
            at_work.release()
        assert " unknown " in run("show", "r", "--trail", trail.store.where).stdout


class TestSteps:
    def test_every_entry_is_listed(self, seen: Path) -> None:
        found = lines("steps", "done")
        assert [line.split()[1] for line in found[1:]] == [
            "start", "composite_start", "attempt", "step", "step", "checkpoint", "step", "end",
        ]  # fmt: skip

    def test_pages_follow_one_another(self, seen: Path) -> None:
        first = data("steps", "done", "--limit", 3)
        assert [step["seq"] for step in first["steps"]] == [0, 1, 2]
        rest = data("steps", "done", "--cursor", first["cursor"])
        assert [step["seq"] for step in rest["steps"]] == [3, 4, 5, 6, 7]
        assert rest["cursor"] is None

    def test_a_pruned_run_begins_where_it_was_cut(self, tmp_path: Path) -> None:
        rich_trail(tmp_path / "trail.db")
        found = data("steps", "pruned", "--trail", tmp_path / "trail.db")["steps"]
        assert [step["seq"] for step in found] == [28, 29, 30, 31, 32]
        assert "pruned" in lines("show", "pruned", "--trail", tmp_path / "trail.db")[6]


class TestState:
    def test_every_value_is_on_a_line_that_can_be_searched(self, seen: Path) -> None:
        assert lines("state", "done") == ["plan = 'three parts'", "pages[0].title = 'page one'"]

    @pytest.mark.parametrize("words", [["done@4"], ["done", "--at", "4"]])
    def test_it_can_be_seen_at_any_step(self, seen: Path, words: list[str]) -> None:
        assert lines("state", *words) == ["plan = 'three parts'"]
        found = data("state", *words)["state"]
        assert found == {
            "run": "done", "at": 4, "superstep": None, "path": None, "sizes": {"plan": 13},
            "values": {"plan": "three parts"},
        }  # fmt: skip

    @pytest.mark.parametrize("path", ["pages[0].title", "pages.0.title", "state.pages[0].title", "pages[0]['title']"])
    def test_one_value_is_found_by_its_path(self, seen: Path, path: str) -> None:
        assert data("state", "done", path)["state"]["values"] == "page one"

    def test_a_path_that_leads_nowhere_says_what_there_is(self, seen: Path) -> None:
        result = run("state", "done", "pages[0].author")
        assert result.exit_code == 3
        assert "no 'author' in ['title']" in result.stderr

    def test_an_id_that_looks_like_an_address_is_an_id(self, tmp_path: Path) -> None:
        with everstep.open(tmp_path / "trail.db") as trail, trail.record("a@1") as recorder:
            recorder.step("s", output=1, output_to="x")
            recorder.step("s", output=2, output_to="x")
        where = ["--trail", trail.store.where]
        assert lines("state", "a@1", *where) == ["x = 2"]
        assert lines("state", "a@1@1", *where) == ["x = 1"]

    def test_values_of_classes_that_are_not_known_here_are_shown(self, tmp_path: Path) -> None:
        code = """
import dataclasses, enum, sys, everstep
@dataclasses.dataclass
class Plan:
    title: str
    parts: list
class Colour(enum.Enum):
    RED = 1
everstep.register(Plan), everstep.register(Colour)
with everstep.open(sys.argv[1]) as trail, trail.record("r") as run:
    run.step("plan", inputs={"colour": Colour.RED}, output=Plan("x", [1]), output_to="plan")
"""
        output(code, tmp_path / "trail.db")
        where = ["--trail", tmp_path / "trail.db"]
        assert lines("state", "r", *where) == ["plan.title = 'x'", "plan.parts[0] = 1"]
        assert "Plan(title='x', parts=[1])" in run("show", "r", *where).stdout
        assert "Colour.RED" in run("show", "r@1", *where).stdout
        assert data("state", "r", *where)["state"]["values"]["plan"]["value"] == {"title": "x", "parts": [1]}


class TestDiff:
    def test_a_difference_is_told_and_is_the_exit_code(self, seen: Path) -> None:
        assert lines("diff", "done@4", "done", code=4) == ["+  pages  [{'title': 'page one'}]"]
        assert lines("diff", "done", "other", code=4)[0] == "+  topic  'fission'"
        found = data("diff", "done", "done@4", code=4)["diff"]
        assert found["changes"] == [{"path": ["pages"], "change": "removed", "old": [{"title": "page one"}]}]

    def test_no_difference_is_no_error(self, seen: Path) -> None:
        result = run("diff", "done", "done@6")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "the states are the same.\n")
        assert data("diff", "done", "done@6")["diff"]["changes"] == []


class TestCheckpointsAndSearch:
    def test_checkpoints_are_listed_with_their_addresses(self, seen: Path) -> None:
        assert lines("checkpoints", "done")[1].split()[:3] == ["done@5", "planned", "boundary"]
        [found] = data("checkpoints", "done", "--kind", "boundary")["checkpoints"]
        assert (found["id"], found["metadata"]) == ("done@5", {"parts": 3})
        assert data("checkpoints", "--kind", "manual")["checkpoints"] == []
        assert data("checkpoints", "--tag", "user=bob")["checkpoints"] == []
        assert data("state", found["id"])["state"]["at"] == 5

    def test_checkpoints_come_in_pages(self, tmp_path: Path) -> None:
        rich_trail(tmp_path / "trail.db")
        where = ["--trail", tmp_path / "trail.db"]
        whole = [point["id"] for point in data("checkpoints", *where)["checkpoints"]]
        page: dict[str, Any] = {"cursor": "0"}
        found: list[str] = []
        while page["cursor"] is not None:
            page = data("checkpoints", "--limit", 2, "--cursor", page["cursor"], *where)
            found += [point["id"] for point in page["checkpoints"]]
        assert found == whole
        assert len(whole) == 5

    def test_steps_are_found_by_their_words(self, seen: Path) -> None:
        assert lines("search", "page", "one")[1].split()[:2] == ["done@6", "read"]
        assert [hit["seq"] for hit in data("search", "three par*")["search"]] == []
        assert [hit["seq"] for hit in data("search", "three", "par*")["search"]] == [3]
        assert [hit["seq"] for hit in data("search", "page one")["search"]] == [6]
        assert run("search", "nowhere").stderr == "no step with these words there.\n"
        assert not Path(f"{seen}-search").exists(), "reading writes nothing"


def test_every_value_of_the_library_comes_out_as_json(tmp_path: Path) -> None:
    rich_trail(tmp_path / "trail.db")
    where = ["--trail", tmp_path / "trail.db"]
    for run_id in ("parent", "fork", "open", "pruned"):
        for command in ("show", "steps", "state", "verify"):
            assert data(command, run_id, *where)


def test_options_may_stand_before_the_command(seen: Path, tmp_path: Path) -> None:
    result = run("--json", "--trail", seen, "state", "done")
    assert json.loads(result.stdout)["state"]["values"]["plan"] == "three parts"


def test_verify_tells_that_all_is_well(seen: Path) -> None:
    assert lines("verify") == ["4 runs, 25 entries: intact"]
    assert lines("verify", "done") == ["1 run, 8 entries: intact"]
    assert data("verify")["verify"] == {"ok": True, "runs": 4, "entries": 25, "damage": []}
