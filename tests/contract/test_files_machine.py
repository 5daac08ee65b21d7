"""The state machine of the stores, on JSON files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from everstep.store.files import FilesStore
from tests.contract.test_state_machine import Stores


class OnFiles(Stores):
    def open(self) -> FilesStore:
        return FilesStore(str(Path(self.folder) / "trail"))


def machine(examples: int, steps: int) -> None:
    """Any calls, in any order, compared with what the memory store gives."""
    run_state_machine_as_test(
        OnFiles,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_files_store_does_what_the_memory_store_does() -> None:
    """Promises 4, 5 and 14."""
    machine(15, 40)


@pytest.mark.torture
def test_the_files_store_does_what_the_memory_store_does_for_long() -> None:
    """Promises 4, 5 and 14."""
    machine(500, 60)
