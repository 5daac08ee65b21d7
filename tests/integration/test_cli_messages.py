"""What is said to somebody who left something out, took one thing for another, or stands before a run that failed."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

import everstep
from everstep import Runner
from everstep.model import Kind, Status
from tests.integration.cli_support import data, process, run

AGENT = """
import everstep
from everstep import pause, step, workflow

@step
def ask(word):
    if word == "boom":
        raise ValueError("no such page")
    return word + "!"

@workflow
def talk(word):
    ask(word)
    return ask(str(pause("How many?", schema={"type": "integer", "minimum": 1})))

@workflow
def fail(word):
    return ask("boom")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an agent, and a trail: a question, a run cut off in an external step, one that failed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERSTEP_TRAIL", "trail.db")
    (tmp_path / "scout.py").write_text(AGENT)
    names: dict[str, object] = {}
    exec(compile(AGENT, "scout.py", "exec"), names)
    with everstep.open("trail.db") as trail:
        Runner(trail).run(names["talk"], "tide", id="asks")  # type: ignore[arg-type] # a workflow
        with pytest.raises(ValueError, match="no such page"):
            Runner(trail).run(names["fail"], "tide", id="bad")  # type: ignore[arg-type] # a workflow
        cut = trail.record("cut", workflow="mail", metadata={"code": "as a runner notes it"})
        cut.step("send", kind=Kind.INTENT, external=True)
        cut.release()
        trail.record("done", workflow="talk").finish("fine")
    return tmp_path


def said(*words: object, code: int = 2) -> str:
    """What a command says that does not do what was meant."""
    result = run(*words)
    assert result.exit_code == code, result.output
    return result.stderr


# a run that failed


def test_a_run_that_failed_leads_to_why(place: Path) -> None:
    first, *rest = run("show", "bad").stderr.splitlines()
    assert first == "next: everstep why bad"
    assert rest == ["next: everstep show bad@1", "next: everstep resume bad --app MODULE"]
    told = process("resume", "bad", "--app", "scout", cwd=place, EVERSTEP_TRAIL="trail.db")
    assert told.stderr.splitlines()[-2:] == ["bad failed: ValueError: no such page", "next: everstep why bad"]


# answer


def test_answer_without_a_value_shows_the_question_and_what_it_takes(place: Path) -> None:
    told = said("answer", "asks")
    assert told.endswith("\nasks asks: How many? (a whole number from 1 on)\n  everstep answer asks VALUE\n")
    told = said("answer", "cut")
    assert "of the external step 'send'" in told
    assert told.splitlines()[-2:] == ["  everstep answer cut VALUE", "  everstep answer cut --retry"]
    assert "it has no open question" in said("answer", "done", code=5)
    assert everstep.open("trail.db", read_only=True).run("asks").status is Status.PAUSED


def test_what_an_answer_must_be_stands_behind_the_question_wherever_it_is_shown(place: Path) -> None:
    asked = "How many? (a whole number from 1 on)"
    assert f"waits for  {asked}\n" in run("show", "asks").stdout
    assert asked in run("why", "asks").stdout
    told = process("resume", "asks", "--app", "scout", cwd=place, EVERSTEP_TRAIL="trail.db")
    assert f"asks waits: {asked}\n" in told.stderr


@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"a": {}}, "required": 3}, {"type": [{}]}, {"enum": []}, 3]
)
def test_a_question_with_a_schema_that_is_none_is_shown_all_the_same(tmp_path: Path, schema: object) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        recorder = trail.record("r")
        recorder.step("pause", kind=Kind.PAUSE, status="paused", pause={"prompt": "How many?", "schema": schema})
        recorder.release()
    for words in (["show", "r"], ["why", "r"]):
        assert run(*words, "--trail", tmp_path / "t.db").exit_code == 0


def test_a_second_answer_leads_to_what_goes_on_with_the_run(place: Path) -> None:
    assert run("answer", "asks", "3").exit_code == 0
    assert "no open question; `everstep resume asks --app MODULE` goes on with it." in said(
        "answer", "asks", "4", code=5
    )
    assert "no open question; `everstep resume asks --app MODULE` goes on with it." in said("answer", "asks", code=5)
    assert "it is failed; `everstep resume bad --app MODULE` goes on with it." in said("answer", "bad", "4", code=5)
    assert "it is completed; `everstep show done` shows it." in said("answer", "done", "4", code=5)


def test_answer_takes_a_value_or_a_retry(place: Path) -> None:
    assert "give a VALUE or --retry, not both." in said("answer", "cut", "sent", "--retry")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"minimum": 1}, "a whole number from 1 on"),
        ({"maximum": 9}, "a whole number up to 9"),
        ({"minimum": 1, "maximum": 9}, "a whole number from 1 to 9"),
    ],
)
def test_the_bounds_of_a_number_are_told(tmp_path: Path, bounds: dict[str, int], told: str) -> None:
    path = tmp_path / "t.db"
    asked = {"prompt": "How many?", "schema": {"type": "integer", **bounds}}
    with everstep.open(path) as trail:
        recorder = trail.record("r")
        recorder.step("pause", kind=Kind.PAUSE, status="paused", pause=asked)
        recorder.release()
    outside = 0 if "minimum" in bounds else 10
    assert f"Give {told}." in said("answer", "r", outside, "--trail", path, code=1)


def test_a_run_that_was_cut_off_in_an_external_step_leads_to_its_answer(place: Path) -> None:
    told = run("show", "cut")
    assert told.stderr.splitlines() == ["next: everstep answer cut VALUE", "next: everstep answer cut --retry"]
    assert "status     interrupted: no process is working on it" in told.stdout
    assert run("answer", "cut", "--retry").exit_code == 0
    assert run("steps", "cut").stdout.splitlines()[-1].endswith("to be tried again")


# what is missing, and what is another thing


@pytest.mark.parametrize("verb", ["resume", "replay", "fork"])
@pytest.mark.parametrize("words", [["--", "python", "plain.py"], ["--", "./plain.py"], ["plain.py"]])
def test_a_program_in_the_place_of_a_run_is_told(place: Path, verb: str, words: list[str]) -> None:
    program = " ".join(words).removeprefix("-- ")
    told = said(verb, *words)
    assert f"the id of the run is missing before the dashes: everstep {verb} RUN -- {program}" in told
    assert "`everstep runs` lists them" in told


def test_a_run_that_is_named_like_a_program_is_a_run(place: Path) -> None:
    with everstep.open("trail.db") as trail:
        trail.record("agent.py").finish()
    assert run("replay", "agent.py").exit_code == 0


@pytest.mark.parametrize("words", [["show"], ["why"], ["diff"], ["diff", "done"], ["resume"], ["export"]])
def test_where_ids_come_from_is_told_where_one_is_missing(words: list[str]) -> None:
    assert said(*words).endswith(". `everstep runs` lists them.\n")


@pytest.mark.parametrize(
    "words",
    [["why"], ["show", "zzz"], ["fork", "done", "--id", "cut"], ["fork", "cut", "--outcome", "0=1"]],
)
def test_a_command_that_a_refusal_names_works_as_it_stands(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.delenv("EVERSTEP_TRAIL")
    shutil.move("trail.db", "else where.db")
    told = run(*words, "--trail", "else where.db").stderr
    [named] = re.findall("`everstep ([^`]*)`", told)
    done = run(*shlex.split(named))
    assert done.exit_code == 0, (told, done.output)


def test_a_number_behind_a_run_is_one_of_its_steps(place: Path) -> None:
    assert "One step of it is done@1." in said("show", "done", "1")
    assert "One step" not in said("steps", "done", "1")
    assert "One step" not in said("show", "done", "other")


@pytest.mark.parametrize(
    "words", [["fork", "done", "--at"], ["state", "done", "--at"], ["answer", "asks", "x", "--pause"]]
)
@pytest.mark.parametrize("given", ["x", "-1"])
def test_what_is_no_number_of_a_step_is_told_as_that(place: Path, words: list[str], given: str) -> None:
    assert f"'{given}' is no step's number; `everstep steps RUN` lists them." in said(*words, given)


@pytest.mark.parametrize(
    ("word", "told"),
    [("list", "`everstep runs` lists runs."), ("ls", "`everstep runs` lists runs."), ("prune", "trail.prune"),
     *((word, "`everstep drop RUN` lets go of a run.") for word in ("prune", "delete", "remove", "rm"))],
)  # fmt: skip
def test_the_words_of_other_tools_are_understood(word: str, told: str) -> None:
    assert f"there is no command '{word}'." in said(word)
    assert told in said(word, "r")


def test_help_is_a_word_too() -> None:
    assert run("help").stdout == run("--help").stdout
    assert run("help", "show").stdout == run("show", "--help").stdout


def test_the_help_says_what_commands_do() -> None:
    told = " ".join(run("--help").stdout.split())
    for words in (
        "doctor what is installed, and whether the trail is sound",
        "cancel cancel a run (it can be resumed)",
        "stop stop a graph after the superstep at work",
        "fork branch off a run, with something changed",
    ):
        assert words in told
    assert "Only runs with this status." in run("runs", "--help").stdout


def test_choices_are_listed_in_a_line() -> None:
    assert said("completion").endswith("Choose from: bash, zsh, fish\n")


def test_a_module_that_is_mistyped_is_guessed_and_where_it_was_looked_for_is_told(place: Path) -> None:
    told = said("resume", "asks", "--app", "scot", code=1)
    assert f"cannot load 'scot': there is no such module in {place}, nor where Python looks." in told
    assert told.endswith(" Did you mean 'scout'?\n")
    (place / "needs.py").write_text("import not_installed_anywhere")
    told = said("resume", "asks", "--app", "needs", code=1)
    assert "cannot load 'needs': ModuleNotFoundError: No module named 'not_installed_anywhere'." in told


def test_a_file_that_is_no_exported_run_is_told_as_that(place: Path) -> None:
    assert "'scout.py' is no exported run. Give a file that `everstep export` wrote." in said(
        "import", "scout.py", code=1
    )
    Path("broken.everstep").write_text('{"everstep": ')
    assert "damage in 'broken.everstep'" in said("import", "broken.everstep", code=6)


def test_a_run_that_is_there_is_imported_under_another_id(place: Path) -> None:
    assert run("export", "done").exit_code == 0
    told = said("import", "done.everstep", code=5)
    assert told == (
        "everstep: a run 'done' exists already. Import it under another id: everstep import done.everstep --id ID\n"
    )
    again = told.strip().rpartition(": everstep ")[2].replace("ID", "copy")
    assert run(*shlex.split(again)).exit_code == 0


def test_who_is_not_at_a_terminal_is_told_what_to_add(place: Path) -> None:
    assert "no terminal to ask at; add --yes." in said("cancel", "cut")


def test_a_run_that_was_cancelled_is_resumed(place: Path) -> None:
    assert run("cancel", "cut", "--yes").exit_code == 0
    assert said("cancel", "cut", "--yes", code=5).endswith("`everstep resume cut` goes on with it.\n")
    assert "answer" not in run("show", "cut").stderr, "which it would not take"


def test_the_next_page_is_as_long_as_this_one(place: Path) -> None:
    more = said("runs", "--limit", 1, code=0)
    assert "--limit 1 --cursor" in more
    assert len(run(*shlex.split(more.removeprefix("more: everstep "))).stdout.splitlines()) == 2
    assert "--limit" not in run("runs").stderr


# replay


def test_a_replay_of_what_was_pruned_says_that_it_needs_all(place: Path) -> None:
    assert run("answer", "asks", "3").exit_code == 0
    assert process("resume", "asks", "--app", "scout", cwd=place, EVERSTEP_TRAIL="trail.db").code == 0
    with everstep.open("trail.db") as trail:
        trail.prune("asks", keep=1)
    for words in ([], ["--app", "scout"]):
        done = process("replay", "asks", *words, cwd=place, EVERSTEP_TRAIL="trail.db")
        assert (done.code, "A replay needs the whole run." in done.stderr) == (3, True)


def test_show_compare_and_replay_count_the_same_steps_and_a_divergence_is_no_empty_record(place: Path) -> None:
    assert run("answer", "asks", "3").exit_code == 0
    assert process("resume", "asks", "--app", "scout", cwd=place, EVERSTEP_TRAIL="trail.db").code == 0
    assert "steps     3 steps, 7 entries" in run("show", "asks").stdout
    assert "identical: 3 steps" in run("compare", "asks", "asks").stderr
    assert data("replay", "asks")["replay"]["served"] == 3
    (place / "scout.py").write_text(AGENT.replace("ask(word)\n", "ask(word + word)\n"))
    told = process("replay", "asks", "--app", "scout", cwd=place, EVERSTEP_TRAIL="trail.db").stdout
    assert "changed argument; 0 steps answered from the record, 0 run again\n" in told
