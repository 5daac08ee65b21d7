"""How runs and steps stand, in words that hold: what waits, what was left, what a fork changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep.model import Kind
from tests.integration.cli_support import data, run

asked = everstep.step(name="plan")(lambda tone: f"a {tone} plan")


@everstep.step
def confirm() -> str:
    return str(everstep.pause("Send it?", options=["yes", "no"]))


@everstep.workflow
def agent(tone: str = "calm") -> str:
    asked(tone)
    return confirm()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that was answered, and forks of it: one that waits, one with another answer."""
    path = tmp_path / "t.db"
    monkeypatch.setenv("EVERSTEP_TRAIL", str(path))
    with everstep.open(path) as trail:
        runner = everstep.Runner(trail)
        runner.run(agent, id="a")
        runner.run(agent, id="a", answer="yes")
        [answered] = [row.seq for row in trail.steps("a") if row.kind is Kind.ANSWER]
        trail.fork("a", 0, id="loud", inputs={"tone": "loud"}).release()
        runner.run(agent, id="loud")
        trail.fork("a", answered, id="no", outcome="no").release()
        runner.run(agent, id="no")
        trail.fork("a", 1, id="same", reuse=True).release()
    return path


def told(*words: object) -> list[str]:
    return [" ".join(line.split()) for line in run(*words).stdout.splitlines()]


def test_compare_says_that_a_question_waits_and_json_has_the_words_of_the_record(place: Path) -> None:
    lines = told("compare", "a", "loud")
    assert any(line.endswith("confirm status: 'completed' -> 'waits for an answer'") for line in lines)
    assert any(line.endswith("pause status: 'completed' -> 'waits for an answer'") for line in lines)
    steps = data("compare", "a", "loud", code=4)["compare"]["steps"]
    assert [
        step["differences"]["status"][0]["new"] for step in steps if "status" in step["differences"]
    ] == ["active", "paused"]  # fmt: skip


def test_show_names_the_runs_inside_that_no_step_tells_of_yet(tmp_path: Path) -> None:
    @everstep.workflow
    def inside(number: int) -> None:
        asked("inside")
        if number:
            raise KeyboardInterrupt

    @everstep.workflow
    def outside() -> None:
        for number in range(2):
            inside(number)

    path = tmp_path / "t.db"
    with everstep.open(path) as trail, pytest.raises(KeyboardInterrupt):
        everstep.Runner(trail).run(outside, id="r")
    lines = told("show", "r", "--trail", path)
    assert [line for line in lines if line.startswith("child")] == ["child r/inside#1 (interrupted)"]
    assert any("(-> r/inside#0)" in line for line in lines)


def test_compare_says_of_what_a_process_left_that_it_was_interrupted(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        for run_id in ("a", "left"):
            recorder = trail.record(run_id)
            begun = recorder.step("plan", kind=Kind.COMPOSITE_START).id
            if run_id == "a":
                recorder.step("plan", id=begun)
                recorder.finish()
            recorder.release()
    lines = told("compare", "a", "left", "--trail", tmp_path / "t.db")
    assert "status completed interrupted" in lines
    assert any(line.endswith("plan status: 'completed' -> 'interrupted'") for line in lines)


def test_the_first_difference_is_none_that_the_fork_is_itself(place: Path) -> None:
    lines = told("compare", "a", "loud")
    assert any(line.startswith("first plan (1/2) changed inputs") for line in lines)
    assert "+ 1 fork inputs.tone = 'loud'" in lines
    with everstep.open(place) as trail:
        first = trail.compare("a@1", "same").first
    assert first is not None
    assert first.kind is Kind.FORK, "where nothing else differs, it is told"


def test_what_a_fork_notes_for_itself_is_no_difference(place: Path) -> None:
    lines = told("compare", "a", "no")
    assert any("output: 'yes' -> 'no'" in line for line in lines)
    assert not any("metadata" in line or "replaced" in line for line in lines)


def test_a_value_that_only_one_has_is_told_with_whose_it_is(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        for run_id, name in (("a", "refund"), ("b", "credit")):
            with trail.record(run_id) as recorder:
                recorder.step("pay", output={"amount": 5}, output_to=name)
        assert "state.refund: only in a: {'amount': 5}" in str(trail.compare("a", "b"))
    lines = told("compare", "a", "b", "--trail", tmp_path / "t.db")
    assert "state.refund: only in a: {'amount': 5}" in lines
    assert "state.credit: only in b: {'amount': 5}" in lines


def test_search_calls_nothing_active_that_was_only_begun_there(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("r") as recorder:
        begun = recorder.step("refund", kind=Kind.INTENT, external=True).id
        recorder.step("refund", id=begun, external=True, output="ok")
        recorder.step("refund", kind=Kind.PAUSE, status="paused", pause={"prompt": "Sure?"})
    lines = told("search", "refund", "--trail", tmp_path / "t.db")[1:]
    assert sorted(line.split()[2] for line in lines) == ["asked", "begun", "completed"]


def test_steps_that_were_run_again_are_counted_apart(tmp_path: Path) -> None:
    fails = [True]

    @everstep.step
    def book(seats: int) -> int:
        if fails and seats == 2:
            raise ValueError("sold out")
        return seats

    @everstep.workflow
    def trip() -> int:
        try:
            return book(1) + book(2)
        except ValueError:
            book(0)
            raise

    with everstep.open(tmp_path / "t.db") as trail:
        with pytest.raises(ValueError, match="sold out"):
            everstep.Runner(trail).run(trip, id="r")
        fails.clear()
        everstep.Runner(trail).run(trip, id="r")
    assert "steps 2 steps, 2 superseded, 7 entries" in told("show", "r", "--trail", tmp_path / "t.db")
