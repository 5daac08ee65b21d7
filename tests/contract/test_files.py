from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from tempfile import TemporaryDirectory

import pytest

from everstep.store.base import Store
from everstep.store.files import FilesStore
from everstep.testing import RetentionContract
from tests.contract.test_state_machine import FOLDER


class TestFilesStore(RetentionContract):
    own_clock = False

    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with TemporaryDirectory(dir=FOLDER) as folder:
            store = FilesStore(f"{folder}/trail")
            yield store
            store.close()
            with closing(FilesStore(store.where)) as again:
                assert again.inspect() == []

    def another(self, store: Store) -> Store:
        return FilesStore(store.where)

    def elsewhere(self, store: Store) -> Callable[[], Store]:
        return partial(FilesStore, store.where)
