"""A map at work: a run for the whole of it, and a child run for each item.

The id of a child follows from what the item is, not from where it stands. So a map that is taken up again finds the
runs of the items it had, in whatever order they come, and each of them serves one item at most.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from everstep.codec.values import view
from everstep.errors import ItemsDifferError, RunNotFoundError, StoreError
from everstep.model import STATUSES, CheckpointKind, Kind, Status
from everstep.policy.redaction import Gate
from everstep.run.arguments import Inputs
from everstep.run.bar import Bar
from everstep.run.beginning import new_run
from everstep.run.execution import Execution
from everstep.run.given import check_word
from everstep.run.items import Items, Mode
from everstep.run.life import Life
from everstep.run.log import RunLog
from everstep.run.mapped import MapResult
from everstep.run.pen import Waiter
from everstep.run.result import RunResult
from everstep.run.through import AS_CHILD, ErrorHandling
from everstep.run.workflows import Workflow
from everstep.trail.beginning import Draft, in_order
from everstep.trail.trail import Trail
from everstep.trail.versions import MAP


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
        check_word("error_handling", error_handling, ErrorHandling)
        self.workflow, self.map_over, self.mode = workflow, _names(map_over), mode
        self.items = Items(f"{workflow!r}", values, self.map_over, mode)
        self.workers = min(max_concurrency, len(self.items))
        self.error_handling = error_handling
        self.life = Life(*runs, MapOf(workflow, self.map_over, mode), AS_CHILD)
        self.run: Execution
        self.run_id = ""
        self.bar = Bar(workflow.name, len(self.items), wanted=progress)
        self._runs = runs
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
            self.run_id = done.run_id
            return done
        self.run, self.run_id = self.life.run, self.life.run.run_id
        self.run.is_graph = True  # a request to stop lets the items at work end, as it does the nodes of a superstep
        self._runs = (self.life.trail, *self._runs[1:])
        return None

    def _signatures(self, gate: Gate | None) -> list[str]:
        """What each item is known by. The second of the same has a number behind it."""
        found, seen = list[str](), Counter[str]()
        for at, item in enumerate(self.items):
            try:
                bound = self.workflow.parameters.bind((), item)
                gated = b"" if gate is None else Inputs(gate, self.workflow.name, bound, "workflow").data
            except Exception as error:  # whatever it is, it is raised on with the place of the item
                error.add_note(f"everstep: these are the inputs of item {at}; no item was begun")
                raise
            if gate is None:
                found.append(str(at))
                continue
            key = blake2b(in_order(view(gated)), digest_size=16).hexdigest()
            seen[key] += 1
            found.append(key if seen[key] == 1 else f"{key}-{seen[key]}")
        return found

    def id_of(self, at: int) -> str:
        """The id of an item's run."""
        return f"{self.run_id}/{self._keys[at]}"

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

    def draft(self, at: int, life: Life) -> Callable[[], Draft] | None:
        """What drafts the run of an item as a new one; None where the map was taken up again, and it may be there."""
        if self.life.resumed:
            return None
        return partial(new_run, life, self.id_of(at), (), self.items[at], parent=self.run_id)

    def enter(self, at: int, life: Life) -> RunResult[Any] | None:
        """Begin the run of an item, or take it up. Its result, if it has completed before."""
        parent = None if self.life.trail is None else self.run_id
        done = life.begin(self.id_of(at), (), self.items[at], parent=parent)
        if done is None:
            try:
                self._take_care_of(life)
            except BaseException:  # an interrupt too: nobody else would give the item up
                life.close()
                raise
        return done

    def _take_care_of(self, life: Life) -> None:
        """Have the run of an item stopped with that of the map, which is active again if it was not."""
        run, pen = self.run, self.run.pen
        with self._lock:
            run.children[:] = [child for child in run.children if not child.closed] + [life.run]
            if run.interrupted is not None:  # while it was begun: it would not have heard
                life.run.interrupt(run.interrupted)
            elif run.cancelling:
                life.run.cancel()
            if pen is None or not pen.scribe.reopens or life.paused_at is not None:
                return  # for an item that waits as before nothing is written
            with pen.lock:
                pen.draft("taken up", kind=Kind.CHECKPOINT, node_type=CheckpointKind.BOUNDARY.value)
                waiter = pen.send(None, now=True)
            if callable(waiter):
                waiter()

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
            if done.status is Status.FAILED:
                error.add_note(
                    f"everstep: item {min(self._errors)} of map {done.run_id!r} failed; map with this id again to go on"
                )
            raise error
        return self._result(done.status, done.log.total_duration_ms)

    def restored(self) -> MapResult:
        """The results of a map that has completed. Nothing is executed. Raises ItemsDifferError."""
        unknown = tuple(at for at in range(len(self.items)) if not self._has_completed(self.id_of(at)))
        if unknown:
            raise ItemsDifferError(self.run_id, unknown)
        for at, item in enumerate(self.items):
            self._results[at] = self.item().begin(self.id_of(at), (), item)
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
            self.run_id, self.workflow.name, status, results, self.map_over, self.mode, total_ms, unstarted
        )


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
