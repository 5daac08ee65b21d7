"""Pairs of trails for tests that take runs from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from everstep import Trail
from tests.integration.copying import Places


@pytest.fixture
def places(postgres_server: str, tmp_path: Path) -> Iterator[Places]:
    with ExitStack() as stack:
        yield Places(postgres_server, tmp_path, stack)


@pytest.fixture
def apart(places: Places) -> tuple[Trail, Trail]:
    return places.open("sqlite"), places.open("postgres")


@pytest.fixture
def two(places: Places) -> tuple[Trail, Trail]:
    return places.open("sqlite"), places.open("sqlite")
