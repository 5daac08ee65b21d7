"""The commands that go through a run again: replay, fork, and the tree of forks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import everstep
from tests.integration.cli_support import HOSTILE, data, process, run
from tests.integration.support import environment

AGENT = """
import everstep

class NoTea(Exception):
    pass

@everstep.step
def ask(prompt, model="small"):
    print("asked", prompt)
    return f"about {prompt}"

@everstep.step
def outline(topic):
    return [ask(f"{topic} one"), ask(f"{topic} two")]

@everstep.workflow
def report(topic, tone="calm"):
    print("reporting on", topic)
    parts = outline(topic)
    try:
        end = ask(f"{len(parts)} parts, {tone}")
    except NoTea as error:
        end = f"none: {error}"
    except RuntimeError as error:
        end = f"sorry: {error}"
    return {"end": end, "parts": parts}

other = 5
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a program, and the trail of a run of it."""
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "record.py").write_text(
        "import everstep, agent\nwith everstep.open('trail.db') as trail:\n"
        "    everstep.Runner(trail).run(agent.report, 'tea', id='r')\n"
    )
    subprocess.run([sys.executable, "record.py"], cwd=tmp_path, env=environment(), check=True, timeout=60)
    return tmp_path


def command(place: Path, *words: object, code: int = 0) -> Any:
    """Run a command there, as a process. What it printed."""
    done = process(*words, "--trail", "trail.db", cwd=place)
    assert done.code == code, done.stdout + done.stderr
    return done


def change(place: Path, old: str, new: str) -> None:
    assert AGENT.count(old) == 1
    (place / "agent.py").write_text(AGENT.replace(old, new))


# replay


def test_the_same_code_is_identical_and_asks_nobody(place: Path) -> None:
    """Promise 6."""
    done = command(place, "replay", "r", "--app", "agent")
    assert "r: identical: 3 steps answered from the record, 1 run again; " in done.stdout
    assert "asked" not in done.stdout
    assert "reporting on tea" in done.stdout  # the code between the leaves runs


def test_a_change_is_told_with_code_4(place: Path) -> None:
    """Promise 6."""
    change(place, "{topic} two", "{topic} three")
    done = command(place, "replay", "r", "--app", "agent", code=4)
    assert "r: diverged at r@3 ('ask'): changed argument" in done.stdout
    assert "~ prompt: 'tea two' -> 'tea three'" in done.stdout
    assert "next: everstep show r@3 --trail trail.db" in done.stderr
    assert "everstep fork r --at 2 --trail trail.db" in done.stderr


def test_lenient_tells_all_of_them(place: Path) -> None:
    change(place, '"{len(parts)} parts, {tone}"', '"{len(parts)} chapters, {tone}"')
    (place / "agent.py").write_text((place / "agent.py").read_text().replace("{topic} two", "{topic} three"))
    done = command(place, "replay", "r", "--app", "agent", "--mode", "lenient", "--json", code=4)
    told = json.loads(done.stdout)["replay"]
    assert [(each["cause"], each["step"], each["seq"]) for each in told["divergences"]] == [
        ("changed argument", "ask", 3), ("changed argument", "ask", 5),
    ]  # fmt: skip
    assert [each["changes"] for each in told["divergences"]] == [
        [{"path": ["prompt"], "change": "changed", "old": "tea two", "new": "tea three"}],
        [{"path": ["prompt"], "change": "changed", "old": "2 parts, calm", "new": "2 chapters, calm"}],
    ]


def test_the_json_of_a_change_says_what_was_added_and_what_removed_with_its_type(place: Path) -> None:
    change(place, '{"end": end, "parts": parts}', '{"end": end, "all": tuple(parts)}')
    done = command(place, "replay", "r", "--app", "agent", "--json", code=4)
    [divergence] = json.loads(done.stdout)["replay"]["divergences"]
    parts = ["about tea one", "about tea two"]
    assert divergence["changes"] == [
        {"path": ["result", "parts"], "change": "removed", "old": parts},
        {"path": ["result", "all"], "change": "added", "new": {"$type": "tuple", "value": parts}},
    ]


def test_json_is_one_object_and_what_the_code_prints_goes_elsewhere(place: Path) -> None:
    done = command(place, "replay", "r", "--app", "agent:report", "--json")
    told = json.loads(done.stdout)["replay"]
    assert (told["identical"], told["served"], told["re_executed"], told["mode"]) == (True, 3, 1, "verify")
    assert "reporting on tea" in done.stderr


def test_without_code_it_is_rebuilt_from_the_record(place: Path) -> None:
    done = command(place, "replay", "r")
    told = "r: recorded outcomes only, compared with no code: 4 steps answered from the record, 0 run again; "
    assert told in done.stdout
    assert "to compare it with the code: everstep replay r --app MODULE --trail trail.db\n" in done.stderr
    assert "no code" in command(place, "replay", "r", "--mode", "recorded", "--app", "nowhere").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["replay", "--sealed"], ["replay", "--seal", "hard"], ["replay", "--allow", "out"],
        ["resume", "--unknown", "retry"], ["resume", "--children"],
    ],
)  # fmt: skip
def test_an_option_that_does_nothing_for_a_workflow_is_refused(place: Path, words: list[str]) -> None:
    told = command(place, words[0], "r", *words[1:], "--app", "agent", code=2).stderr
    assert f"{words[1]} is for the run of a program, and does nothing here: leave it out." in told


def test_two_seals_are_the_stronger_one_and_a_contradiction_is_refused(place: Path) -> None:
    told = command(place, "replay", "r", "--sealed", "--seal", "calls", code=2).stderr
    assert "--sealed refuses more than --seal calls: leave one of the two out." in told
    for words in (["--sealed", "--seal", "hard"], ["--seal", "hard", "--sealed"]):
        assert "--seal is for the run of a program" in command(place, "replay", "r", *words, code=2).stderr


def test_the_app_of_the_project_is_found(place: Path) -> None:
    (place / "pyproject.toml").write_text('[tool.everstep]\napp = "agent"\n')
    assert "1 run again" in command(place, "replay", "r").stdout


def test_a_run_that_is_not_there_is_code_3_and_wrong_words_are_2(place: Path) -> None:
    assert "'none'" in command(place, "replay", "none", code=3).stderr
    command(place, "replay", "none", "--app", "agent", code=3)
    assert "name the module" in command(place, "replay", "r", "--mode", "verify", code=2).stderr
    assert "Invalid value for '--mode'" in command(place, "replay", "r", "--mode", "sealed", code=2).stderr
    assert "cannot load" in command(place, "replay", "r", "--app", "nowhere", code=1).stderr
    assert "is no workflow" in command(place, "replay", "r", "--app", "agent:other", code=1).stderr
    change(place, "def report(", "def another(")
    assert "has no workflow 'report'" in command(place, "replay", "r", "--app", "agent", code=3).stderr


def test_a_replay_needs_no_right_to_write(place: Path) -> None:
    path = place / "trail.db"
    before = path.read_bytes()
    command(place, "replay", "r", "--app", "agent")
    assert path.read_bytes() == before


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"

    @everstep.step
    def ask(prompt: str) -> str:
        return prompt

    words = [HOSTILE]

    @everstep.workflow(name=f"evil {HOSTILE}")
    def evil() -> str:
        return ask(words[0])

    with everstep.open(path) as trail:
        everstep.Runner(trail).run(evil, id="r")
        words[0] = "other" + HOSTILE
        report = trail.replay("r", evil)
        trail.fork("r", at=1, id="f", tags={"why": HOSTILE}).release()
    assert not report.identical
    assert "\x1b" not in str(report)
    for shown in (run("replay", "r", "--trail", path), run("show", "r", "--tree", "--trail", path)):
        assert shown.exit_code == 0
        assert "\x1b" not in shown.output


# fork


def test_a_fork_with_all_there_is_to_say(place: Path) -> None:
    refused = command(place, "fork", "r", "--at", 4, "--set", "plan.0=x", code=1)
    assert "there is no 'plan'" in refused.stderr
    done = command(
        place, "fork", "r@4", "--id", "f", "--set", "note=[1, 2]", "--set", "outline.0=first", "--input", "tone=loud",
        "--reuse", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout)["fork"] == {"run": "f", "forked_from": "r", "at": 4, "again": []}
    with everstep.open(place / "trail.db") as trail:
        assert trail.state("f")["note"] == [1, 2]
        assert trail.state("f")["outline"][0] == "first"
    command(place, "resume", "f", "--app", "agent")
    with everstep.open(place / "trail.db") as trail:
        assert trail.step("f", trail.run("f").head - 1).inputs == {"prompt": "2 parts, loud", "model": "small"}
    assert "identical" in command(place, "replay", "f", "--app", "agent").stdout


def test_a_fork_changes_what_stands_at_a_path_as_state_shows_it(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "trail.db") as trail, trail.record("r") as recorder:
        recorder.step("begin", set={"messages": [{"text": "a"}, {"text": "b"}], "by": {"0": "x", "of us": {"n": 1}}})
    words = ["messages[-1].text=last", "messages[-2]['text']=first", "by.0=y", "by[of us].n=2", "new=1"]
    done = run("fork", "r@1", "--id", "f", *(f"--set={each}" for each in words), "--trail", tmp_path / "trail.db")
    assert done.exit_code == 0, done.output
    with everstep.open(tmp_path / "trail.db") as trail:
        assert trail.state("f") == {
            "messages": [{"text": "first"}, {"text": "last"}], "by": {"0": "y", "of us": {"n": 2}}, "new": 1
        }  # fmt: skip


def test_another_outcome_and_a_failure(place: Path) -> None:
    done = command(place, "fork", "r", "--outcome", '4=["only"]', "--id", "a")
    assert "made a, which shares r up to step 3." in done.stderr
    assert "next: everstep resume a --app MODULE --trail trail.db" in done.stderr
    command(place, "fork", "r", "--failure", "5=out of tea", "--id", "b")
    command(place, "fork", "r", "--failure", "5=RuntimeError: no tea", "--id", "c")
    command(place, "fork", "r", "--failure", "5=agent.NoTea: at all", "--id", "d")
    for name in ("a", "b", "c", "d"):
        command(place, "resume", name, "--app", "agent")
        assert "identical" in command(place, "replay", name, "--app", "agent").stdout
    with everstep.open(place / "trail.db") as trail:
        assert trail.step("a", trail.run("a").head).output["end"] == "about 1 parts, calm"
        assert trail.step("b", trail.run("b").head).output["end"] == "sorry: out of tea"
        assert trail.step("c", trail.run("c").head).output["end"] == "sorry: no tea"
        assert trail.step("d", trail.run("d").head).output["end"] == "none: at all"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["r@2", "--at", 3], 2, "say the step once"),
        (["r", "--at", -1], 2, "--at"),
        (["r", "--at", 99], 3, "99"),
        (["none"], 3, "none"),
        (["r", "--set", "note"], 2, "says no value"),
        (["r", "--input", "=1"], 2, "says no value"),
        (["r", "--outcome", "x=1"], 2, "is no step"),
        (["r", "--outcome", "4"], 2, "says no value"),
        (["r", "--outcome", "4=1", "--at", 3], 2, "leave out --at 3"),
        (["r", "--outcome", "4=1", "--failure", "4=no"], 2, "use --outcome or --failure"),
        (["r", "--outcome", "4=[1"], 2, "'[1' begins like JSON and breaks at character 3"),
        (["r", "--set", 'note="so'], 2, "begins like JSON"),
        (["r@4", "--set", "outline[-9]=x"], 3, "there is nothing at 'outline[-9]'"),
        (["r@4", "--set", "outline[=x"], 2, "'outline[' is no path"),
        (["r", "--input", "topic=" + "[" * 100_000], 2, "nested too deeply"),
        (["r", "--outcome", "1=1"], 1, "no outcome of a step"),
        (["r", "--outcome", "0=1"], 1, "no outcome"),
        (["r", "--id", "r"], 5, "r"),
        (["r", "--outcome", "3=1", "--outcome", "4=2"], 2, "--outcome is given 2 times, and one of them would count"),
        (["r", "--failure", "3=a", "--failure=4=b"], 2, "--failure is given 2 times"),
        (["r", "--at", 2, "--at", 3], 2, "--at is given 2 times"),
        (["r", "--id", "a", "--id", "b"], 2, "--id is given 2 times"),
        (["r", "--at", 4, "--set", "note=1", "--set", "note=2"], 2, "--set note=... is given twice"),
        (["r", "--at", 4, "--input", "tone=a", "--input", "tone=b"], 2, "--input tone=... is given twice"),
    ],
)
def test_wrong_words_make_no_fork(place: Path, words: list[Any], code: int, said: str) -> None:
    result = run("fork", *words, "--trail", place / "trail.db")
    assert result.exit_code == code, result.output
    assert said in result.output
    with everstep.open(place / "trail.db") as trail:
        assert [found.id for found in trail.runs()] == ["r"]


@pytest.mark.parametrize(
    "words", [["state", "r", "--at", 1, "--at", 2], ["replay", "r", "--mode", "recorded", "--mode", "verify"]]
)
def test_an_option_that_is_given_twice_is_refused_elsewhere_too(place: Path, words: list[Any]) -> None:
    result = run(*words, "--trail", place / "trail.db")
    assert result.exit_code == 2
    assert f"{words[2]} is given 2 times" in result.output
    once = run(*words[:4], "--json", "--json", "--trail", place / "trail.db")  # what takes no value may be repeated
    assert once.exit_code == 0, once.output


# show --tree


def test_forks_are_shown_as_a_tree(place: Path) -> None:
    path = place / "trail.db"
    with everstep.open(path) as trail:
        for parent, name, at in (("r", "a", 1), ("a", "a1", 1), ("r", "b", 3), ("a1", "a2", 0)):
            trail.fork(parent, at=at, id=name).release()
    for asked in ("r", "a2", "b"):
        lines = run("show", asked, "--tree", "--trail", path).stdout.splitlines()
        assert lines[0].split() == ["run", "forked", "at", "status", "length"]
        assert [line.rstrip().split()[0] for line in lines[1:]] == ["r", "a", "a1", "a2", "b"]
        assert [len(line) - len(line.lstrip()) for line in lines[1:]] == [0, 2, 4, 6, 2]
    tree = data("show", "b", "--tree", "--trail", path)["tree"]
    assert [(each["depth"], each["id"], each["forked_from"], each["fork_seq"]) for each in tree] == [
        (0, "r", None, None), (1, "a", "r", 1), (2, "a1", "a", 1), (3, "a2", "a1", 0), (1, "b", "r", 3),
    ]  # fmt: skip


def test_a_fork_of_a_pruned_run_is_not_said_to_be_resumed_next(place: Path) -> None:
    with everstep.open(place / "trail.db") as trail:
        trail.prune("r", keep=2)
    said = command(place, "fork", "r", "--id", "f").stderr
    assert "so it cannot be resumed" in said
    assert said.splitlines()[-1] == "next: everstep state f --trail trail.db"
    command(place, "state", "f")
    assert "It takes all steps to go on" in command(place, "resume", "f", "--app", "agent", code=3).stderr
