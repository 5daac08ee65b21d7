"""What nodes gave for the same inputs before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cache:
    """How long what a node gave may be used again, and how many of its outcomes are kept."""

    max_age: float | None = None  # seconds
    max_items: int | None = 10_000
