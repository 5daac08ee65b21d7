"""A workflow whose parameters have changed since a run began: what the run was given goes by its name, or nowhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Trail, workflow
from everstep.errors import InputsDifferError, ParametersDifferError
from tests.integration.running import act, calls, crashed, run

pytestmark = pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    """A trail with a run that crashed after its first step."""

    def flow(topic: str, count: int = 2) -> Any:
        act("first")
        return [topic, count, act("last")]

    with everstep.open(tmp_path / "trail.db") as opened:
        calls.crash = {"last"}
        crashed(opened, workflow(flow), "tea", count=7, id="r")
        calls.clear()
        yield opened


def renamed(subject: str, count: int = 2) -> Any:
    act("first")
    return [subject, count, act("last")]


def both_renamed(subject: str = "tea", number: int = 2) -> Any:
    act("first")
    return [subject, number, act("last")]


def longer(topic: str, count: int, model: str) -> Any:
    act("first")
    return [topic, count, model, act("last")]


@pytest.mark.parametrize("function", [renamed, both_renamed, longer])
def test_a_parameter_without_a_value_on_record_is_told_with_both_sides_and_the_way_out(
    trail: Trail, function: Callable[..., Any]
) -> None:
    changed: Any = workflow(name="flow")(function)
    names = ", ".join(map(repr, changed.parameters.signature.parameters))
    said = rf"run 'r' was started with 'topic', 'count', and workflow 'flow' takes {names} now.*old name again.*default"
    with pytest.raises(ParametersDifferError, match=said) as refused:
        run(trail, changed, id="r")
    assert isinstance(refused.value, InputsDifferError)
    with pytest.raises(ParametersDifferError):
        trail.replay("r", changed)
    assert calls == []


def shorter(count: int) -> Any:
    act("first")
    return [count, act("last")]


def with_a_default_first(model: str = "small", topic: str = "", count: int = 0) -> Any:
    act("first")
    return [model, topic, count, act("last")]


def with_all_by_name(*, count: int, topic: str, **more: Any) -> Any:
    act("first")
    return [topic, count, more, act("last")]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (shorter, [7, "last"]),
        (with_a_default_first, ["small", "tea", 7, "last"]),
        (with_all_by_name, ["tea", 7, {}, "last"]),
    ],
)
def test_what_was_given_goes_by_its_name_and_not_by_its_place(trail: Trail, function: Any, value: Any) -> None:
    assert run(trail, workflow(name="flow")(function), id="r").value == value


def test_a_run_without_inputs_is_not_gone_on_with_by_code_that_needs_one(trail: Trail) -> None:
    def bare() -> None:
        act("crash")

    calls.crash = {"crash"}
    crashed(trail, workflow(name="bare")(bare), id="none")
    with pytest.raises(
        ParametersDifferError, match="was started with no inputs, and workflow 'bare' takes 'count' now"
    ):
        run(trail, workflow(name="bare")(shorter), id="none")
