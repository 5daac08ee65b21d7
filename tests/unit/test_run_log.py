from __future__ import annotations

import dataclasses
import json
import pickle
import time
from typing import Any

import pytest

from everstep.model import CheckpointKind, Status, StepError
from everstep.run.log import NodeRecord, NodeStats, RunLog


def step(name: str, ms: float = 1.0, status: Status = Status.COMPLETED, **fields: Any) -> NodeRecord:
    return NodeRecord(name, fields.pop("superstep", 0), ms, status, fields.pop("span_id", name), **fields)


def log(*steps: NodeRecord, total: float = 10.0) -> RunLog:
    return RunLog("research", "r-1", total, steps)


# Records


def test_times_are_kept_to_a_microsecond() -> None:
    assert step("a", 1.23456).duration_ms == 1.235
    assert log(total=9.87654).total_duration_ms == 9.877


def test_a_status_given_as_text_is_the_word() -> None:
    assert NodeRecord("a", 0, 1.0, "FAILED", "1").status is Status.FAILED  # type: ignore[arg-type]  # what JSON gives


@pytest.mark.parametrize("record", [step("a"), log(step("a")), NodeStats(1, 1.0, 0, 0)])
def test_nothing_in_a_log_can_be_changed(record: Any) -> None:
    name = dataclasses.fields(record)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, name, "other")


def test_a_log_is_made_from_plain_tuples_and_crosses_to_another_process() -> None:
    made = RunLog.of("research", "r-1", 10.0, [("a", 0, 1.0, Status.COMPLETED, "a"), ("b", 1, 2.0, "failed", "b", "E")])
    assert made == log(step("a"), step("b", 2.0, Status.FAILED, superstep=1, error="E"))
    assert pickle.loads(pickle.dumps(made)) == made
    assert made.graph_name == made.workflow == "research"


def test_a_hundred_thousand_steps_are_no_burden() -> None:
    """A bound that only work growing with the square of the steps would miss."""
    rows = [
        (f"s{i % 7}", None, 1.5, Status.COMPLETED, str(i), None, False, None, None, str(i // 2)) for i in range(10**5)
    ]
    begun = time.perf_counter()
    made = RunLog.of("w", "r", 1.0, rows)
    assert (len(made.node_stats), made.node_stats["s0"].count) == (7, 14286)
    assert str(made).count("\n") < 60
    made.summary(), made.timing, made.to_dict()
    assert time.perf_counter() - begun < 20


# Sums


def test_stats_count_succeeded_failed_and_cached_apart() -> None:
    stats = log(
        step("a", 4.0), step("a", 2.0), step("a", 1.0, Status.FAILED), step("a", 0.0, cached=True), step("b", 5.0)
    ).node_stats
    assert stats == {"a": NodeStats(4, 7.0, 1, 1), "b": NodeStats(1, 5.0, 0, 0)}
    assert (stats["a"].succeeded, stats["a"].avg_ms) == (2, 3.5)


def test_the_average_of_nothing_that_succeeded_is_zero() -> None:
    assert NodeStats(2, 8.0, 2, 0).avg_ms == 0
    assert NodeStats(1, 0.0, 0, 1).avg_ms == 0


def test_restored_steps_are_counted_apart_and_leave_times_and_averages() -> None:
    combined = log(step("a", 100.0, Status.RESTORED), step("only", 9.0, Status.RESTORED), step("a", 2.0))
    assert combined.restored_count == 2
    assert combined.node_stats == {"a": NodeStats(1, 2.0, 0, 0)}
    assert combined.timing == {"a": 2.0}
    assert [one.status for one in combined.steps] == [Status.RESTORED, Status.RESTORED, Status.COMPLETED]


def test_what_has_no_outcome_does_not_count_as_succeeded() -> None:
    stats = log(step("a", 2.0), step("a", 7.0, Status.PAUSED), step("a", 7.0, Status.CANCELLED)).node_stats
    assert stats == {"a": NodeStats(1, 2.0, 0, 0)}


def test_timing_adds_up_by_name_without_the_dust_of_floats() -> None:
    assert log(step("a", 0.1), step("b", 1.0), step("a", 0.2)).timing == {"a": 0.3, "b": 1.0}
    assert log(step("a", 0.1), step("a", 0.2)).node_stats["a"].total_ms == 0.3


def test_errors_are_the_steps_that_failed() -> None:
    failed = step("b", status=Status.FAILED, error=StepError("ValueError", "bad"))
    assert log(step("a"), failed, step("c", status=Status.CANCELLED)).errors == (failed,)


# One line


def test_the_summary_is_one_line_with_what_matters() -> None:
    full = log(
        step("plan", 3.0),
        step("ask", 25.25, span_id="x"),
        step("ask", 1.0, Status.FAILED),
        step("old", 99.0, Status.RESTORED),
        total=1234.5,
    )
    assert full.summary() == "4 steps in 1,234.5 ms, 1 failed, 1 restored, slowest ask (25.2 ms)"
    assert log(step("a", 0.25), total=0.5).summary() == "1 step in 0.500 ms, slowest a (0.250 ms)"
    assert log(total=0.0).summary() == "0 steps in 0.000 ms"


def test_the_slowest_step_is_not_the_one_that_only_waits_for_others() -> None:
    nested = log(step("leaf", 8.0, parent_span_id="outer"), step("outer", 9.0), step("alone", 2.0))
    assert "slowest leaf" in nested.summary()


# Plain data


def test_a_log_as_a_dict_is_json_and_says_everything() -> None:
    inner = RunLog("child", "r-1/child", 3.0, (step("deep", 2.0),))
    made = log(
        step("a", 2.0, error=StepError("ValueError", "bad", "Traceback ..."), status=Status.FAILED),
        step("route", decision=["x", CheckpointKind.ACTION]),
        step("gate", decision={1: {"y"}, "when": object}),
        step("sub", log=inner, parent_span_id="a", cached=True, superstep=None),
    )
    data = made.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    failed, route, gate, sub = data["steps"]
    assert failed == {
        "node_name": "a",
        "superstep": 0,
        "duration_ms": 2.0,
        "status": "failed",
        "span_id": "a",
        "parent_span_id": None,
        "error": "ValueError: bad",
        "cached": False,
        "decision": None,
        "log": None,
    }
    assert (route["decision"], type(route["decision"][1])) == (["x", "action"], str)
    assert gate["decision"] == {"1": ["y"], "when": "<class 'object'>"}
    assert sub["log"]["steps"][0]["node_name"] == "deep"
    assert (sub["parent_span_id"], sub["cached"], sub["superstep"]) == ("a", True, None)
    assert (data["workflow"], data["run_id"], data["total_duration_ms"]) == ("research", "r-1", 10.0)
    assert data["restored_count"] == 0
    assert data["node_stats"]["a"] == {
        "count": 1, "total_ms": 2.0, "errors": 1, "cached": 0, "succeeded": 0, "avg_ms": 0.0,
    }  # fmt: skip


# The table


def test_the_table_is_aligned_and_steps_stand_under_the_step_they_ran_inside() -> None:
    inner = RunLog("child", "r-1/child", 3.0, (step("fetch", 2.5, superstep=None),))
    made = log(
        step("ask", 12.5, parent_span_id="plan", span_id="1"),
        step("ask", 1.0, Status.FAILED, parent_span_id="plan", span_id="2", error=StepError("ValueError", "bad")),
        step("plan", 1014.0),
        step("route", decision="write", superstep=1),
        step("sub", 3.0, log=inner, superstep=12, cached=True),
    )
    assert str(made).splitlines() == [
        "research r-1: 5 steps in 10.0 ms, 1 failed, slowest ask (12.5 ms)",
        "step     superstep  status           ms",
        "plan             0  completed  1014.000",
        "  ask            0  completed    12.500",
        "  ask            0  failed        1.000  ValueError: bad",
        "route            1  completed     1.000  -> write",
        "sub             12  completed     3.000  cached",
        "  fetch             completed     2.500",
    ]
    assert repr(made) == f"<RunLog 'research' 'r-1': {made.summary()}>"


def test_a_log_without_supersteps_has_no_column_for_them() -> None:
    assert str(RunLog("w", None, 1.0, (step("a", superstep=None),))).splitlines() == [
        "w: 1 step in 1.000 ms, slowest a (1.000 ms)",
        "step  status        ms",
        "a     completed  1.000",
    ]
    assert str(log(total=1.0)) == "research r-1: 0 steps in 1.000 ms"


def test_a_long_table_is_shortened_in_the_middle_and_keeps_every_failure() -> None:
    steps = [step(f"s{i}", status=Status.FAILED if i in {30, 31, 70} else Status.COMPLETED) for i in range(100)]
    lines = str(log(*steps)).splitlines()[2:]
    assert [line.split()[0] for line in lines[:20]] == [f"s{i}" for i in range(20)]
    assert [line.split()[0] for line in lines[-20:]] == [f"s{i}" for i in range(80, 100)]
    assert [line.split("  ")[0].strip() or line.strip() for line in lines[20:-20]] == [
        "... 10 more steps", "s30", "s31", "... 38 more steps", "s70", "... 9 more steps",
    ]  # fmt: skip


def test_fifty_steps_are_shown_and_one_more_is_too_many() -> None:
    assert "more step" not in str(log(*(step(f"s{i}") for i in range(50))))
    assert "... 11 more steps" in str(log(*(step(f"s{i}") for i in range(51))))


def test_what_is_shown_stays_on_its_line_and_steers_no_terminal() -> None:
    nasty = step("a\x1b[2Jb" + "x" * 99, status=Status.FAILED, error="first\nsecond", span_id="n")
    lines = str(log(nasty)).splitlines()
    assert len(lines) == 3
    assert "\x1b" not in str(log(nasty))
    assert "a?[2Jbx" in lines[2]
    assert lines[2].endswith("  first...")


def test_steps_nest_deeper_than_python_recurses() -> None:
    chain = [step("s", span_id=str(i), parent_span_id=str(i + 1)) for i in range(5000)]
    assert "... 4960 more steps" in str(log(*chain))


def test_parents_that_form_a_ring_hide_nothing() -> None:
    ring = [step("a", parent_span_id="b"), step("b", parent_span_id="a"), step("me", parent_span_id="me")]
    shown = str(log(*ring, step("lost", parent_span_id="nobody"))).splitlines()[2:]
    assert sorted(line.split()[0] for line in shown) == ["a", "b", "lost", "me"]
