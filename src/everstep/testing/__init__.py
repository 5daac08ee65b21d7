"""For tests: `always_replay`, and tests to inherit: what every store must do, as a class of pytest tests.

    class TestMyStore(RetentionContract):  # or StoreContract, for a store that lets go of nothing
        @pytest.fixture
        def store(self, tmp_path):
            with closing(MyStore(tmp_path)) as store:
                yield store

        def another(self, store):
            return MyStore(store.path)

Import it in tests only: it needs pytest.
"""

from __future__ import annotations

import pytest

# Before they are imported, so that a failed assertion shows its values.
_MODULES = "appending contract dropping forks ownership posting pruning reading retention rows submitting"
pytest.register_assert_rewrite(*(f"everstep.testing.{name}" for name in _MODULES.split()))

from everstep.testing.contract import StoreContract  # noqa: E402 - after the rewriting above
from everstep.testing.replaying import always_replay  # noqa: E402 - as above
from everstep.testing.retention import RetentionContract  # noqa: E402 - as above

__all__ = ["RetentionContract", "StoreContract", "always_replay"]
