"""An external node of a graph that was cut off: somebody says what it gave, and the graph goes on with it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Graph, Runner, Trail, node
from everstep.errors import AnswerError
from tests.integration.support import python

CUT_OFF = """
import os, sys
import everstep
from everstep import Runner
from tests.integration import test_graph_unknown as here
os.environ["CUT_OFF"] = "1"
Runner(everstep.open(sys.argv[1])).run(getattr(here, sys.argv[2]), {"amount": 3}, id="p")
"""


def charged() -> str:
    if "CUT_OFF" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it was charged again")


@everstep.step(external=True)
def bank(amount: int) -> str:
    return charged()


@node(output="receipt", external=True)
def pay(amount: int) -> str:
    return charged()


@node(output=("receipt", "fee"), external=True)
def pay_with_fee(amount: int) -> Any:
    return charged()


@node(output="receipt")
def pay_at_the_bank(amount: int) -> str:
    return bank(amount).lower()


@node(output="letter")
def write(receipt: str) -> str:
    return f"paid, {receipt}"


ONE = Graph([pay, write], name="one")
TWO = Graph([pay_with_fee, write], name="two")
INSIDE = Graph([pay_at_the_bank, write], name="inside")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trail.db"


def cut_off(path: Path, name: str) -> Trail:
    assert python(CUT_OFF, path, name).returncode == -9
    trail = everstep.open(path)
    assert Runner(trail).run(getattr(sys.modules[__name__], name), id="p").paused
    return trail


def test_what_an_external_node_gave_is_said_and_the_graph_goes_on(path: Path) -> None:
    """Promise 3: it is asked for, and not repeated."""
    with cut_off(path, "ONE") as trail:
        result = Runner(trail).run(ONE, id="p", answer="number 7")
        assert result.values == {"receipt": "number 7", "letter": "paid, number 7"} == trail.get_state("p")
        assert trail.get_state("p", superstep=0) == {"receipt": "number 7"}
        assert [(step.superstep, step.kind) for step in trail.get_steps("p")] == [(0, "answer"), (1, "step")]
        assert [point.name for point in trail.checkpoints("p")][:1] == ["superstep 1"]


@pytest.mark.parametrize("answer", [["number 7", 2], {"fee": 2, "receipt": "number 7"}])
def test_a_node_with_several_outputs_is_answered_with_all_of_them(path: Path, answer: Any) -> None:
    with cut_off(path, "TWO") as trail:
        for wrong in ("number 7", ["number 7"], {"receipt": "number 7"}):
            with pytest.raises(AnswerError, match="one value for each output"):
                trail.answer("p", wrong)
        result = Runner(trail).run(TWO, id="p", answer=answer)
        assert result.values == {"receipt": "number 7", "fee": 2, "letter": "paid, number 7"} == trail.get_state("p")


def test_an_external_step_inside_a_node_is_no_value_of_the_graph(path: Path) -> None:
    with cut_off(path, "INSIDE") as trail:
        result = Runner(trail).run(INSIDE, id="p", answer="NUMBER 7")
        assert result.values == {"receipt": "number 7", "letter": "paid, number 7"} == trail.get_state("p")
