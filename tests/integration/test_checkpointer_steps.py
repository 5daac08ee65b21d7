"""Steps that other systems bring to a trail, how they are found again, and that no secret of a graph is written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import END, Graph, Runner, SqliteCheckpointer, interrupt, node, route
from everstep.errors import OwnedError, RedactedValueWarning, RunFinishedError, UnstorableError
from everstep.model import StepError


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[SqliteCheckpointer]:
    with SqliteCheckpointer(tmp_path / "trail.db") as opened:
        yield opened


def test_a_step_of_another_system_is_recorded_from_fields_or_a_mapping(trail: SqliteCheckpointer) -> None:
    began = datetime(2026, 11, 15, 12, tzinfo=UTC)
    made = trail.save_step(
        workflow_id="w", node_name="plan", superstep=0, values={"plan": ("a", "b")}, input_versions={"goal": 1},
        created_at=began, completed_at=began + timedelta(milliseconds=250), cached=True, decision="write",
        node_type="route", child_workflow_id="w/child", graph_name="theirs",
    )  # fmt: skip
    assert made == trail.get_steps("w")[0]
    assert (made.node_name, made.superstep, made.values) == ("plan", 0, {"plan": ("a", "b")})
    assert (made.created_at, made.duration_ms, made.cached) == (began, 250, True)
    assert (made.decision, made.input_versions, made.child_workflow_id) == ("write", {"goal": 1}, "w/child")
    trail.save_step({"run_id": "w", "name": "write", "superstep": 1}, values={"text": "t"}, status="completed")
    assert trail.get_state("w", superstep=0) == {"plan": ("a", "b")}
    assert trail.get_state("w") == {"plan": ("a", "b"), "text": "t"}
    assert (trail.run("w").workflow, trail.run("w").owner, trail.run("w").status) == ("theirs", None, "active")
    trail.record("w").finish("done")
    assert [point.name for point in trail.checkpoints("w")] == ["superstep 1", "superstep 0"]
    with pytest.raises(RunFinishedError):
        trail.save_step(run_id="w", name="late")


@pytest.mark.parametrize("error", [ValueError("no page"), StepError("ValueError", "no page"), "no page"])
def test_a_failure_and_the_success_after_it_are_both_kept(trail: SqliteCheckpointer, error: Any) -> None:
    trail.save_step(run_id="w", name="fetch", superstep=0, error=error)
    trail.save_step(run_id="w", name="fetch", superstep=1, values={"page": 1})
    failed, done = trail.get_steps("w")
    assert (failed.status, done.status) == ("failed", "completed")
    assert failed.error is not None
    assert failed.error.message == "no page"
    assert trail.get_state("w", 0) == {}


def test_a_superstep_does_not_come_after_a_later_one(trail: SqliteCheckpointer) -> None:
    trail.save_step(run_id="w", name="a", superstep=4)
    trail.save_step(run_id="w", name="b", superstep=4)
    with pytest.raises(ValueError, match="is in superstep 4 already; a step of superstep 3 cannot come after it"):
        trail.save_step(run_id="w", name="c", superstep=3)
    assert [step.name for step in trail.get_steps("w")] == ["a", "b"]
    assert trail.run("w").owner is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": "a"}, "needs run_id"),
        ({"run_id": "w"}, "needs name"),
        ({}, "needs run_id and name"),
        ({"run_id": "w", "name": "a", "superstap": 1}, "no 'superstap'; did you mean 'superstep'"),
        ({"run_id": "w", "workflow_id": "w", "name": "a"}, "given twice"),
    ],
)
def test_a_step_that_cannot_be_understood_is_refused_and_nothing_is_recorded(
    trail: SqliteCheckpointer, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        trail.save_step(fields)
    assert trail.list_workflows() == []


def test_a_value_that_cannot_be_stored_is_refused_by_its_name(trail: SqliteCheckpointer) -> None:
    with pytest.raises(UnstorableError, match="handle"):
        trail.save_step(run_id="w", name="a", values={"handle": object()})
    assert trail.get_steps("w") == []
    trail.save_step(run_id="w", name="a", values={"handle": 1})
    assert trail.get_state("w") == {"handle": 1}


def test_a_run_that_another_works_on_takes_no_step_by_hand(trail: SqliteCheckpointer) -> None:
    """Promise 4."""
    theirs = trail.record("w")
    with pytest.raises(OwnedError):
        trail.save_step(run_id="w", name="a")
    theirs.release()
    trail.save_step(run_id="w", name="a")


def test_a_search_finds_values_of_nodes_and_of_steps_by_hand(trail: SqliteCheckpointer) -> None:
    @node(output="letter")
    def compose() -> dict[str, Any]:
        return {"body": ["the ferry leaves at noon"]}

    Runner(trail).run(Graph([compose], name="letters"), id="l")
    trail.save_step(run_id="w", name="read", values={"page": "a ferry timetable"})
    assert {step.run_id for step in trail.search("ferry", field="values")} == {"l", "w"}
    assert [step.run_id for step in trail.search("ferry noon")] == ["l"]
    assert trail.search("ferry", field="name") == []
    assert len(trail.search("ferry", None, 1)) == 1


# Secrets

TOKEN = "sk-ant-api03-{:0>24}"


def test_no_secret_of_a_graph_is_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 10: planted in inputs, outputs, decisions, error text, question and answer; on disk is none."""
    monkeypatch.setenv("EVERSTEP_KEY_FILE", str(tmp_path / "key"))
    planted = {
        place: TOKEN.format(f"Zq{place}")
        for place in ("inputs", "output", "reason", "error", "question", "answer", "hand")
    }
    (tmp_path / "trail").mkdir()

    @node(output="login")
    def log_in(password: str) -> dict[str, Any]:
        return {"header": f"Bearer {planted['output']}", "parts": (planted["output"],)}

    @route(targets=["use", END])
    def choose(login: dict[str, Any]) -> everstep.Decision:
        return everstep.Decision("use", f"it has {planted['reason']}")

    @interrupt(output="code")
    def ask(login: dict[str, Any]) -> str:
        return f"Is {planted['question']} right?"

    @node(output="used")
    def use(code: str) -> str:
        raise ValueError(f"refused: {planted['error']}")

    trail = SqliteCheckpointer(tmp_path / "trail" / "trail.db", retention="windowed", window=1)
    graph = Graph([log_in, choose, ask, use], name="secretive")
    assert Runner(trail).run(graph, {"password": planted["inputs"]}, id="s").paused
    with pytest.raises(ValueError, match="refused"), pytest.warns(RedactedValueWarning):
        Runner(trail).run(graph, id="s", answer=planted["answer"])
    trail.save_step(run_id="h", name="n", values={"v": planted["hand"]}, error=f"no {planted['hand']}")
    seen = repr([step.to_dict() for run in trail.runs() for step in trail.steps(run.id)])
    assert "[redacted:" in seen
    trail.search("refused")
    files = {file.name: file.read_bytes() for file in (tmp_path / "trail").iterdir()}
    assert any(name.endswith("-wal") for name in files)
    for place, secret in planted.items():
        assert secret not in seen, place
        assert [name for name, data in files.items() if secret.encode() in data] == [], place
    trail.close()
