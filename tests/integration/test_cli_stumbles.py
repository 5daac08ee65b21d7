"""What newcomers typed, and what they were told: statuses, results, matches, files in the place of modules."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

import everstep
from everstep.cli.exits import words_of
from everstep.errors import UnknownOutcomeError, UnreadableError
from everstep.model import Kind
from tests.integration.cli_support import as_a_person, data, process, run

AGENT = """
import everstep
from everstep import step, workflow

@step
def ask(word):
    if everstep.current().run_id == "never":
        raise ValueError(word)
    return [word + str(number) for number in range(200)]

@workflow
def talk(word):
    return ask(word)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an agent, and a trail with a run of it that was cut off."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "my_agent.py").write_text(AGENT)
    with everstep.open("trail.db") as trail:
        for run_id in ("r", "s"):
            trail.record(run_id, workflow="talk", inputs={"word": "tide"}).release()
    return tmp_path


# runs --status


def test_interrupted_is_a_status_that_can_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        for number in range(5):
            trail.record(f"lost-{number}").release()
            trail.record(f"done-{number}").finish()
        held = trail.record("held")
        listed = run("runs", "--status", "interrupted", "--trail", path)
        assert listed.exit_code == 0, listed.output
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == [f"lost-{n}" for n in (4, 3, 2, 1, 0)]
        first = data("runs", "--status", "interrupted", "--limit", 2, "--trail", path)
        rest = data("runs", "--status", "interrupted", "--cursor", first["cursor"], "--trail", path)
        assert [one["id"] for one in first["runs"] + rest["runs"]] == [f"lost-{n}" for n in (4, 3, 2, 1, 0)]
        assert rest["cursor"] is None
        assert "held" in [one["id"] for one in data("runs", "--status", "active", "--trail", path)["runs"]]
        held.finish()


def test_the_next_page_is_one_of_what_was_asked_for(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        for number in range(4):
            recorder = trail.record(f"r-{number}", workflow="w", tags={"user": "ada"})
            recorder.checkpoint("here", "manual")
            recorder.finish()
    words = ["--workflow", "w", "--tag", "user=ada", "--since", "2020-01-01", "--status", "completed"]
    for command in (["runs", *words], ["checkpoints", "--kind", "manual", "--tag", "user=ada"]):
        said = run(*command, "--limit", 3, "--trail", tmp_path / "t.db").stderr
        again = run(*shlex.split(said.removeprefix("more: everstep ")))
        assert len(again.stdout.splitlines()) == 2, again.output
        assert "--tag user=ada" in said


# resume


def test_a_result_that_is_cut_says_where_the_whole_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = re.sub(
        r"\x1b\[[0-9;]*m", "", as_a_person("resume", "r", "--app", "code/my_agent.py", "--trail", "trail.db")
    )
    assert "..." in shown
    [hint] = [line for line in shown.splitlines() if line.startswith("the whole of it: everstep ")]
    whole = run(*shlex.split(hint.removeprefix("the whole of it: everstep ")))
    assert whole.exit_code == 0
    assert "'tide199'" in whole.stdout


def test_a_pipe_gets_the_whole_result(place: Path) -> None:
    done = process("resume", "r", "--app", "code/my_agent.py", "--trail", "trail.db", cwd=place)
    assert done.code == 0, done.stderr
    assert "'tide199'" in done.stdout
    assert "the whole of it" not in done.stderr


# --app


@pytest.mark.parametrize("app", ["code/my_agent.py", "code/my_agent.py:talk", "./code/my_agent.py"])
def test_the_app_may_be_named_by_its_file(place: Path, app: str) -> None:
    done = process("resume", "s", "--app", app, "--trail", "trail.db", cwd=place)
    assert done.code == 0, done.stderr
    replayed = process("replay", "s", "--app", app, "--trail", "trail.db", cwd=place)
    assert replayed.code == 0, replayed.stderr


def test_a_file_that_is_not_there_is_not_found(place: Path) -> None:
    done = process("resume", "s", "--app", "nowhere.py", "--trail", "trail.db", cwd=place)
    assert done.code == 3
    assert "there is no file 'nowhere.py'" in done.stderr


@pytest.mark.parametrize("verb", ["resume", "replay"])
def test_a_workflow_that_is_not_in_the_app_is_not_found(place: Path, verb: str) -> None:
    done = process(verb, "s", "--app", "code/my_agent.py:walk", "--trail", "trail.db", cwd=place)
    assert done.code == 3
    assert "module 'my_agent' has no 'walk'. Leave it out to have the workflow found by its name." in done.stderr


def test_a_test_that_is_written_for_a_file_imports_its_module(place: Path) -> None:
    assert process("resume", "s", "--app", "code/my_agent.py", "--trail", "trail.db", cwd=place).code == 0
    words = ["export", "s", "-o", "s.everstep", "--as-test", "--app", "code/my_agent.py", "--trail", "trail.db"]
    done = process(*words, cwd=place)
    assert done.code == 0, done.stderr
    assert "my_agent.py" not in (place / "test_s.py").read_text()
    assert "my_agent" in (place / "test_s.py").read_text()


# search


def test_search_shows_the_match_and_where_it_is(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r", inputs={"q": "about reefs"}) as recorder:
        recorder.step("read", inputs={"page": "x" * 300 + " the Nördlingen tide " + "y" * 300}, output="fine")
        recorder.step("write", set={"text": {"body": ["one", "two moons"]}})
        recorder.step("fail", error=ValueError("there is no harbour"))
        recorder.step("harbour")
    path = tmp_path / "t.db"
    assert "inputs.page: " in match(path, "nordlingen")
    assert "Nördlingen tide" in match(path, "nordlingen")
    assert len(match(path, "nordlingen")) < 220
    assert "changes.text.body[1]: 'two moons'" in match(path, "moon*")
    assert "error: ValueError: there is no harbour" in run("search", "harbour", "--trail", path).stdout
    assert "inputs.q: 'about reefs'" in match(path, "about reefs")
    found = data("search", "moons", "--trail", path)["search"]
    assert found[0]["match"] == {"where": "changes.text.body[1]", "text": "'two moons'"}


def match(path: Path, words: str) -> str:
    """The line of the only hit."""
    head, line = run("search", words, "--trail", path).stdout.splitlines()
    assert head.split() == ["step", "name", "status", "match"]
    return line


def test_a_step_whose_name_is_the_match_shows_its_result(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorder:
        recorder.step("harbour", output="closed")
    assert match(tmp_path / "t.db", "harbour").endswith("'closed'")


# open


def test_the_folder_of_a_trail_is_made_with_it(tmp_path: Path) -> None:
    with everstep.open(tmp_path / ".everstep" / "deep" / "trail.db") as trail:
        trail.record("r").finish()
    assert data("runs", "--trail", tmp_path / ".everstep" / "deep" / "trail.db")["runs"][0]["id"] == "r"


def test_nothing_is_made_for_reading(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError):
        everstep.open(tmp_path / "no" / "trail.db", read_only=True)
    assert not (tmp_path / "no").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreadableError, match="folder"):
        everstep.open(tmp_path / "file" / "trail.db")


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        ("trail.db", ".", "There is one at ./trail.db: --trail trail.db"),
        (
            ".everstep/trail.db",
            "code/deep",
            "There is one at ../../.everstep/trail.db: --trail ../../.everstep/trail.db",
        ),
        ("my code/trail.db", "my code/deep", "There is one at ../trail.db: --trail ../trail.db"),
    ],
)
def test_a_trail_that_is_near_is_named_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, here: str, said: str
) -> None:
    with everstep.open(tmp_path / there) as trail:
        trail.record("r").finish()
    folder = tmp_path / here
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    for words in (["runs"], ["resume", "r", "--", "python", "agent.py"]):
        told = run(*words).stderr
        assert told == f"everstep: cannot open '{folder / '.everstep/trail.db'}': there is no trail. {said}\n"
    assert "r" in run("runs", *shlex.split(told.rpartition(": ")[2])).stdout


def test_the_place_where_no_trail_is_is_told_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"cannot open '{tmp_path / 'other.db'}': there is no trail." in run("runs", "--trail", "other.db").stderr


@pytest.mark.parametrize("words", [["doctor"], ["runs"], ["answer", "r", "yes"], ["resume", "r"], ["fork", "r"]])
def test_no_command_makes_a_trail_of_nothing(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for name in ("folder", "file"):
        told = run(*words, "--trail", tmp_path / name)
        assert (told.exit_code, "there is no trail" in told.stdout + told.stderr) == (1, True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]
    assert (tmp_path / "file").stat().st_size == 0


def test_the_commands_for_a_run_whose_id_begins_like_an_option_work(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        for name in ("--json", "-x"):
            with trail.record(name) as recorded:
                recorded.step("s", output=1, output_to="n")
    for name in ("--json", "-x"):
        shown = run("show", "--trail", tmp_path / "t.db", "--", name)
        [told] = [line for line in shown.stderr.splitlines() if line.startswith("next: ")]
        done = run(*shlex.split(told)[2:])
        assert (done.exit_code, done.stdout) == (0, "n = 1\n"), told


def test_an_id_that_is_taken_for_an_option_is_told_where_to_stand() -> None:
    assert "begins with a dash goes last, after two dashes" in run("show", "-x").stderr
    assert "two dashes" not in run("show", "r", "--al").stderr  # where another option was meant
    assert "two dashes" not in run("doctor", "-x").stderr


def test_a_program_whose_run_has_an_id_like_an_option_is_replayed_and_forked_as_we_say(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text("print('hello')\n")

    def does(*words: str) -> tuple[int, str, list[str]]:
        done = process(*words, cwd=tmp_path)
        return done.code, done.stdout, shlex.split(done.stderr.rpartition(": everstep ")[2])

    program = ("--", sys.executable, "hello.py")
    code, printed, to_show = does("record", "--id=-x", "--trail", "t.db", *program)
    assert (code, printed) == (0, "hello\n")
    code, printed, _ = does(*to_show)
    assert (code, printed.split()[:2]) == (0, ["run", "-x"])
    _, _, to_replay = does("replay", "--mode", "verify", "--trail", "t.db", "--", "-x")
    assert does(*to_replay)[:2] == (0, "hello\n"), to_replay
    assert does("fork", "--at", "0", "--trail", "t.db", "--", "-x", *program)[:2] == (0, "hello\n")


# what was typed, and what is told


def test_a_command_that_is_mistyped_is_guessed_and_the_usage_is_said_once() -> None:
    said = run("shwo", "r")
    assert (said.exit_code, said.stderr.count("Usage:")) == (2, 1)
    assert "there is no command 'shwo'. Did you mean 'show'? `everstep --help` lists them." in said.stderr
    assert "Did you mean" not in run("xyzzy").stderr
    assert run().output.count("Usage:") == 1


def test_a_time_is_taken_as_it_is_printed_and_what_is_none_is_told_in_words(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("r").finish()
    [one] = data("runs", "--trail", tmp_path / "t.db")["runs"]
    [again] = data("runs", "--since", one["created_at"], "--trail", tmp_path / "t.db")["runs"]
    assert again["id"] == "r"
    said = run("runs", "--since", "yesterday", "--trail", tmp_path / "t.db")
    assert (said.exit_code, "%" in said.stderr) == (2, False)
    assert "'yesterday' is no time; give 2026-11-15, or 2026-11-15T14:36, in UTC." in said.stderr


def test_a_run_whose_own_code_failed_has_an_error(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        trail.record("own").finish(error=ValueError("no"))
        trail.record("fine").finish()
    assert [one["errors"] for one in data("runs", "--trail", tmp_path / "t.db")["runs"]] == [0, 1]


def test_an_unknown_outcome_is_told_with_the_id_of_its_run() -> None:
    told = words_of(UnknownOutcomeError("a run", "charge", 1))
    assert "`everstep answer 'a run' VALUE`, or `everstep answer 'a run' --retry`." in told


def test_what_a_journal_notes_for_itself_is_not_shown_and_what_was_put_into_the_state_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        for number, run_id in enumerate(("one", "two")):
            recorder = trail.record(run_id)
            recorder.step(
                "charge", kind=Kind.INTENT, external=True, metadata={"output": ["charge", False], "who": "ada"}
            )
            recorder.step("plan", set={"plan": number})
            recorder.release()
    assert "metadata  {'who': 'ada'}" in run("show", "one@1", "--trail", path).stdout
    assert "set plan: 0 -> 1" in run("compare", "one", "two", "--trail", path).stdout
