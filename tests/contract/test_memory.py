from __future__ import annotations

from collections.abc import Iterator

import pytest

from everstep.store.base import Store
from everstep.store.memory import MemoryStore
from everstep.testing import RetentionContract


class TestMemoryStore(RetentionContract):
    durable = False
    own_clock = False

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        store = MemoryStore()
        yield store
        store.close()

    def another(self, store: Store) -> Store:
        return store

    def elsewhere(self, store: Store) -> None:
        return None
