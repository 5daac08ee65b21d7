"""The order in which answers reach threads: what the code sees of it is the same in every replay."""

from __future__ import annotations

import _thread
import asyncio
import hashlib
import operator
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

import httpx
import pytest
from langgraph.graph import START, StateGraph

import everstep
from everstep.capturing import session, stillness, threads
from everstep.capturing.progress import Progress
from everstep.errors import DivergenceError
from everstep.journal import Journal
from everstep.trail.trail import Trail
from tests.capture.server import ModelServer

Say = Callable[..., None]


class Ask:
    """A question to the server, in whatever thread it is called."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self.client, self.url = client, url

    def __call__(self, path: str = "plain/same") -> str:
        return str(self.client.get(f"{self.url}/{path}").json()["counter"])


Program = Callable[[Ask, Say], None]


class Ground:
    """Runs a program; what it says is its transcript."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.url = ""

    def go(self, program: Program, mode: Any, *, whole: bool = False) -> list[str]:
        said: list[str] = []
        what = session.Program("program", command=[] if whole else None)
        how = session.How(mode=mode)
        with httpx.Client(timeout=30) as client, session.captured(self.trail, program.__name__, what, how):
            program(Ask(client, self.url), lambda *words: said.append(" ".join(map(str, words))))
        return said

    def check(self, program: Program, times: int, *, whole: bool = False) -> None:
        """Record, stop the server, and replay so many times; as a `whole` process it has all threads."""
        with ModelServer() as server:
            self.url = server.url
            recorded = self.go(program, "record", whole=whole)
        for _ in range(times):
            assert self.go(program, "verify", whole=whole) == recorded


@pytest.fixture
def ground(trail: Trail) -> Ground:
    return Ground(trail)


# Programs.


def completed(ask: Ask, say: Say) -> None:
    """`as_completed`, of jobs of one call and of two, in fewer threads than jobs."""

    def twice(number: int) -> tuple[int, str]:
        return number, ask(f"plain/{ask()}")

    with ThreadPoolExecutor(4) as pool:
        for future in as_completed([pool.submit(ask) for _ in range(8)]):
            say(future.result())
        for other in as_completed([pool.submit(twice, number) for number in range(6)]):
            say(*other.result())


def waited(ask: Ask, say: Say) -> None:
    """`wait` for whichever is first."""
    with ThreadPoolExecutor(6) as pool:
        left = {pool.submit(ask): number for number in range(8)}
        while left:
            done, _ = wait(left, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=left.__getitem__):
                say(len(done), left.pop(future), future.result())


def queued(ask: Ask, say: Say) -> None:
    """Workers that take from one queue and put into another; which of them takes what is up to the order."""
    todo: queue.Queue[int | None] = queue.Queue()
    done: queue.Queue[tuple[str, int, str] | None] = queue.Queue()

    def work(name: str) -> None:
        while (item := todo.get()) is not None:
            answer = ask() if name == "w0" else ask("plain/other")
            done.put((name, item, answer))
        done.put(None)

    workers = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(4)]
    for item in [*range(10), *(None for _ in workers)]:
        todo.put(item)
    for worker in workers:
        worker.start()
    for _ in workers:
        while (got := done.get()) is not None:
            say(*got)


def own_threads(ask: Ask, say: Say) -> None:
    """Threads that hold a lock while they ask, daemons among them, timers, and raw ones; and the main thread asks."""
    lock, ended = threading.Lock(), threading.Semaphore(0)

    class Mine(threading.Thread):
        def run(self) -> None:
            first = ask()
            with lock:
                say("holding", first, ask(f"plain/{first}"))

    def raw(number: int) -> None:
        say("raw", number, ask())
        ended.release()

    mine: list[threading.Thread] = [Mine(daemon=number % 2 == 0) for number in range(4)]
    for thread in mine:
        thread.start()
    for number in range(3):
        _thread.start_new_thread(raw, (number,))
    say("meanwhile", ask())
    timers = [threading.Timer(0.001, lambda: say("timer", ask())) for _ in range(2)]
    for timer in timers:
        timer.start()
    for thread in [*mine, *timers]:
        thread.join()
    for _ in range(3):
        ended.acquire()


def on_loops(ask: Ask, say: Say) -> None:
    """Threads of an event loop beside what is awaited there, a thread besides, and loops in threads."""

    async def awaited(client: httpx.AsyncClient, number: int) -> str:
        answer = str((await client.get(f"{ask.url}/plain/a")).json()["counter"])
        say("awaited", number, answer)
        return answer

    async def threaded(number: int) -> str:
        answer = await asyncio.to_thread(ask)
        say("to_thread", number, answer)
        return answer

    async def main(name: str) -> None:
        async with httpx.AsyncClient(timeout=30, verify=False) as client:
            both = [*(awaited(client, number) for number in range(3)), *(threaded(number) for number in range(3))]
            for each in asyncio.as_completed(both):
                say(name, await each)

    def asking() -> None:
        for _ in range(3):
            say("beside", ask(f"plain/{ask()}"))

    beside = threading.Thread(target=asking)
    beside.start()
    asyncio.run(main("main"))
    inner = [threading.Thread(target=lambda name=name: asyncio.run(main(name))) for name in ("one", "two")]
    for thread in inner:
        thread.start()
    for thread in [beside, *inner]:
        thread.join()


def announcing(ask: Ask, say: Say) -> None:
    """Threads, jobs and tasks that say that they begin, before they ask for anything."""

    def one(kind: str, number: int) -> str:
        hashlib.sha256(bytes(threading.get_native_id() * 7919 % 1_000_003))  # it takes one this long and another that
        say(kind, number, "begins")
        return ask()

    async def awaited(client: httpx.AsyncClient, number: int) -> str:
        say("task", number, "begins")
        return str((await client.get(f"{ask.url}/plain/a")).json()["counter"])

    async def main() -> None:
        async with httpx.AsyncClient(timeout=30, verify=False) as client:
            both = [(awaited(client, number), asyncio.to_thread(one, "to_thread", number)) for number in range(4)]
            say(*await asyncio.gather(*(each for two in both for each in two)))

    asyncio.run(main())
    threads = [threading.Thread(target=one, args=("thread", number)) for number in range(4)]
    for thread in threads:
        thread.start()
    say("started")
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(one, ["job"] * 6, range(6))
        say("submitted")
    say(*found)
    for thread in threads:
        thread.join()


class State(TypedDict):
    """What the nodes of the graph share."""

    found: Annotated[list[str], operator.add]


def graph(ask: Ask, say: Say) -> None:
    """Five parallel nodes of LangGraph and one that joins them."""
    built = StateGraph(State)
    built.add_node("join", lambda state: {"found": [ask("plain/" + "-".join(state["found"]))]})
    for name in ("a", "b", "c", "d", "e"):
        built.add_node(name, lambda _: {"found": [ask(f"plain/{ask()}")]})
        built.add_edge(START, name)
        built.add_edge(name, "join")
    made = built.compile()
    say(made.invoke({"found": []}))
    for update in made.stream({"found": []}, stream_mode="updates"):
        say(update)
    for number, value in enumerate(made.batch([{"found": []}] * 2)):
        say(number, value)


def failing(ask: Ask, say: Say) -> None:
    """Answers that end amid."""

    def one(number: int) -> None:
        try:
            ask("drop")
        except httpx.HTTPError as error:
            say("failed", number, type(error).__name__)
        say("then", number, ask())

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(5)))


def computing(ask: Ask, say: Say) -> None:
    """Threads that have something to do with an answer before anybody hears of it."""

    def one(number: int) -> str:
        answer = ask()
        sum(each * each for each in range(number * 7919 % 30_011))
        say("computed", number)
        return answer

    with ThreadPoolExecutor(4) as pool:
        for future in as_completed([pool.submit(one, number) for number in range(8)]):
            say(future.result())


PROGRAMS = [completed, waited, queued, own_threads, on_loops, announcing, graph, failing, computing]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_threads_see_is_the_same_in_a_replay(ground: Ground, program: Program) -> None:
    ground.check(program, 3)


@pytest.mark.torture
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_threads_see_is_the_same_in_every_replay(ground: Ground, program: Program) -> None:
    ground.check(program, 200 if program is on_loops else 20)


def test_where_to_fork_is_before_all_that_other_threads_were_not_given_yet(ground: Ground) -> None:
    asked = "before"

    def program(ask: Ask, say: Say) -> None:
        say(ask())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: ask(f"plain/{asked}-{number}"), range(8)))

    with ModelServer(delay=0.05) as server:  # so that the first who asks is seldom the first to be answered
        ground.url = server.url
        ground.go(program, "record")
    asked = "after"
    with pytest.raises(DivergenceError) as told:
        ground.go(program, "verify")
    calls = [step.seq for step in ground.trail.steps("program") if step.node_type == "http"]
    assert told.value.fork_at == calls[1] - 1


def test_parts_of_answers_that_threads_read_at_once_come_in_the_recorded_order(ground: Ground) -> None:
    def streams(ask: Ask, say: Say) -> None:
        def read(number: int) -> None:
            with ask.client.stream("GET", f"{ask.url}/lines?n=5") as response:
                say("head", number)
                for line in response.iter_lines():
                    say(number, line)
            say("end", number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))

    ground.check(streams, 3)


# Threads of no lane.


def test_a_thread_that_was_there_before_has_a_lane_where_the_process_is_captured(ground: Ground) -> None:
    todo: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def work() -> None:
        while (job := todo.get()) is not None:
            job()

    before = threading.Thread(target=work, name="before-1")
    before.start()

    def program(ask: Ask, say: Say) -> None:
        done = threading.Event()

        def job() -> None:
            say("before", ask())
            done.set()

        todo.put(job)
        say("main", ask())
        done.wait()

    try:
        ground.check(program, 2, whole=True)
        with ModelServer() as server:
            ground.url, program.__name__ = server.url, "stretch"
            ground.go(program, "record")
            ground.go(program, "verify")
            assert len(server.requests) == 3  # of the stretch it is no part: it asks the server each time
    finally:
        todo.put(None)
        before.join()
    lanes = [step.lane for step in ground.trail.steps("program") if step.name == "GET 127.0.0.1"]
    assert any(lane.startswith("unattributed:before#0") for lane in lanes), lanes


def test_without_a_look_at_threads_the_time_of_the_process_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is a guess, which a machine with much to do makes wrong at times: of a few, one is right."""

    def is_right(number: int) -> bool:
        with everstep.open(tmp_path / f"{number}.db") as trail, suppress(AssertionError, DivergenceError):
            Ground(trail).check(completed, 1)
            return True
        return False

    monkeypatch.setattr(threads, "watch", stillness.Watch)
    assert any(map(is_right, range(4)))


def test_how_far_a_program_is_can_be_asked_while_others_go_on() -> None:
    """Chance in a fork is drawn so, in each of its threads."""
    progress = Progress(Journal())
    progress._unserved = set(range(5_000))

    def goes_on() -> None:
        for seq in range(5_000):
            progress.served(seq)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        other = threading.Thread(target=goes_on)
        other.start()
        while other.is_alive():
            progress.is_past(0)
    finally:
        sys.setswitchinterval(before)
    assert progress.is_past(1)
