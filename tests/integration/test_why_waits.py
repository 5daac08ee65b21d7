"""Why, asked of a run that waits: the question, and the commands that answer it."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep import Runner, step, workflow
from everstep.model import Kind
from tests.integration.cli_support import HOSTILE, data, run
from tests.integration.running import Crash, crashed


@step(external=True)
def charge(amount: int) -> None:
    raise Crash


@workflow
def shop() -> None:
    charge(12)


def waiting(path: Path, prompt: str = "Shall I?") -> Path:
    """A trail with the run r, which waits for an answer."""

    @workflow
    def ask() -> object:
        return everstep.pause(prompt, options=["yes", "no"])

    with everstep.open(path) as trail:
        Runner(trail).run(ask, id="r")
    return path


def cut_off(trail: everstep.Trail, how: str) -> None:
    """Leave the run u with an external step whose outcome is not known."""
    if how == "failed":
        recorded = trail.record("u", workflow="shop", metadata={"code": "as a runner notes it"})
        recorded.step("charge", kind=Kind.INTENT, external=True, inputs={"amount": 12})
        recorded.finish(error=everstep.errors.UnknownOutcomeError("u", "charge", 1))
        return
    crashed(trail, shop, id="u")
    if how == "paused":
        assert Runner(trail).run(shop, id="u").paused


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_question_and_what_may_be_answered_are_on_the_page_and_the_command_below(tmp_path: Path) -> None:
    path = waiting(tmp_path / "t.db")
    shown = run("why", "r", "--trail", path)
    assert "\nit waits for\n     1  pause                     Shall I? ('yes', 'no')\n" in shown.stdout
    assert f"next: everstep answer r VALUE --trail {path}" in shown.stderr.splitlines()
    assert run("answer", "r", "yes", "--trail", path).exit_code == 0
    assert "it waits for" not in run("why", "r", "--trail", path).stdout


@pytest.mark.parametrize("how", ["paused", "interrupted", "failed"])
def test_an_external_step_whose_outcome_is_not_known_is_asked_about(tmp_path: Path, how: str) -> None:
    """Promise 3: however the run stands, it does not go on before somebody says what became of the step."""
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        cut_off(trail, how)
    shown = run("why", "u", "--trail", path)
    assert "no outcome of the external step 'charge', given amount=12, and nobody knows" in words(shown.stdout)
    nexts = [line for line in shown.stderr.splitlines() if line.split()[2] != "show"]
    assert nexts == [f"next: everstep answer u {answer} --trail {path}" for answer in ("VALUE", "--retry")]


def test_programs_get_the_questions_too(tmp_path: Path) -> None:
    path = waiting(tmp_path / "t.db")
    found = data("why", "r", "--trail", path)["why"]
    assert found["questions"] == [{"run_id": "r", "seq": 1, "name": "pause", "text": "Shall I? ('yes', 'no')"}]
    assert found["waiting"] == 1
    with everstep.open(path, read_only=True) as trail:
        assert trail.why("r").summary() == "r is paused in step 1 (pause); it waits for: Shall I? ('yes', 'no')"


def test_those_of_runs_inside_are_told_with_their_runs_and_of_many_the_first(tmp_path: Path) -> None:
    @workflow
    def ask(number: int) -> object:
        return everstep.pause(f"Shall I buy {number}?")

    with everstep.open(tmp_path / "t.db") as trail:
        Runner(trail).map(ask, {"number": list(range(12))}, map_over="number", id="batch")
        found = trail.why("batch")
    assert (len(found.questions), found.waiting) == (10, 12)
    assert found.questions[0].run_id.startswith("batch/")
    assert "... and 2 more" in str(found)


def test_nothing_hostile_gets_out_of_a_question(tmp_path: Path) -> None:
    assert "\u202e" not in run("why", "r", "--trail", waiting(tmp_path / "t.db", f"Shall {HOSTILE}?")).output
