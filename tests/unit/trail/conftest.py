"""Every question is asked of a trail in memory and of one in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everstep


@pytest.fixture(params=["memory", "sqlite"])
def trail(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[everstep.Trail]:
    url = ":memory:" if request.param == "memory" else tmp_path / "trail.db"
    with everstep.open(url) as opened:
        yield opened
