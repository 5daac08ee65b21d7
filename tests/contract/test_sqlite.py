from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from everstep.store.base import RunQuery, Store
from everstep.store.rows import list_runs
from everstep.store.sqlite import SqliteStore
from everstep.testing import RetentionContract
from everstep.testing.rows import begin, history


class TestSqliteStore(RetentionContract):
    own_clock = False

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(str(tmp_path / "trail.db"))
        yield store
        store.close()
        with closing(SqliteStore(store.where)) as again:
            assert again.inspect() == []

    def another(self, store: Store) -> Store:
        return SqliteStore(store.where)

    def elsewhere(self, store: Store) -> Callable[[], Store]:
        return partial(SqliteStore, store.where)

    def test_a_write_that_the_file_cannot_hold_fails_alone(self, store: Store) -> None:
        writers = [begin(store, f"run {n}", rows=1) for n in range(4)]
        appends = [writer.draft(writer.rows(2, started=1 << 63 if n == 2 else 0)) for n, writer in enumerate(writers)]

        async def work() -> list[object]:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*[store.submit(append, loop) for append in appends], return_exceptions=True)

        assert [type(one) for one in asyncio.run(work())] == [bool, bool, OverflowError, bool]
        assert [len(history(store, f"run {n}")) for n in range(4)] == [3, 3, 1, 3]

    def test_the_runs_inside_a_run_are_found_by_their_index(self, store: SqliteStore) -> None:
        begin(store, "r", rows=1)
        with store._snapshot() as connection:
            asked: list[str] = []

            def hear(_: object, sql: str, values: object) -> bool:
                asked.append(sql)
                return True

            connection.exec_trace = hear
            list_runs(connection, RunQuery(parent="r"))
            connection.exec_trace = None
            plan = [str(row[3]) for row in connection.execute(f"explain query plan {asked[0]}", ("r", 1))]
        assert "run_parent (parent=?)" in plan[0]

    def test_the_log_is_folded_into_the_file_before_it_gets_long(self, store: Store) -> None:
        writer = begin(store, "r", rows=1)
        for _ in range(600):  # two pages of log each, at least
            writer.write()
        assert Path(store.where + "-wal").stat().st_size < 300 * 4120

    def test_the_log_is_folded_also_by_writers_who_each_add_little_to_it(self, store: Store) -> None:
        """As long as somebody has the trail open, here `store`, none of them folds it as it closes."""
        begin(store, "r", rows=1)
        for number in range(12):  # some 60 pages of log each
            with closing(SqliteStore(store.where)) as another:
                writer = begin(another, f"r{number}", rows=1)
                for _ in range(30):
                    writer.write()
        assert Path(store.where + "-wal").stat().st_size < 400 * 4120
