"""The places of trails that outlive a process: tests of crashes run in each of them, with the same assertions."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

PLACES = ("sqlite", "postgres", "files")


def in_each_place() -> pytest.MarkDecorator:
    """Once for each place, whose URL is `trail_url`."""
    return pytest.mark.parametrize("trail_url", PLACES, indirect=True)


def with_seeds(**seeds: Iterable[int]) -> pytest.MarkDecorator:
    """Once for each seed of each place that is named; the seed is `seed`, and the URL `trail_url`."""
    assert set(seeds) == set(PLACES)
    pairs = [(place, seed) for place in PLACES for seed in seeds[place]]
    return pytest.mark.parametrize(("trail_url", "seed"), pairs, indirect=["trail_url"])


def fewer(trail_url: str, kills: int) -> int:
    """How many kills of so many do where each takes longer than in SQLite; `make torture` has all of them."""
    return kills // 4 if "://" in trail_url else kills
