"""What a store's tests must bring: where it is, and another way in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from everstep.store.base import Retains, Store


class Place:
    """The part of the contract to override."""

    durable = True  # whether what was written is there after the last handle was closed
    own_clock = True  # whether its time is its own, as a server's is; else the machine's, which all who open it share

    @pytest.fixture
    def store(self) -> Store:
        """An empty store, closed after the test."""
        raise NotImplementedError("override the `store` fixture")

    def another(self, store: Store) -> Store:
        """A second handle on the same place; the store itself where there can be no second."""
        raise NotImplementedError("override `another`")

    def elsewhere(self, store: Store) -> Callable[[], Store] | None:
        """What opens the same place in another process: `partial(MyStore, path)`, or a function that it can import.

        None where one process alone can open it: threads then stand for processes.
        """
        raise NotImplementedError("override `elsewhere`")

    @contextlib.contextmanager
    def second(self, store: Store) -> Iterator[Store]:
        """A second handle for a while."""
        other = self.another(store)
        try:
            yield other
        finally:
            if other is not store:
                other.close()


class RetainingStore(Store, Retains, Protocol):
    """A store that can also let go of history."""
