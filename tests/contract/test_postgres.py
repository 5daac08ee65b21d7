from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from everstep.store.base import Store
from everstep.store.postgres import PostgresStore
from everstep.testing import RetentionContract
from everstep.testing.rows import begin, history
from tests.postgres import empty


@pytest.fixture(scope="module")
def overseer(postgres_place: str) -> Iterator[PostgresStore]:
    """Who looks after every test whether all adds up, and takes it away: faster than to make the tables anew."""
    with closing(PostgresStore(postgres_place)) as store:
        yield store


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
