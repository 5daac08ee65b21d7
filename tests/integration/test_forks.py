"""Forks: a run goes on from a step of another, with something changed; the other one is untouched (promise 5)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Status, Trail, pause, step, workflow
from everstep.errors import NotAnOutcomeError
from tests.integration.replaying import awaited_flow, stream_flow
from tests.integration.replaying_ends import parent_flow, parent_later_flow
from tests.integration.replaying_together import pool_flow
from tests.integration.running import act, act_later, calls, run


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened
        report = opened.verify()
        assert report.ok, str(report)


def kept(trail: Trail, run_id: str) -> list[Any]:
    """All that a run is."""
    return [trail.run(run_id), *((step.seq, step.hash) for step in trail.steps(run_id))]


def forked(trail: Trail, flow: Any, run_id: str, *, id: str = "f", **said: Any) -> Any:  # noqa: A002 - as in fork
    """Fork a run and go on with it: what it gives. The parent is as it was, and the fork is replayed identically."""
    before = kept(trail, run_id)
    calls.taken()
    trail.fork(run_id, id=id, **said).release()
    value = run(trail, flow, id=id).value
    assert kept(trail, run_id) == before
    executed = calls.taken()
    report = trail.replay(id, flow)
    assert report.identical, str(report)
    calls.extend(executed)
    return value


def seq_of(trail: Trail, run_id: str, name: str, nth: int = 0) -> int:
    """The outcome of the n-th step of a name."""
    found = [row.seq for row in trail.steps(run_id) if row.name == name and row.kind in {Kind.STEP, Kind.ANSWER}]
    return found[nth]


# Functions.


@step
def both(first: str, second: str) -> str:
    return f"{act(first)} and {act(second)}"


@workflow
def talking(topic: str, tone: str = "calm") -> list[Any]:
    plan = act(f"plan {topic}")
    pair = both("left", "right")
    try:
        said = act(f"{topic}, {tone}")
    except ValueError:
        said = act("sorry")
    return [plan, pair, said, act("end")]


@pytest.fixture
def talked(trail: Trail) -> Trail:
    run(trail, talking, "tea", id="r")
    return trail


def test_what_came_before_is_shared_and_the_rest_is_done(talked: Trail) -> None:
    assert forked(talked, talking, "r", at=5) == ["plan tea", "left and right", "tea, calm", "end"]
    assert calls == ["tea, calm", "end"]
    assert (talked.run("f").forked_from, talked.run("f").fork_seq) == ("r", 5)


def test_a_fork_inside_a_step_goes_on_inside_it(talked: Trail) -> None:
    inside = seq_of(talked, "r", "act", 1)
    assert talked.step("r", inside).output == "left"
    assert forked(talked, talking, "r", at=inside)[1] == "left and right"
    assert calls == ["right", "tea, calm", "end"]


def test_a_fork_at_the_start_does_everything(talked: Trail) -> None:
    forked(talked, talking, "r", at=0)
    assert calls == ["plan tea", "left", "right", "tea, calm", "end"]


def test_a_fork_of_a_completed_run_at_its_end_is_completed(talked: Trail) -> None:
    assert forked(talked, talking, "r") == ["plan tea", "left and right", "tea, calm", "end"]
    assert calls == []


def test_another_outcome_is_what_the_code_gets(talked: Trail) -> None:
    assert forked(talked, talking, "r", at=seq_of(talked, "r", "act"), outcome="no plan")[0] == "no plan"
    assert calls == ["left", "right", "tea, calm", "end"]


def test_another_outcome_of_a_step_with_steps_inside(talked: Trail) -> None:
    assert forked(talked, talking, "r", at=seq_of(talked, "r", "both"), outcome="neither")[1] == "neither"
    assert calls == ["tea, calm", "end"]


def test_what_if_it_had_failed(talked: Trail) -> None:
    seq = seq_of(talked, "r", "act", 3)
    assert forked(talked, talking, "r", at=seq, outcome=ValueError("out of tea"))[2] == "sorry"
    assert calls == ["sorry", "end"]
    failed = talked.step("f", seq)
    assert (failed.status, failed.error.message if failed.error else "") == (Status.FAILED, "out of tea")


def test_a_failed_step_is_let_have_worked(trail: Trail) -> None:
    calls.fail = {"plan tea"}
    with suppress(ValueError):
        run(trail, talking, "tea", id="r")
    calls.fail = set()
    assert forked(trail, talking, "r", at=1, outcome="a plan") == ["a plan", "left and right", "tea, calm", "end"]
    assert "plan tea" not in calls


def test_a_fork_at_a_failed_step_and_one_before_it(trail: Trail) -> None:
    calls.fail = {"right"}
    with suppress(ValueError):
        run(trail, talking, "tea", id="r")
    calls.fail = set()
    failed = next(row.seq for row in trail.steps("r") if row.status is Status.FAILED)
    forked(trail, talking, "r", at=failed - 1, id="before")
    assert calls.taken() == ["right", "tea, calm", "end"]
    trail.fork("r", id="at the end").release()
    assert run(trail, talking, id="at the end").value[1] == "left and right"
    assert calls == ["right", "tea, calm", "end"]


def test_another_input_counts_from_the_fork_on(talked: Trail) -> None:
    assert forked(talked, talking, "r", at=5, inputs={"tone": "loud"})[2] == "tea, loud"
    assert calls == ["tea, loud", "end"]
    assert talked.get_run_inputs("r") == {"topic": "tea", "tone": "calm"}


def test_what_the_parent_did_is_used_where_it_fits(talked: Trail) -> None:
    forked(talked, talking, "r", at=5, inputs={"tone": "loud"}, reuse=True)
    assert calls == ["tea, loud"]
    assert [row.name for row in talked.steps("f") if row.cached] == ["act"]


def test_nothing_is_used_twice(trail: Trail) -> None:
    @workflow(name="twice_flow")
    def twice_flow(times: int) -> list[Any]:
        return [act("same") for _ in range(times)]

    run(trail, twice_flow, 2, id="r")
    forked(trail, twice_flow, "r", at=0, inputs={"times": 3}, reuse=True)
    assert calls == ["same"]


def test_a_fork_of_a_fork_uses_nothing_unless_it_is_said(talked: Trail) -> None:
    forked(talked, talking, "r", at=5, id="a", inputs={"tone": "loud"}, reuse=True)
    calls.clear()
    forked(talked, talking, "a", at=seq_of(talked, "a", "act", 3), id="b")
    assert calls == ["end"]


def test_the_state_is_changed(trail: Trail) -> None:
    @step
    def reading() -> int:
        act("in a step")
        return int(everstep.current().state["count"])

    @workflow(name="stateful")
    def stateful() -> list[Any]:
        everstep.current().state["count"] = 1
        before = reading()
        act("one")
        return [before, everstep.current().state["count"], act("two")]

    run(trail, stateful, id="r")
    assert forked(trail, stateful, "r", at=seq_of(trail, "r", "act", 1), set={"count": 10}) == [1, 10, "two"]
    assert trail.state("r")["count"] == 1


def test_forks_of_forks(talked: Trail) -> None:
    forked(talked, talking, "r", at=1, id="a", inputs={"tone": "loud"})
    forked(talked, talking, "a", at=seq_of(talked, "a", "both"), id="b", outcome="neither")
    before = kept(talked, "b")
    value = forked(talked, talking, "b", at=seq_of(talked, "b", "act", -2), id="c", outcome="hm")
    assert value == ["plan tea", "neither", "hm", "end"]
    assert kept(talked, "b") == before
    assert [found.id for found in talked.lineage("c")] == ["r", "a", "b", "c"]
    with suppress(everstep.EverstepError):
        talked.drop("a")
    assert talked.replay("c", talking).identical


def test_the_fork_is_itself_taken_up_again(talked: Trail) -> None:
    talked.fork("r", at=5, id="f", inputs={"tone": "loud"}).release()
    calls.fail = {"end"}
    for _ in range(2):
        with pytest.raises(ValueError, match="end"):
            run(talked, talking, id="f")
    calls.fail = set()
    calls.clear()
    assert run(talked, talking, id="f").value[2:] == ["tea, loud", "end"]
    assert calls == ["end"]
    assert talked.replay("f", talking).identical


@pytest.mark.parametrize("at", [0, 2])
def test_what_has_no_outcome_gets_none(talked: Trail, at: int) -> None:
    with pytest.raises(NotAnOutcomeError):
        talked.fork("r", at=at, id="f", outcome=1)
    assert [found.id for found in talked.runs()] == ["r"]


# Pauses.


@workflow
def asking() -> list[Any]:
    act("before")
    return [pause("go on?"), act("after")]


def test_a_fork_at_a_question_asks_it_again(trail: Trail) -> None:
    run(trail, asking, id="r")
    run(trail, asking, id="r", answer="yes")
    asked = next(row.seq for row in trail.steps("r") if row.kind is Kind.PAUSE)
    trail.fork("r", at=asked, id="f").release()
    result = run(trail, asking, id="f")
    assert result.paused
    assert run(trail, asking, id="f", answer="no").value == ["no", "after"]
    assert trail.replay("f", asking).identical
    assert trail.replay("r", asking).identical


def test_a_fork_of_a_run_that_waits(trail: Trail) -> None:
    run(trail, asking, id="r")
    trail.fork("r", id="f").release()
    assert run(trail, asking, id="f", answer="no").value == ["no", "after"]
    assert trail.run("r").status is Status.PAUSED
    assert run(trail, asking, id="r", answer="yes").value == ["yes", "after"]
    assert trail.replay("f", asking).identical


def test_another_answer(trail: Trail) -> None:
    run(trail, asking, id="r")
    run(trail, asking, id="r", answer="yes")
    answered = next(row.seq for row in trail.steps("r") if row.kind is Kind.ANSWER)
    assert forked(trail, asking, "r", at=answered, outcome="perhaps") == ["perhaps", "after"]
    assert calls == ["after"]


# Tasks.


@workflow
async def together() -> list[Any]:
    found = await asyncio.gather(*(act_later(name) for name in "abc"))
    return [*found, await act_later("end")]


def test_a_fork_among_tasks(trail: Trail) -> None:
    run(trail, together, id="r")
    outcomes = [row.seq for row in trail.steps("r") if row.name == "act_later"]
    for at in range(trail.run("r").head):
        assert forked(trail, together, "r", at=at, id=f"f{at}") == ["a", "b", "c", "end"]
        assert len(calls.taken()) == sum(seq > at for seq in outcomes)
    second = seq_of(trail, "r", "act_later", 1)
    name = trail.step("r", second).output
    assert "x" in forked(trail, together, "r", at=second, id="x", outcome="x")
    assert name not in calls


# Anywhere.


@pytest.mark.parametrize("flow", [stream_flow, pool_flow, parent_flow, parent_later_flow, awaited_flow])
def test_a_fork_at_any_row_comes_to_the_same(trail: Trail, flow: Any) -> None:
    """Promise 2: what is shared is not done again; promise 6: and the fork is replayed."""
    inputs = ["tea"] if flow is awaited_flow else []
    value = run(trail, flow, *inputs, id="r").value
    whole = len(calls.taken())
    done = []
    for at in range(trail.run("r").head + 1):
        assert forked(trail, flow, "r", at=at, id=f"f{at}") == value
        done.append(len(calls.taken()))
    assert (done[0], done[-1]) == (whole, 0)
    assert done == sorted(done, reverse=True) or flow in {parent_flow, parent_later_flow, stream_flow}


# What it costs.


def test_a_fork_of_a_long_run_adds_next_to_nothing(tmp_path: Path) -> None:
    """Promise 11."""
    path = tmp_path / "trail.db"
    with everstep.open(path) as trail:
        with trail.record("r", workflow="long") as recorder:
            recorder.step("load", output="x" * 1_000_000, output_to="page")
            for number in range(10_000):
                recorder.step("add", output=number, append_to="log")
        size = _bytes(path)
        trail.fork("r", at=9_000, id="a").release()
        trail.fork("r", at=9_001, id="b", set={"note": "changed"}).release()
        trail.fork("r", at=9_002, id="c", outcome=-1).release()
        trail.fork("r", at=9_003, id="d", inputs={"n": 1}, reuse=True).release()
        assert _bytes(path) - size < 4_000
        assert trail.state("c")["log"][-1] == -1
        assert len(trail.state("b")["page"]) == 1_000_000


def _bytes(path: Path) -> int:
    """What the rows of all tables hold."""
    with closing(sqlite3.connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in file.execute(f"SELECT * FROM {table}")]
    return sum(len(value) if isinstance(value, str | bytes) else 8 for row in rows for value in row)
