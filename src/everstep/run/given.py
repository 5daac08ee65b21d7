"""Arguments that are wrong, told where they are given: later they would fail obscurely, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from everstep.trail.trail import Trail
from everstep.trail.twin import AsyncTrail


def check_word(name: str, given: object, words: Any) -> None:
    """Raise ValueError if an argument is none of the words of its Literal type."""
    known = get_args(words)
    if not isinstance(given, str) or given not in known:
        raise ValueError(f"{name}={given!r:.60}: use one of {', '.join(known)}")


LONGEST = 1_000_000_000
"""Seconds, some 31 years: more than that is what neither threads nor event loops nor dates can all wait for."""


def check_seconds(name: str, given: object) -> None:
    """Raise if an argument is no span of time, in seconds."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{name}={given!r:.60}: give a number of seconds")
    if not given > 0:
        raise ValueError(f"{name}={given!r}: give more than 0 seconds")
    if given > LONGEST:
        raise ValueError(f"{name}={given!r:.60}: give at most {LONGEST:,} seconds, or leave it out")


def check_tags(given: object) -> None:
    """Raise TypeError if tags are no mapping."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"tags={given!r:.60}: give names and their values, as in tags={{'team': 'search'}}")


def plain_trail(given: Any, taker: str) -> Trail:
    """The trail that is given, or the one beneath it. Raises TypeError if there is none, as for a path."""
    if isinstance(given, AsyncTrail):
        return given.trail
    if isinstance(given, Trail):
        return given
    raise TypeError(f"{taker} takes a trail, and {given!r:.60} is none: open it first, with everstep.open(...)")
