"""The state machine of the stores, on a PostgreSQL server."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from everstep.store.postgres import PostgresStore
from tests.contract.test_state_machine import Stores
from tests.postgres import empty


def machine(url: str, examples: int, steps: int) -> None:
    """Any calls, in any order, compared with what the memory store gives."""

    class OnServer(Stores):
        def open(self) -> PostgresStore:
            return PostgresStore(url)

        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                with psycopg.connect(url, autocommit=True) as connection:
                    empty(connection)

    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_the_postgres_store_does_what_the_memory_store_does(postgres: str) -> None:
    """Promises 4, 5 and 14."""
    machine(postgres, 12, 40)


@pytest.mark.torture
def test_the_postgres_store_does_what_the_memory_store_does_for_long(postgres: str) -> None:
    """Promises 4, 5 and 14."""
    machine(postgres, 300, 50)
