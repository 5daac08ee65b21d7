"""Runs worth replaying: tasks and threads, state, secrets."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

from everstep import Secret, Trail, current, step, submit, unordered, workflow
from tests.integration.replaying import Recorded, both, both_later, scenario
from tests.integration.running import act, act_later, calls, run

# At the same time.


@workflow
def pool_flow() -> list[Any]:
    act("before")
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(act, ["a", "b", "c"]))
        found.append(submit(pool, both, "d", "e").result())
    thread = threading.Thread(target=act, args=("f",))
    thread.start()
    thread.join()
    return [*found, act("after")]


@scenario
def threads_and_pools(trail: Trail) -> Recorded:
    run(trail, pool_flow, id="r")
    return pool_flow, "r"


@workflow
def unordered_flow() -> list[Any]:
    with ThreadPoolExecutor(3) as pool, unordered():
        jobs = [pool.submit(act, what) for what in "abc"]
        found = sorted(both(job.result(), "x") for job in as_completed(jobs))
    return [*found, act("after")]


@scenario
def unordered_lanes(trail: Trail) -> Recorded:
    run(trail, unordered_flow, id="r")
    return unordered_flow, "r"


@workflow
async def group_flow() -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(both_later(f"{name} one", f"{name} two")) for name in "abc"]
    order = [await each for each in asyncio.as_completed([act_later(what) for what in "xyz"])]
    return [*(task.result() for task in tasks), order, await asyncio.to_thread(act, "in a thread")]


@scenario
def task_groups(trail: Trail) -> Recorded:
    run(trail, group_flow, id="r")
    return group_flow, "r"


@step
async def slow() -> None:
    calls("slow")
    await asyncio.sleep(30)


@workflow
async def timeout_flow() -> Any:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.02):
            await slow()
    return await act_later("after")


@scenario
def a_step_that_was_cancelled(trail: Trail) -> Recorded:
    run(trail, timeout_flow, id="r")
    return timeout_flow, "r"


@workflow
async def left_behind_flow() -> Any:
    gone = asyncio.create_task(both_later("a", "b"))
    await act_later("first")
    await asyncio.sleep(0.02)
    return [gone.done(), await act_later("last")]


@scenario
def a_task_that_nobody_awaits(trail: Trail) -> Recorded:
    run(trail, left_behind_flow, id="r")
    return left_behind_flow, "r"


# State.


@step
def noting(what: str) -> int:
    current().state["note"] = what
    act(what)
    return len(current().state["note"])


@workflow
def state_flow() -> Any:
    state = current().state
    state["count"] = 1
    current().checkpoint("counted", metadata={"by": "hand"})
    found = [noting("tea"), noting("milk")]
    state["count"] = state["count"] + sum(found)
    return [dict(state), act("end")]


@scenario
def state_and_checkpoints(trail: Trail) -> Recorded:
    run(trail, state_flow, id="r")
    return state_flow, "r"


@step
def secret_of(name: str) -> Secret[str]:
    calls(name)
    return Secret(f"secret of {name}")


@workflow
def secret_flow(password: Any) -> Any:
    token = secret_of("ada")
    return {"token": token, "password": password, "used": both("open", "close")}


@scenario
def secrets(trail: Trail) -> Recorded:
    run(trail, secret_flow, Secret("sesame"), id="r")
    return secret_flow, "r"
