"""The places of trails that outlive a process: tests of crashes run in each of them, with the same assertions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

# Where there is such a folder: kills leave it as it is, and many small files are far quicker there.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
PLACES = ("sqlite", "postgres", "files")


def in_each_place() -> pytest.MarkDecorator:
    """Once for each place, whose URL is `trail_url`."""
    return pytest.mark.parametrize("trail_url", PLACES, indirect=True)


def with_seeds(**seeds: Iterable[int]) -> pytest.MarkDecorator:
    """Once for each seed of each place that is named; the seed is `seed`, and the URL `trail_url`."""
    assert set(seeds) == set(PLACES)
    pairs = [(place, seed) for place in PLACES for seed in seeds[place]]
    return pytest.mark.parametrize(("trail_url", "seed"), pairs, indirect=["trail_url"])


def fewer(trail_url: str, count: int) -> int:
    """How many of so many do where each takes longer than in SQLite; `make torture` has all of them."""
    return count // 4 if "://" in trail_url else count


def in_each_place_with(name: str, first: object, *others: object) -> pytest.MarkDecorator:
    """Once for each place, with the first of the values; in SQLite with the others too."""
    pairs = [("sqlite", other) for other in others] + [(place, first) for place in PLACES]
    return pytest.mark.parametrize(("trail_url", name), pairs, indirect=["trail_url"])
