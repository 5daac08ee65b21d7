"""Other inputs for a fork: those that there are, from where on they count, and how they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Graph, Runner, Trail, node, step, workflow
from everstep.codec.record import erase
from everstep.errors import UnknownInputError
from everstep.store.base import Retains
from tests.integration.cli_support import data
from tests.integration.cli_support import run as command
from tests.integration.running import act, run
from tests.integration.test_forks import trail

__all__ = ["trail"]  # fixtures


@workflow
def asking(question: str, tone: str = "calm") -> str:
    return str(act(f"{question}, {tone}"))


@workflow(name="asking")
def asking_without_tone(question: str) -> str:
    return str(act(f"{question}, calm"))


@node(output="answer")
def answer(question: str, tone: str = "calm") -> str:
    return f"{question}, {tone}"


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    """A trail with a run that has completed."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as opened:
        run(opened, asking, "old", id="r")
    return path


# Those that there are.


def test_an_input_that_the_run_does_not_have_is_refused_with_the_near_one_and_no_fork_is_made(trail: Trail) -> None:
    run(trail, asking, "old", id="r")
    with pytest.raises(UnknownInputError) as refused:
        trail.fork("r", at=0, id="f", inputs={"tone": "loud", "qestion": "new"})
    assert str(refused.value).startswith("run 'r' takes no input 'qestion'. Did you mean 'question'? ")
    assert "It takes 'question', 'tone'." in str(refused.value)
    assert (refused.value.name, refused.value.known) == ("qestion", ("question", "tone"))
    assert [found.id for found in trail.runs()] == ["r"]


def test_the_command_refuses_it_too(asked: Path) -> None:
    told = command("fork", "r", "--at", 0, "--input", "qestion=new", "--trail", asked)
    assert told.exit_code == 1
    assert "takes no input 'qestion'. Did you mean 'question'?" in told.stderr


def test_a_map_has_no_inputs_of_its_own(trail: Trail) -> None:
    Runner(trail).map(asking, {"question": ["a", "b"]}, map_over="question", id="m")
    with pytest.raises(UnknownInputError, match=r"map 'm' takes no input 'tone'.*fork one of them"):
        trail.fork("m", at=0, id="f", inputs={"tone": "loud"})


def test_an_input_that_the_code_has_no_more_is_refused_when_the_fork_goes_on(trail: Trail) -> None:
    run(trail, asking, "old", id="r")
    trail.fork("r", at=0, id="f", inputs={"tone": "loud"}).release()
    with (
        pytest.warns(everstep.errors.CodeChangedWarning),
        pytest.raises(UnknownInputError, match=r"workflow 'asking' takes no input 'tone'.*fork again without"),
    ):
        run(trail, asking_without_tone, id="f")
    assert run(trail, asking, id="f").value == "old, loud"


@pytest.mark.parametrize("inputs", [None, "text", {"topic": "a"}])
def test_a_run_that_was_recorded_by_hand_is_forked_with_whatever_inputs(trail: Trail, inputs: Any) -> None:
    trail.record("r", inputs=inputs).release()
    trail.fork("r", id="f", inputs={"topics": "b"}).release()
    assert trail.step("f", 1).inputs == {"topics": "b"}


@workflow
def calling(name: str, how: Any) -> str:
    return str(act(how(name)))


def test_what_a_fork_changed_holds_when_it_is_given_its_first_inputs_again(trail: Trail) -> None:
    run(trail, asking, "old", id="r")
    trail.fork("r", at=0, id="f", inputs={"tone": "loud"}).release()
    assert run(trail, asking, "old", id="f").value == "old, loud"
    run(trail, calling, "ada", str.upper, id="c")  # a function is known by its name, and has to be given again
    trail.fork("c", at=0, id="g", inputs={"name": "bob"}).release()
    assert run(trail, calling, "ada", str.upper, id="g").value == "BOB"


# From where on.


def test_other_inputs_after_the_end_of_a_completed_run_are_refused_with_the_way_out(asked: Path) -> None:
    for words in (["r"], ["r@2"], ["r", "--at", 2]):
        told = command("fork", *words, "--input", "question=new", "--trail", asked)
        assert told.exit_code == 2, told.output
        assert "r has completed, and no step of it comes after 2 that could be asked otherwise" in told.stderr
        assert "--at 0" in told.stderr
    assert command("fork", "r", "--at", 0, "--input", "question=new", "--trail", asked).exit_code == 0


def test_a_graph_takes_other_inputs_wherever_it_is_forked(tmp_path: Path) -> None:
    path, graph = tmp_path / "trail.db", Graph([answer], name="answering")
    with everstep.open(path) as trail:
        Runner(trail).run(graph, question="old", id="r")
    made = command("fork", "r", "--input", "tone=loud", "--id", "f", "--trail", path)
    assert made.exit_code == 0, made.output
    with everstep.open(path) as trail:
        assert Runner(trail).run(graph, id="f")["answer"] == "old, loud"


def test_a_failed_run_takes_other_inputs_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        Runner(trail).run(failing, 5, id="r", error_handling="continue")
    made = command("fork", "r", "--input", "number=7", "--id", "f", "--trail", path)
    assert made.exit_code == 0, made.output
    with everstep.open(path) as trail:
        assert run(trail, failing, id="f").value == 7


@step
def seven(number: int) -> int:
    if number != 7:
        raise ValueError(number)
    return number


@workflow
def failing(number: int) -> int:
    return seven(number)


def test_the_inputs_of_a_program_are_its_words(tmp_path: Path) -> None:
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        about = {"captured": ["python", "agent.py"], "code": "known"}
        trail.record("p", inputs={"command": ["agent.py"]}, metadata=about).release()
    told = command("fork", "p", "--at", 0, "--input", "command=other", "--trail", path)
    assert told.exit_code == 2
    assert "the inputs of a program are the words" in told.stderr


# How they are shown.


def test_a_fork_is_shown_with_the_inputs_that_it_runs_with_and_those_that_it_had(asked: Path) -> None:
    with everstep.open(asked) as trail:
        trail.fork("r", at=0, id="f", inputs={"question": "new"}).release()
        run(trail, asking, id="f")
        trail.fork("f", at=1, id="g", inputs={"tone": "loud"}).release()
    shown = command("show", "f", "--trail", asked).stdout.splitlines()
    head = dict(line.split(maxsplit=1) for line in shown[: shown.index("")])
    assert head["inputs"] == "{'question': 'new', 'tone': 'calm'}"
    assert head["changed"] == "question: 'old' -> 'new' (step 1)"
    assert head["output"] == "'new, calm'"
    both = command("show", "g", "--trail", asked).stdout
    assert "{'question': 'new', 'tone': 'loud'}" in both
    assert "tone: 'calm' -> 'loud' (step 2)" in both
    assert data("show", "g", "--trail", asked)["show"]["inputs"] == {"question": "new", "tone": "loud"}
    assert "changed" not in command("show", "r", "--trail", asked).stdout


def test_secrets_that_a_fork_changes_stay_hidden(asked: Path) -> None:
    with everstep.open(asked) as trail:
        trail.fork("r", at=0, id="f", inputs={"question": everstep.Secret("a-secret-word")}).release()
    shown = command("show", "f", "--trail", asked).stdout
    assert "question: 'old' -> " in shown
    assert "a-secret-word" not in shown


def test_an_erased_change_of_inputs_is_shown_as_far_as_it_is_known(asked: Path) -> None:
    with everstep.open(asked) as trail:
        trail.fork("r", at=0, id="f", inputs={"question": "new"}).release()
        assert isinstance(trail.store, Retains)
        trail.store.erase("f", [erase(trail.store.entries("f", 1, 1)[0])])
    shown = command("show", "f", "--trail", asked)
    assert shown.exit_code == 0, shown.output
    assert "{'question': 'old', 'tone': 'calm'}" in shown.stdout


def test_an_outcome_that_a_fork_replaced_is_marked(asked: Path) -> None:
    with everstep.open(asked) as trail:
        trail.fork("r", at=1, id="f", outcome="another").release()
        trail.fork("r", at=1, id="g", outcome=ValueError("none")).release()
    assert "(replaced) 'another'" in command("show", "f", "--trail", asked).stdout
    assert "(replaced) ValueError: none" in command("show", "g", "--trail", asked).stdout
    assert "replaced" not in command("show", "r", "--trail", asked).stdout
    assert [step["replaced"] for step in data("show", "f", "--trail", asked)["show"]["steps"]] == [True]
