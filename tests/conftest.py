"""What tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres import place, shared_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server, for as long as the tests run."""
    with shared_server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_place(postgres_server: str) -> Iterator[str]:
    """The URL of a place on it for tests that leave it as empty as they found it."""
    with place(postgres_server) as url:
        yield url


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The URL of an empty place on it."""
    with place(postgres_server) as url:
        yield url
