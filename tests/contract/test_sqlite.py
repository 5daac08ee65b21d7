from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everstep.store.base import Store
from everstep.store.sqlite import SqliteStore
from everstep.testing import RetentionContract


class TestSqliteStore(RetentionContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        store = SqliteStore(str(tmp_path / "trail.db"))
        yield store
        store.close()
        with closing(SqliteStore(store.where)) as again:
            assert again.inspect() == []

    def another(self, store: Store) -> Store:
        return SqliteStore(store.where)
