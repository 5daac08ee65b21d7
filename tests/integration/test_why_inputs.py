"""Why, where a run failed because of what it was given; and what a person's time is not blamed for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Graph, Runner, node, step, workflow
from everstep.model import Kind
from everstep.trail.why.report import Why
from tests.integration.cli_support import run


@step
def price(net: float) -> float:
    return net * 1.2


@step
def check(order: dict[str, Any]) -> str:
    return f"{order['net']} {order['currency']}"


@workflow
def invoice(order: dict[str, Any], rate: Any = 1.0) -> str:
    price(order["net"])
    return check(order)


@step
def fetch(page: str) -> str:
    if page == "page-404":
        raise LookupError(f"there is no {page}")
    return f"all of {page}"


@workflow
def read(first: str, page: str) -> str:
    fetch(first)
    return fetch(page)


@node(output="total")
def total(order: dict[str, Any]) -> float:
    return float(order["net"])


@node(output="bill")
def bill(order: dict[str, Any], total: float) -> str:
    return f"{total} {order['currency']}"


BILLS = Graph([total, bill], name="bills")
GOOD: dict[str, Any] = {"net": 3.0, "currency": "EUR", "to": "ada"}
BAD: dict[str, Any] = {"net": 4.0, "to": "bob"}


def failed(trail: everstep.Trail, flow: Any, run_id: str = "bad", **inputs: Any) -> Why:
    Runner(trail).run(flow, **inputs, id=run_id, error_handling="continue")
    return trail.why(run_id)


@pytest.mark.parametrize("flow", [invoice, BILLS])
def test_inputs_that_lack_what_those_of_other_runs_have_are_the_first_suspect(trail: Any, flow: Any) -> None:
    for number in range(4):
        Runner(trail).run(flow, order={**GOOD, "net": 3.0 + number}, id=f"good-{number}")
    why = failed(trail, flow, order=BAD)
    first = why.suspects[0]
    assert (first.id, first.name) == ("bad@0", "inputs")
    assert first.evidence.startswith("was given no order.currency, which the 4 others have")
    assert first.confidence == "high"
    assert why.chain[-1].seq == 0
    assert "because of its inputs" in why.summary()
    assert why.last_good is None
    assert why.next[0] == "everstep show bad@0"


@pytest.mark.parametrize("flow", [invoice, BILLS])
def test_a_key_that_the_inputs_do_not_have_is_told_without_other_runs(trail: Any, flow: Any) -> None:
    [first] = failed(trail, flow, order=BAD).suspects
    assert (first.seq, first.confidence) == (0, "likely")
    assert first.evidence == "was given no 'currency', which the error names, with order"
    assert "(bill) took order from it" in first.link or "(check) took" in first.link


def test_what_the_error_names_may_come_with_the_inputs(trail: Any) -> None:
    why = failed(trail, read, first="page-1", page="page-404")
    [first] = why.suspects
    assert (first.seq, first.name, first.confidence) == (0, "inputs", "likely")
    assert first.evidence == "was given 'page-404', which the error names"
    assert "took 'page-404' from it" in first.link
    shown = str(why)
    assert "     0  inputs" in shown


def test_inputs_that_have_nothing_to_do_with_it_are_left_alone(trail: Any) -> None:
    @step
    def boom(x: str) -> None:
        raise ValueError("the disk is full")

    @workflow
    def flow(x: str) -> None:
        boom(x)

    assert failed(trail, flow, x="page-1").suspects == ()


def test_a_step_that_gave_what_the_error_names_comes_before_inputs_that_do_not(trail: Any) -> None:
    @step
    def pick(word: str) -> str:
        return "page-404"

    @workflow
    def flow(word: str) -> str:
        return fetch(pick(word))

    assert failed(trail, flow, word="page-1").suspects[0].name == "pick"


# A person's time.


def test_the_time_that_a_person_took_to_answer_is_no_slow_step(tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(hours=2)
    with everstep.open(tmp_path / "t.db") as opened, pytest.raises(ValueError, match="no"), opened.record("r") as made:
        for _ in range(4):
            made.step("look", duration_ms=1)
        made.step("look", duration_ms=5_000)
        asked = made.step("ask", kind=Kind.PAUSE, status="paused", pause={"prompt": "Send it?"}, started=began)
        made.step("ask", kind=Kind.ANSWER, id=asked.id, output="yes")
        raise ValueError("no")
    with everstep.open(tmp_path / "t.db") as opened:
        assert [each.name for each in opened.why("r").slow] == ["look"]


# The words.


def test_the_words_for_how_sure_it_is_are_those_of_the_page(tmp_path: Path) -> None:
    page = Path("docs/how-to/find-out-why-a-run-failed.md").read_text("utf-8")
    for word, told in (("high", "most likely"), ("likely", "likely"), ("weak", "perhaps")):
        assert f"| `{word}` | {told} because of" in page


def test_what_is_odd_in_a_run_that_went_well_is_not_called_a_likely_reason(tmp_path: Path) -> None:
    with everstep.open(tmp_path / "t.db") as opened, opened.record("r") as made:
        for number in range(40):
            output = {"size": 10 + number} if number != 4 else "Error: the service is unavailable, try again"
            made.step("look", inputs={"n": number}, output=output)
    shown = run("why", "r", "--trail", tmp_path / "t.db").stdout
    assert "what looks odd" in shown
    assert "     5  look                      it gave text" in shown
    assert not any(f"{word}: it" in shown for word in ("high", "likely", "weak"))
