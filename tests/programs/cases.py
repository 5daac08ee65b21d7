"""Ways to run things side by side, all with one result. All steps ask the same, so only lanes tell them apart."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from random import Random
from typing import Any

import anyio
import anyio.to_thread

import everstep

BRANCHES = 4


class Place:
    """The outside of one run: answers by the true place, counts, and takes another time in every life."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.known: set[str] = set()  # answers on record
        self.chance = Random(0)
        self.pool: ThreadPoolExecutor  # made before the run

    def answer(self, place: str) -> str:
        self.executed.append(place)
        assert f"answer {place}" not in self.known, f"the step at {place} was executed again"
        return f"answer {place}"

    async def nap(self) -> None:
        for _ in range(self.chance.choice([0, 1, 3, 6])):
            await asyncio.sleep(0)

    def doze(self) -> None:
        time.sleep(self.chance.random() * 0.002)


HERE = Place()


@everstep.step(name="s", ignore=["place"])
async def ask(question: int, place: str) -> str:
    await HERE.nap()
    return HERE.answer(place)


@everstep.step(name="s", ignore=["place"])
def ask_plain(question: int, place: str) -> str:
    HERE.doze()
    return HERE.answer(place)


async def branch(number: int | str) -> list[str]:
    await HERE.nap()
    return [await ask(0, f"{number} first"), await ask(0, f"{number} second")]


def job(number: int | str) -> list[str]:
    HERE.doze()
    return [ask_plain(0, f"{number} first"), ask_plain(0, f"{number} second")]


def both(number: int | str) -> list[str]:
    """What a branch or job must give."""
    return [f"answer {number} first", f"answer {number} second"]


ALL = [both(number) for number in range(BRANCHES)]


# Tasks.


async def gather_of_coroutines() -> Any:
    return await asyncio.gather(*[branch(number) for number in range(BRANCHES)])


async def gather_of_tasks() -> Any:
    tasks = [asyncio.create_task(branch(number)) for number in range(BRANCHES)]
    await HERE.nap()
    return await asyncio.gather(*tasks)


async def task_group() -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(branch(number)) for number in range(BRANCHES)]
    return [task.result() for task in tasks]


async def anyio_group() -> Any:
    found: dict[int, list[str]] = {}

    async def work(number: int) -> None:
        found[number] = await branch(number)

    async with anyio.create_task_group() as group:
        for number in range(BRANCHES):
            group.start_soon(work, number)
    return [found[number] for number in range(BRANCHES)]


async def timeout() -> Any:
    async with asyncio.timeout(60):
        return [await branch(number) for number in range(BRANCHES)]


async def wait_for() -> Any:
    return [await asyncio.wait_for(branch(number), 60) for number in range(BRANCHES)]


async def as_completed_of_a_list() -> Any:
    found = [await done for done in asyncio.as_completed([branch(number) for number in range(BRANCHES)])]
    return [*sorted(found), *await branch("after")][:BRANCHES]


async def as_completed_twice() -> Any:
    found: list[list[str]] = []
    for start in (0, BRANCHES // 2):
        made = tuple(branch(number) for number in range(start, start + BRANCHES // 2))
        found += sorted([await done for done in asyncio.as_completed(made)])
    return found


async def what_comes_first_is_asked_about() -> Any:
    """The order of completion goes into the next argument: it must be the same after a crash."""
    found = []
    for done in asyncio.as_completed([branch(number) for number in range(BRANCHES)]):
        first = await done
        found.append(first)
        await ask(int(first[0].split()[1]), f"about {first[0]}")
    return sorted(found)


async def a_library_spawns_tasks() -> Any:
    async def internal() -> None:
        await asyncio.sleep(0)

    await ask(0, "before")
    spawned = [asyncio.create_task(internal()) for _ in range(HERE.chance.randint(0, 3))]
    found = await gather_of_coroutines()
    await asyncio.gather(*spawned)
    return found


async def tasks_inside_a_leaf() -> Any:
    @everstep.step(name="fetch")
    async def fetch() -> str:
        await asyncio.gather(*[HERE.nap() for _ in range(3)])
        return HERE.answer("fetch")

    await fetch()
    return await gather_of_coroutines()


async def a_step_spawns_and_then_its_caller() -> Any:
    @everstep.step(name="around")
    async def around() -> Any:
        return await asyncio.gather(branch(0), branch(1))

    return [*await around(), *await asyncio.gather(branch(2), branch(3))]


async def one_context_for_all() -> Any:
    context, loop = contextvars.copy_context(), asyncio.get_running_loop()
    tasks = [loop.create_task(branch(number), context=context) for number in range(BRANCHES)]
    return await asyncio.gather(*tasks)


async def one_context_for_all_with_steps_inside_steps() -> Any:
    @everstep.step(name="around")
    async def around(number: int) -> list[str]:
        return await branch(number)

    context, loop = contextvars.copy_context(), asyncio.get_running_loop()
    tasks = [loop.create_task(around(number), context=context) for number in range(BRANCHES)]
    return await asyncio.gather(*tasks)


async def a_task_outlives_its_step() -> Any:
    held: list[asyncio.Task[list[str]]] = []
    go_on = asyncio.Event()

    async def background() -> list[str]:
        await go_on.wait()
        return await branch(1)

    @everstep.step(name="begins")
    async def begins() -> list[str]:
        held.append(asyncio.create_task(background()))
        return await branch(0)

    first = await begins()
    go_on.set()
    rest = [await branch(2), await branch(3)]
    return [first, await held[0], *rest]


# Threads of async code.


async def to_thread() -> Any:
    return await asyncio.gather(*[asyncio.to_thread(job, number) for number in range(BRANCHES)])


async def anyio_to_thread() -> Any:
    found: dict[int, list[str]] = {}

    async def work(number: int) -> None:
        found[number] = await anyio.to_thread.run_sync(job, number)

    async with anyio.create_task_group() as group:
        for number in range(BRANCHES):
            group.start_soon(work, number)
    return [found[number] for number in range(BRANCHES)]


async def run_in_executor() -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.gather(*[loop.run_in_executor(None, job, number) for number in range(BRANCHES)])


async def a_loop_in_a_thread() -> Any:
    async def inner(numbers: tuple[int, int]) -> Any:
        everstep.adopt_loop()
        return await asyncio.gather(*[branch(number) for number in numbers])

    def work(numbers: tuple[int, int]) -> Any:
        return asyncio.run(inner(numbers))

    found = await asyncio.gather(asyncio.to_thread(work, (0, 1)), asyncio.to_thread(work, (2, 3)))
    return [*found[0], *found[1]]


# Threads of plain code.


def submit() -> Any:
    with ThreadPoolExecutor(BRANCHES) as pool:
        return _results([pool.submit(job, number) for number in range(BRANCHES)])


def mapped() -> Any:
    with ThreadPoolExecutor(BRANCHES) as pool:
        return list(pool.map(job, range(BRANCHES)))


def a_pool_made_before() -> Any:
    return _results([HERE.pool.submit(job, number) for number in range(BRANCHES)])


def a_copied_context() -> Any:
    with ThreadPoolExecutor(BRANCHES) as pool:
        return _results([pool.submit(contextvars.copy_context().run, job, number) for number in range(BRANCHES)])


def explicit_submit() -> Any:
    with ThreadPoolExecutor(BRANCHES) as pool:
        return _results([everstep.submit(pool, job, number) for number in range(BRANCHES)])


class OwnPool(Executor):
    """A pool that nobody has heard of, whose threads are started under everybody's nose."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - who asks for the result gets it
                future.set_exception(error)

        work.__module__ = "concurrent.futures.thread"  # so that the thread itself has no lane
        threading.Thread(target=work).start()
        return future


def another_pool() -> Any:
    pool = OwnPool()
    return _results([everstep.submit(pool, job, number) for number in range(BRANCHES)])


def threads() -> Any:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        _keep(found, number)

    return _joined([threading.Thread(target=work, args=(number,)) for number in range(BRANCHES)], found)


def threads_of_a_class() -> Any:
    found: dict[int, Any] = {}

    class Worker(threading.Thread):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def run(self) -> None:
            _keep(found, self.number)

    return _joined([Worker(number) for number in range(BRANCHES)], found)


def _keep(found: dict[int, Any], number: int) -> None:
    try:
        found[number] = job(number)
    except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
        found[number] = error


def _joined(workers: list[threading.Thread], found: dict[int, Any]) -> list[Any]:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for value in found.values():
        if isinstance(value, BaseException):
            raise value
    return [found[number] for number in range(BRANCHES)]


def _results(futures: list[Future[Any]]) -> list[Any]:
    return [future.result() for future in futures]


AWAITED: list[Callable[[], Coroutine[Any, Any, Any]]] = [
    gather_of_coroutines, gather_of_tasks, task_group, anyio_group, timeout, wait_for, as_completed_of_a_list,
    as_completed_twice, what_comes_first_is_asked_about, a_library_spawns_tasks, tasks_inside_a_leaf,
    a_step_spawns_and_then_its_caller, one_context_for_all,
    one_context_for_all_with_steps_inside_steps, a_task_outlives_its_step, to_thread, anyio_to_thread,
    run_in_executor, a_loop_in_a_thread,
]  # fmt: skip
PLAIN: list[Callable[[], Any]] = [
    submit, mapped, a_pool_made_before, a_copied_context, explicit_submit, another_pool, threads, threads_of_a_class,
]  # fmt: skip
