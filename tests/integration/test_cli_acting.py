"""The commands that act: cancel, answer, resume; with workflows that were really interrupted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import everstep
from tests.integration.cli_support import COMMAND, Done, at_work, on_a_terminal, process
from tests.integration.support import environment

AGENT = """
import os, sys, time
import everstep

@everstep.step
def plan(topic):
    print("planning", topic)
    return [topic, topic.upper()]

@everstep.step
def write(part):
    if part == os.environ.get("FAILS_AT"):
        raise ValueError(f"cannot write {part}")
    if part == os.environ.get("DIES_AT"):
        os.kill(os.getpid(), 9)
    return f"about {part}"

@everstep.step(external=True)
def send(text):
    if "DIES_SENDING" in os.environ:
        os.kill(os.getpid(), 9)
    return "sent"

@everstep.workflow
def report(topic):
    parts = plan(topic)
    if "CHANGED" in os.environ:
        plan("something else")
    texts = [write(part) for part in parts]
    if everstep.pause("Send it?", schema=bool):
        send(texts[0])
    return texts

@everstep.workflow
async def quick(x):
    return x + 1

@everstep.step
def wait():
    print("waiting", flush=True)
    time.sleep(60)

@everstep.workflow
def slow():
    wait()

if __name__ == "__main__":
    trail = everstep.open("trail.db")
    everstep.Runner(trail).run(globals()[sys.argv[1]], *sys.argv[3:], id=sys.argv[2])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an agent in it."""
    (tmp_path / "agent.py").write_text(AGENT, "utf-8")
    return tmp_path


def agent(place: Path, *words: str, **variables: str) -> int:
    """Run the agent as its own program; how it ended."""
    command = [sys.executable, "agent.py", *words]
    done = subprocess.run(command, cwd=place, env={**environment(), **variables}, capture_output=True, check=False)
    return done.returncode


def everstep_command(place: Path, *words: str, **variables: str) -> Done:
    return process(*words, "--trail", "trail.db", cwd=place, **variables)


def status(place: Path, run_id: str) -> str:
    with everstep.open(place / "trail.db", read_only=True) as trail:
        return str(trail.run(run_id).status)


class TestResume:
    def test_a_killed_run_goes_on_where_it_was_and_waits_then_completes(self, place: Path) -> None:
        """Promise 2: what has completed is not run again."""
        assert agent(place, "report", "r-1", "x", DIES_AT="X") == -signal.SIGKILL
        resumed = everstep_command(place, "resume", "r-1", "--app", "agent")
        assert resumed.code == 7
        assert "planning" not in resumed.stdout
        assert "r-1 waits: Send it?" in resumed.stderr
        assert "next: everstep answer r-1 VALUE --trail trail.db" in resumed.stderr
        assert everstep_command(place, "answer", "r-1", "yes").code == 0
        done = everstep_command(place, "resume", "r-1", "--app", "agent:report")
        assert (done.code, done.stdout) == (0, "['about x', 'about X']\n")
        again = everstep_command(place, "resume", "r-1", "--app", "agent", "--json")
        assert json.loads(again.stdout) == {
            "everstep": 1,
            "resume": {
                "run": "r-1",
                "status": "completed",
                "restored": True,
                "value": ["about x", "about X"],
                "error": None,
                "pauses": [],
            },
        }

    def test_the_app_can_stand_in_pyproject(self, place: Path) -> None:
        (place / "pyproject.toml").write_text('[tool.everstep]\napp = "agent"\n', "utf-8")
        agent(place, "report", "r-1", "x", DIES_AT="X")
        assert everstep_command(place, "resume", "r-1").code == 7

    def test_what_the_code_prints_does_not_get_into_the_json(self, place: Path) -> None:
        with everstep.open(place / "trail.db") as trail:
            trail.record("r-1", workflow="report", inputs={"topic": "x"}).release()
        done = everstep_command(place, "resume", "r-1", "--app", "agent", "--json")
        found = json.loads(done.stdout)["resume"]
        assert "planning x" in done.stderr
        assert done.code == 7
        assert [(pause["prompt"], pause["schema"]) for pause in found["pauses"]] == [("Send it?", {"type": "boolean"})]

    def test_a_failure_is_told_in_a_sentence_and_can_be_resumed(self, place: Path) -> None:
        agent(place, "report", "r-1", "x", DIES_AT="x")
        failed = everstep_command(place, "resume", "r-1", "--app", "agent", FAILS_AT="X")
        assert failed.code == 1
        assert "r-1 failed: ValueError: cannot write X" in failed.stderr
        assert "Traceback" not in failed.stderr
        assert status(place, "r-1") == "failed"
        assert everstep_command(place, "resume", "r-1", "--app", "agent").code == 7

    def test_changed_code_is_4(self, place: Path) -> None:
        agent(place, "report", "r-1", "x", DIES_AT="X")
        done = everstep_command(place, "resume", "r-1", "--app", "agent", CHANGED="1")
        assert done.code == 4
        assert "diverged" in done.stderr

    def test_an_async_workflow_is_resumed_too(self, place: Path) -> None:
        with everstep.open(place / "trail.db") as trail:
            trail.record("r-1", workflow="quick", inputs={"x": 41}).release()
        done = everstep_command(place, "resume", "r-1", "--app", "agent")
        assert (done.code, done.stdout) == (0, "42\n")

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["r-1", "--app", "nowhere"], 1, "cannot load 'nowhere': there is no such module in "),
            (["r-1", "--app", "agent:nothing"], 3, "module 'agent' has no 'nothing'. Leave it out"),
            (["r-1", "--app", "agent:os"], 1, "is no workflow"),
            (["r-1", "--app", "agent:quick"], 4, "is one of workflow 'report', not of 'quick'"),
            (["r-1", "--app", ":x"], 2, "names no module"),
            (["r-1"], 2, "--app MODULE"),
            (["r-2", "--app", "agent"], 3, "no run 'r-2'"),
            (["other", "--app", "agent"], 3, "has no workflow 'unknown'. It has: 'quick', 'report', 'slow'"),
            (["r-1@0", "--app", "agent"], 5, "stands at step 2, and goes on from there; to go on from 0, fork it"),
            (["r-1@2", "--app", "agent"], 7, "waits: Send it?"),
        ],
    )
    def test_what_cannot_be_resumed_says_why(self, place: Path, words: list[str], code: int, said: str) -> None:
        agent(place, "report", "r-1", "x", DIES_AT="X")
        with everstep.open(place / "trail.db") as trail:
            trail.record("other", workflow="unknown").release()
        done = everstep_command(place, "resume", *words)
        assert done.code == code, done
        assert said in done.stderr

    def test_nothing_in_a_trail_decides_what_is_imported(self, place: Path) -> None:
        """Promise 8: a trail is data."""
        (place / "evil.py").write_text("open('owned', 'w')\n", "utf-8")
        with everstep.open(place / "trail.db") as trail:
            trail.record("r-1", workflow="evil:run", tags={"app": "evil"}, metadata={"app": "evil"}).release()
        for words in (["resume", "r-1"], ["resume", "r-1", "--app", "agent"], ["show", "r-1"]):
            everstep_command(place, *words)
        assert not (place / "owned").exists()

    def test_the_rules_of_an_app_that_opened_the_trail_are_kept(self, place: Path) -> None:
        """Promise 10: what the app keeps out of its trail, a resume keeps out too."""
        opened = 'import re\ntrail = everstep.open("trail.db", redact=[everstep.Rule("badge", r"badge-\\d+")])\n'
        (place / "agent.py").write_text(AGENT.replace("@everstep.step\ndef plan", f"{opened}@everstep.step\ndef plan"))
        with everstep.open(place / "trail.db") as trail:
            trail.record("r-1", workflow="report", inputs={"topic": "badge-"}).release()
        (place / "agent.py").write_text((place / "agent.py").read_text().replace("topic.upper()", 'topic + "12345"'))
        done = everstep_command(place, "resume", "r-1", "--app", "agent", EVERSTEP_KEY_FILE=str(place / "key"))
        assert done.code == 7, done.stderr
        assert "badge-12345" not in everstep_command(place, "show", "r-1", "--all").stdout
        assert "[redacted:badge:" in everstep_command(place, "show", "r-1", "--all").stdout

    def test_ctrl_c_gives_the_run_up(self, place: Path) -> None:
        with everstep.open(place / "trail.db") as trail:
            trail.record("r-1", workflow="slow", inputs={}).release()
        command = [*COMMAND, "resume", "r-1", "--app", "agent", "--trail", "trail.db"]
        with at_work(command, place, "waiting") as resuming:
            assert "active, owned by" in everstep_command(place, "show", "r-1").stdout
            assert everstep_command(place, "resume", "r-1", "--app", "agent").code == 5
            resuming.send_signal(signal.SIGINT)
            _, said = resuming.communicate(timeout=30)
        again = "Go on with it: everstep resume r-1 --app agent --trail trail.db"
        assert (resuming.returncode, said.strip()) == (130, f"r-1 was interrupted. {again}")
        assert "interrupted" in everstep_command(place, "show", "r-1").stdout


class TestAnswer:
    @pytest.fixture
    def waiting(self, place: Path) -> Path:
        agent(place, "report", "r-1", "x")
        assert status(place, "r-1") == "paused"
        return place

    def test_what_is_typed_is_read_as_the_question_allows(self, waiting: Path) -> None:
        refused = everstep_command(waiting, "answer", "r-1", "perhaps")
        assert refused.code == 1
        assert "was not taken" in refused.stderr
        done = everstep_command(waiting, "answer", "r-1", "no", "--json")
        assert json.loads(done.stdout)["answer"]["value"] is False
        assert everstep_command(waiting, "answer", "r-1", "yes").code == 5, "an answer counts once"
        assert "answered, and to be resumed" in everstep_command(waiting, "show", "r-1").stdout

    def test_a_value_can_come_from_stdin(self, waiting: Path) -> None:
        done = process("answer", "r-1", "-", "--trail", "trail.db", "--json", cwd=waiting, stdin="true\n")
        assert json.loads(done.stdout)["answer"] == {"run": "r-1", "pause": "r-1@4", "value": True, "retry": False}

    @pytest.mark.parametrize("words", [["r-1"], ["r-1", "yes", "--retry"]])
    def test_a_value_or_a_retry_is_needed(self, waiting: Path, words: list[str]) -> None:
        assert everstep_command(waiting, "answer", *words).code == 2

    def test_another_pause_is_not_answered_by_mistake(self, waiting: Path) -> None:
        done = everstep_command(waiting, "answer", "r-1", "yes", "--pause", "3")
        assert (done.code, status(waiting, "r-1")) == (5, "paused")

    @pytest.mark.parametrize(("words", "sent"), [(["done by hand"], "done by hand"), (["--retry"], "sent")])
    def test_an_unknown_outcome_is_settled_by_a_person(self, waiting: Path, words: list[str], sent: str) -> None:
        """Promise 3: an external effect with intent and no outcome is never silently repeated."""
        everstep_command(waiting, "answer", "r-1", "yes")
        assert everstep_command(waiting, "resume", "r-1", "--app", "agent", DIES_SENDING="1").code == -signal.SIGKILL
        unknown = everstep_command(waiting, "resume", "r-1", "--app", "agent")
        assert unknown.code == 7
        assert "no outcome of the external step 'send'" in unknown.stderr
        assert " unknown " in everstep_command(waiting, "show", "r-1").stdout
        for typed in ("yes", "No"):  # no answer to what it returned: it would become just that
            refused = everstep_command(waiting, "answer", "r-1", typed)
            assert (refused.code, "--retry" in refused.stderr) == (2, True)
        broken = everstep_command(waiting, "answer", "r-1", '{"receipt": 12')
        assert (broken.code, status(waiting, "r-1")) == (2, "paused")
        assert "begins like JSON and breaks at character 15" in broken.stderr
        assert """give it so: '"{\\"receipt\\": 12"'""" in broken.stderr
        assert everstep_command(waiting, "answer", "r-1", *words).code == 0
        assert everstep_command(waiting, "resume", "r-1", "--app", "agent").code == 0
        shown = everstep_command(waiting, "show", "r-1").stdout
        assert f"'{sent}'" in shown.splitlines()[-1]


class TestCancel:
    def test_a_run_that_nobody_works_on_is_ended(self, place: Path) -> None:
        agent(place, "report", "r-1", "x")
        done = everstep_command(place, "cancel", "r-1", "--yes", "--json")
        assert json.loads(done.stdout)["cancel"] == {"run": "r-1", "status": "cancelled"}
        assert status(place, "r-1") == "cancelled"
        assert everstep_command(place, "cancel", "r-1", "--yes").code == 5
        shown = everstep_command(place, "show", "r-1")
        assert "next: everstep resume r-1" in shown.stderr

    def test_whoever_works_on_it_is_asked(self, place: Path) -> None:
        with at_work([sys.executable, "agent.py", "slow", "r-1"], place, "waiting"):
            done = everstep_command(place, "cancel", "r-1", "--yes")
        assert done.code == 0
        assert "was asked to end it" in done.stderr

    def test_without_yes_a_program_is_refused_and_a_person_is_asked(self, place: Path) -> None:
        agent(place, "report", "r-1", "x")
        refused = everstep_command(place, "cancel", "r-1")
        assert refused.code == 2
        assert "--yes" in refused.stderr
        no = on_a_terminal("cancel", "r-1", "--trail", "trail.db", cwd=place, typed="n\n")
        assert (no.code, status(place, "r-1")) == (1, "paused")
        assert "cancel r-1 (paused)?" in no.stdout
        yes = on_a_terminal("cancel", "r-1", "--trail", "trail.db", cwd=place, typed="y\n")
        assert (yes.code, status(place, "r-1")) == (0, "cancelled")
