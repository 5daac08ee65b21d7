"""`sys.exit()` in a step, as what it calls may do: the code can catch it, live, resumed and replayed alike."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import everstep
from everstep import Status, Trail, step, workflow
from everstep.testing import always_replay
from tests.integration.running import act, act_later, calls, crashed, run


@step
def leave(code: Any) -> None:
    calls("leave")
    sys.exit(code)


@step
async def leave_later(code: Any) -> None:
    await asyncio.sleep(0)
    calls("leave")
    sys.exit(code)


@step
def around(code: Any) -> None:
    act("before")
    leave(code)


@step
def chunks(code: Any) -> Iterator[str]:
    calls("leave")
    yield "one"
    sys.exit(code)


@workflow
def child(code: Any) -> None:
    leave(code)


@workflow
async def child_later(code: Any) -> None:
    await leave_later(code)


def reading(code: Any) -> None:
    list(chunks(code))


def in_a_pool(code: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        everstep.submit(pool, leave, code).result()


@workflow
def main(call: str, code: Any) -> Any:
    try:
        PLAIN[call](code)
    except SystemExit as left:
        act("caught")
        return [left.code, act("last")]


@workflow
async def main_later(call: str, code: Any) -> Any:
    try:
        await LATER[call](code)
    except SystemExit as left:
        await act_later("caught")
        return [left.code, await act_later("last")]


PLAIN: dict[str, Any] = {
    "leaf": leave, "with a step inside": around, "stream": reading, "child": child, "pool": in_a_pool
}  # fmt: skip
LATER: dict[str, Any] = {"awaited": leave_later, "awaited child": child_later}
EACH = [*((main, name) for name in PLAIN), *((main_later, name) for name in LATER)]
each = pytest.mark.parametrize(("flow", "call"), EACH, ids=[name for _, name in EACH])


@each
@pytest.mark.parametrize("code", [3, None, "no such option"])
def test_an_exit_that_the_code_catches_is_the_outcome_of_its_step(
    trail: Trail, flow: Any, call: str, code: Any
) -> None:
    """Promise 2."""
    calls.crash = {"last"}
    crashed(trail, flow, call, code, id="r")
    assert calls.taken()[-3:] == ["leave", "caught", "last"]
    assert run(trail, flow, id="r").value == [code, "last"]
    assert calls.taken() == ["last"]
    assert trail.replay("r", flow).identical
    assert calls.taken() == []


@each
def test_an_exit_is_caught_again_however_often_the_code_is_gone_through(tmp_path: Path, flow: Any, call: str) -> None:
    with everstep.open(tmp_path / "again.db") as trail, always_replay():
        assert run(trail, flow, call, 3, id="r").value == [3, "last"]
    assert calls.count("leave") == 1


@workflow
def uncaught(code: Any) -> None:
    try:
        leave(code)
    finally:
        act("put away")


@workflow
async def uncaught_later(code: Any) -> None:
    try:
        await leave_later(code)
    finally:
        await act_later("put away")


@pytest.mark.parametrize("flow", [uncaught, uncaught_later])
def test_a_run_fails_by_an_exit_that_nobody_catches_and_asks_for_the_step_anew(trail: Trail, flow: Any) -> None:
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            run(trail, flow, 3, id="r")
        assert (left.value.code, trail.run("r").status) == (3, Status.FAILED)
        assert calls.taken() == ["leave", "put away"]
        assert trail.replay("r", flow).identical


def test_a_run_without_a_trail_goes_on_past_an_exit() -> None:
    assert run(None, main, "leaf", 3).value == [3, "last"]


def leave_by_signal(status: int, *_: Any) -> None:
    sys.exit(status)


class Leaving:
    """A handler with a state."""

    def __call__(self, *_: Any) -> None:
        sys.exit(9)

    def leave(self, *_: Any) -> None:
        sys.exit(9)


@step
def told_to_leave() -> None:
    signal.raise_signal(signal.SIGUSR1)


@workflow
def terminated() -> None:
    try:
        told_to_leave()
    except SystemExit:
        act("caught")


@pytest.mark.parametrize(
    "handler",
    [lambda *_: sys.exit(9), partial(leave_by_signal, 9), Leaving(), Leaving().leave],
    ids=["function", "partial", "object", "method"],
)
def test_an_exit_by_a_signal_is_no_outcome_of_the_step_that_it_met(trail: Trail, handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(SystemExit):
            run(trail, terminated, id="r")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (trail.run("r").status, calls) == (Status.ACTIVE, [])
