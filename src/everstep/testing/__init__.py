"""For tests: `always_replay`, and tests to inherit: what every store must do, as a class of pytest tests.

    class TestMyStore(RetentionContract):  # or StoreContract, for a store that lets go of nothing
        @pytest.fixture
        def store(self, tmp_path):
            with closing(MyStore(tmp_path)) as store:
                yield store

        def another(self, store):
            return MyStore(store.path)

        def elsewhere(self, store):
            return partial(MyStore, store.path)

Import it in tests only: it needs pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from everstep.testing.contract import StoreContract as StoreContract
    from everstep.testing.replaying import always_replay as always_replay
    from everstep.testing.retention import RetentionContract as RetentionContract

# Before they are imported, so that a failed assertion shows its values.
_MODULES = "appending contract dropping forks leases others ownership posting pruning reading retention rows submitting"
pytest.register_assert_rewrite(*(f"everstep.testing.{name}" for name in _MODULES.split()))

_HOMES = {"RetentionContract": "retention", "StoreContract": "contract", "always_replay": "replaying"}
__all__ = ["RetentionContract", "StoreContract", "always_replay"]


def __getattr__(name: str) -> Any:
    """Load a name when it is first used: the plugin lives in this package too, and pytest loads that every time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'everstep.testing' has no attribute {name!r}")
    return getattr(import_module(f"everstep.testing.{_HOMES[name]}"), name)
