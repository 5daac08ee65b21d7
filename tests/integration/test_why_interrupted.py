"""Why, asked of a run that has not ended: whether somebody works on it, how far it came, and what may be typed."""

from __future__ import annotations

from pathlib import Path

import everstep
from everstep import Retry, Runner, step, workflow
from everstep.model import Kind
from tests.integration.cli_support import data, run
from tests.integration.running import Crash, crashed

BEGUN = {"code": "as a runner notes it"}


@step
def plan(number: int) -> int:
    return number


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_run_that_was_killed_in_a_second_attempt_was_interrupted_and_an_attempt_had_failed(tmp_path: Path) -> None:
    tried: list[int] = []

    @step(retry=Retry(attempts=3, backoff=0.001, on=(ConnectionError,)))
    def lookup_order(number: int) -> None:
        tried.append(number)
        if len(tried) == 2:
            raise Crash
        raise ConnectionError("order db hiccup")

    @workflow
    def work() -> None:
        plan(1)
        lookup_order(2)

    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        crashed(trail, work, id="t-1")
        found = trail.why("t-1")
    assert words(str(found)).startswith(
        "t-1 was interrupted: no process is working on it. An attempt at step 2 (lookup_order) had failed with "
        "ConnectionError: order db hiccup."
    )
    assert found.chain[0].how == "it was under way, after 1 failed attempt"
    assert "had failed with ConnectionError: order db hiccup; nothing before it looks odd" in found.summary()
    assert f"next: everstep resume t-1 --app MODULE --trail {path}" in run("why", "t-1", "--trail", path).stderr


def test_of_a_run_that_is_at_work_nothing_has_failed_and_nobody_is_told_to_resume_it(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        held = trail.record("z", workflow="shop", metadata=BEGUN)
        held.step("read", output=1)
        around = held.step("order", kind=Kind.COMPOSITE_START).id
        held.step("order", id=around, kind=Kind.ATTEMPT, error=ConnectionError("hiccup"))
        shown = run("why", "z", "--trail", path)
        found = data("why", "z", "--trail", path)["why"]
        held.finish()
    assert shown.stdout.startswith("z is at work: a process is working on it.\n")
    assert "where it is, from the outside in\n     2  order                     it is under way\n" in shown.stdout
    assert "hiccup" not in shown.stdout
    assert shown.stderr == f"next: everstep show z --trail {path}\n"
    assert (found["at_work"], found["interrupted"], found["failure"]) == (True, False, None)


def test_where_nothing_is_open_the_last_that_completed_is_told(tmp_path: Path) -> None:
    @workflow
    def work() -> None:
        plan(1)
        plan(2)
        raise Crash

    with everstep.open(tmp_path / "t.db") as trail:
        crashed(trail, work, id="s2")
        found = trail.why("s2")
    assert words(str(found)).startswith(
        "s2 was interrupted: no process is working on it. The last that completed is step 2 (plan). "
        "What came after it is not on record."
    )
    assert found.last_done is not None
    assert found.last_done.id == "s2@2"


def test_where_a_step_is_open_it_is_told_and_not_the_one_before(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        cut = trail.record("r", workflow="shop", metadata=BEGUN)
        cut.step("read", output=1)
        around = cut.step("order", kind=Kind.COMPOSITE_START).id
        cut.step("look", parent=around, output=2)
        cut.release()
        found = trail.why("r")
    assert str(found).splitlines()[0] == "r was interrupted in step 2 (order): no process is working on it."
    assert [link.how for link in found.chain] == ["it was under way"]
    assert found.last_done is None


def test_of_a_run_that_was_in_a_child_run_the_innermost_is_told(tmp_path: Path) -> None:
    @workflow
    def innermost() -> None:
        plan(3)
        raise Crash

    @workflow
    def inner() -> None:
        plan(2)
        innermost()

    @workflow
    def outer() -> None:
        plan(1)
        inner()

    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        crashed(trail, outer, id="r")
        found = trail.why("r")
    child = "r/inner#0/innermost#0"
    assert found.inside == (child,)
    assert words(str(found)).startswith(
        "r was interrupted: no process is working on it. The last that completed is step 1 (plan). What it did last is "
        f"on record in {child}. next everstep why '{child}' everstep resume r"
    )
    assert f"next: everstep why '{child}' --trail {path}\n" in run("why", "r", "--trail", path).stderr


def test_an_open_step_is_told_by_what_became_of_it_and_not_by_its_status(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail:
        cut = trail.record("u", workflow="shop", metadata=BEGUN)
        cut.step("charge", kind=Kind.INTENT, external=True)
        cut.release()

        @workflow
        def ask() -> object:
            return everstep.pause("Shall I?")

        Runner(trail).run(ask, id="p")
        assert trail.why("u").chain[-1].how == "how it ended is not known"
        assert trail.why("p").chain[-1].how == "it waits for an answer"


def test_a_pause_after_an_attempt_that_failed_is_no_failure(tmp_path: Path) -> None:
    tried: list[int] = []

    @step(retry=Retry(attempts=2, backoff=0.001))
    def order() -> object:
        plan(1)
        tried.append(1)
        if len(tried) == 1:
            raise ConnectionError("hiccup")
        return everstep.pause("Shall I?")

    @workflow
    def work() -> object:
        return order()

    with everstep.open(tmp_path / "t.db") as trail:
        assert Runner(trail).run(work, id="r").paused
        found = trail.why("r")
    assert found.failure is not None
    assert found.failure.error is None
    assert found.summary().endswith("(pause); it waits for: Shall I?")
