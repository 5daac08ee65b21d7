"""A map whose items fail or wait, and one that is stopped."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from everstep import Runner, Trail, pause, step, workflow
from everstep.errors import ClosedError, RunCancelledError
from everstep.run import heart
from everstep.run.batch import Batch
from everstep.run.life import Life
from tests.integration.mapping import KINDS, PATIENCE, mapped, plain
from tests.integration.running import act, calls


@pytest.mark.parametrize("flow", KINDS, ids=["plain", "awaited", "graph", "graph awaited"])
def test_the_first_failure_is_raised_and_no_further_item_is_begun(trail: Trail, flow: Any) -> None:
    calls.fail = {"b", "c"}
    with pytest.raises(ValueError, match="b") as failed:
        mapped(trail, flow, {"x": list("abcd")}, id="m")
    assert failed.value.__notes__[-1] == "everstep: item 1 of map 'm' failed; map with this id again to go on"
    assert calls == ["a", "b"]
    assert (trail.run("m").status, trail.run("m").owner) == ("failed", None)
    assert trail.state("m") == {"items": 4, "completed": 1, "failed": 1, "waiting": 0}


def test_what_is_at_work_ends_before_the_first_failure_in_the_order_of_the_items_is_raised(
    trail: Trail, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, known = threading.Barrier(3), [threading.Event() for _ in range(3)]
    failed = Batch.failed

    def failed_and_known(batch: Batch, at: int, error: Exception) -> None:
        failed(batch, at, error)
        known[at].set()

    @step
    def work(x: int) -> int:
        begun.wait(PATIENCE)
        if x < 2:
            assert known[x + 1].wait(PATIENCE)
        if x:
            raise ValueError(x)
        return int(calls(x))

    @workflow
    def flow(x: int) -> int:
        return work(x)

    monkeypatch.setattr(Batch, "failed", failed_and_known)
    with pytest.raises(ValueError, match="1"):
        mapped(trail, flow, {"x": range(9)}, id="m", max_concurrency=3)
    assert (calls, len(trail.runs(parent="m"))) == ([0], 3)
    assert len(trail.runs(parent="m", status="completed")) == 1


@pytest.mark.parametrize("flow", KINDS, ids=["plain", "awaited", "graph", "graph awaited"])
@pytest.mark.parametrize(("fail", "status"), [("", "completed"), ("bd", "partial"), ("abcd", "failed")])
def test_all_items_are_tried_when_errors_are_to_be_results(trail: Trail, flow: Any, fail: str, status: str) -> None:
    calls.fail = set(fail)
    many = mapped(trail, flow, {"x": list("abcd")}, id="m", error_handling="continue")
    assert calls == list("abcd")
    assert many["z"] == [None if each in fail else each for each in "abcd"]
    assert [str(result.error) for result in many.failures] == list(fail)
    assert (many.status, trail.run("m").status, many.failed) == (status, status, bool(fail))
    assert trail.state("m") == {"items": 4, "completed": 4 - len(fail), "failed": len(fail), "waiting": 0}


def test_a_step_that_the_record_does_not_have_fails_its_item_alone(trail: Trail) -> None:
    other = False

    @workflow
    def flow(x: str) -> str:
        first_act = act(f"other {x}" if other and x == "b" else x)
        act(f"then {x}")
        return str(first_act)

    calls.fail = {"then a", "then b", "then c"}
    mapped(trail, flow, {"x": list("abc")}, id="m", error_handling="continue")
    calls.forget()
    other = True
    many = mapped(trail, flow, {"x": list("abc")}, id="m", error_handling="continue")
    assert (many.values, many.status) == (["a", None, "c"], "partial")
    assert type(many[1].error).__name__ == "DivergenceError"


@pytest.mark.parametrize("error_handling", ["raise", "continue"])
def test_a_store_that_fails_ends_the_map_whatever_is_to_be_done_with_errors(
    trail: Trail, monkeypatch: pytest.MonkeyPatch, error_handling: str
) -> None:
    tried, enter = list[int](), Batch.enter

    def enter_and_tell(batch: Batch, at: int, life: Life) -> Any:
        tried.append(at)
        return enter(batch, at, life)

    @workflow
    def flow(x: int) -> Any:
        if x == 1:
            trail.close()
        return act(x)

    monkeypatch.setattr(Batch, "enter", enter_and_tell)
    with pytest.raises(ClosedError):
        mapped(trail, flow, {"x": range(4)}, error_handling=error_handling)
    assert tried == [0, 1]


# What waits, what is stopped.


@workflow
def asking(x: str) -> str:
    act(x)
    return f"{x} {pause(f'What of {x}?')}" if x in "bd" else x


def test_a_map_waits_when_all_its_items_have_completed_or_wait(trail: Trail) -> None:
    many = mapped(trail, asking, {"x": list("abcd")}, id="m")
    assert (many.status, many.paused, trail.run("m").status) == ("paused", True, "paused")
    assert [(pause.run_id, pause.prompt) for pause in many.pauses] == [
        (many[1].run_id, "What of b?"),
        (many[3].run_id, "What of d?"),
    ]
    assert many.values == ["a", None, "c", None]
    assert trail.state("m") == {"items": 4, "completed": 2, "failed": 0, "waiting": 2}


def until_heard(run_id: str, what: str) -> None:
    """Wait until a run has heard what it was asked."""
    end = time.monotonic() + PATIENCE
    while not any(run.run_id == run_id and getattr(run, what) for run in list(heart._runs)):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_map_that_is_cancelled_begins_no_further_item(trail: Trail) -> None:
    at = 1

    @step
    def cancel(x: int) -> None:
        if x == at:
            trail.cancel("m")
            until_heard("m", "cancelling")

    @workflow
    def flow(x: int) -> int:
        cancel(x)
        act(x)
        return x

    with pytest.raises(RunCancelledError, match="'m'"):
        mapped(trail, flow, {"x": range(4)}, id="m")
    assert (trail.run("m").status, calls.taken()) == ("cancelled", [0])
    at = 2
    many = mapped(trail, flow, {"x": range(4)}, id="m", error_handling="continue")
    assert (many.status, many.values, many.unstarted) == ("cancelled", [0, 1, None, None], (3,))
    assert [result.status for result in many] == ["completed", "completed", "cancelled", "cancelled"]
    assert calls.taken() == [1]
    at = 9
    assert mapped(trail, flow, {"x": range(4)}, id="m").values == [0, 1, 2, 3]
    assert calls.taken() == [2, 3]


def test_a_map_that_is_stopped_lets_the_items_at_work_end(trail: Trail) -> None:
    @workflow
    def flow(x: int) -> int:
        if x == 1 and not calls:
            trail.stop("m")
            until_heard("m", "asked_to_stop")
            calls("heard")
        return x

    many = mapped(trail, flow, {"x": range(4)}, id="m")
    assert (many.status, many.values, many.unstarted) == ("stopped", [0, 1, None, None], (2, 3))
    assert trail.run("m").status == "stopped"
    again = mapped(trail, flow, {"x": range(4)}, id="m")
    assert (again.status, again.values, again.restored_count) == ("completed", [0, 1, 2, 3], 2)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_an_item_that_is_begun_while_its_map_is_being_stopped_hears_of_it(
    trail: Trail, monkeypatch: pytest.MonkeyPatch, error: BaseException | None
) -> None:
    begin = Life.begin

    def begin_and_stop(life: Life, *args: Any, **how: Any) -> Any:
        done = begin(life, *args, **how)
        if how.get("parent") == "m":
            batch = next(run for run in heart._runs if run.run_id == "m")
            batch.cancel() if error is None else batch.interrupt(error)
        return done

    monkeypatch.setattr(Life, "begin", begin_and_stop)
    with pytest.raises(RunCancelledError if error is None else type(error)):
        mapped(trail, plain, {"x": list("ab")}, id="m")
    assert (calls, trail.run("m").status) == ([], "cancelled" if error is None else "active")


def test_a_map_inside_a_run_is_a_map_of_its_own(trail: Trail) -> None:
    @step
    def over(items: list[str]) -> list[str]:
        return Runner(trail).map(plain, {"x": items}, map_over="x", id="inner", max_concurrency=2)["z"]

    @workflow
    def outer() -> list[str]:
        act("before")
        found = over(["a", "b"])
        act("after")
        return found

    calls.fail = {"after"}
    with pytest.raises(ValueError, match="after"):
        Runner(trail).run(outer, id="outer")
    calls.forget()
    assert Runner(trail).run(outer, id="outer").value == ["a", "b"]
    assert calls == ["after"]
    assert trail.run("inner").status == "completed"


class SilentError(Exception):
    """One whose own code fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_map_is_shown_also_if_an_error_cannot_say_what_it_is(trail: Trail) -> None:
    @workflow
    def silent(x: int) -> int:
        raise SilentError

    many = mapped(trail, silent, {"x": [1]}, id="m", error_handling="continue")
    assert "SilentError: (its text could not be had: RuntimeError)" in str(many)
