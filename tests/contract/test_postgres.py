from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, LiteralString

import pytest

from everstep.codec.chain import genesis
from everstep.errors import RunExistsError
from everstep.store import postgres_creating, postgres_link
from everstep.store.base import Claim, NewRun, RunQuery, Store
from everstep.store.postgres import PostgresStore
from everstep.store.postgres_link import Link
from everstep.testing import RetentionContract
from everstep.testing.rows import begin, history, new_run, row
from tests.postgres import empty


@pytest.fixture(scope="module")
def overseer(postgres_place: str) -> Iterator[PostgresStore]:
    """Who looks after every test whether all adds up, and takes it away: faster than to make the tables anew."""
    with closing(PostgresStore(postgres_place)) as store:
        yield store


def plain(run_id: str, owner: str, **detail: Any) -> NewRun:
    """A new run with its first row, as a recorder begins one."""
    return new_run(run_id, owner=owner, entries=[row(genesis(run_id), 0)], **detail)


def at_once(store: PostgresStore, runs: Sequence[NewRun]) -> list[Any]:
    """What came of each, when all of them waited for one commit, in this order."""
    assert store.rest(10.0)
    with ThreadPoolExecutor(len(runs)) as threads:
        made = []
        for run in runs:
            made.append(threads.submit(store.create, run))
            while len(store._group._queue) < len(made):
                time.sleep(0.001)
        store.wake()
    return [one.exception() or one.result() for one in made]


class TestPostgresStore(RetentionContract):
    @pytest.fixture
    def store(self, overseer: PostgresStore, postgres_place: str) -> Iterator[Store]:
        self.url = postgres_place
        store = PostgresStore(postgres_place)
        yield store
        store.close()
        assert overseer.inspect() == []
        assert overseer._writer is not None
        empty(overseer._writer)

    def another(self, store: Store) -> Store:
        return PostgresStore(self.url)

    def elsewhere(self, store: Store) -> Callable[[], Store]:
        return partial(PostgresStore, self.url)

    def test_a_write_that_the_server_cannot_hold_fails_alone(self, store: Store) -> None:
        writers = [begin(store, f"run {n}", rows=1) for n in range(4)]
        appends = [writer.draft(writer.rows(2, started=1 << 63 if n == 2 else 0)) for n, writer in enumerate(writers)]

        async def work() -> list[object]:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*[store.submit(append, loop) for append in appends], return_exceptions=True)

        assert [type(one) for one in asyncio.run(work())] == [bool, bool, OverflowError, bool]
        assert [len(history(store, f"run {n}")) for n in range(4)] == [3, 3, 1, 3]

    def test_runs_that_are_begun_at_once_are_made_in_one_statement(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Promise 5: of two that want one id, one gets it; what was there already stays as it was."""
        store.create(plain("there", "before"))
        asked: list[Any] = []

        def ask(link: Link, sql: LiteralString, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
            asked.append(sql)
            return postgres_link.ask(link, sql, values)

        monkeypatch.setattr(postgres_creating, "ask", ask)
        at_once(store, [plain(f"run {n}", "maker", tags={"n": str(n)}) for n in range(4)])
        assert len(asked) == 1
        rivals = at_once(store, [plain("new", "one"), plain("new", "two"), plain("there", "late")])
        assert [type(one) for one in rivals] == [Claim, RunExistsError, RunExistsError]
        assert store.run("new").owner == "one"
        assert store.run("there").owner == "before"
        for number in range(4):
            assert [run.id for run in store.runs(RunQuery(tags={"n": str(number)}))] == [f"run {number}"]
            assert len(history(store, f"run {number}")) == 1
