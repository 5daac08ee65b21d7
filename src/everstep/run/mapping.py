"""One workflow over many items: a run for the whole of it, and a child run for each item.

The id of a child follows from what the item is, not from where it stands. So a map that is taken up again finds the
runs of the items it had, in whatever order they come, and each of them serves one item at most.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from hashlib import blake2b
from typing import Any

from everstep.codec.values import view
from everstep.errors import ItemsDifferError, RunNotFoundError, StoreError
from everstep.model import STATUSES, CheckpointKind, Kind, Status
from everstep.policy.redaction import Gate
from everstep.run.arguments import Inputs
from everstep.run.bar import Bar
from everstep.run.execution import Execution
from everstep.run.items import Items, Mode
from everstep.run.lanes import CURRENT, OUTSIDE
from everstep.run.life import Life, begun
from everstep.run.log import RunLog
from everstep.run.mapped import MapResult
from everstep.run.pen import Waiter
from everstep.run.result import RunResult
from everstep.run.through import (
    AS_CHILD,
    ErrorHandling,
    go_through,
    go_through_awaited,
    terminable,
    terminable_task,
)
from everstep.run.workflows import MAP, Workflow
from everstep.trail.beginning import in_order
from everstep.trail.trail import Trail


class MapOf(Workflow[..., Any]):
    """What the run of a map is a run of. It stores what was mapped over and how, and none of the items."""

    is_map = True

    def __init__(self, mapped: Workflow[..., Any], map_over: tuple[str, ...], mode: Mode) -> None:
        self.name = mapped.name
        self.is_async = mapped.is_async
        self.mapped = mapped
        self.parameters: Any = self  # it binds what it knows already
        self._stored = {"map_over": list(map_over), "mode": mode}
        self._init_workflow(mapped.function)

    def bind(self, _: tuple[Any, ...], __: Mapping[str, Any]) -> dict[str, Any]:
        """What is stored as the inputs."""
        return self._stored

    @staticmethod
    def spread(_: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Nothing: no function is called with what was stored."""
        return (), {}

    def functions(self) -> list[Any]:
        """The functions whose classes can be found when values are read."""
        return self.mapped.functions()

    def fingerprint(self) -> dict[str, Any]:
        """That of what is mapped."""
        return {**self.mapped.fingerprint(), MAP: True}

    def check_structure(self, run_id: str, about: Mapping[str, Any]) -> None:
        """Raise if what is mapped cannot go on with what was begun: once, and not for every item."""
        self.mapped.check_structure(run_id, about)


class Batch:
    """One map at work: which item is next, what came of each, and how the whole stands. It waits for nothing."""

    def __init__(
        self,
        runs: tuple[Trail | None, str, float],  # where runs are kept, how durably, and for how long one is owned
        workflow: Workflow[..., Any],
        values: Mapping[str, Any],
        map_over: str | Sequence[str],
        *,
        mode: Mode,
        max_concurrency: int,
        error_handling: ErrorHandling,
        progress: bool,
    ) -> None:
        if type(max_concurrency) is not int or max_concurrency < 1:
            raise ValueError(f"max_concurrency={max_concurrency!r:.40}: give a whole number from 1 up")
        self.workflow, self.map_over, self.mode = workflow, _names(map_over), mode
        self.items = Items(f"{workflow!r}", values, self.map_over, mode)
        self.workers = min(max_concurrency, len(self.items))
        self.error_handling = error_handling
        self.life = Life(*runs, MapOf(workflow, self.map_over, mode), AS_CHILD)
        self.run: Execution
        self._runs = runs
        self._progress = progress
        self._results: list[RunResult[Any] | None] = [None] * len(self.items)
        self._errors: dict[int, BaseException] = {}  # that end the map
        self._keys: list[str] = []
        self._next = 0
        self._lock = threading.Lock()

    def begin(self, run_id: str | None, tags: Mapping[str, str] | None) -> RunResult[Any] | None:
        """Take the run of the map. Something, if it has completed already. Items that do not fit are refused first."""
        trail = self._runs[0]
        self._keys = self._signatures(None if trail is None else trail.gate)
        done = self.life.begin(run_id, (), {}, tags=tags)
        if done is not None:
            self.life.run = Execution(self.workflow.name, done.run_id)  # nothing is taken, and nothing is at work
        self.run = self.life.run
        self.run.is_graph = True  # a request to stop lets the items at work end, as it does the nodes of a superstep
        self._runs = (self.life.trail, *self._runs[1:])
        self.bar = Bar(self.workflow.name, len(self.items), shown=self._progress)
        return done

    def _signatures(self, gate: Gate | None) -> list[str]:
        """What each item is known by. The second of the same has a number behind it."""
        found, seen = list[str](), Counter[str]()
        for at, item in enumerate(self.items):
            bound = self.workflow.parameters.bind((), item)
            if gate is None:
                found.append(str(at))
                continue
            gated = Inputs(gate, self.workflow.name, bound).data
            key = blake2b(in_order(view(gated)), digest_size=16).hexdigest()
            seen[key] += 1
            found.append(key if seen[key] == 1 else f"{key}-{seen[key]}")
        return found

    def id_of(self, at: int) -> str:
        """The id of an item's run."""
        return f"{self.run.run_id}/{self._keys[at]}"

    # Items.

    def take(self) -> int | None:
        """The next item; None when all are begun, or no further one is to be."""
        with self._lock:
            if self._next == len(self.items) or self._errors or self.run.asked_to_stop or self.run.stopping:
                return None
            self._next += 1
            return self._next - 1

    def item(self) -> Life:
        """The run of an item, to be begun."""
        life = Life(*self._runs, self.workflow, AS_CHILD)
        life.warns = False  # the map has
        return life

    def enter(self, at: int, life: Life) -> RunResult[Any] | None:
        """Begin the run of an item, or take it up. Its result, if it has completed before."""
        done = life.begin(
            self.id_of(at), (), self.items[at], parent=None if self.life.trail is None else self.run.run_id
        )
        if done is None:
            self.run.children.append(life.run)
            if self.run.interrupted is not None:  # between the two lines before: it would not have heard
                life.run.interrupt(self.run.interrupted)
            elif self.run.cancelling:
                life.run.cancel()
            if life.paused_at is None:  # one that only waits still is no reason to write
                self._note_work()
        return done

    def _note_work(self) -> None:
        """Have the run of a map that had ended say that it is active again."""
        pen = self.run.pen
        with self._lock:
            if pen is None or not pen.scribe.reopens:
                return
            with pen.lock:
                pen.draft("taken up", kind=Kind.CHECKPOINT, node_type=CheckpointKind.BOUNDARY.value)
                waiter = pen.send(None, now=True)
            if callable(waiter):
                waiter()

    def leave(self, life: Life) -> None:
        """The run of an item has ended, or was given up."""
        if life.begun:
            life.close()
            if life.run in self.run.children:
                self.run.children.remove(life.run)

    def keep(self, at: int, result: RunResult[Any]) -> None:
        """Take what came of an item."""
        self._results[at] = result
        self.bar.advance(failed=result.failed)

    def failed(self, at: int, error: Exception) -> None:
        """Take what an item failed with, outside of its run. A store that fails would fail for the others too."""
        if self.error_handling == "raise" or isinstance(error, StoreError):
            self._errors[at] = error
        self.keep(at, RunResult(self.id_of(at), Status.FAILED, self._no_log(at), error=error))

    def _no_log(self, at: int) -> RunLog:
        return RunLog(self.workflow.name, self.id_of(at), 0.0)

    # The end.

    def end(self, loop: asyncio.AbstractEventLoop | None) -> Iterator[Waiter]:
        """Record how the map ended; each item is to be waited for."""
        run, results = self.run, self._results
        begun = [result for result in results if result is not None]
        failed = [result for result in begun if result.failed]
        error = self._errors[min(self._errors)] if self._errors else failed[0].error if failed else None
        run.waiting += [(pause.run_id, pause.seq) for result in begun for pause in result.pauses]
        if run.waiting and not self._errors:
            error = None  # it waits, and what failed is tried again with the rest
        run.is_stopped = run.asked_to_stop and error is None and len(begun) < len(results)
        run.is_partial = bool(failed) and len(failed) < len(results) and not self._errors
        run.corrections = {"set": self._counts(begun)}
        yield from self.life.end(None, error, loop)

    def _counts(self, begun: list[RunResult[Any]]) -> dict[str, int]:
        return {
            "items": len(self.items),
            "completed": sum(result.completed for result in begun),
            "failed": sum(result.failed for result in begun),
            "waiting": sum(result.paused for result in begun),
        }

    def result(self) -> MapResult:
        """What came of it. Raises what the first item failed with, unless errors are to be results too."""
        done = self.life.result("continue")
        error = done.error
        if error is not None and (self._errors or self.error_handling == "raise"):
            if self._errors:
                error.add_note(
                    f"everstep: item {min(self._errors)} of map {done.run_id!r} failed; map with this id again to go on"
                )
            raise error
        return self._result(done.status, done.log.total_duration_ms)

    def restored(self) -> MapResult:
        """The results of a map that has completed. Nothing is executed. Raises ItemsDifferError."""
        unknown = tuple(at for at in range(len(self.items)) if not self._has_completed(self.id_of(at)))
        if unknown:
            raise ItemsDifferError(self.run.run_id, unknown)
        for at in range(len(self.items)):
            self._results[at] = self.enter(at, self.item())
        return self._result(Status.COMPLETED, 0.0)

    def _has_completed(self, run_id: str) -> bool:
        assert self.life.trail is not None  # noqa: S101 - only a stored map has completed before
        try:
            return STATUSES[self.life.trail.store.run(run_id).status] is Status.COMPLETED
        except RunNotFoundError:
            return False

    def _result(self, status: Status, total_ms: float) -> MapResult:
        unstarted = tuple(at for at, result in enumerate(self._results) if result is None)
        results = tuple(
            result or RunResult(self.id_of(at), status, self._no_log(at)) for at, result in enumerate(self._results)
        )
        return MapResult(
            self.run.run_id, self.workflow.name, status, results, self.map_over, self.mode, total_ms, unstarted
        )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


# By waiting.


def map_waiting(batch: Batch, run_id: str | None, tags: Mapping[str, str] | None) -> MapResult:
    """Go over the items on this thread, or in several."""
    if batch.begin(run_id, tags) is not None:
        return batch.restored()
    try:
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
        except BaseException as error:
            batch.run.interrupt(error)
            raise
        finally:
            batch.leave(life)


def _work_in_threads(batch: Batch) -> None:
    """`_work` several times at once. What is at work has ended when this returns."""
    outside = contextvars.copy_context()
    outside.run(CURRENT.set, OUTSIDE)  # the threads belong to no run: each item has its own
    with ThreadPoolExecutor(batch.workers, thread_name_prefix="everstep-map") as pool:
        jobs = [
            outside.run(pool.submit, contextvars.copy_context().run, _work, batch)  # type: ignore[arg-type] # it takes both
            for _ in range(batch.workers)
        ]
        try:
            with terminable(batch.run):
                wait(jobs)
        except BaseException as error:
            batch.run.interrupt(error)
            batch.run.halt()
            raise
    for job in jobs:
        job.result()


# By awaiting.


async def map_awaited(batch: Batch, run_id: str | None, tags: Mapping[str, str] | None) -> MapResult:
    """Go over the items on this event loop; in threads, if the workflow is a plain one."""
    loop = asyncio.get_running_loop()
    if await begun(batch.life, partial(batch.begin, run_id, tags)) is not None:
        return await asyncio.to_thread(batch.restored)
    life = batch.life
    try:
        with terminable_task(batch.run, loop):
            await (_work_awaited(batch) if batch.workflow.is_async else _in_threads(batch))
        for waiter in batch.end(loop):
            if isinstance(waiter, asyncio.Future):
                await waiter
        return batch.result()
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
        for worker in workers:
            worker.cancel()
        await asyncio.wait(workers)
        raise
    for worker in workers:
        worker.result()


async def _one_after_the_other(batch: Batch) -> None:
    while (at := batch.take()) is not None:
        life = batch.item()
        try:
            done = await begun(life, partial(batch.enter, at, life))
            batch.keep(at, done or await go_through_awaited(life, batch.error_handling))
        except Exception as error:  # noqa: BLE001 - as for threads
            batch.failed(at, error)
        except BaseException as error:
            batch.run.interrupt(error)
            raise
        finally:
            batch.leave(life)
