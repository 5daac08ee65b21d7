"""Arguments and inputs that cannot be stored, and for which nothing can stand: told in the words that results have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import everstep
from everstep import Runner, Trail, step, workflow
from everstep.errors import UnstorableError


class Sub(dict[str, int]):
    """A dict of its own class: it cannot be registered."""


def helper() -> None:
    """It is known by its name where it is an argument."""


def nested(levels: int, *more: Any) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [*more, value]
    return value


def cycle(*more: Any) -> list[Any]:
    value: list[Any] = [*more]
    value.append(value)
    return value


@step
def take(what: Any) -> int:
    return len(what)


@workflow
def takes(made: str) -> int:
    return take(VALUES[made][0])


@workflow
def given(what: Any) -> int:
    return len(what)


FLATTEN = "it is nested deeper than 255 levels. Flatten it."
CYCLE = "it contains itself. Break the cycle: refer to the other by a name or id."
EITHER = "it contains itself, or is nested deeper than 255 levels. Flatten it: refer to the other by a name or id."
ENCODE = "a str with a lone surrogate has no UTF-8 form. Encode it to bytes."
PLAIN = "Give a plain dict: a class that derives from dict cannot be registered."
VALUES: dict[str, tuple[Any, str]] = {
    "one level too deep with its name": (nested(255), FLATTEN),
    "deep": (nested(300), FLATTEN),
    "deeper": (nested(500), FLATTEN),
    "deeper than Python goes": (nested(5000), FLATTEN),
    "deep with functions": (nested(5000, helper), EITHER),
    "a cycle": (cycle(), CYCLE),
    "a cycle in a dict": ({"inner": [cycle()]}, CYCLE),
    "a cycle with a function": (cycle(helper), EITHER),
    "half a character": ("\ud800", ENCODE),
    "half a character inside": ({"names": ["\ud800"], "by": helper}, ENCODE),
    "a subclass": (Sub(a=1), PLAIN),
    "a subclass inside": ([Sub(a=1)], PLAIN),
    "an exception": ([ValueError("no")], "Give its text instead: str(error)."),
}


@pytest.fixture
def trail() -> Iterator[Trail]:
    with everstep.open(":memory:") as opened:
        yield opened


@pytest.mark.parametrize("made", VALUES)
def test_what_nothing_can_stand_for_is_refused_with_the_way_out_that_it_has(trail: Trail, made: str) -> None:
    value, way_out = VALUES[made]
    calls: list[tuple[Any, Any, str]] = [(takes, made, "step 'take'"), (given, value, "workflow 'given'")]
    for called, argument, whose in calls:
        with pytest.raises(UnstorableError) as refused:
            Runner(trail).run(called, argument)
        assert str(refused.value).endswith(way_out)
        assert whose in refused.value.path
        assert len(str(refused.value)) < 300


def test_the_path_to_it_is_told(trail: Trail) -> None:
    with pytest.raises(UnstorableError, match=r"at argument 'what' of step 'take'\.names\[0\]: a str"):
        Runner(trail).run(takes, "half a character inside")
