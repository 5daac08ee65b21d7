"""Going over the items of a map: by waiting, or by awaiting. Never more at once than it may be."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

from everstep.run.batch import Batch
from everstep.run.beginning import begun
from everstep.run.lanes import outside
from everstep.run.mapped import MapResult
from everstep.run.through import cancel_all, go_through, go_through_awaited, terminable, terminable_task

# By waiting.


def map_waiting(batch: Batch, run_id: str | None, tags: Mapping[str, str] | None) -> MapResult:
    """Go over the items on this thread, or in several."""
    if batch.begin(run_id, tags) is not None:
        return batch.restored()
    try:
        batch.bar.show()
        _work(batch) if batch.workers < 2 else _work_in_threads(batch)
        for waiter in batch.end(None):
            if callable(waiter):
                waiter()
        return batch.result()
    finally:
        batch.bar.close()
        batch.life.close()


def _work(batch: Batch) -> None:
    """Take one item after the other, until there is none."""
    while (at := batch.take()) is not None:
        life = batch.item()
        try:
            batch.keep(at, batch.enter(at, life) or go_through(life, batch.error_handling))
        except Exception as error:  # noqa: BLE001 - whatever the code raises ends its item, and perhaps the map
            batch.failed(at, error)
        except BaseException as error:  # an interrupt too: the run is told of it, and it goes on its way
            batch.run.interrupt(error)
            raise


def _work_in_threads(batch: Batch) -> None:
    """`_work` several times at once. What is at work has ended when this returns."""
    nowhere = outside()  # the threads belong to no run: each item has its own
    with ThreadPoolExecutor(batch.workers, thread_name_prefix="everstep-map") as pool:
        try:
            with terminable(batch.run):  # before the first of them begins: what it does is to be kept
                jobs = [_submitted(pool, nowhere, batch) for _ in range(batch.workers)]
                wait(jobs)
        except BaseException as error:  # an interrupt too: the run is told of it, and it goes on its way
            batch.run.interrupt(error)
            batch.run.halt()
            raise
    for job in jobs:
        job.result()


def _submitted(pool: ThreadPoolExecutor, nowhere: contextvars.Context, batch: Batch) -> Future[None]:
    work = partial(contextvars.copy_context().run, _work, batch)
    return nowhere.run(partial(pool.submit, work))


# By awaiting.


async def map_awaited(batch: Batch, run_id: str | None, tags: Mapping[str, str] | None) -> MapResult:
    """Go over the items on this event loop; in threads, if the workflow is a plain one."""
    loop = asyncio.get_running_loop()
    if await begun(batch.life, partial(batch.begin, run_id, tags)) is not None:
        return await asyncio.to_thread(batch.restored)
    life = batch.life
    try:
        batch.bar.show()
        with terminable_task(batch.run, loop):
            await (_work_awaited(batch) if batch.workflow.is_async else _in_threads(batch))
        for waiter in batch.end(loop):
            if isinstance(waiter, asyncio.Future):
                await waiter
        result = batch.result()
        if batch.run.events:
            await batch.run.events.drained()
        return result
    finally:
        batch.bar.close()
        await asyncio.shield(asyncio.to_thread(life.close)) if life.left_open else life.close()


async def _in_threads(batch: Batch) -> None:
    work = asyncio.ensure_future(asyncio.to_thread(_work if batch.workers < 2 else _work_in_threads, batch))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError as error:
        batch.run.interrupt(error)
        batch.run.halt()
        await asyncio.wait([work])
        raise


async def _work_awaited(batch: Batch) -> None:
    """As many tasks as items may be at work, each taking one item after the other."""
    loop = asyncio.get_running_loop()
    workers = [loop.create_task(_one_after_the_other(batch)) for _ in range(batch.workers)]
    try:
        if workers:
            await asyncio.wait(workers)
    except asyncio.CancelledError as error:
        batch.run.interrupt(error)
        await cancel_all(*workers)
        raise
    for worker in workers:
        worker.result()


async def _one_after_the_other(batch: Batch) -> None:
    while (at := batch.take()) is not None:
        life = batch.item()
        try:
            done = await begun(life, partial(batch.enter, at, life), batch.draft(at, life))
            batch.keep(at, done or await go_through_awaited(life, batch.error_handling))
        except Exception as error:  # noqa: BLE001 - as for threads
            batch.failed(at, error)
        except BaseException as error:  # an interrupt too: the run is told of it, and it goes on its way
            batch.run.interrupt(error)
            raise
