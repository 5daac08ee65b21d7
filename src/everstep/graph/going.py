"""Going through a graph: the same supersteps, by waiting or by awaiting.

A graph is a workflow whose code is this file. Every call of a node is a step of the run, so a run that is taken up
again goes through the same supersteps: what is on record is served, and the first call without an outcome runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from everstep.errors import GraphInputError, LoopLimitError
from everstep.graph.again import Again, superstep_of
from everstep.graph.caching import Lookup, cached, cached_awaited
from everstep.graph.calls import NodeCall
from everstep.graph.nested import GraphNode
from everstep.graph.nodes import Interrupt
from everstep.graph.progress import Progress
from everstep.graph.values import Values
from everstep.run import faults
from everstep.run.asked import Ask
from everstep.run.driving import drive, drive_awaited, guarded, known_loop
from everstep.run.execution import Execution
from everstep.run.flow import ask_flow
from everstep.run.lanes import CURRENT, NODES, OF_TASK, Lane, here, outside
from everstep.run.noted import log_of
from everstep.run.runner import AsyncRunner, Runner
from everstep.run.through import cancel_all, without_run
from everstep.trail.failure import str_of

if TYPE_CHECKING:
    from everstep.graph.graph import Graph

_THREADS = 32  # plain nodes that run at the same time


class Going:
    """One run of a graph, superstep by superstep."""

    def __init__(self, graph: Graph, inputs: dict[str, Any]) -> None:
        lane = here()
        assert lane is not None  # noqa: S101 - whoever makes one has looked
        self.graph = graph
        self.run = run = lane.run
        run.is_graph = True
        self.progress = Progress(graph.shape, graph.bound, inputs)
        self._again = Again(run, graph.shape)
        self.values = Values(run, self.progress, self._again.newest)
        self._number = -1
        self.flow = run.flow or ask_flow
        self._changes = sorted([*run.forked.inputs, *run.forked.values], key=lambda change: change[0])
        self._errors: list[BaseException] = []
        self._at_work: list[Ask] = []
        run.partial_values = self._so_far

    def _so_far(self) -> dict[str, Any]:
        """What the nodes have given, those too whose superstep was left because another one waits for an answer."""
        for call in map(_call_of, self._at_work):
            if call.result or (call.stored_at is not None and call.decision is None):
                self.values.take(call)
            else:
                self.values.take_back(call.call.node)
        return self.results()

    def results(self) -> dict[str, Any]:
        """What the nodes have given so far."""
        self.values.load()
        return self.progress.results()

    # A superstep.

    def begin(self) -> list[Ask]:
        """Ask for the next superstep. Empty when the run is over. Raises what nodes failed with."""
        if self._errors and not self.run.goes_on:
            self._fail()
        if self.run.asked_to_stop:
            self.run.is_stopped = True
            return []
        for _, changed in self._due() if self._changes else ():
            self._change(changed)
        calls = [NodeCall(call, self.values) for call in self.progress.next()]
        if calls and self.progress.superstep > self.graph.max_supersteps:
            raise LoopLimitError(
                self.graph.name, self.graph.max_supersteps, ", ".join(call.call.node.name for call in calls)
            )
        asks = [self._ask(call) for call in calls]
        for fork, changed in self._changes:
            if self._is_past(fork):  # some of these were in flight there
                self.values.changing(changed)
        self._count(asks)
        self._at_work = asks
        return asks

    def _due(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What forks changed, once all that was on record there was asked for."""
        while self._changes and self._is_past(self._changes[0][0]):
            yield self._changes.pop(0)

    def _is_past(self, fork: int) -> bool:
        """Whether all that was on record at a fork was asked for. What came after it may be on record too."""
        track = self.run.journal.track(None, NODES)
        if track is None:
            return True
        left = track.steps if track.spare is None else chain.from_iterable(track.spare.values())
        return not any(step.seq < fork for step in left)

    def _change(self, changed: dict[str, Any]) -> None:
        """Let what a fork changed be the values from here on. Raises GraphInputError if there is no such value."""
        shape = self.graph.shape
        unknown = next((name for name in changed if name not in shape.consumers and name not in shape.producers), None)
        if unknown is not None:
            known = ", ".join(map(repr, dict.fromkeys([*shape.inputs, *shape.producers])))
            raise GraphInputError(
                f"the fork {self.run.run_id!r}",
                f"changes {unknown!r}, which no node of graph {self.graph.name!r} takes or gives",
                f"Fork again with one of {known}.",
            )
        self.progress.changed(changed)
        self.values.were_changed(changed)

    def _ask(self, call: NodeCall) -> Ask:
        # A lane object for each call, on one path: one that waits for an answer does not hold up the others.
        lane = Lane(self.run, self.run.root.scope, NODES, None)
        ask = self.run.ask_call(lane, call.call.node.name, call.call.index, call.taken, call)
        self._again.check(ask, call)
        return ask

    def _count(self, asks: list[Ask]) -> None:
        """Number the superstep. What is done again after the run had ended comes after all that was there."""
        if not asks:
            return
        number, serves = self._number + 1, self.run.serves
        for ask in asks:
            before = superstep_of(ask.recorded.outcome) if serves(ask) else self._again.highest + 1  # type: ignore[union-attr] # it is there
            number = max(number, before)
        self._number = number
        for ask in asks:
            _call_of(ask).superstep = number

    def prepare(self, asks: list[Ask]) -> list[dict[str, Any]]:
        """What the functions of the nodes are given; of those that are served, nothing is."""
        given: list[dict[str, Any]] = []
        for ask in asks:
            call = _call_of(ask)
            if self.run.serves(ask):
                given.append({})
                continue
            self.values.load_for(call.call.node)
            arguments = self.progress.arguments(call.call)
            if self.run.flow is not None:  # what a node gives again it may change in place; what was is needed after it
                own = {param for param, name in call.call.node.inputs.items() if name in call.call.node.outputs}
                arguments |= {param: copy.deepcopy(arguments[param]) for param in own}
            call.give(arguments)
            given.append(call.arguments)
        return given

    def finish(self, asks: list[Ask], errors: list[BaseException | None]) -> None:
        """Take what the nodes gave. Raises what is no outcome of a node: then the run is being stopped."""
        for error in errors:
            if error is not None and not (isinstance(error, Exception) and self._is_failure(error)):
                raise error
        self._at_work = []
        done = list(zip(asks, errors, strict=True))
        for fork, changed in self._due() if self._changes else ():  # what was in flight there came after the change
            before = [pair for pair in done if _call_of(pair[0]).stored_before(fork)]
            self._take(before)
            done = [pair for pair in done if pair not in before]
            self._change(changed)
        self._take(done)

    def _take(self, done: list[tuple[Ask, BaseException | None]]) -> None:
        for ask, error in done:
            call = _call_of(ask)
            if call.child is not None and self.run.trail is not None and call.stored_at is not None:
                log = log_of(self.run.trail, call.child)
                if log is not None:
                    self.run.child_logs[call.child] = log
            if error is None:
                self.values.take(call)
                self._again.took(call)
            else:
                self.values.take_back(call.call.node)
                self._errors.append(error)
                self.run.also_failed += _failed_rows(ask)

    def _is_failure(self, error: BaseException) -> bool:
        return bool(faults.chain(error, self.run.root.scope))

    def end(self) -> dict[str, Any]:
        """What the run gives. Raises what nodes failed with."""
        if self._errors:
            self.run.is_partial = bool(self.progress.given)
            self._fail()
        self.values.check_last()
        results = self.results()
        if not self.run.is_stopped:  # else what is on record may be asked for yet
            self.run.corrections = self.values.corrections()
        return results

    def _fail(self) -> None:
        first, *others = self._errors
        for other in others:
            first.add_note(f"everstep: another node failed too, with {type(other).__name__}: {str_of(other)}")
        raise first


def _failed_rows(ask: Ask) -> list[int]:
    """Where a call failed. Not what its error is marked with: several may raise the same object."""
    entry = ask.entry if ask.recorded is None or ask.recorded.outcome is None else ask.recorded.outcome
    return [] if entry is None else [entry.seq]


def _call_of(ask: Ask) -> NodeCall:
    return ask.call  # type: ignore[return-value] # all that is asked for here is one


# By waiting.


def go(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]:
    """Go through a graph on this thread, and on others where nodes run at the same time."""
    if here() is None:  # called as a plain function is: nothing is kept
        return Runner().run(graph, inputs).values
    going = Going(graph, inputs)
    pool: ThreadPoolExecutor | None = None
    try:
        while asks := going.begin():
            jobs = [partial(_called, going, ask, given) for ask, given in zip(asks, going.prepare(asks), strict=True)]
            if len(jobs) == 1:
                going.finish(asks, [jobs[0]()])
                continue
            pool = pool or ThreadPoolExecutor(_THREADS, thread_name_prefix="everstep-node")
            first, *others = jobs
            started = [_submitted(pool, job) for job in others]
            going.finish(asks, [first(), *(job.result() for job in started)])
        return going.end()
    finally:
        if pool is not None:
            pool.shutdown()  # after Ctrl-C too: what is at work is kept, and nobody else does it meanwhile


def _called(going: Going, ask: Ask, given: dict[str, Any]) -> BaseException | None:
    """Call a node in its lane. What it failed with, if it did."""
    token = CURRENT.set(ask.lane)
    try:
        node = _call_of(ask).call.node
        drive(going.flow(going.run, ask, node.step, None), ask.lane, _body(going.run, _call_of(ask), given))
    except BaseException as error:  # noqa: BLE001 - the superstep decides on it, when all of its nodes have ended
        return error
    finally:
        CURRENT.reset(token)
    return None


def _submitted(pool: ThreadPoolExecutor, job: Callable[[], Any]) -> Future[Any]:
    """Run a job in a thread with this context. It has its lane: none is made for the thread."""
    context = contextvars.copy_context()
    return outside().run(partial(pool.submit, context.run, job))


# By awaiting.


async def go_awaited(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]:
    """Go through a graph on this event loop. Plain nodes run in threads, so that it never stands still."""
    if here() is None:
        return (await AsyncRunner().run(graph, inputs)).values
    going = Going(graph, inputs)
    while asks := going.begin():
        ready = all(ask.lane.run.serves(ask) for ask in asks) or not going.run.journal.scopes
        given = going.prepare(asks) if ready else await _in_thread(partial(going.prepare, asks))
        jobs = [_awaited(going, ask, arguments) for ask, arguments in zip(asks, given, strict=True)]
        if len(jobs) == 1:
            going.finish(asks, [await jobs[0]])
        else:
            going.finish(asks, await _together(jobs))
    return going.end() if not going.run.journal.scopes else await _in_thread(going.end)


async def _awaited(going: Going, ask: Ask, given: dict[str, Any]) -> BaseException | None:
    """Await a node in its lane. What it failed with, if it did."""
    task, lane = asyncio.current_task(), ask.lane
    assert task is not None  # noqa: S101 - a coroutine of a task
    before, token = OF_TASK.get(task), CURRENT.set(lane)
    OF_TASK[task] = lane
    node = _call_of(ask).call.node
    try:
        flow = going.flow(going.run, ask, node.step, known_loop(node.name))
        await drive_awaited(flow, lane, _awaited_body(going.run, _call_of(ask), given))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - the superstep decides on it, when all of its nodes have ended
        return error
    finally:
        CURRENT.reset(token)
        if before is not None:
            OF_TASK[task] = before
    return None


async def _together(jobs: list[Coroutine[Any, Any, BaseException | None]]) -> list[BaseException | None]:
    """Await nodes at the same time. Their lanes are theirs: none is made for the tasks."""
    loop = asyncio.get_running_loop()
    plain = without_run()
    tasks = [outside().run(partial(loop.create_task, job, context=plain.copy())) for job in jobs]
    try:
        await asyncio.wait(tasks)
    finally:
        await cancel_all(*tasks)
    return [task.result() for task in tasks]


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function in a thread with this context, without a lane for the thread."""
    context, loop = contextvars.copy_context(), asyncio.get_running_loop()
    return outside().run(loop.run_in_executor, None, partial(context.run, guarded, function))


async def _node_in_thread(run: Execution, function: Callable[[], Any]) -> Any:
    """Call a plain node in a thread. If the run is given up meanwhile, what the node does is still kept."""
    work = _in_thread(function)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if run.stopping is None:  # it took too long
            raise
        await asyncio.wait([work])
        return work.result()


# What is called for a node.


def _given(function: Callable[..., Any], given: dict[str, Any]) -> Callable[[], Any]:
    """The function with what stands there when it is called: another attempt is given it anew."""
    return lambda: function(**given)


def _body(run: Execution, of: NodeCall, given: dict[str, Any]) -> Callable[[], Any]:
    """The call of a node's function, by waiting."""
    node = of.call.node
    if isinstance(node, GraphNode):
        return node.body(node.graph.as_child(run.as_child).function, given)
    call = _given(node.step.function, given)
    if isinstance(node, Interrupt):
        return lambda: node.ask(call())
    body = node.step.timed(call)
    return body if node.cache is None or run.flow else partial(cached, Lookup(run, of, node.cache, given), body)


def _awaited_body(run: Execution, of: NodeCall, given: dict[str, Any]) -> Callable[[], Any]:
    """The call of a node's function, to be awaited: in a thread if it is plain and may take its time."""
    node = of.call.node
    if isinstance(node, GraphNode):
        child = node.body(node.graph.as_child(run.as_child).function, given)
        return child if node.is_async else partial(_node_in_thread, run, child)
    call = _given(node.step.function, given)
    if isinstance(node, Interrupt):

        async def ask() -> Any:
            return await node.ask(await call() if node.is_async else call())

        return ask
    awaited: Callable[[], Any] = call if node.is_async else partial(_node_in_thread, run, call)
    if node.targets and not node.is_async:

        async def choose() -> Any:
            return call()

        awaited = choose
    body = node.step.timed_awaited(awaited)
    if node.cache is None or run.flow:
        return body
    return partial(cached_awaited, Lookup(run, of, node.cache, given), body, _in_thread)
