"""Code that changes while a run waits, and code on the way out of one: no approval is lost, no step is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from everstep import Kind, Trail, pause, step, workflow
from everstep.errors import AnswerError, DivergenceError, RunStoppedError
from tests.integration.running import act, act_later, calls, rows, run


@workflow
def asking_child() -> str:
    return str(pause("go on?"))


@workflow
async def asking_child_later() -> str:
    return str(await pause("go on?"))


# The code changes while a run waits.


changed = {"prompt": "approve?", "name": "asking"}


@workflow(name="approval")
def approval() -> Any:
    act("before")

    @step(name=changed["name"])
    def asking() -> Any:
        return pause(changed["prompt"])

    return act(f"approved: {asking()}")


@workflow(name="approval")
def approval_is_gone() -> Any:
    act("before")
    return act("approved: nobody asked")


@workflow(name="approval")
def approval_is_swallowed() -> Any:
    act("before")
    try:
        act("something else")
    except Exception:  # noqa: BLE001 - the point of it
        return "fine"
    return "never"


@pytest.fixture
def unchanged() -> Iterator[None]:
    before = dict(changed)
    yield
    changed.update(before)


@pytest.mark.parametrize("change", [{"prompt": "approve all?"}, {"name": "asking_kindly"}])
@pytest.mark.parametrize("answered", ["", "answered"])
def test_a_renamed_question_diverges_and_drops_no_approval(
    trail: Trail, change: dict[str, str], answered: str, unchanged: None
) -> None:
    """What a peer gets wrong: the run ended as if approved by nobody."""
    run(trail, approval, id="r")
    if answered:
        trail.answer("r", "by ada")
    before = trail.run("r")
    was = dict(changed)
    changed.update(change)
    with pytest.raises(DivergenceError) as caught:
        run(trail, approval, id="r")
    assert caught.value.run_id == "r"
    assert (trail.run("r").head, trail.run("r").status) == (before.head, before.status)
    assert calls.taken() == ["before"]

    changed.update(was)
    result = run(trail, approval, id="r", **({} if answered else {"answer": "by ada"}))
    assert result.value == "approved: by ada"


@pytest.mark.filterwarnings("ignore::everstep.errors.CodeChangedWarning")
@pytest.mark.parametrize("now", [approval_is_gone, approval_is_swallowed], ids=lambda now: now.function.__name__)
@pytest.mark.parametrize("answered", ["", "answered"])
def test_a_removed_question_diverges_even_where_the_error_is_swallowed(trail: Trail, now: Any, answered: str) -> None:
    run(trail, approval, id="r")
    if answered:
        trail.answer("r", "by ada")
    before = trail.run("r")
    with pytest.raises(DivergenceError) as caught:
        run(trail, now, id="r")
    assert "asking" in str(caught.value)
    assert (trail.run("r").head, trail.run("r").status) == (before.head, before.status)
    assert calls.taken() == ["before"]
    assert run(trail, approval, id="r", **({} if answered else {"answer": "by ada"})).value == "approved: by ada"


@workflow
def asking_with_options(options: list[str]) -> Any:
    return pause("which?", options=changed.get("options", options))  # type: ignore[arg-type] # a list, in the test


def test_changed_options_diverge(trail: Trail, unchanged: None) -> None:
    run(trail, asking_with_options, ["a", "b"], id="r")
    changed["options"] = ["a", "b", "delete everything"]  # type: ignore[assignment] # as above
    with pytest.raises(DivergenceError, match="changed argument"):
        run(trail, asking_with_options, id="r")
    del changed["options"]
    with pytest.raises(AnswerError):
        trail.answer("r", "delete everything")


# On the way out.


@workflow
def tidying() -> Any:
    try:
        said = pause("go on?")
    except BaseException:
        act("in except")
        raise
    finally:
        act("in finally")
    return act(f"said {said}")


@workflow
async def tidying_later() -> Any:
    try:
        said = await pause("go on?")
    except BaseException:
        await act_later("in except")
        raise
    finally:
        await act_later("in finally")
    return await act_later(f"said {said}")


@workflow
def tidying_around_a_child() -> Any:
    try:
        said = asking_child()
    except BaseException:
        act("in except")
        raise
    finally:
        act("in finally")
    return act(f"said {said}")


@workflow
async def tidying_around_an_async_child() -> Any:
    try:
        said = await asking_child_later()
    finally:
        await act_later("in finally")
    return await act_later(f"said {said}")


@workflow
def keeping_everything() -> Any:
    try:
        said = pause("go on?")
    except:  # noqa: E722 - the worst that code can do
        try:
            act("in except")
        except RunStoppedError:
            return "kept it all"
    act("in finally")
    return act(f"said {said}")


TIDYING = [tidying, tidying_later, tidying_around_a_child, tidying_around_an_async_child, keeping_everything]


@pytest.mark.parametrize("asking", TIDYING, ids=lambda asking: asking.name)
def test_handlers_take_no_steps_on_the_way_out_of_a_pause(trail: Trail, asking: Any) -> None:
    assert run(trail, asking, id="r").paused
    assert calls == []
    assert rows(trail, "r", Kind.END) == []
    assert run(trail, asking, id="r", answer="yes").value == "said yes"
    assert calls == ["in finally", "said yes"]
