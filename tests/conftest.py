"""What tests of several folders share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import everstep
from tests.places import IN_MEMORY
from tests.postgres import place, shared_server

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell has it in the background: programs that the tests
    signal.signal(signal.SIGINT, signal.default_int_handler)  # start would not hear it either


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


@pytest.fixture
def trail_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a trail that is not there yet, in the kind of place that the test is told: see `tests/places.py`."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    elif request.param == "files":
        with TemporaryDirectory(dir=IN_MEMORY) as folder:
            yield (Path(folder) / "trail").as_uri()
    else:
        yield str(tmp_path / "trail.db")


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[everstep.Trail]:
    """A trail in a file, for tests to which it is all one where it is."""
    with everstep.open(tmp_path / "trail.db") as opened:
        yield opened
