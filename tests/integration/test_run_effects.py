"""Effects on the outside world: announced before they happen, and never repeated without being told to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Kind, Retry, Status, Trail, current, step, workflow
from everstep.errors import DivergenceError, NotWaitingError, UnknownOutcomeError
from tests.integration.failing import WORLD, act, act_later, go
from tests.integration.running import crashed, rows
from tests.integration.support import python

POLICIES: list[Any] = ["ask", "retry", "fail"]

DIES_IN_THE_EFFECT = """
import os, sys, everstep
from everstep import Runner, step, workflow

@step
def before(): return 1

@step(external=True)
def pay(amount): os._exit(9)

@workflow
def buys():
    before()
    pay(3)

Runner(everstep.open(sys.argv[1]), durability=sys.argv[2]).run(buys, id="r")
"""


@pytest.fixture
def trail() -> Iterator[Trail]:
    KEYS.clear()
    with everstep.open(":memory:") as opened:
        yield opened


KEYS: list[str] = []


def bought(amount: int) -> str:
    KEYS.append(current().idempotency_key)
    WORLD("pay")
    return f"paid {amount}"


def buying(unknown: Any = "ask", *, awaited: bool = False, **options: Any) -> Any:
    """A workflow that pays, with this policy for what a crash cuts off."""

    @step(external=True, unknown=unknown, **options)
    def pay(amount: int) -> str:
        return bought(amount)

    @step(name="pay", external=True, unknown=unknown, **options)
    async def pay_later(amount: int) -> str:
        await asyncio.sleep(0)
        return bought(amount)

    @workflow
    def buys() -> list[str]:
        return [act("order"), pay(3), act("ship")]

    @workflow(name="buys")
    async def buys_later() -> list[str]:
        return [await act_later("order"), await pay_later(3), await act_later("ship")]

    return buys_later if awaited else buys


def cut_off(trail: Trail, workflow: Any) -> None:
    """Run a workflow that dies in its effect."""
    WORLD.crash = {"pay"}
    crashed(trail, workflow, id="r")
    WORLD.taken()


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_effect_is_announced_durably_before_it_happens(tmp_path: Path, durability: str) -> None:
    """Promise 3: a process that dies in the effect leaves its intent on disk, and all that came before it."""
    assert python(DIES_IN_THE_EFFECT, tmp_path / "trail.db", durability).returncode == 9
    with everstep.open(tmp_path / "trail.db") as trail:
        assert [(row.kind, row.name) for row in trail.steps("r")] == [
            (Kind.START, "buys"), (Kind.STEP, "before"), (Kind.INTENT, "pay"),
        ]  # fmt: skip
        intent = trail.step("r", 2)
        assert (intent.inputs, intent.external, intent.id) == ({"amount": 3}, True, 2)


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("unknown", POLICIES)
def test_an_unknown_outcome_is_never_repeated_in_silence(trail: Trail, unknown: str, awaited: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Promise 3: only the policy that says so repeats it, with the key it had."""
    buys = buying(unknown, awaited=awaited)
    cut_off(trail, buys)
    if unknown == "retry":
        assert go(trail, buys).value == ["order", "paid 3", "ship"]
        assert WORLD.taken() == ["pay", "ship"]
        assert len(KEYS) == 2
        assert len(set(KEYS)) == 1
        return
    for _ in range(3):  # however often it is tried
        if unknown == "ask":
            result = go(trail, buys)
            assert result.status is Status.PAUSED
            assert result.pause is not None
            assert (result.pause.name, result.pause.seq) == ("pay", 2)
            assert "'pay', given amount=3, and nobody knows" in result.pause.prompt
        else:
            with pytest.raises(UnknownOutcomeError, match="not repeated"):
                go(trail, buys)
        assert WORLD.taken() == []


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("unknown", ["ask", "fail"])
@pytest.mark.parametrize("seen", [False, True])
def test_a_person_can_say_what_it_gave(trail: Trail, seen: bool, unknown: str, awaited: bool) -> None:  # noqa: FBT001 - as above
    """Promise 3, the way out: whether the run was tried again in between or not."""
    buys = buying(unknown, awaited=awaited)
    cut_off(trail, buys)
    if seen:
        go(trail, buys, error_handling="continue")
    trail.answer("r", "paid by hand")
    with pytest.raises(NotWaitingError):
        trail.answer("r", "paid twice")
    result = go(trail, buys)
    assert (result.value, WORLD.taken()) == (["order", "paid by hand", "ship"], ["ship"])
    assert trail.state("r")["pay"] == "paid by hand"


@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("unknown", ["ask", "fail"])
def test_a_person_can_have_it_tried_again(trail: Trail, unknown: str, awaited: bool) -> None:  # noqa: FBT001 - as above
    """Promise 3, the other way out. It is announced anew, so a second crash is asked about again."""
    buys = buying(unknown, awaited=awaited)
    cut_off(trail, buys)
    for _ in range(3):
        go(trail, buys, error_handling="continue")
        assert WORLD.taken() == []
        trail.answer("r", retry=True)
        cut_off(trail, buys)
    trail.answer("r", retry=True)
    assert go(trail, buys).value == ["order", "paid 3", "ship"]
    assert WORLD.taken() == ["pay", "ship"]
    assert len(set(KEYS)) == 1


def test_siblings_finish_before_an_unknown_outcome_stops_the_run(trail: Trail) -> None:
    @step(external=True)
    async def pay(amount: int) -> str:
        return bought(amount)

    async def sibling(name: str) -> str:
        await act_later(name)
        return await act_later(f"{name}'")

    @workflow
    async def buys() -> list[str]:
        return list(await asyncio.gather(sibling("a"), pay(1), sibling("b")))

    WORLD.slow = {"a": 0.05, "b": 0.05}
    cut_off(trail, buys)
    WORLD.heal()
    assert go(trail, buys).status is Status.PAUSED
    assert sorted(WORLD.taken()) == ["a", "a'", "b", "b'"]
    trail.answer("r", "paid")
    assert go(trail, buys).value == ["a'", "paid", "b'"]
    assert WORLD.taken() == []


def test_a_crash_in_a_later_attempt_is_unknown_and_the_count_goes_on(trail: Trail) -> None:
    @step(external=True, retry=Retry(attempts=3, backoff=0))
    def pay() -> int:
        attempt = current().attempt
        WORLD(attempt)
        if attempt == 1:
            raise OSError("no network")
        return attempt

    @workflow
    def pays() -> int:
        return pay()

    WORLD.crash = {2}
    crashed(trail, pays, id="r")
    assert go(trail, pays).status is Status.PAUSED
    trail.answer("r", retry=True)
    assert go(trail, pays).value == 2
    assert WORLD.taken() == [1, 2, 2]


def test_an_effect_that_failed_is_no_unknown_one(trail: Trail) -> None:
    """Its failure is its outcome; a run that failed with it does it anew, announced again."""
    buys = buying()
    WORLD.fail.add("pay")
    with pytest.raises(ValueError, match="pay"):
        go(trail, buys)
    WORLD.heal()
    cut_off(trail, buys)
    assert len(rows(trail, "r", Kind.INTENT)) == 2
    assert go(trail, buys).status is Status.PAUSED
    trail.answer("r", retry=True)
    assert go(trail, buys).value == ["order", "paid 3", "ship"]
    assert WORLD.taken() == ["pay", "ship"]


def test_an_effect_that_was_cancelled_on_its_way_is_unknown(trail: Trail) -> None:
    """Promise 3: a sibling failed, the effect was cancelled with it; who runs the failed run again is asked."""

    @step(external=True)
    async def pay(amount: int) -> str:
        WORLD("pay")
        await asyncio.sleep(5)
        return f"paid {amount}"

    @workflow
    async def buys() -> list[str]:
        async with asyncio.TaskGroup() as group:
            paying, other = group.create_task(pay(1)), group.create_task(act_later("b"))
        return [paying.result(), other.result()]

    WORLD.fail.add("b")
    WORLD.slow["b"] = 0.02
    with pytest.raises(ExceptionGroup):
        go(trail, buys)
    WORLD.heal()
    WORLD.taken()
    assert go(trail, buys).status is Status.PAUSED
    assert WORLD.taken() == ["b"]
    trail.answer("r", "paid")
    assert go(trail, buys).value == ["paid", "b"]
    assert WORLD.taken() == []


def test_an_effect_with_steps_inside_keeps_them(trail: Trail) -> None:
    """Promises 2 and 3: it failed after its first step; that one is not repeated, and the effect is announced again."""

    @step(external=True)
    def pay() -> str:
        act("reserve")
        return act("charge")

    @workflow
    def buys() -> str:
        return pay()

    WORLD.fail.add("charge")
    with pytest.raises(ValueError, match="charge"):
        go(trail, buys)
    WORLD.heal()
    WORLD.taken()
    WORLD.crash = {"charge"}
    crashed(trail, buys, id="r")
    assert WORLD.taken() == ["charge"]
    assert go(trail, buys).status is Status.PAUSED
    trail.answer("r", retry=True)
    assert go(trail, buys).value == "charge"
    assert "charge" in WORLD.taken()


def test_an_effect_in_a_child_run_is_asked_about_through_its_parent(trail: Trail) -> None:
    child = buying()

    @workflow
    def parent() -> list[str]:
        return [*child(), act("done")]

    cut_off(trail, parent)
    result = go(trail, parent)
    assert result.status is Status.PAUSED
    assert result.pause is not None
    assert result.pause.run_id == trail.runs(parent="r")[0].id
    trail.answer("r", "paid by hand")
    assert go(trail, parent).value == ["order", "paid by hand", "ship", "done"]
    assert WORLD.taken() == ["ship", "done"]


def test_several_unknown_effects_are_told_apart(trail: Trail) -> None:
    @step(external=True)
    async def pay(amount: int) -> int:
        await asyncio.sleep(0.02 if amount == 1 else 60)  # both are at work when the first one crashes
        WORLD(amount)
        return amount

    @workflow
    async def buys() -> list[int]:
        return list(await asyncio.gather(pay(1), pay(2)))

    WORLD.crash = {1}
    crashed(trail, buys, id="r")
    WORLD.taken()
    first = go(trail, buys)
    assert [pause.name for pause in first.pauses] == ["pay", "pay"]
    with pytest.raises(NotWaitingError, match="2 open questions"):
        trail.answer("r", 0)
    by_amount = {trail.step("r", pause.seq).inputs["amount"]: pause.seq for pause in first.pauses}
    trail.answer("r", 200, pause=by_amount[2])
    assert go(trail, buys).status is Status.PAUSED
    trail.answer("r", 100, pause=by_amount[1])
    assert go(trail, buys).value == [100, 200]
    assert WORLD.taken() == []


def test_an_effect_asked_for_with_other_arguments_is_a_divergence(trail: Trail) -> None:
    amount = [3]

    @step(external=True, unknown="retry")
    def pay(amount: int) -> str:
        return bought(amount)

    @workflow
    def buys() -> str:
        return pay(amount[0])

    cut_off(trail, buys)
    amount[0] = 4
    with pytest.raises(DivergenceError, match="changed argument"):
        go(trail, buys)
    assert WORLD.taken() == []


def test_only_what_waits_can_be_answered(trail: Trail) -> None:
    buys = buying()
    with pytest.raises(everstep.EverstepError):
        trail.answer("r", 1)
    cut_off(trail, buys)
    with pytest.raises(NotWaitingError, match="step 1"):
        trail.answer("r", 1, pause=1)
    trail.answer("r", "paid", pause=2)
    go(trail, buys)
    with pytest.raises(NotWaitingError, match="completed"):
        trail.answer("r", "paid")


def test_without_a_trail_an_effect_just_happens() -> None:
    WORLD.clear()
    assert go(None, buying()).value == ["order", "paid 3", "ship"]
    assert WORLD.taken() == ["order", "pay", "ship"]
