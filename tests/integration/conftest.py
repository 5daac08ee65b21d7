"""What the tests here share: calls that are forgotten, and pairs of trails to take runs from one to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from everstep import Trail
from everstep.trail import transferring
from tests.integration.copying import PAIRS, Places
from tests.integration.running import Calls


@pytest.fixture(autouse=True)
def _as_good_as_new() -> None:
    for calls in Calls.every:
        calls.forget()


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


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, places: Places) -> tuple[Trail, Trail]:
    kind, other = request.param
    return places.open(kind), places.open(other)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that runs of some hundred rows are copied in several parts."""
    monkeypatch.setattr(transferring, "_ROWS", 50)
