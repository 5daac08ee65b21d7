"""A trail on a PostgreSQL server: what is killed goes on, and a server that dies takes nothing along."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

import everstep
from everstep import AsyncRunner, errors, step, workflow
from everstep.codec import chain, record
from everstep.errors import ServerLostError
from everstep.model import Status
from everstep.store import postgres_link, postgres_reading
from everstep.store.base import RunQuery
from everstep.store.postgres import PostgresStore
from everstep.store.postgres_link import Link
from everstep.testing.rows import begin, history, keyframe, new_run, together
from tests.integration.cli_support import run as command
from tests.integration.support import output, python
from tests.postgres import Relay, Server, own_server

RESEARCH = """
import os, signal, sys
import everstep
from everstep import step, workflow

@step
def ask(question):
    print("asking", question, flush=True)
    if question == 3 and "crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return question * 10

@workflow
def research(count):
    return sum(ask(question) for question in range(count))

with everstep.open(sys.argv[1]) as trail:
    runner = everstep.Runner(trail)
    if "replay" in sys.argv:
        print(trail.replay("r", research).identical)
    else:
        print("sum", runner.run(research, 6, id="r").value)
"""


def test_a_run_that_was_killed_goes_on_and_is_replayed(postgres: str) -> None:
    """Promises 1, 2 and 6."""
    killed = python(RESEARCH, postgres, "crash")
    assert (killed.returncode, killed.stdout.split("\n")) == (
        -signal.SIGKILL,
        ["asking 0", "asking 1", "asking 2", "asking 3", ""],
    )
    assert output(RESEARCH, postgres).split("\n") == ["asking 3", "asking 4", "asking 5", "sum 150"]
    assert output(RESEARCH, postgres) == "sum 150"
    assert output(RESEARCH, postgres, "replay") == "True"
    with everstep.open(postgres, read_only=True) as trail:
        assert trail.verify().ok
        assert [hit.name for hit in trail.search("ask")] == ["ask"] * 6


executed: Counter[tuple[int, int]] = Counter()
acknowledged: list[tuple[str, int, int]] = []


@step
async def act(run: int, number: int) -> int:
    executed[run, number] += 1
    await asyncio.sleep(0.005)
    return number


@workflow
async def life(run: int, steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await act(run, number)
        acknowledged.append((f"r-{run}", number, total))
    return total


def restart(server: Server, times: int, steps: int) -> list[int]:
    """Kill the server again and again; how many steps were acknowledged then."""
    when = []
    for number in range(1, times + 1):
        while len(acknowledged) < steps * number // (times + 1):
            time.sleep(0.001)
        server.stop("immediate")
        when.append(len(acknowledged))
        server.start()
    return when


def survive(runs: int, steps: int, times: int) -> None:
    """Many runs at once, while their server is killed and started again."""
    executed.clear()
    acknowledged.clear()
    with own_server() as server, everstep.open(server.url) as trail:

        async def main() -> list[Any]:
            runner = AsyncRunner(trail)
            deaths = asyncio.create_task(asyncio.to_thread(restart, server, times, runs * steps))
            results = await asyncio.gather(*[runner.run(life, run, steps, id=f"r-{run}") for run in range(runs)])
            assert max(await deaths) < runs * steps  # the last death came before the end
            return [result.value for result in results]

        assert asyncio.run(main()) == [steps * (steps - 1) // 2] * runs
        assert set(executed.values()) == {1}
        assert len(executed) == len(acknowledged) == runs * steps
        assert trail.verify().ok
        for run in trail.runs(limit=runs):
            assert run.status is Status.COMPLETED
            kept = [one.output for one in trail.steps(run.id) if one.name == "act"]
            assert kept == list(range(steps))


def test_runs_outlive_the_death_of_their_server() -> None:
    """Promises 1 and 2: a hundred at once; nothing that was acknowledged is lost, and nothing is there twice."""
    survive(100, 20, 2)


@pytest.mark.torture
def test_many_runs_outlive_many_deaths_of_their_server() -> None:
    """Promises 1 and 2."""
    survive(100, 150, 6)


def test_writes_whose_answers_are_lost_are_found_and_not_written_twice(postgres: str, tmp_path: Path) -> None:
    """Promise 5."""
    with Relay(postgres, tmp_path) as relay:
        store = PostgresStore(relay.url)
        for number in range(4):
            relay.lose_next_answer()
            writer = begin(store, f"run {number}")
            rows = []
            for count in (1, 3):
                relay.lose_next_answer()
                rows += writer.write(count)
            relay.lose_next_answer()
            kept = writer.mark("large")
            assert store.keyframe(f"run {number}", 9) == kept._replace(blobs={})
            relay.lose_next_answer()
            assert store.claim(f"run {number}", "maker").epoch == 1
            relay.lose_next_answer()
            store.renew(writer.claim, 0)
            relay.lose_next_answer()
            assert store.claim(f"run {number}", "other").epoch == 2
            relay.lose_next_answer()
            assert len(history(store, f"run {number}")) == 5
        relay.lose_next_answer()
        assert store.drop("run 1").runs == 1
        assert relay.lost == 4 * 8 + 1
        assert [run.id for run in store.runs(RunQuery())] == ["run 3", "run 2", "run 0"]
        assert store.inspect() == []
        store.close()


def test_a_keyframe_that_was_turned_down_is_not_said_to_be_kept_when_that_answer_is_lost(
    postgres: str, tmp_path: Path
) -> None:
    with Relay(postgres, tmp_path) as relay:
        store = PostgresStore(relay.url)
        writer = begin(store)
        writer.claim = writer.claim._replace(generation=writer.claim.generation - 1)
        [row] = writer.rows()
        relay.lose_next_answer()
        assert store.append(writer.draft([row], keyframe=keyframe(row))) is False
        store.close()


def test_a_server_that_stays_away_is_a_typed_error_and_the_trail_goes_on_when_it_is_back() -> None:
    """Promise 13."""
    with own_server() as server:
        store = PostgresStore(server.url, patience=0.3)
        writer = begin(store, rows=2)
        draft = writer.draft(writer.rows())
        server.stop()
        with pytest.raises(ServerLostError, match="not written twice"):
            store.append(draft)
        with pytest.raises(ServerLostError):
            store.run("run")
        server.start()
        assert store.append(draft)
        assert len(history(store)) == 3
        store.close()


def test_others_that_are_in_the_way_are_waited_for(postgres: str) -> None:
    store = PostgresStore(postgres)
    writer = begin(store, rows=1)
    with psycopg.connect(postgres) as rival:
        rival.execute("select 1 from everstep_run for update")
        timer = threading.Timer(0.2, rival.rollback)
        timer.start()
        writer.write()
        timer.join()
    assert len(history(store)) == 2
    store.close()


def test_a_deadlock_is_tried_again(postgres: str) -> None:
    store = PostgresStore(f"{postgres}%20-cdeadlock_timeout%3D1s")
    [row] = begin(store).write()
    with psycopg.connect(f"{postgres}%20-cdeadlock_timeout%3D60s") as rival, ThreadPoolExecutor(1) as threads:
        rival.execute("select 1 from everstep_fact where name = 'generation' for update")
        erasing = threads.submit(store.erase, "run", [record.erase(row)])
        waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
        while not rival.execute(waits, ["%name = 'generation' for update%"]).fetchall():
            time.sleep(0.001)
            rival.execute("select pg_stat_clear_snapshot()")
        rival.execute("select 1 from everstep_run for update")  # which the other holds: it is the one to give way
        rival.rollback()
        erasing.result()
    assert [chain.is_erased(entry) for entry in history(store)] == [True]
    store.close()


def test_two_processes_let_go_of_history_while_others_write(postgres: str) -> None:
    """Promise 5."""
    one, two = PostgresStore(postgres), PostgresStore(postgres)
    for number in range(8):
        begin(one, f"run {number}", rows=3)

    def let_go(store: PostgresStore, numbers: range) -> int:
        steps = 0
        for number in numbers:
            [first] = store.entries(f"run {number}", 0, 0)
            kept = keyframe(first)
            while (counts := store.prune(f"run {number}", kept, store.run(f"run {number}").generation)) is None:
                pass
            steps += counts.steps
        return steps

    writers = [begin(two, f"other {number}", rows=1) for number in range(4)]
    got = together(
        [
            lambda: let_go(one, range(4)),
            lambda: let_go(two, range(4, 8)),
            *[lambda writer=writer: sum(len(writer.write()) for _ in range(30)) for writer in writers],
        ]
    )
    assert [found for found in got if isinstance(found, Exception)] == []
    assert got[2:] == [30] * 4
    assert [len(history(two, f"run {number}")) for number in range(8)] == [2] * 8
    assert one.inspect() == []
    one.close()
    two.close()


def test_processes_that_make_one_trail_together_all_find_it(postgres: str) -> None:
    """Promise 13."""
    stores = together([lambda: PostgresStore(postgres)] * 8)
    assert {type(store) for store in stores} == {PostgresStore}
    for number, store in enumerate(stores):
        assert isinstance(store, PostgresStore)
        store.create(new_run(f"run {number}"))
        store.close()


def test_a_forked_process_writes_over_connections_of_its_own(postgres: str) -> None:
    store = PostgresStore(postgres)
    writer = begin(store, rows=1)
    store.run("run")
    child = os.fork()
    if child == 0:
        try:
            begin(store, "child", rows=2)
            os._exit(0)
        finally:
            os._exit(1)
    writer.write()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (len(history(store)), len(history(store, "child"))) == (2, 2)
    store.close()


def test_a_state_is_asked_for_in_four_questions_however_many_pieces_it_has(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promises 9 and 11: the run, its keyframe, all the pieces of that, the rows after it. One that is lost is told."""
    asked: list[Any] = []

    def ask(link: Link, sql: LiteralString, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        asked.append(sql)
        return postgres_link.ask(link, sql, values)

    with everstep.open(postgres) as trail:
        run, chance = trail.record("r"), random.Random(1)
        for _ in range(4):
            run.step("load", append={"items": [chance.randbytes(600).hex() for _ in range(400)]})
        run.step("last", set={"done": True})
        state = trail.state("r")
        monkeypatch.setattr(postgres_reading, "ask", ask)
        for at in (4, 5):
            trail.state("r", at)
        assert len(asked) == 8
        with psycopg.connect(postgres, autocommit=True) as server:
            assert server.execute("delete from everstep_blob where id = (select min(id) from everstep_blob)").rowcount
        with pytest.warns(errors.DamageWarning, match="is missing"):
            assert trail.state("r") == state


def test_commands_take_the_url_of_a_server(postgres: str) -> None:
    with everstep.open(postgres) as trail:
        trail.record("kept").finish(1)
    assert "kept" in command("runs", "--trail", postgres).stdout
    assert "1 completed" in command("doctor", "--verify", "--trail", postgres).stdout
    assert "intact" in command("verify", "--trail", postgres).stdout
