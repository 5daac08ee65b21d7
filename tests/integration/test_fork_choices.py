"""What a fork may say of a question and of a choice: what the question allows, and where the route or gate can go."""

from __future__ import annotations

from typing import Any

import pytest

import everstep
from everstep import END, Graph, Runner, Trail, gate, node, pause, route, workflow
from everstep.errors import AnswerError, GraphError
from tests.integration.cli_support import run as command
from tests.integration.running import calls, run
from tests.integration.test_forks import seq_of, trail

__all__ = ["trail"]  # fixtures


@workflow
def asking() -> Any:
    return [pause("Which?", options=["tea", "coffee"]), pause("How many?", schema=int), pause("Why?")]


@node(output="text")
def write(topic: str) -> str:
    return topic


@route(targets=["louder", "softer", END])
def choose(text: str) -> Any:
    return END


@route(targets=["louder", "softer"], many=True)
def several(text: str) -> Any:
    return ["softer"]


@gate(when_true="louder", when_false=END)
def is_short(text: str) -> bool:
    return False


@node(output="loud")
def louder(text: str) -> str:
    return str(calls(text.upper()))


@node(output="soft")
def softer(text: str) -> str:
    return str(calls(text.lower()))


@pytest.fixture
def answered(trail: Trail) -> Trail:
    run(trail, asking, id="r")
    for answer in ("tea", 2, "because"):
        run(trail, asking, id="r", answer=answer)
    return trail


@pytest.mark.parametrize(("number", "bad", "allowed"), [(0, "juice", '"tea", "coffee"'), (1, "two", "a whole number")])
def test_an_answer_that_the_question_does_not_allow_is_refused(
    answered: Trail, number: int, bad: Any, allowed: str
) -> None:
    seqs = [step.seq for step in answered.steps("r") if step.kind == "answer"]
    with pytest.raises(AnswerError) as refused:
        answered.fork("r", at=seqs[number], id="f", outcome=bad)
    assert allowed in str(refused.value)
    assert [found.id for found in answered.runs()] == ["r"]


def test_an_answer_that_it_allows_is_taken(answered: Trail) -> None:
    seqs = [step.seq for step in answered.steps("r") if step.kind == "answer"]
    answered.fork("r", at=seqs[0], id="f", outcome="coffee").release()
    answered.fork("r", at=seqs[2], id="g", outcome={"any": "thing"}).release()
    assert run(answered, asking, id="g").value == ["tea", 2, {"any": "thing"}]
    assert answered.step("f", seqs[0]).output == "coffee"


def chosen(trail: Trail, choice: Any, outcome: Any) -> Any:
    """What a fork gives whose route or gate chose otherwise."""
    nodes = [write, choice, louder] if choice is is_short else [write, choice, louder, softer]
    graph = Graph(nodes, name="g")
    Runner(trail).run(graph, topic="Tea", id="r")
    trail.fork("r", at=seq_of(trail, "r", choice.name), id="f", outcome=outcome).release()
    return {name for name in Runner(trail).run(graph, id="f").value if name in {"loud", "soft"}}


@pytest.mark.parametrize(
    ("choice", "outcome", "given"),
    [
        (choose, "louder", {"loud"}), (choose, END, set()), (choose, None, set()), (is_short, True, {"loud"}),
        (is_short, False, set()), (is_short, "louder", {"loud"}), (several, ["softer", "louder"], {"loud", "soft"}),
        (several, "louder", {"loud"}), (several, [], set()),
    ],
)  # fmt: skip
def test_a_target_is_taken(trail: Trail, choice: Any, outcome: Any, given: set[str]) -> None:
    assert chosen(trail, choice, outcome) == given


@pytest.mark.parametrize(
    ("choice", "outcome"),
    [(choose, "nowhere"), (choose, True), (choose, ["louder"]), (is_short, "softer"), (several, ["softer", "nowhere"])],
)
def test_what_is_no_target_is_refused_with_those_there_are(trail: Trail, choice: Any, outcome: Any) -> None:
    with pytest.raises(GraphError, match=r"cannot have chosen .* say one of 'louder', "):
        chosen(trail, choice, outcome)
    assert [found.id for found in trail.runs()] == ["r"]


def test_the_command_says_so_too(tmp_path: Any) -> None:
    path = tmp_path / "trail.db"
    with everstep.open(path) as opened:
        Runner(opened).run(Graph([write, choose, louder, softer], name="g"), topic="Tea", id="r")
        seq = seq_of(opened, "r", "choose")
    told = command("fork", "r", "--outcome", f"{seq}=nowhere", "--trail", path)
    assert told.exit_code == 1
    assert "say one of 'louder', 'softer', '__end__'" in told.stderr


@pytest.mark.parametrize(
    "about", [None, {}, {"targets": 5}, {"targets": {"choose": "louder"}}, {"targets": {"choose": []}}]
)
def test_a_run_that_says_nothing_of_targets_is_forked_as_asked(trail: Trail, about: Any) -> None:
    with trail.record("r", workflow="g", metadata=about) as recorder:
        recorder.step("choose", decision="softer", node_type="route", superstep=0)
    trail.fork("r", at=1, id="f", outcome="elsewhere").release()
    assert trail.step("f", 1).decision == "elsewhere"
