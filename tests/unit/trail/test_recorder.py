from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import Mock

import pytest

import everstep
from everstep.errors import (
    ConflictError,
    InputsDifferError,
    OwnedError,
    RunFinishedError,
    StaleWriterError,
    StateError,
    UnstorableError,
)
from everstep.model import Kind, Status, StepError
from everstep.trail import scribe


def test_a_step_is_read_back_with_everything_that_was_said_of_it(trail: everstep.Trail) -> None:
    """Promise 7."""
    when = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2)))
    detail: dict[str, Any] = {
        "inputs": {"q": (1, 2)}, "output": {3, 4}, "duration_ms": 12.5, "id": 77, "parent": 5, "lane": "a/b",
        "index": 3, "attempt": 2, "external": True, "cached": True, "partial": True, "input_digest": b"d" * 16,
        "superstep": 4, "decision": ["left", "right"], "usage": {"input_tokens": 5}, "child_run_id": "c-1",
        "input_versions": {"q": 2}, "fingerprint": "f", "node_type": "model", "attempt_series_id": "s",
        "metadata": {"k": datetime(2026, 1, 1)}, "pause": {"prompt": "Go on?"},
    }  # fmt: skip
    trail.record("r").step("ask", started=when, status="paused", **detail)
    step = trail.step("r", 1)
    assert {name: getattr(step, name) for name in detail} == detail
    assert (step.run_id, step.seq, step.name, step.kind, step.status) == ("r", 1, "ask", Kind.STEP, Status.PAUSED)
    assert step.started_at == when
    assert step.started_at.tzinfo is UTC
    assert step.completed_at - step.started_at == timedelta(milliseconds=12.5)
    # The names of earlier systems.
    assert (step.workflow_id, step.node_name, step.created_at, step.child_workflow_id) == ("r", "ask", when, "c-1")


def test_a_record_is_frozen_and_equal_to_itself_read_again(trail: everstep.Trail) -> None:
    """Promise 5."""
    returned = trail.record("r").step("s", output=[1])
    step = trail.step("r", 1)
    assert step == returned
    assert hash(step) == hash(returned)
    for name in ("seq", "name", "output", "run_id", "anything"):
        with pytest.raises(AttributeError):
            setattr(step, name, 1)
    step.output.append(2)
    assert trail.step("r", 1).output == [1]


def test_changes_are_applied_in_the_order_of_the_words(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.step("a", output="o", output_to="out", append_to="log", set={"x": {"y": [1, 2, 3]}}, append={"log": ["p"]})
    run.step("b", set={("x", "z"): 1}, append={("x", "y"): [4]}, delete=["out"], splice={("x", "y"): (0, 2, ["n"])})
    assert run.state() == trail.state("r") == {"log": ["o", "p"], "x": {"y": ["n", 3, 4], "z": 1}}
    assert trail.state("r", at=1) == {"out": "o", "log": ["o", "p"], "x": {"y": [1, 2, 3]}}
    assert trail.step("r", 1).values == {"out": "o", "log": ["p"], "x": {"y": [1, 2, 3]}}


def test_an_output_in_two_places_is_two_values(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.step("a", output={"k": 1}, output_to="last", append_to="all")
    run.step("b", set={("last", "k"): 2})
    assert trail.state("r") == {"last": {"k": 2}, "all": [{"k": 1}]}


@pytest.mark.parametrize(
    "detail",
    [
        {"append": {"x": [1]}},
        {"append_to": "x", "output": 1},
        {"set": {("x", "y"): 1}},
        {"set": {("none", "y"): 1}},
        {"delete": ["none"]},
        {"splice": {"log": (5, 1, [])}},
        {"splice": {"log": (0, 1)}},
        {"append": {"log": "text"}},
        {"append": {"log": (1,)}},
        {"set": {1: 2}},
        {"set": {(): 2}},
        {"delete": [("log", 9)]},
    ],
)
def test_what_does_not_fit_the_state_is_refused(trail: everstep.Trail, detail: dict[str, Any]) -> None:
    """Promise 13."""
    run = trail.record("r")
    run.step("a", set={"x": 5, "log": [1]})
    with pytest.raises(StateError, match="Nothing was recorded"):
        run.step("b", **detail)
    assert run.seq == 1
    run.step("c", append={"log": [2]})
    assert trail.state("r") == {"x": 5, "log": [1, 2]}
    assert trail.verify().ok


def test_what_cannot_be_stored_is_refused_and_the_run_goes_on(trail: everstep.Trail) -> None:
    """Promise 7."""
    run = trail.record("r")
    with pytest.raises(UnstorableError, match=r"output\.a\[1\]"):
        run.step("b", output={"a": [1, object()]}, output_to="log")
    run.step("c", append={"log": [2]})
    assert trail.state("r") == {"log": [2]}


def test_nothing_handed_in_is_a_live_alias(trail: everstep.Trail) -> None:
    """Promise 5."""
    run, message = trail.record("r"), {"text": "before"}
    run.step("a", append={"log": [message]}, output=message)
    message["text"] = "after"
    run.step("b", append={"log": [message]})
    assert trail.state("r") == {"log": [{"text": "before"}, {"text": "after"}]}
    assert trail.step("r", 1).output == {"text": "before"}


def test_an_error_keeps_its_type_message_and_traceback(trail: everstep.Trail) -> None:
    run = trail.record("r")
    try:
        raise LookupError("no such page")
    except LookupError as error:
        run.step("fetch", error=error)
    run.step("other", error=StepError("Timeout", "5 s"), status="cancelled")
    failed, other = trail.steps("r", 1)
    assert failed.status == "FAILED"
    assert failed.error is not None
    assert str(failed.error) == "LookupError: no such page"
    assert "test_recorder.py" in str(failed.error.traceback)
    assert (other.status, other.error) == (Status.CANCELLED, StepError("Timeout", "5 s"))
    assert trail.run("r").error_count == 1


def test_a_block_ends_its_run_and_an_error_in_it_fails_it(trail: everstep.Trail) -> None:
    with trail.record("good") as run:
        run.step("s")
    with pytest.raises(ValueError, match="boom"), trail.record("bad"):
        raise ValueError("boom")
    assert (trail.run("good").status, trail.run("bad").status) == (Status.COMPLETED, Status.FAILED)
    assert str(trail.steps("bad")[-1].error) == "ValueError: boom"
    assert trail.run("bad").ended_at is not None
    with pytest.raises(RunFinishedError):
        run.step("late")
    with pytest.raises(RunFinishedError, match="Fork it"):
        trail.record("good")


def test_a_failed_run_is_active_again_with_its_next_step(trail: everstep.Trail) -> None:
    with pytest.raises(ValueError, match="boom"), trail.record("r") as run:
        run.step("a", output=1, output_to="x")
        raise ValueError("boom")
    with trail.record("r") as run:
        assert trail.run("r").status == Status.FAILED
        run.step("b", output=2, output_to="x")
        assert (trail.run("r").status, trail.run("r").ended_at) == (Status.ACTIVE, None)
    assert trail.run("r").status == Status.COMPLETED
    assert [step.name for step in trail.steps("r")] == ["start", "a", "end", "b", "end"]


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_failure_only_gives_the_run_up(trail: everstep.Trail, leaving: type[BaseException]) -> None:
    with pytest.raises(leaving), trail.record("r") as run:
        run.step("a")
        raise leaving
    assert (trail.run("r").status, trail.run("r").owner) == (Status.ACTIVE, None)
    trail.record("r").step("b")


def test_a_run_keeps_its_first_inputs(trail: everstep.Trail) -> None:
    large = {"document": "words " * 30_000, "n": 1}
    trail.record("r", inputs=large, workflow="w").release()
    with pytest.raises(InputsDifferError):
        trail.record("r", inputs={**large, "n": 2})
    with pytest.raises(InputsDifferError):
        trail.record("r", inputs={**large, "n": True})
    trail.record("r", inputs=large).release()
    trail.record("r").release()
    assert trail.step("r", 0).inputs == large


def test_one_writer_at_a_time_and_a_stale_one_is_refused(trail: everstep.Trail) -> None:
    """Promise 4."""
    first = trail.record("r", lease=1000)
    with pytest.raises(OwnedError, match="owned by"):
        trail.record("r")
    first.renew(0.001)
    second = None
    while second is None:
        try:
            second = trail.record("r")
        except OwnedError:
            continue
    with pytest.raises(StaleWriterError):
        first.step("late")
    with pytest.raises(StaleWriterError):
        first.renew()
    second.step("on")
    with pytest.raises(StaleWriterError):
        first.step("still late")
    assert [step.name for step in trail.steps("r")] == ["start", "on"]


def test_a_writer_whose_run_moved_on_fails_alone_and_finds_its_way(trail: everstep.Trail) -> None:
    """Promise 4: two recorders with one right, as after a fork of the process."""
    first = trail.record("r")
    second = everstep.Recorder(first._scribe.__class__(trail.store, trail.gate, first._scribe.claim, source="r"))
    second.step("two", append={"log": [2]})
    with pytest.raises(ConflictError):
        first.step("one", append={"log": [1]})
    first.step("one", append={"log": [1]})
    assert trail.state("r") == {"log": [2, 1]}


def test_threads_may_share_a_recorder(trail: everstep.Trail) -> None:
    run = trail.record("r")

    def work(name: int) -> None:
        for number in range(20):
            run.step(f"t{name}", append={"log": [(name, number)]})

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = trail.state("r")["log"]
    assert len(log) == 80
    assert all([number for who, number in log if who == name] == list(range(20)) for name in range(4))
    assert trail.verify().ok


def test_a_keyframe_tells_of_every_step_whatever_an_interrupt_left(trail: everstep.Trail) -> None:
    """Promises 1 and 7: of one step nobody heard that it was durable, and another was cut off as it was drafted."""
    run = trail.record("r")

    def interrupted(number: int, place: Any, name: str) -> None:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(place, name, Mock(side_effect=KeyboardInterrupt))
            run.step("s", append={"log": [number]})

    interrupted(0, scribe.Scribe, "settled")
    for number in range(1, 4):
        run.step("s", append={"log": [number]})
    interrupted(4, scribe, "plain_row")
    for number in range(4, 9):
        run.step("s", append={"log": [number]}, set={"bulk": random.randbytes(50_000)})
    run.finish()
    kept = trail.store.keyframe("r", trail.run("r").head)
    assert kept is not None
    assert trail.state("r")["log"] == list(range(9))
    assert trail.verify("r").ok


def test_a_long_run_continued_many_times_folds_to_what_was_put_in(trail: everstep.Trail) -> None:
    """Promises 7 and 11: keyframes, pieces and continued writers tell the same state as the steps."""
    chance, expected = random.Random(7), list[Any]()
    for round_number in range(6):
        run = trail.record("r")
        for number in range(40):
            item = {"round": round_number, "n": number, "noise": chance.randbytes(1_200)}
            if chance.random() < 0.1 and expected:
                at = chance.randrange(len(expected))
                run.step("edit", set={("log", at): item})
                expected[at] = item
            else:
                run.step("add", append={"log": [item]}, set={"last": number})
                expected.append(item)
        run.release()
    assert trail.state("r")["log"] == expected
    middle = trail.run("r").head // 2
    folded: dict[str, Any] = {"log": []}
    for step in trail.steps("r", 1, middle):
        for op in step.ops:
            if op[1] == "log":
                folded["log"] += op[2]
            elif op[1] != "last":
                folded["log"][op[1][1]] = op[2]
    assert trail.state("r", at=middle)["log"] == folded["log"]
    assert trail.store.keyframe("r", trail.run("r").head) is not None
    assert trail.verify().ok


def test_whole_states_are_saved_as_what_changed(trail: everstep.Trail) -> None:
    """Promise 11."""
    state: dict[str, Any] = {"messages": [], "document": "d" * 100_000, "n": 0}
    run = trail.record("r")
    run.save(state)
    for number in range(10):
        state["messages"].append({"n": number})
        state["n"] = number
        step = run.save(state)
        assert step.ops == [[2, "messages", [{"n": number}]], *([[0, "n", number]] if number else [])]
    run.release()
    again = trail.record("r")
    state["messages"][3]["n"] = "changed in place"
    assert again.save(state).ops == [[0, ["messages", 3, "n"], "changed in place"]]
    assert trail.state("r") == state
    assert again.save(state).ops == []


def test_a_refused_save_is_not_forgotten_by_the_next(trail: everstep.Trail) -> None:
    run = trail.record("r")
    run.save({"a": 1})
    with pytest.raises(UnstorableError):
        run.save({"a": 2, "b": object()})
    run.save({"a": 2})
    assert trail.state("r") == {"a": 2}


def test_saves_and_steps_may_be_mixed(trail: everstep.Trail) -> None:
    """Promise 7: a save makes the state what it was given, whatever came before it."""
    run = trail.record("r")
    run.save({"x": [1]})
    run.step("s", append={"x": [2]})
    run.save({"x": [1, 2]})
    assert run.state() == {"x": [1, 2]}
    run.step("s", set={"b": 9, ("x", 0): 5})
    run.save({"a": 2, "x": [5]})
    assert run.state() == {"x": [5], "a": 2}
    run.step("s", output=1)
    assert run.save({"a": 2, "x": [5]}).ops == []


def test_a_moment_that_is_no_datetime_is_refused(trail: everstep.Trail) -> None:
    """Promise 7."""
    with pytest.raises(UnstorableError, match="datetime"):
        trail.record("r").step("s", started=5)  # type: ignore[arg-type] # what is tested
