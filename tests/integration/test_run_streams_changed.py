"""A step whose code became a generator since it was recorded, or ceased to be one: a divergence, and no chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from everstep import Trail, step, workflow
from everstep.errors import DivergenceError
from tests.integration.running import act, act_later, calls, crashed, run

PLAIN, STREAM = (
    "was recorded as a plain step, and is a stream",
    "was recorded as a stream (a generator), and is a plain",
)


def plain() -> Any:
    """A program whose step returns its answer."""

    @step
    def answer(question: str) -> str:
        return f"{calls(question)}!"

    return _flow(answer)


def nested() -> Any:
    """The same, with a step inside."""

    @step
    def answer(question: str) -> str:
        return f"{act(question)}!"

    return _flow(answer)


def streamed() -> Any:
    """The same, where the step gives it in chunks."""

    @step
    def answer(question: str) -> Iterator[str]:
        yield calls(question)
        yield "!"

    return _flow(answer)


def failing_stream() -> Any:
    """The same, where the stream fails."""

    @step
    def answer(question: str) -> Iterator[str]:
        yield calls(question)
        raise ValueError(question)

    return _flow(answer)


def _flow(answer: Callable[[str], Any]) -> Any:
    @workflow
    def talk(question: str) -> str:
        try:
            said = "".join(answer(question))
        except ValueError:
            said = "?"
        act("afterwards")
        return said

    return talk


def plain_later() -> Any:
    """A program whose step is awaited."""

    @step
    async def answer(question: str) -> str:
        return f"{calls(question)}!"

    @workflow
    async def talk(question: str) -> str:
        said = await answer(question)
        await act_later("afterwards")
        return said

    return talk


def streamed_later() -> Any:
    """The same, where it is a stream."""

    @step
    async def answer(question: str) -> AsyncIterator[str]:
        yield calls(question)
        yield "!"

    @workflow
    async def talk(question: str) -> str:
        said = "".join([chunk async for chunk in answer(question)])
        await act_later("afterwards")
        return said

    return talk


CHANGES = [
    (plain, streamed, PLAIN), (nested, streamed, PLAIN), (streamed, plain, STREAM), (streamed, nested, STREAM),
    (failing_stream, plain, STREAM), (plain_later, streamed_later, PLAIN), (streamed_later, plain_later, STREAM),
]  # fmt: skip
changed = pytest.mark.parametrize(
    ("before", "after", "said"), CHANGES, ids=[f"{was.__name__} to {now.__name__}" for was, now, _ in CHANGES]
)


@changed
@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
def test_a_resumed_run_diverges_where_a_step_has_changed_its_form(
    trail: Trail, before: Any, after: Any, said: str
) -> None:
    calls.crash = {"afterwards"}
    crashed(trail, before(), "tea", id="r")
    calls.clear()
    head = len(list(trail.steps("r")))
    with pytest.raises(DivergenceError, match="'answer'") as caught:
        run(trail, after(), id="r")
    assert said in str(caught.value)
    assert "Either put the code back, or fork the run before this step" in str(caught.value)
    assert "If the code is what it was" not in str(caught.value)
    assert (calls, len(list(trail.steps("r")))) == ([], head)
    assert run(trail, before(), id="r").value in {"tea!", "?"}  # with the code put back it goes on


@changed
def test_a_replay_tells_of_a_step_that_has_changed_its_form(trail: Trail, before: Any, after: Any, said: str) -> None:
    run(trail, before(), "tea", id="r")
    report = trail.replay("r", after())
    assert report.first is not None
    assert (report.first.step, report.first.seq) == ("answer", 1)
    assert report.first.cause == ("became a stream" if said is PLAIN else "no longer a stream")
    assert said in report.first.message


@pytest.mark.parametrize("program", [plain, nested, streamed, failing_stream, plain_later, streamed_later])
def test_code_that_is_what_it_was_replays_as_ever(trail: Trail, program: Any) -> None:
    run(trail, program(), "tea", id="r")
    assert trail.replay("r", program()).identical
