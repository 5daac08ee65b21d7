"""What a fork does again that acts on the world: it is warned of by name, and taken over where it may be reused."""

from __future__ import annotations

from pathlib import Path

import pytest

import everstep
from everstep import Graph, Runner, node, step, workflow
from everstep.capturing.command import CAPTURED
from everstep.model import Kind
from tests.integration.cli_support import data, run
from tests.integration.running import Calls, crashed

calls = Calls()


@step
def look(name: str) -> str:
    return str(calls(f"look {name}"))


@step(external=True)
def refund(number: int) -> str:
    return str(calls(f"refund {number}"))


@workflow
def order() -> list[str]:
    return [look("first"), refund(1), look("second"), refund(2)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trail with the run a-1, which gave two refunds, in steps 3 and 6."""
    with everstep.open(tmp_path / "t.db") as trail:
        Runner(trail).run(order, id="a-1")
    calls.forget()
    return tmp_path / "t.db"


def forked(path: Path, *words: str) -> str:
    """What is said of a fork besides that it was made, and what to type next."""
    return "\n".join(run("fork", *words, "--id", "f", "--trail", path).stderr.splitlines()[1:-1])


def test_external_steps_that_a_fork_will_do_again_are_named(path: Path) -> None:
    assert forked(path, "a-1", "--at", "1") == (
        "warning: a-1 did these after that, and f will do them again: refund (step 3), refund (step 6). "
        "With --reuse their outcomes are taken over where the same is asked for."
    )
    with everstep.open(path) as trail:
        Runner(trail).run(order, id="f")
    assert calls == ["refund 1", "look second", "refund 2"]


@pytest.mark.parametrize("words", [["--outcome", "3=none"], ["--failure", "3=no"], ["--at", "3"]])
def test_one_that_is_shared_or_given_another_outcome_is_not(path: Path, words: list[str]) -> None:
    assert forked(path, "a-1", *words) == (
        "warning: a-1 did this after that, and f will do it again: refund (step 6). "
        "With --reuse its outcome is taken over where the same is asked for."
    )


def test_with_reuse_nothing_is_done_again_and_nothing_said(path: Path) -> None:
    assert forked(path, "a-1", "--at", "0", "--reuse") == ""
    with everstep.open(path) as trail:
        assert Runner(trail).run(order, id="f").value == ["look first", "refund 1", "look second", "refund 2"]
        assert trail.replay("f", order).identical
    assert calls == []


@pytest.mark.parametrize("reuse", [[], ["--reuse"]])
def test_one_that_was_announced_before_and_tried_again_after_that_is_named(tmp_path: Path, reuse: list[str]) -> None:
    """Promise 3: the fork has somebody's leave to try it again, which was meant for the run it came from."""
    calls.forget()
    calls.crash = {"refund 1"}
    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        crashed(trail, order, id="a-1")
        assert Runner(trail).run(order, id="a-1").paused
        trail.answer("a-1", retry=True)
        Runner(trail).run(order, id="a-1")
        calls.forget()
        said = forked(path, "a-1", "--at", "4", *reuse)
        assert "again: refund (step 6)" in said
        Runner(trail).run(order, id="f")
    assert calls[0] == "refund 1"


def test_at_the_end_there_is_nothing_to_do_again(path: Path) -> None:
    assert forked(path, "a-1") == ""


def test_programs_get_them_as_a_list(path: Path) -> None:
    found = data("fork", "a-1", "--at", "4", "--trail", path)["fork"]
    assert found["again"] == [{"run": "a-1", "seq": 6, "name": "refund"}]


def test_three_are_named_and_the_others_counted(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as trail, trail.record("many") as recorded:
        for number in range(1, 6):
            recorded.step(f"mail {number}", external=True, input_digest=b"1", output=number)
    said = forked(tmp_path / "t.db", "many", "--at", "0")
    assert "again: mail 1 (step 1), mail 2 (step 2), mail 3 (step 3) and 2 more. With" in said


def test_those_of_a_program_are_named_and_reuse_is_refused(tmp_path: Path) -> None:
    """Promise 3: a program makes its calls anew, so nothing may say that they are taken over."""
    path = tmp_path / "t.db"
    with everstep.open(path) as trail, trail.record("p", metadata={CAPTURED: ["python", "agent.py"]}) as recorded:
        begun = recorded.step("POST shop", kind=Kind.INTENT, external=True).id
        recorded.step("POST shop", id=begun, external=True, input_digest=b"1", output={"status": 200})
    assert forked(path, "p", "--at", "0") == (
        "warning: p did this after that, and f will do it again: POST shop (step 2). "
        "To keep what it gave, fork at step 2 or later."
    )
    refused = run("fork", "p", "--at", "0", "--reuse", "--trail", path)
    assert refused.exit_code == 2
    assert "leave out --reuse" in refused.stderr


def test_what_reuse_does_not_take_over_is_named_with_it_too(tmp_path: Path) -> None:
    @step(external=True)
    def around() -> str:
        return look("inside")

    @workflow
    def nested() -> str:
        return around()

    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        Runner(trail).run(nested, id="n")
    assert "again: around (step 3). To keep what it gave, fork at step 3" in forked(path, "n@0", "--reuse")


def test_in_a_node_of_a_graph_a_step_is_taken_over(tmp_path: Path) -> None:
    @node(output="sent")
    def send(text: str) -> str:
        return refund(len(text))

    calls.forget()
    with everstep.open(tmp_path / "t.db") as trail:
        graph = Graph([send], name="g")
        Runner(trail).run(graph, {"text": "hello"}, id="g")
        assert forked(tmp_path / "t.db", "g@0", "--reuse") == ""
        assert Runner(trail).run(graph, id="f").values == {"sent": "refund 5"}
    assert calls == ["refund 5"]


def test_those_of_runs_inside_are_named_with_their_runs(tmp_path: Path) -> None:
    @workflow
    def outer() -> object:
        return [look("before"), order()]

    path = tmp_path / "t.db"
    with everstep.open(path) as trail:
        Runner(trail).run(outer, id="o")
    assert "refund (step 3 of o/order#0), refund (step 6 of o/order#0). With --reuse" in forked(path, "o@1")
