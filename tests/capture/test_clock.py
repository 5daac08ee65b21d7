"""Time and chance: a captured program is shown the same when it is replayed, and Everstep's own code what is true."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import random
import secrets
import ssl
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import openai
import pydantic
import pytest
import uuid_utils

from everstep import actual
from everstep.capturing import clock as clocks
from everstep.capturing.session import Session
from everstep.errors import CaptureWarning
from everstep.trail.trail import Trail
from tests.capture.sensing import Ask, Ground, program
from tests.capture.server import ModelServer

DIFFER = {  # what a replay cannot show again: it is of the machine and the process; the times that go on
    "from time import monotonic", "id", "loop.time", "os.getpid", "os.stat of a new file", "os.times",
    "repr of an object", "threading.get_ident", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
    "time.perf_counter_ns", "time.process_time", "time.thread_time",
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as serving:
        yield serving


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What the probe printed, by name."""
    return dict(line.split(" = ", 1) for line in done.stdout.splitlines())


def test_every_source_of_time_and_chance_that_can_be_is_the_same_in_a_replay(
    server: ModelServer, tmp_path: Path
) -> None:
    """Promise 6."""
    recorded = program("clock", "record", server.url, tmp_path)
    assert (recorded.returncode, recorded.stderr) == (0, "")
    server.stop()
    first, again = lines(recorded), lines(program("clock", "verify", server.url, tmp_path))
    assert {name for name in first if first[name] != again[name]} == DIFFER
    assert len(first.keys() - DIFFER) >= 50
    assert (first["slept"], first["slept in a loop"]) == ("True", "True")


@pytest.mark.torture
@pytest.mark.parametrize("agent", ["tool_loop", "long_agent", "sleeper", "openai_async"])
def test_what_programs_make_of_time_and_chance_is_the_same_twenty_times(
    agent: str, server: ModelServer, tmp_path: Path
) -> None:
    recorded = program(agent, "record", server.url, tmp_path)
    server.stop()
    for _ in range(20):
        replayed = program(agent, "verify", server.url, tmp_path)
        assert (replayed.returncode, replayed.stdout) == (0, recorded.stdout), replayed.stderr


# In this process.


@pytest.fixture
def ground(trail: Trail, server: ModelServer) -> Ground:
    return Ground(trail, server.url)


def test_the_clock_begins_with_the_run_and_moves_with_outcomes_and_sleeps(ground: Ground) -> None:
    def written(ask: Ask, session: Session) -> list[float]:
        seen = [time.time(), time.time()]
        ask("slow?s=0.05")
        seen += [time.time(), datetime.now(UTC).timestamp()]
        time.sleep(0.05)
        return [*seen, time.time()]

    first, again = ground.twice(written)
    assert first == again
    start, [row] = ground.trail.run("run").created_at, ground.outcomes("run")
    assert first[0] == first[1] == start.timestamp()
    assert first[2] == first[3] == (row.started_at + timedelta(milliseconds=row.duration_ms)).timestamp()
    assert first[4] == pytest.approx(first[2] + 0.05, abs=1e-6)


def test_a_time_limit_that_a_queue_works_out_from_monotonic_time_is_told_the_same(ground: Ground) -> None:
    def written(ask: Ask, session: Session) -> list[float]:
        seen = []
        for _ in range(5):
            with pytest.raises(queue.Empty):
                queue.Queue[int]().get(timeout=0.02)
            seen.append(time.time())
        assert not threading.Event().wait(0.0004)
        return [*seen, time.time()]

    first, again = ground.twice(written)
    assert first == again
    assert sorted({*first}) == first


def test_identifiers_by_time_rise_while_the_clock_stands(ground: Ground) -> None:
    def written(ask: Ask, session: Session) -> list[Any]:
        drawn = [uuid_utils.uuid7() for _ in range(5000)]  # more than a millisecond has place for
        assert {each.version for each in drawn} == {7}
        assert {each.variant for each in drawn} == {uuid.RFC_4122}
        assert 0 <= drawn[0].timestamp - time.time() * 1000 + 1 <= 1
        given = uuid_utils.uuid7(timestamp=1_700_000_000, nanos=5_000_000)
        assert given.timestamp == 1_700_000_000_005
        return [each.int for each in (*drawn, given)]

    first, again = ground.twice(written)
    assert first == again
    assert sorted(set(first[:-1])) == first[:-1]
    assert uuid_utils.uuid7().int not in first  # outside of the run it is what it was


def test_rows_leases_and_code_outside_have_the_time_of_the_world(ground: Ground) -> None:
    seen: dict[str, float] = {}

    def outside(session: Session) -> None:
        seen["in no lane"] = time.time()

    def written(ask: Ask, session: Session) -> float:
        began = time.time()
        until = actual.time() + 0.1
        while actual.time() < until:
            pass
        watcher.put(session)
        ask("plain/x")
        seen["lease"] = ground.trail.store.run("run").lease
        return began

    watcher = _Watcher(outside)
    with watcher:
        began = ground.go(written)
    [row] = ground.outcomes("run")
    assert row.started_at.timestamp() >= began + 0.1
    assert seen["in no lane"] >= began + 0.1
    assert seen["lease"] > began + 100
    assert abs(time.time() - actual.time()) < 60
    assert actual.time is time.time


class _Watcher:
    """A thread that was there before, and does something when it is told."""

    def __init__(self, act: Callable[[Session], None]) -> None:
        self._act, self._told, self._done = act, threading.Event(), threading.Event()
        self._session: Any = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._told.set()
        self._thread.join()

    def put(self, session: Session) -> None:
        self._session = session
        self._told.set()
        self._done.wait()

    def _run(self) -> None:
        self._told.wait()
        self._act(self._session)
        self._done.set()


def test_code_that_waits_for_the_wall_clock_gets_there(ground: Ground) -> None:
    def written(ask: Ask, session: Session) -> bool:
        until = time.time() + 0.2
        while time.time() < until:
            pass
        until, waits = time.time() + 0.1, threading.Event()
        while time.time() < until:
            waits.wait(0.02)
        return True

    assert ground.twice(written) == (True, True)


def test_the_same_is_drawn_in_eight_tasks_and_six_threads(ground: Ground) -> None:
    async def task(number: int) -> list[object]:
        drawn: list[object] = [number, uuid.uuid4()]
        await asyncio.sleep(secrets.randbelow(10) / 1000)
        return [*drawn, uuid.uuid4(), random.Random().random(), time.time()]

    async def tasks() -> list[list[object]]:
        return await asyncio.gather(*map(task, range(8)))

    def written(ask: Ask, session: Session) -> list[object]:
        def job(number: int) -> list[object]:
            drawn: list[object] = [number, uuid.uuid4()]
            ask(f"slow?s=0.0{number}")
            return [*drawn, secrets.token_hex(4), time.time(), random.SystemRandom().random()]

        with ThreadPoolExecutor(6) as pool:
            of_threads = list(pool.map(job, range(6)))
        return [*asyncio.run(tasks()), *of_threads, time.time()]

    first, again = ground.twice(written)
    assert first == again
    assert len({each[1] for each in first[:14]}) == 14
    assert first[-1] >= max(each[3] for each in first[8:14])


def test_each_can_be_switched_off(ground: Ground) -> None:
    def written(ask: Ask, session: Session) -> tuple[float, uuid.UUID]:
        return time.time(), uuid.uuid4()

    first, again = ground.twice(written, clock=False, run_id="clock")
    assert (first[0] != again[0], first[1] == again[1]) == (True, True)
    first, again = ground.twice(written, entropy=False, run_id="entropy")
    assert (first[0] == again[0], first[1] != again[1]) == (True, True)


def test_everything_is_what_it_was_when_the_run_is_over(ground: Ground) -> None:
    random.seed(7)
    before, node, names = random.getstate(), uuid.getnode(), tempfile._name_sequence  # type: ignore[attr-defined] # private

    def written(ask: Ask, session: Session) -> None:
        random.random()
        uuid.uuid1()
        tempfile.mktemp()

    ground.go(written)
    assert random.getstate() == before
    assert (uuid.getnode(), tempfile._name_sequence) == (node, names)  # type: ignore[attr-defined] # private
    assert os.urandom(8) != os.urandom(8)
    assert abs(time.time() - actual.time()) < 60


def test_clients_contexts_and_models_work_beside_the_clock(ground: Ground) -> None:
    class Model(pydantic.BaseModel):
        at: datetime
        made: datetime = pydantic.Field(default_factory=datetime.now)

    def written(ask: Ask, session: Session) -> list[object]:
        model = Model.model_validate_json(json.dumps({"at": datetime.now(UTC).isoformat()}))
        ssl.create_default_context().load_default_certs()
        with openai.OpenAI(base_url=f"{ground.url}/v1", api_key="sk-test") as client:
            asked: Any = [{"role": "user", "content": f"{model.at} {model.made}"}]
            got = client.chat.completions.create(model="m", messages=asked)
        return [model, got.choices[0].message.content]

    first, again = ground.twice(written)
    assert [str(each) for each in first] == [str(each) for each in again]


def test_a_call_gets_the_chance_and_the_time_of_the_world(ground: Ground) -> None:
    inside: list[tuple[bytes, float]] = []
    derived: list[int] = []

    def look(name: str, info: Any) -> None:
        if "closed" not in name and "close." not in name:  # then it is over
            inside.append((os.urandom(8), time.time()))

    def written(ask: Ask, session: Session) -> float:
        until = actual.time() + 0.05
        while actual.time() < until:
            pass
        assert session.senses.well is not None
        session.senses.well.draw = lambda lane, size: derived.append(size) or bytes(size)  # type: ignore[method-assign, func-returns-value] # to see who calls
        with httpx.Client() as client:
            client.get(f"{ground.url}/plain/x", extensions={"trace": look})
        return ground.trail.run("run").created_at.timestamp()

    began = ground.go(written)
    assert len({drawn for drawn, _ in inside}) == len(inside) > 2
    assert all(at >= began + 0.05 for _, at in inside)
    assert derived == []


def test_without_time_machine_it_is_said_once_and_recording_goes_on(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "is_there", lambda: False)

    def written(ask: Ask, session: Session) -> float:
        ask("plain/x")
        return time.time()

    with pytest.warns(CaptureWarning, match="pip install time-machine") as said:
        ground.go(written)
    assert [Path(each.filename).name for each in said] == ["sensing.py"], "whose line it is"
    ground.go(written, run_id="other", clock=False)  # nothing is said
    ground.go(written, "verify", run_id="other")  # nor here: to install it would change nothing


def test_another_seed_of_hashes_is_told(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def written(ask: Ask, session: Session) -> None:
        pass

    monkeypatch.setenv("PYTHONHASHSEED", "7")
    ground.go(written)
    ground.go(written, "verify")
    monkeypatch.setenv("PYTHONHASHSEED", "8")
    with pytest.warns(CaptureWarning, match="Start Python with PYTHONHASHSEED=7"):
        ground.go(written, "verify")


# Runs that go on.


def drawing(stop_before: int | None = None, calls: int = 4) -> Callable[..., list[object]]:
    """A program that puts time and chance into its calls."""

    def written(ask: Ask, session: Session) -> list[object]:
        seen: list[object] = []
        for number in range(calls):
            if number == stop_before:
                raise KeyboardInterrupt
            asked = f"plain/{number}?{uuid.uuid4()}&{time.time()}"
            seen.append((asked, ask(asked)))
        return [*seen, (uuid.uuid4(), time.time())]

    return written


def test_a_resumed_program_draws_on_and_its_new_calls_are_of_today(ground: Ground) -> None:
    with pytest.raises(KeyboardInterrupt):
        ground.go(drawing(stop_before=2))
    began = actual.time()
    resumed = ground.go(drawing())
    assert float(resumed[2][0].rpartition("&")[2]) >= began > float(resumed[1][0].rpartition("&")[2])
    assert ground.go(drawing(), "verify") == resumed


def test_a_fork_has_the_past_and_chance_of_its_own_after_it(ground: Ground) -> None:
    first = ground.go(drawing(), run_id="a")
    ground.fork("a", ground.outcomes("a")[1].seq, "b")
    second = ground.go(drawing(), run_id="b")
    ground.fork("b", ground.outcomes("b")[2].seq, "c")
    third = ground.go(drawing(), run_id="c")
    assert [one == two for one, two in zip(first, second, strict=True)] == [True, True, False, False, False]
    assert [one == two for one, two in zip(second, third, strict=True)] == [True, True, True, False, False]
    asked = [each[0].partition("?")[2].partition("&")[0] for run in (first, second, third) for each in run[2:4]]
    assert len(set(asked)) == 5  # the third has one of the second
    for run_id, given in (("a", first), ("b", second), ("c", third)):
        assert ground.go(drawing(), "verify", run_id) == given
