"""What a run that waits shows: the failures beside its questions, and the questions of the runs inside it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import AsyncRunner, Graph, Runner, node, pause, step, workflow
from tests.integration.cli_support import data, run

APP = "tests.integration.test_cli_questions"


@node(output="sent")
def ask_it(topic: str) -> Any:
    return pause(f"Send {topic}?", schema=bool)


@node(output="page")
def fetch(topic: str) -> str:
    raise ValueError(f"no page on {topic}")


BOTH = Graph([ask_it, fetch], name="both")
OUTER = Graph([BOTH.as_node()], name="outer")


@workflow
async def agree(x: int) -> Any:
    return await pause(f"Really {x}?", options=["yes", "no"])


@workflow
async def everybody(count: int) -> Any:
    return await asyncio.gather(*(agree(number) for number in range(count)))


@step
def risky() -> None:
    raise ValueError("caught")


@workflow
def careful() -> Any:
    try:
        risky()
    except ValueError:
        return pause("Go on?")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("questions") / "trail.db"
    with everstep.open(place) as trail:
        Runner(trail).run(BOTH, topic="moons", id="beside", error_handling="continue")
        Runner(trail).run(OUTER, topic="moons", id="inside", error_handling="continue")
        Runner(trail).run(careful, id="careful", error_handling="continue")
        asyncio.run(AsyncRunner(trail).run(everybody, 3, id="all", error_handling="continue"))
        asyncio.run(AsyncRunner(trail).run(everybody, 15, id="many", error_handling="continue"))
    return place


def shown(path: Path, run_id: str) -> str:
    found = run("show", run_id, "--trail", path)
    assert found.exit_code == 0, found.output
    return found.stdout


def nexts(path: Path, *words: str) -> list[str]:
    said = run(*words, "--trail", path).stderr.splitlines()
    return [line.removeprefix("next: everstep ") for line in said if line.startswith("next: everstep ")]


# Failures beside questions.


@pytest.mark.parametrize(("run_id", "where"), [("beside", "beside@1"), ("inside", "inside/both#0@1")])
def test_a_failure_beside_a_question_is_told_at_once(path: Path, run_id: str, where: str) -> None:
    head = shown(path, run_id).partition("\n\n")[0]
    assert f"failed     fetch: ValueError: no page on moons ({where})" in head
    assert "waits for  Send moons?" in head
    assert f"show {where}" in [
        shlex.split(line)[0] + " " + shlex.split(line)[1] for line in nexts(path, "show", run_id)
    ]
    found = data("show", run_id, "--trail", path)["show"]["failed"]
    assert [(each["name"], each["error"]["message"]) for each in found] == [("fetch", "no page on moons")]
    why = run("why", run_id, "--trail", path)
    assert "fetch" in why.stdout
    assert "ValueError: no page on moons" in why.stdout


def test_resume_tells_the_failure_beside_the_question(path: Path) -> None:
    said = run("resume", "beside", "--app", f"{APP}:BOTH", "--trail", path)
    assert said.exit_code == 7
    assert "fetch failed: ValueError: no page on moons" in said.stderr


def test_a_failure_that_the_code_caught_is_none_of_the_run(path: Path) -> None:
    assert "failed  " not in shown(path, "careful").partition("\n\n")[0].replace("1 failed", "")
    assert data("show", "careful", "--trail", path)["show"]["failed"] == []


def test_what_waits_for_an_answer_is_not_said_to_be_interrupted(path: Path) -> None:
    [line] = [line for line in shown(path, "beside").splitlines() if "  ask_it  " in line]
    assert line.split()[1] == "paused"


# Questions of the runs inside.


def test_the_questions_of_the_runs_inside_are_listed_with_the_command_that_answers_each(path: Path) -> None:
    head = shown(path, "all").partition("\n\n")[0]
    assert sum("Really" in line for line in head.splitlines()) == 3
    assert "Really 1? ('yes', 'no')" in head
    commands = [line for line in nexts(path, "show", "all") if line.startswith("answer ")]
    assert len(commands) == 3
    questions = data("show", "all", "--trail", path)["show"]["questions"]
    assert sorted(each["prompt"] for each in questions) == ["Really 0?", "Really 1?", "Really 2?"]
    assert [shlex.split(line)[1] for line in commands] == [each["run"] for each in questions]
    assert questions[0]["options"] == ["yes", "no"]


def test_each_of_these_commands_works(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "trail.db"
    place.write_bytes(path.read_bytes())
    for command in [line for line in nexts(place, "show", "all") if line.startswith("answer ")]:
        done = run(*("yes" if word == "VALUE" else word for word in shlex.split(command)))
        assert done.exit_code == 0, done.output
    assert data("show", "all", "--trail", place)["show"]["questions"] == []
    assert run("resume", "all", "--app", APP, "--trail", place).exit_code in {0, 1}


def test_of_many_questions_the_first_are_shown_and_how_many_more_there_are(path: Path) -> None:
    head = shown(path, "many").partition("\n\n")[0]
    assert sum("Really" in line for line in head.splitlines()) == 10
    assert "and 5 more" in head
    assert sum(line.startswith("answer ") for line in nexts(path, "show", "many")) == 10


def test_an_answer_to_several_questions_at_once_is_told_the_command_for_each(path: Path) -> None:
    refused = run("answer", "all", "yes", "--trail", path)
    assert refused.exit_code == 5
    commands = [line.partition("  #")[0].strip() for line in refused.stderr.splitlines()[1:]]
    assert "Really 1?" in refused.stderr
    assert [line.removeprefix("everstep ") for line in commands] == [
        line.replace("VALUE", "yes") for line in nexts(path, "show", "all")
    ]


def test_after_an_answer_the_run_that_waits_for_all_of_it_is_the_one_to_resume(path: Path, tmp_path: Path) -> None:
    place = tmp_path / "trail.db"
    place.write_bytes(path.read_bytes())
    command = nexts(place, "show", "all")[0].replace("VALUE", "yes")
    assert run(*shlex.split(command)).stderr.splitlines()[-1].startswith("next: everstep resume all --app MODULE")
    for again in nexts(place, "show", "all"):
        run(*shlex.split(again.replace("VALUE", "no")))
    assert nexts(place, "show", "all") == [f"resume all --app MODULE --trail {place}"]
